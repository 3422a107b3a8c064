"""T16 in a browser: 500 hostile strings through the Fleet page and Settings. What is shown is text;
nothing runs, no dialog opens, no policy is touched."""

import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, BrowserContext

from dashboard.access.store import SessionStore, SignInRecord
from dashboard.fleet.filters import FilterError, parse
from dashboard.fleet.members import NewEnrolment
from tests.browser.watch import WATCH, WatchedPage
from tests.crowd import Crowd, CrowdNode, mixed, wards
from tests.demos import soon
from tests.hostile import strings
from tests.integration.hubs import HubProcess, wait_for
from tests.integration.visitors import add_person, open_state, signed_in

pytestmark = pytest.mark.browser
HOSTILE = strings()
PER_GROUP = 100  # the page without a GPU names so many nodes


@pytest.fixture(name="bare", scope="module")
def _bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[HubProcess, Crowd]]:
    assert len(HOSTILE) >= 500, "nodes, none with a GPU"
    nodes = mixed(HOSTILE, PER_GROUP)
    with HubProcess(tmp_path_factory.mktemp("hostile") / "data") as hub:
        add_person(hub, "root", role="admin")
        for group in dict.fromkeys(node.group for node in nodes):
            add_person(hub, f"of-{group}", groups=(group,))
        crowd = Crowd(hub, nodes + wards(HOSTILE))
        yield hub, crowd
        crowd.close()


@pytest.fixture(name="crowd", scope="module")
def _crowd(bare: tuple[HubProcess, Crowd]) -> Crowd:
    hub, crowd = bare
    crowd.bring_gpus()
    wait_for(lambda: len(hub.get("/api/v1/gpus?limit=1000&filter=state:busy")["items"])
             == len(crowd.nodes), why="every task")
    return crowd


@pytest.fixture(name="hub")
def _hub(bare: tuple[HubProcess, Crowd], crowd: Crowd) -> HubProcess:
    return bare[0]


def enter(context: BrowserContext, hub: HubProcess, name: str | None) -> None:
    """Sign in as somebody who came by a link; None: as a stranger."""
    context.clear_cookies()
    cookies = {} if name is None else signed_in(hub, name).cookies
    if cookies:
        context.add_cookies([{"name": key, "value": value, "domain": "127.0.0.1", "path": "/"}
                             for key, value in cookies.items()])


@pytest.fixture(name="context", scope="module")
def _context(browser: Browser) -> Iterator[BrowserContext]:
    """Yield one context for all tests, with a warm cache."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.add_init_script(WATCH)
    yield context
    context.close()


@pytest.fixture(name="nodes")
def _nodes(crowd: Crowd) -> list[CrowdNode]:
    return [node for node in crowd.nodes if node.more == ()]


@pytest.fixture(name="any_page")
def _any_page(context: BrowserContext, bare: tuple[HubProcess, Crowd]) -> Iterator[WatchedPage]:
    watch = WatchedPage(context, bare[0])
    try:
        yield watch
        assert watch.collect() == []
    finally:
        watch.page.close()


@pytest.fixture(name="admins", scope="module")
def _admins(context: BrowserContext, bare: tuple[HubProcess, Crowd]) -> None:
    enter(context, bare[0], "root")


@pytest.fixture(name="watch")
def _watch(hub: HubProcess, admins: None, any_page: WatchedPage) -> WatchedPage:
    """An admin's page, before a fleet that has GPUs."""
    return any_page


FLEET = "#fleet:not(.loading) :is(#heatmap:not([hidden]), #table-view:not([hidden]), #notice h2)"
SETTINGS = "#settings:not([hidden])"


def test_a_page_without_a_gpu_names_all(bare: tuple[HubProcess, Crowd], context: BrowserContext,
                                        any_page: WatchedPage) -> None:
    hub, crowd = bare
    crowd.beat()
    for group in dict.fromkeys(node.group for node in crowd.nodes if not node.more):
        enter(context, hub, f"of-{group}")
        any_page.goto("/", "#notice li")
        items = any_page.run("""return [...document.querySelectorAll("#notice li")].map(
            li => [...li.children].map(child => [child.children.length, child.textContent]))""")
        assert sorted(items) == sorted([[0, node.host], [0, node.detail]]
                                       for node in crowd.nodes if node.group == group)


def test_the_watch_sees_what_it_is_for(hub: HubProcess, admins: None, context: BrowserContext
                                       ) -> None:
    """The control: the same page, to which somebody adds what a string says."""
    watch = WatchedPage(context, hub).goto("/", FLEET)
    assert watch.collect() == []
    watch.run('document.body.insertAdjacentHTML("beforeend", given); alert(1);',
              "<img src=x onerror=alert(1)>")
    words = ("added: <img", "handler: <img", "policy: script-src", "ran: alert", "title: ")
    # The page names itself again.
    assert soon(lambda: watch.run('return document.title = "other"') and all(
        word in " ".join(watch.collect()) for word in words)), watch.trouble
    watch.page.close()


def test_the_map_paints_each_as_it_is(nodes: list[CrowdNode], watch: WatchedPage) -> None:
    """A sheet with room for each name; one that is too long ends in an ellipsis."""
    watch.page.set_viewport_size({"width": 1600, "height": 1500})
    watch.goto("/", FLEET)
    for group, of, more in (("node", "host", ""), ("owner", "user", " · 1"),
                            ("model", "model", " · 1")):
        watch.page.locator("#group").select_option(group)
        texts = {getattr(node, of) + more for node in nodes}
        assert soon(lambda texts=texts: not unpainted(watch, texts)), (  # type: ignore[misc]
            unpainted(watch, texts))


def unpainted(watch: WatchedPage, texts: set[str]) -> set[str]:
    painted = set(watch.run("return [...painted]"))
    cut = [word[:-1] for word in painted if word.endswith("…")]
    return {text for text in texts - painted if not any(map(text.startswith, cut))}


def test_the_card_names_each(nodes: list[CrowdNode], watch: WatchedPage) -> None:
    """The pointer crosses the map along each axis to learn where cells are, then visits all."""
    cards = watch.goto("/", FLEET).run("""
        await until(() => gpudeck.stats.link === "live" && gpudeck.stats.frames > 1, "live");
        const [canvas, card] = ["#heatmap canvas", "#hover"].map(it => document.querySelector(it));
        const at = canvas.getBoundingClientRect(), found = new Map();
        const visit = (x, y) => {
            canvas.dispatchEvent(new PointerEvent("pointermove", {
                clientX: at.left + x, clientY: at.top + y, pointerType: "mouse", bubbles: true}));
            if (card.hidden) return null;
            const [head, model, owner] = ["strong", ".hover-model", "footer span"].map(
                place => card.querySelector(place));
            found.set(head.textContent, [head, model, owner].map(
                ({children, textContent}) => [children.length, textContent]));
            return head.textContent;
        };
        const stops = (length, visited) => {
            const places = new Map();
            for (let place = 1; place < length; place += 2) {
                const name = visited(place);
                if (name !== null && !places.has(name)) places.set(name, place + 1);
            }
            return [...places.values()];
        };
        let y = 0;
        while (stops(at.width, x => visit(x, y)).length === 0) y += 3;
        const columns = stops(at.width, x => visit(x, y));
        const rows = stops(at.height, y => visit(columns[0], y));
        for (const y of rows) for (const x of columns) visit(x, y);
        return [...found.values()];""")
    expected_cards = [[[0, node.title], [0, node.model], [0, node.user]] for node in nodes]
    assert [card for card in expected_cards if card not in cards] == []


def test_the_table_names_each(nodes: list[CrowdNode], watch: WatchedPage) -> None:
    watch.goto("/?view=table&filter=gpu:none", FLEET)
    for group in range(0, len(nodes), PER_GROUP):
        part = nodes[group : group + PER_GROUP]
        assert sorted(shown_rows(watch, part)) == sorted(
            [7, node.host, str(node.index), node.model, node.user] for node in part)


def shown_rows(watch: WatchedPage, part: list[CrowdNode]) -> Any:
    """Return the table's rows of these GPUs, whose UUIDs begin alike."""
    return watch.run("""
        const rows = () => [...document.querySelectorAll("#table-view tbody tr")];
        const example = document.querySelector("[data-example]");
        example.dataset.example = `gpu:${given.begins}`;
        example.click();
        await until(() => gpudeck.cell(given.last)?.matched && rows().length === given.count
            && rows().every(row => row.children[3].textContent !== "no task"), "the rows");
        return rows().map(row => [row.querySelectorAll("*").length,
            ...[...row.children].slice(0, 4).map(cell => cell.textContent)]);""",
                     {"begins": part[0].uuid.partition("x")[0] + "x", "count": len(part),
                      "last": part[-1].uuid})


OPEN = """
    const drawer = document.querySelector("#drawer"), title = drawer.querySelector("#drawer-title");
    const whole = code => code.title.split("Started as: ").pop(), found = [];
    const only = place => [place.children.length, whole(place) || place.textContent];
    for (const row of [...document.querySelectorAll("#table-view tbody tr")].slice(0, given)) {
        const button = row.querySelector("button");
        const wanted = `${button.textContent} · GPU ${row.children[1].textContent}`;
        button.click();
        await until(() => title.textContent === wanted
            && drawer.querySelector(".tasks .manager")?.textContent, wanted);
        const tasks = [...drawer.querySelectorAll(".tasks li")].map(task =>
            ["strong", "code", ".manager"].map(part => only(task.querySelector(part))));
        const titles = [...drawer.querySelectorAll(".tasks code")].map(whole);
        found.push([only(title), only(drawer.querySelector("#drawer-subtitle")), tasks, titles]);
    }
    return found;"""


def test_the_drawer_names_each(crowd: Crowd, nodes: list[CrowdNode], watch: WatchedPage) -> None:
    """A random 40 of the nodes, and all tasks, fifty in a drawer."""
    watch.goto("/?view=table&filter=gpu:none", FLEET)
    start = random.randrange(0, len(nodes), PER_GROUP)
    part = nodes[start : start + PER_GROUP]
    shown_rows(watch, part)
    node_by_title = {other.title: other for other in part}
    for (inside, title), model, tasks, titles in watch.run(OPEN, 40):
        node = node_by_title[title]
        assert (inside, model, titles) == (0, [0, node.model], [node.command])
        assert tasks == [[[0, node.user], [0, node.command], [0, node.manager]]]

    watch.goto("/?view=table&filter=model:ward", FLEET)
    some = [node for node in crowd.nodes if node.more]
    assert soon(lambda: watch.page.locator("#table-view tbody tr").count() == len(some))
    drawer_tasks = [tuple(word for _, word in task) for _, _, tasks, _ in watch.run(OPEN, len(some))
                    for task in tasks]
    assert sorted(drawer_tasks) == sorted(task for node in some for task in (
        (node.user, node.command, node.manager), *node.more))


def test_as_a_filter_each_is_answered_in_words(watch: WatchedPage) -> None:
    """A lot of 60; the live socket is asked all elsewhere. One of each 30 is in the address."""
    samples = [" util<5 ", *random.sample(HOSTILE, 59)]
    for part in (samples[:30], samples[30:]):
        watch.goto(f"/?filter={quote(part[0], safe='')}", FLEET)
        answers = watch.run("""
            await until(() => document.querySelector("#filter") !== null, "the box");
            const box = document.querySelector("#filter"), found = [];
            const words = document.querySelector("#filter-words");
            const example = document.querySelector("[data-example]");
            let count = 0;
            new MutationObserver(() => { count += 1; }).observe(
                box, {attributes: true, attributeFilter: ["aria-invalid"]});
            await until(() => box.value === "" || box.ariaInvalid !== null, "the address");
            for (const text of given) {
                box.value = text;
                example.dataset.example = box.value.trim();
                const before = count;
                example.click();
                await until(() => count > before, text);
                found.push([box.value, words.children.length, words.textContent]);
            }
            return found;""", part)
        for typed, inside, words in answers:
            assert inside == 0
            assert words.startswith(echo(typed)), (typed, words)


def echo(typed: str) -> str:
    """Return the error in these words, or "": the number of matches follows with the cells."""
    try:
        parse(typed)
    except FilterError as error:
        return str(error)
    return ""


def test_a_toast_and_a_question_hold_each_as_text(watch: WatchedPage) -> None:
    """The page's own modules, with each string in each place that takes one."""
    results = watch.goto("/settings", SETTINGS).run("""
        const {toast} = await import("/assets/parts/toast.mjs");
        const {ask, copyable} = await import("/assets/parts/dialog.mjs");
        const only = place => [place.children.length, place.textContent];
        const found = [];
        for (const text of given) {
            toast(text);
            const told = only(document.querySelector(".toasts .toast span"));
            ask({title: text, lead: text, verb: text, fields: [copyable(text, text)],
                 submit: () => { throw new Error(`no: ${text}.`); }});
            const dialog = document.querySelector("dialog[open]");
            dialog.querySelector("form").requestSubmit();
            await null;
            found.push([told, ...["h2", "p", "[type=submit]", "code", ".problem"].map(
                part => only(dialog.querySelector(part)))]);
            dialog.remove();
        }
        return found;""", HOSTILE)
    for text, texts in zip(HOSTILE, results, strict=True):
        assert texts == [[0, text]] * 5 + [[0, f"No: {text}."]]


def test_the_nodes_in_settings_are_named(nodes: list[CrowdNode], watch: WatchedPage) -> None:
    watch.goto("/settings#nodes", "#section-nodes tbody tr")
    rows: list[Any] = []
    for group, count in Counter(node.group for node in nodes).items():
        rows += watch.run("""
            const find = document.querySelector("#section-nodes .find"); find.value = given.group;
            find.dispatchEvent(new Event("change", {bubbles: true}));
            const rows = () => [...document.querySelectorAll("#section-nodes tbody tr")]
                .filter(row => row.children[2].textContent === given.group);
            await until(() => rows().length === given.count, "the rows");
            return rows().map(row => [row.querySelector(".name").children.length,
                row.querySelector(".name").textContent, row.children[2].textContent,
                [...row.querySelectorAll("button")].map(one => one.ariaLabel)]);""",
                          {"group": group, "count": count})
    assert sorted(rows) == sorted(
        [0, node.host, node.group, [f"Stop actions on {node.host}",
                                    f"Change the group of {node.host}", f"Revoke {node.host}"]]
        for node in nodes)
    for node in random.sample(nodes, 3):
        assert moved(watch, node) == [
            f"Group of {node.host}", f"{node.host} is now in the group moved.", "Undone."]


def moved(watch: WatchedPage, node: CrowdNode) -> list[str]:
    """The whole way: button, dialog, toast, Undo."""
    return [*watch.run("""
        const find = document.querySelector("#section-nodes .find");
        find.value = given.group; find.dispatchEvent(new Event("change", {bubbles: true}));
        const change = () => [...document.querySelectorAll("#section-nodes button")].find(
            ({ariaLabel}) => ariaLabel === `Change the group of ${given.host}`);
        await until(() => change() !== undefined, "the button"); change().click();
        const dialog = document.querySelector("dialog[open]");
        dialog.querySelector("[name=group]").value = "moved";
        dialog.querySelector("form").requestSubmit();
        const toast = () => document.querySelector(".toast span")?.textContent ?? "";
        await until(() => toast().endsWith("is now in the group moved."), "the toast");
        const texts = [dialog.querySelector("h2").textContent, toast()];
        document.querySelector(".toast button").click();
        await until(() => toast() === "Undone.", "the undo");
        return [...texts, toast()];""", {"host": node.host, "group": node.group})]


def test_tokens_bear_each_name(hub: HubProcess, watch: WatchedPage) -> None:
    ends_at = time.time() + 3_600
    for text in HOSTILE:
        answer = ask(hub, "POST", "tokens", {"name": text, "role": "viewer", "expires_at": ends_at})
        assert answer[0] == 201, answer
    names = watch.goto("/settings#tokens", "#section-tokens tbody tr").run(
        """return [...document.querySelectorAll("#section-tokens .name")].map(
            name => [name.children.length, name.textContent])""")
    assert not Counter((0, text) for text in HOSTILE) - Counter(map(tuple, names))


def ask(hub: HubProcess, method: str, path: str, body: Any) -> tuple[int, Any]:
    answer = hub.ask(f"/api/v1/{path}", method, body=json.dumps(body).encode(),
                     Content_Type="application/json")
    return answer.status, answer.json


def test_names_as_typed_at_the_door(hub: HubProcess, watch: WatchedPage) -> None:
    """The newest 200 are listed."""
    watch.goto("/settings#sign-ins", "#section-sign-ins tbody tr")
    for part in (HOSTILE[start : start + 190] for start in range(0, len(HOSTILE), 190)):
        with open_state(hub) as state:
            state.store(SessionStore).note([
                SignInRecord(time.time() + at * 1e-6, text, "127.0.0.1", "password", "refused")
                for at, text in enumerate(part)], {}, {})
        names = watch.run("""
            document.dispatchEvent(new Event("visibilitychange"));  // it looks again
            const names = () => [...document.querySelectorAll(
                "#section-sign-ins h3 ~ * .name")].map(name => [name.children.length,
                                                                name.textContent]);
            await until(() => names().some(([, text]) => text === given), "the attempts");
            return names();""", part[-1])
        assert not Counter((0, text) for text in part) - Counter(map(tuple, names))


def test_a_place_for_a_host_is_listed_or_refused(hub: HubProcess, watch: WatchedPage) -> None:
    good = {text for text in HOSTILE if NewEnrolment(host=text).flaw() is None}
    assert 100 < len(good) < len(HOSTILE)
    for text in HOSTILE:
        status, answer = ask(hub, "POST", "enrolments", {"host": text})
        assert status == (201 if text in good else 400), text
        assert answer.get("host") == text or "host" in answer["detail"], answer
    rows = watch.goto("/settings#nodes", "#section-nodes .unused tbody tr").run("""
        return [...document.querySelectorAll("#section-nodes .unused tbody tr")]
            .map(({children: [host]}) => [host.children.length, host.textContent])""")
    assert sorted(rows) == sorted([0, text] for text in good)


def test_what_a_user_cannot_be_called_is_refused_in_words(
        hub: HubProcess, watch: WatchedPage) -> None:
    """A single dialog, without its own input patterns."""
    fields = [[text, field] for field in ("name", "groups", "unix_names")
              for text in random.sample(HOSTILE, 12)]
    results = watch.goto("/settings#users", "#section-users tbody tr").run("""
        const dialog = () => document.querySelector("dialog[open]");
        const found = []; let form = null;
        for (const [text, field] of given) {
            if (form === null) {
                document.querySelector("#add-user").click();
                form = dialog().querySelector("form");
                form.noValidate = true;
            }
            const of = name => form.querySelector(`[name=${name}]`);
            of("name").value = `u${found.length}`;
            of("groups").value = "*"; of("unix_names").value = "";
            of(field).value = text;
            const typed = of(field).value, yes = form.querySelector("[type=submit]");
            form.requestSubmit();
            await until(() => !yes.disabled, text);
            const problem = form.querySelector(".problem");
            const isRefused = form.isConnected && !problem.hidden;
            found.push([typed, isRefused ? problem.textContent : null, problem.children.length]);
            if (isRefused) continue;
            await until(() => document.querySelector("dialog[open] code") !== null, "the link");
            while (dialog() !== null) dialog().close();
            form = null;
        }
        return found;""", fields)
    names = {user["name"] for user in hub.get("/api/v1/users?limit=1000")["items"]}
    refusals = [words for _, words, inside in results if words is not None and inside == 0]
    assert len(refusals) > 10
    assert all(10 < len(words) < 450 and words[-1] in ".`" for words in refusals)
    for at, ((typed, words, _), (_, field)) in enumerate(zip(results, fields, strict=True)):
        assert words is not None or (
            typed.strip() if field == "name" else f"u{at}") in names, typed


def test_a_stranger_may_call_themselves_anything(hub: HubProcess, browser: Browser) -> None:
    """Typed at the sign-in page, and shown again."""
    context = browser.new_context()
    context.add_init_script(WATCH)
    watch = WatchedPage(context, hub)
    for text in random.sample([text for text in HOSTILE if text.isprintable()], 4):
        watch.goto("/sign-in", "form")
        field = watch.page.get_by_label("Name")
        field.fill(text)
        watch.page.get_by_label("Password", exact=True).fill("whatever it may be")
        watch.page.get_by_role("button", name="Sign in").click()
        watch.page.get_by_role("alert").wait_for()
        assert field.input_value() == text[:64]
    assert watch.collect() == []
    context.close()


def test_the_tasks_page_names_each(nodes: list[CrowdNode], watch: WatchedPage) -> None:
    watch.page.set_viewport_size({"width": 1600, "height": 5_000})  # a hundred rows
    for group in range(0, len(nodes), PER_GROUP):
        part = nodes[group : group + PER_GROUP]
        watch.goto(f"/tasks?group=none&filter=gpu:{part[0].uuid.partition('x')[0]}x", ".t-row")
        rows = watch.run("""
            const rows = () => [...document.querySelectorAll(".t-row")];
            await until(() => rows().length === given, "the rows");
            const only = place => [place.children.length, place.textContent];
            const whole = code => [code.title.split("Started as: ").pop(), code.children.length];
            return rows().map(row => [...whole(row.querySelector(".t-command code")),
                ...[".t-user", ".t-host", ".t-manager"].map(cell => only(row.querySelector(cell)))
            ]);""", len(part))
        assert sorted(rows) == sorted(
            [node.command, 0, [0, node.user], [0, node.host], [0, node.manager]] for node in part)


def test_a_preview_holds_each_as_text(watch: WatchedPage) -> None:
    """The page's own card, with each string in each place that takes one."""
    texts = watch.goto("/tasks?group=none", ".t-row").run("""
        const {itemCard} = await import("/assets/actions/action_items.mjs"), none = [];
        return given.map(text => {
            const card = itemCard({task_ids: ["t"], host: text, job_id: text, owner: text,
                command: text, age_s: 9, kind: null, manager: text, mem_used_bytes: 1, gpus: none,
                processes: none, bystanders: none, warnings: [text], refusals: none}, ["t"]);
            document.body.append(card);
            const inside = ({children, title, textContent}) => [
                children.length, title.split("Started as: ").pop() || textContent];
            return ["strong", ".act-host", ".pill", ".act-command", ".act-warning"].map(
                at => inside(card.querySelector(at)));
        });""", HOSTILE)
    assert texts == [[[0, text]] * 5 for text in HOSTILE]


def test_the_audit_log_names_each_node(nodes: list[CrowdNode], watch: WatchedPage) -> None:
    """Every enrolment is in the log, since each node had a place of its own."""
    names = watch.goto("/audit?kind=node", "table.audit tbody tr").run("""
        const older = document.querySelector(".audit-older button");
        const rows = () => document.querySelectorAll("table.audit tbody tr").length;
        while (!older.hidden && rows() < 2000) {
            const before = rows(); older.click();
            await until(() => rows() > before || older.hidden, "older entries");
        }
        return [...document.querySelectorAll("table.audit tbody tr")].map(
            ({children: [, who]}) => [who.querySelectorAll("*").length, who.textContent]);""")
    assert {node.host for node in nodes} <= {name for _, name in names}
    assert {inside for inside, _ in names} == {1}
