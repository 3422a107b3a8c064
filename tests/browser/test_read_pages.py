"""Pages that are read, in a real browser: what somebody does on one survives the next answer, the
address is the view, and a dialog keeps what the hub refuses. QoS is the page; for what no single
page has, answers are made up in place of Dash's."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from gpudeck.client.hub import Client
from tests.demos import soon
from tests.integration.hubs import HubProcess
from tests.integration.visitors import signed_in

from .full_agents import Node, is_live

pytestmark = pytest.mark.browser
HOSTILE = '<img src=x onerror="document.title=1">&<b>x'

# A page `#made` of its own, whose answers are `answerTo(view)`; `asks` has the views.
MADE_UP = """async usual => {
    const {default: ReadPage} = await import("/assets/reading/read_page.mjs");
    const made = document.createElement("div");
    made.id = "made";
    made.innerHTML = `<p id="made-problem" hidden></p><select data-view="by">
        <option value="user">u</option><option value="team">t</option></select>
        <div id="made-list"></div><div id="made-gone">there</div>
        <div id="made-steady" data-steady></div>
        <dialog data-open="edited" data-closed='{"edited":"","draft":""}'>
        <form data-draft="draft" data-most="300"><input name="a">
        <p class="problem" hidden></p><button type="submit">Save</button></form></dialog>`;
    document.querySelector("main").append(made);
    document.getElementById("page-answer").removeAttribute("id");
    const place = Object.assign(document.createElement("div"), {id: "page-answer"});
    made.append(place);
    place.dataset.reading = JSON.stringify({everyS: 3600, what: "list", usual, path: "",
                                            choices: {}, anchor: "", events: ["lease"],
                                            unaddressed: ["secret", "edited", "draft"]});
    globalThis.asks = [];
    globalThis.dash_clientside.set_props = (id, {asked: {number, page, view}}) => {
        if (page !== "made") return;
        asks.push(view);
        const kept = view.draft && {draft: JSON.stringify({...JSON.parse(view.draft), do: ""})};
        const answer = globalThis.wrong ? {number, problem: globalThis.wrong} : {number,
            view: {by: ["user", "team"].includes(view.by) ? view.by : "user", ...kept},
            parts: globalThis.partsOf(view)};
        setTimeout(() => place.dispatchEvent(new CustomEvent("answered", {detail: answer})),
                   globalThis.tookMs ?? 20);
    };
    globalThis.live = Object.assign(new EventTarget(), {opened: async () => {}});
    globalThis.made = new ReadPage(made, live, null, new EventTarget());
}"""
PARTS = """hostile => { globalThis.partsOf = view => ({
    "made-gone": null,
    "made-list": [
        ["p", {id: "made-by"}, ["by ", view.by]],
        ["details", {"data-key": "d"}, [["summary", {}, ["More"]], hostile]],
        ...(view.by === "team" ? ["c", "b", "a"] : ["a", "b", "c", "d"]).map(name =>
            ["button", {type: "button", "data-key": name, title: view.by}, [name]]),
        ["a", {href: "javascript:document.title=2", onclick: "document.title=3"}, [hostile]],
        ["script", {}, ["document.title=4"]]],
    "made-steady": ["c", ...(view.by === "team" ? ["b", "new", "a"] : ["a", "b"])].map(name =>
        ["button", {type: "button", "data-key": name, "data-set": '{"secret":"key"}',
                    "data-shortcut": name === "b" ? "x y" : "", "data-step": "false"}, [name]]),
    ...(view.secret === "key" ? {"@dialog": ["Told", ["p", {}, [hostile]], ["button", {
        type: "button", "data-form": '{"title":"Sure?","verb":"Yes"}'}, ["Go on"]]]} : {})}); }"""


@pytest.fixture(name="read_page")
def _read_page(hub: HubProcess, node: Node, open_page: Callable[..., Page]) -> Iterator[Page]:
    page = open_page("/pool")  # its own answers end here
    page.wait_for_selector("#pool:not([data-unsettled])")
    page.evaluate(PARTS, HOSTILE)
    page.evaluate(MADE_UP, {"by": "user", "secret": "", "edited": "", "draft": ""})
    expect(page.locator("#made-by")).to_have_text("by user")
    yield page
    assert soon(lambda: is_live(page))


def test_what_is_open_and_focused_survives_an_answer(read_page: Page) -> None:
    read_page.locator("#made summary").click()
    read_page.locator("#made-list [data-key=c]").focus()
    read_page.evaluate("globalThis.old = document.activeElement")
    read_page.locator("#made select").select_option("team", timeout=5_000)
    read_page.locator("#made-list [data-key=c]").focus()
    expect(read_page.locator("#made-by")).to_have_text("by team")
    # The rows came in another order, one is gone, and what has the focus is what had it.
    assert read_page.evaluate("""[document.activeElement === old, old.title,
        [...document.querySelectorAll("#made-list button")].map(one => one.textContent).join("")]
        """) == [True, "team", "cba"]
    assert read_page.locator("#made details").evaluate("one => one.open")
    assert read_page.locator("#made-gone").is_hidden()


def test_hostile_text_and_traits_run_nothing(read_page: Page) -> None:
    assert read_page.locator("#made-list a").inner_text() == HOSTILE
    assert read_page.locator("#made-list a").evaluate("one => one.getAttributeNames()") == []
    assert read_page.locator("#made-list").locator("script, img, b").count() == 0
    assert read_page.title().startswith("Pool")


def test_the_address_is_the_view_and_the_way_back_is_a_view(read_page: Page) -> None:
    choice = read_page.locator("#made select")
    choice.select_option("team")
    expect(read_page.locator("#made-by")).to_have_text("by team")
    assert read_page.url.endswith("/pool?by=team")
    read_page.go_back()
    expect(read_page.locator("#made-by")).to_have_text("by user")
    expect(choice).to_have_value("user")
    assert read_page.url.endswith("/pool")
    read_page.go_forward()
    expect(read_page.locator("#made-by")).to_have_text("by team")
    expect(choice).to_have_value("team")
    # What the hub does not know as a view leaves the address; what has no place there never comes.
    read_page.evaluate("""made.choose({by: "nobody", secret: "long"})""")
    expect(read_page.locator("#made-by")).to_have_text("by nobody")
    assert soon(lambda: read_page.evaluate("location.pathname") == "/pool")
    assert read_page.evaluate("[asks.at(-1).secret, asks.at(-1).by]") == ["long", "nobody"]
    before = read_page.evaluate("asks.length")
    read_page.evaluate("""made.choose({by: "user"})""")
    assert read_page.evaluate("asks.length") == before  # nothing is another


def steady(page: Page) -> str:
    return "".join(page.locator("#made-steady button").all_inner_texts())


def test_rows_do_not_move_under_a_hand(read_page: Page) -> None:
    assert steady(read_page) == "cab"
    read_page.locator("#made-steady [data-key=a]").focus()
    read_page.evaluate("""made.choose({by: "team"})""")
    expect(read_page.locator("#made-by")).to_have_text("by team")
    assert steady(read_page) == "cabnew", "what comes goes to the end"
    read_page.evaluate("document.activeElement.blur(); made.look()")
    assert soon(lambda: steady(read_page) == "cbnewa")


def test_a_key_of_several_presses_a_button_and_an_answer_opens_a_dialog(read_page: Page) -> None:
    for key in ("x", "y"):
        read_page.keyboard.press(key)
        dialog = read_page.locator("dialog[open]")
        expect(dialog.locator("h2")).to_have_text("Told")
        expect(dialog.locator("p")).to_have_text(HOSTILE)
        assert dialog.locator("img, b").count() == 0
        dialog.get_by_role("button", name="Go on").click()
        expect(dialog.locator("h2")).to_have_text("Sure?")
        read_page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)
        read_page.evaluate("""made.choose({secret: ""})""")
        assert soon(lambda: read_page.evaluate("asks.at(-1).secret") == "")


def test_what_comes_by_the_socket_is_asked_for_once_a_second(read_page: Page) -> None:
    asks = read_page.evaluate("""async () => {
        const before = asks.length;
        for (let at = 0; at < 30; at++) {
            live.dispatchEvent(new Event("lease"));
            await new Promise((resolve) => setTimeout(resolve, 50));
        }
        await new Promise((resolve) => setTimeout(resolve, 1200));
        return asks.length - before;
    }""")
    assert 1 <= asks <= 4, "thirty events in one and a half seconds"


def drafts(page: Page) -> list[tuple[str, str]]:
    """Return what was asked for of drafts, and the text that stood in each."""
    asked = page.evaluate("asks.filter(one => one.draft).map(one => JSON.parse(one.draft))")
    return [(draft["do"], draft["values"]["a"][0]) for draft in asked]


def test_what_is_typed_after_a_button_is_not_what_the_button_does(read_page: Page) -> None:
    read_page.evaluate("""made.choose({edited: "one"})""")
    dialog, field = read_page.locator("#made dialog"), read_page.locator("#made dialog input")
    expect(dialog).to_be_visible()
    field.fill("whole")
    read_page.evaluate("globalThis.tookMs = 1200")
    dialog.get_by_role("button", name="Save").click()
    field.fill("unfinished")
    assert soon(lambda: drafts(read_page)[-1:] == [("", "unfinished")]), drafts(read_page)
    assert [row for row in drafts(read_page) if row[0] == "save"] == [("save", "whole")]
    assert ("", "unfinished") not in drafts(read_page)[:drafts(read_page).index(("save", "whole"))]
    read_page.evaluate("globalThis.tookMs = 20; globalThis.wrong = 'the hub is busy'")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.locator(".problem")).to_have_text("The hub is busy.")
    read_page.evaluate("globalThis.wrong = undefined; made.look()")
    assert drafts(read_page)[-1] == ("", "unfinished"), "it is not saved by itself"
    count = len(drafts(read_page))
    field.fill("long" * 100)
    expect(dialog.locator(".problem")).to_contain_text("too long")
    assert len(drafts(read_page)) == count, "the hub would take none of it"
    field.fill("short")
    assert soon(lambda: drafts(read_page)[-1] == ("", "short"))
    expect(dialog.locator(".problem")).to_be_hidden()


def test_a_dialog_whose_answer_failed_opens_no_more(read_page: Page) -> None:
    read_page.evaluate("globalThis.wrong = 'busy'")
    read_page.evaluate("""made.choose({edited: "one"})""")
    expect(read_page.locator("#made-problem")).to_contain_text("Busy")
    assert read_page.evaluate("made.view.edited") == ""
    read_page.evaluate("globalThis.wrong = undefined; made.look()")
    expect(read_page.locator("#made-problem")).to_be_hidden()
    expect(read_page.locator("#made dialog")).to_be_hidden()
    # Another dialog is open: a second one would stand on it.
    read_page.evaluate("""() => {
        const other = document.createElement("dialog");
        other.id = "other";
        document.body.append(other);
        other.showModal();
        made.choose({edited: "one"});
    }""")
    assert soon(lambda: read_page.evaluate("made.view.edited") == "")
    expect(read_page.locator("#made dialog")).to_be_hidden()
    read_page.evaluate("other.close(); other.remove()")


@pytest.fixture(name="qos_page")
def _qos_page(hub: HubProcess, browser: Browser) -> Iterator[Page]:
    """The page in a window of its own: a browser logs what the hub refuses."""
    context = browser.new_context()
    context.add_cookies([{"name": name, "value": value, "domain": "127.0.0.1", "path": "/"}
                         for name, value in signed_in(hub, "root").cookies.items()])
    page = context.new_page()
    page.goto(f"{hub.url}/qos")
    yield page
    context.close()


def test_what_the_hub_refuses_stays_in_the_dialog(hub: HubProcess, node: Node, qos_page: Page
                                                  ) -> None:
    page, client = qos_page, Client(hub.url, hub.api_token)
    page.get_by_role("button", name="Promise …").click()
    dialog = page.locator("dialog[open]")
    dialog.get_by_label("Tenant").fill("user:ada/x")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.locator(".problem")).to_contain_text("is promised nothing")
    expect(dialog.get_by_label("Tenant")).to_have_value("user:ada/x")
    dialog.get_by_label("GPUs").fill("3")
    dialog.get_by_label("Longest wait").fill("1.5")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_have_count(0)
    line = page.locator("#qos-place > li")
    expect(line).to_contain_text("at least 3 GPUs while it asks for more")
    [item] = client.hub.get("qos")["items"]
    assert item["policy"] == {"tenant": "user:ada/x", "gpus": 3, "memory_gib": None,
                              "wait_s": 90.0, "throttled_pct": None}
    line.get_by_role("button", name="Change …").click()
    expect(dialog.get_by_label("Longest wait")).to_have_value("1.5")
    dialog.get_by_label("GPUs").fill("4")
    dialog.get_by_role("button", name="Save").click()
    expect(line).to_contain_text("at least 4 GPUs")
    # What the focus was on has it after the next answers.
    line.get_by_role("button", name="Change …").focus()
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    assert soon(lambda: page.locator("#qos").get_attribute("aria-busy") is None)
    assert page.evaluate("document.activeElement.textContent") == "Change …"
    line.get_by_role("button", name="Remove …").click()
    expect(dialog).to_contain_text("user ada/x")
    dialog.get_by_role("button", name="Remove").click()
    expect(page.locator("#qos-none")).to_contain_text("Nothing is promised")
    assert client.hub.get("qos")["items"] == []
