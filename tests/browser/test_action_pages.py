"""Acts by a person at a page, on real processes: the right ones, and no others."""

import json
import os
import random
import re
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.demos import Demo, soon

from .acting import (
    Somebody,
    add_person,
    age_s,
    busy_seed,
    is_alive,
    jobs,
    living,
    send,
    state_of,
    tasks,
)
from .test_look import axe_source

pytestmark = pytest.mark.browser
OLD_ENOUGH_S = 7
# A page on a loaded machine; nothing here waits that long where it need not.


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """A demo for this file alone, as tasks end here."""
    with Demo(tmp_path_factory.mktemp("acts"), "--nodes", "4", "--gpus", "8", "--faults", "off",
              "--second-person", "on", "--seed", str(busy_seed(4, 8, 9))) as running:
        assert soon(lambda: len(jobs(running)) >= 8), tasks(running)
        yield running


NewPerson = Callable[..., Somebody]


def alone(demo: Demo) -> list[dict[str, Any]]:
    """Tasks that are their whole job, old enough that nobody refuses to act on them."""
    def lone_tasks() -> list[dict[str, Any]]:
        return [job[0] for job in jobs(demo) if len(job) == 1
                and age_s(job[0]["pid"]) > OLD_ENOUGH_S]

    assert soon(lambda: len(lone_tasks()) >= 4), jobs(demo)
    return lone_tasks()


@pytest.fixture
def new_person(browser: Browser, demo: Demo) -> Iterator[NewPerson]:
    there: list[Somebody] = []

    def make(role: str = "admin", owns: str | None = None, **look: Any) -> Somebody:
        info = demo.info()
        login = (info["user"], info["password"]) if role == "admin" else add_person(
            demo, role, owns)
        there.append(Somebody(browser, demo, *login, **look))
        return there[-1]

    yield make
    for one in there:
        one.close()


def reason() -> str:
    return f"because {random.randrange(10**9)}"


def test_rows_that_move_under_the_pointer_change_no_target(
        demo: Demo, new_person: NewPerson) -> None:
    person = new_person().open("/tasks?group=none&sort=user&order=asc")
    target = alone(demo)[0]
    other_pids = living(task for task in tasks(demo) if task["id"] != target["id"])
    person.row(target).hover()
    button = person.row(target).locator("[data-act=end]").bounding_box()
    assert button is not None
    x, y = button["x"] + button["width"] / 2, button["y"] + button["height"] / 2
    at_point = f"document.elementFromPoint({x}, {y})?.closest('[data-task]')?.dataset.task"
    person.page.mouse.move(x, y)
    assert person.page.evaluate(at_point) == target["id"]
    person.page.mouse.down()
    for key in ("user", "command", "host", "gpus", "started_at", "mem_used_bytes"):
        person.sort_by(key)
        if soon(lambda: person.page.evaluate(at_point) != target["id"], 6):
            break
    assert person.page.evaluate(at_point) != target["id"], "no sort moved it: this shows nothing"
    person.page.mouse.up()
    expect(person.dialog).to_have_attribute("data-targets", json.dumps([target["id"]]))
    why = reason()
    person.end_quickly()
    person.sort_by("host")
    person.give_reason(why)
    # Not default on Enter, and not alive under the pointer that opened it.
    person.page.keyboard.press("Enter")
    assert is_alive(target["pid"])
    box = person.yes.bounding_box()
    assert box is not None
    is_beside = not box["x"] <= x <= box["x"] + box["width"]
    assert is_beside or not box["y"] <= y <= box["y"] + box["height"]
    person.yes.click()
    assert soon(lambda: not is_alive(target["pid"]))
    act = person.dialog.locator(".act")
    expect(act).to_have_attribute("data-state", "done")
    for check in ("Exited", "Memory returned"):
        expect(act.locator(f"[data-check='{check}']")).to_have_class("yes")
    assert "?" not in (act.locator(".act-checks").text_content() or "")
    expect(person.dialog.locator(".act-clock")).to_have_text("")
    assert {pid for pid in other_pids if not is_alive(pid)} == set(), "a neighbour has ended"
    person.dialog.get_by_role("button", name="Close").last.click()
    # It stays to be read, here and in the audit log.
    person.page.keyboard.press("a")
    expect(person.page.locator("#tray-list .act")).to_have_count(1)
    person.open(f"/audit?task={target['id']}")
    expect(person.page.locator("table.audit tbody tr").first).to_be_visible()
    legend_text = person.page.locator("#audit-overview .legendtext", has_text="done")
    expect(legend_text).to_be_visible()
    person.page.locator("table.audit button").first.click()
    assert soon(lambda: why in (person.page.locator("#audit-place").text_content() or "")
                or len(person.page.locator("table.audit button").all()) > 1)
    person.page.locator("#audit-verify").click()
    expect(person.page.locator("#audit-verdict")).to_have_class("verdict good")


@pytest.mark.parametrize("width", [1440, 900])
def test_actions_that_run_hide_neither_the_time_bar_nor_the_drawer(new_person: NewPerson, width: int
                                                                   ) -> None:
    page = new_person().open("/").page
    page.set_viewport_size({"width": width, "height": 900})
    boxes: dict[str, dict[str, float]] = page.evaluate("""() => {
        const [tray, drawer] = ["tray", "drawer"].map((id) => document.getElementById(id));
        tray.hidden = drawer.hidden = false;
        const box = (one) => one.getBoundingClientRect().toJSON();
        const bar = document.querySelector(".time-bar");
        const boxes = { tray: box(tray), drawer: box(drawer), bar: box(bar) };
        drawer.hidden = true;
        return boxes;
    }""")
    assert boxes["tray"]["width"] > 20
    assert boxes["tray"]["bottom"] <= boxes["bar"]["top"]
    assert boxes["tray"]["right"] <= boxes["drawer"]["left"]


def test_four_jobs_need_a_second_person(demo: Demo, new_person: NewPerson) -> None:
    person = new_person().open("/tasks?group=none")
    victims = alone(demo)[:4]
    target_ids = {victim["id"] for victim in victims}
    # By id: what else a task says of itself changes between two looks.
    other_pids = living(task for task in tasks(demo) if task["id"] not in target_ids)
    for victim in victims:
        person.row(victim).locator("input").click()
    expect(person.page.locator("#tasks-bulk strong")).to_have_text("4 jobs selected")
    person.page.locator("#tasks-bulk [data-act=end]").click()
    why = reason()
    person.end_quickly()
    person.give_reason(why)
    expect(person.yes).to_be_disabled()
    person.dialog.locator("[name=typed]").fill("end 4 jobs")
    expect(person.yes).to_have_text("Ask a second person to end 4 jobs")
    person.yes.click()
    expect(person.dialog).to_contain_text("Waiting for a second person")
    assert living(victims) == {victim["pid"] for victim in victims}

    second = new_person("operator").open("/audit")
    second.page.locator(".tray-button").click()
    second.page.get_by_role("button", name="Review and approve").click()
    expect(second.dialog.locator(".act-item")).to_have_count(4)
    assert why in second.dialog.inner_text()
    second.dialog.locator("[name=password]").fill(second.password)
    second.yes.click()
    assert soon(lambda: not living(victims)), living(victims)
    assert {pid for pid in other_pids if not is_alive(pid)} == set(), "a neighbour has ended"
    assert {one["task_id"] for one in demo.ask("commands?limit=100")
            if one["reason"] == why} == target_ids


def test_a_held_fleet_refuses_says_so_everywhere_and_is_released(
        demo: Demo, new_person: NewPerson) -> None:
    person, watcher = new_person().open("/tasks?group=none"), new_person("viewer").open("/")
    target = random.choice(tasks(demo))
    person.page.locator("#hold").click()
    person.page.locator("dialog[open]").get_by_role("button", name="Stop all actions").click()
    try:
        for one in (person, watcher):
            expect(one.page.locator("#held")).to_contain_text("All actions are stopped.")
        assert watcher.page.locator("#held button").count() == 0
        assert soon(lambda: len(demo.get("/api/v1/hold")["nodes"]) == 4), "each node reports it"
        person.row(target).locator("[data-act=end]").click()
        expect(person.dialog.locator(".act-refusal").first).to_be_visible()
        expect(person.yes).to_be_hidden()
        person.page.keyboard.press("Escape")
        person.page.locator("#held").get_by_role("button", name="Resume actions").click()
        person.page.locator("dialog[open]").get_by_role("button", name="Resume actions").click()
        for one in (person, watcher):
            expect(one.page.locator("#held")).to_be_hidden()
    finally:
        if demo.get("/api/v1/hold")["fleet"]:
            send(demo, "DELETE", "hold")
        assert soon(lambda: demo.get("/api/v1/hold")["nodes"] == []), "each node confirms it"
    assert is_alive(target["pid"])


def test_on_a_node_in_maintenance_it_takes_one_click_more(
        demo: Demo, new_person: NewPerson) -> None:
    person, why = new_person().open("/tasks?group=none"), reason()
    target = alone(demo)[0]
    other_pids = living(task for task in tasks(demo) if task["id"] != target["id"])
    path = f"nodes/{target['node']}/maintenance"
    send(demo, "PUT", path, {"because": why, "until": time.time() + 600})
    try:
        person.row(target).locator("[data-act=end]").click()
        person.give_reason(why)
        expect(person.dialog).to_contain_text(f"This node is in maintenance by api.token: {why}")
        despite = person.dialog.get_by_label("This node is in maintenance")
        expect(despite).to_be_visible()
        expect(person.yes).to_be_disabled()
        despite.check()
        expect(person.yes).to_be_enabled()
        person.yes.click()
        assert soon(lambda: not is_alive(target["pid"]))
    finally:
        send(demo, "DELETE", path)
    assert {pid for pid in other_pids if not is_alive(pid)} == set(), "a neighbour has ended"


def test_escape_closes_the_dialog_and_leaves_the_drawer(demo: Demo, new_person: NewPerson) -> None:
    target = random.choice(alone(demo))
    page = new_person().open(f"/?gpu={target['gpus'][0]['uuid']}").page
    page.locator("#drawer .tasks").get_by_role("button", name="Pause").first.click()
    expect(page.locator("dialog[open]")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("dialog[open]")).to_have_count(0)
    expect(page.locator("#drawer")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#drawer")).to_be_hidden()


def test_a_button_that_the_hub_wrote_opens_no_dialog_with_the_last_step_under_the_pointer(
        demo: Demo, new_person: NewPerson) -> None:
    """Put the button where the dialog's own one is, and press it there."""
    target = random.choice(alone(demo))
    person = new_person().open(f"/tasks?task={target['id']}")
    button = person.page.locator("#task-acts [data-act=end]")
    button.focus()
    person.page.keyboard.press("Enter")
    person.give_reason(reason())
    expect(person.yes).to_be_enabled()
    box = person.yes.bounding_box()
    assert box is not None
    person.page.keyboard.press("Escape")
    expect(person.dialog).to_have_count(0)
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    button.evaluate("(one, [x, y]) => { one.style.cssText = `position: fixed; z-index: 99; "
                    "left: ${x - 20}px; top: ${y - 10}px`; }", [x, y])
    person.page.mouse.click(x, y)
    expect(person.dialog).to_have_attribute("data-targets", json.dumps([target["id"]]))
    person.give_reason(reason())
    expect(person.yes).to_be_enabled()
    box = person.yes.bounding_box()
    assert box is not None
    assert not (box["x"] <= x <= box["x"] + box["width"]
                and box["y"] <= y <= box["y"] + box["height"])


def test_the_way_past_the_bar_keeps_what_is_selected_and_open(
        demo: Demo, new_person: NewPerson) -> None:
    target, other = random.sample(alone(demo), 2)
    person = new_person().open(f"/tasks?group=none&task={target['id']}")
    page = person.page
    person.row(other).locator("input").click()
    expect(page.locator("#tasks-chosen")).to_have_text("1 job selected")
    page.locator("a.skip").focus()
    page.keyboard.press("Enter")
    page.wait_for_timeout(2_500)  # longer than it would take to load the page
    assert page.url.endswith("#main")
    expect(page.locator("#tasks-chosen")).to_have_text("1 job selected")
    expect(page.locator("#task-title")).to_have_text(f"Task {target['pid']} · {target['user']}")
    page.goto(f"{demo.url}/tasks?task={'x' * 600}")
    expect(page.locator(".t-row").first).to_be_visible()
    expect(page.locator("#task-drawer")).to_be_hidden()


def test_a_node_that_does_not_answer_is_stopped_with_the_whole_fleet(
        demo: Demo, new_person: NewPerson) -> None:
    agent = random.choice(demo.info()["agents"])
    page = new_person().page
    os.kill(agent["pid"], signal.SIGSTOP)
    try:
        send(demo, "POST", "hold", {"node": None, "reason": reason()})
        page.goto(f"{demo.url}/node/{agent['node']}")
        expect(page.locator(".node-hold")).to_contain_text(
            f"Actions on {agent['node']} are stopped")
        expect(page.locator(".node-hold button")).to_be_hidden()
    finally:
        if demo.get("/api/v1/hold")["fleet"]:
            send(demo, "DELETE", "hold")
        os.kill(agent["pid"], signal.SIGCONT)


def test_the_task_at_the_side_is_kept_stopped_and_left(demo: Demo, new_person: NewPerson) -> None:
    target, other = random.sample(alone(demo), 2)
    person = new_person().open(f"/tasks?group=none&task={target['id']}")
    page, why, words = person.page, reason(), person.page.locator("#task-keep")
    expect(page.locator("#task-title")).to_have_text(f"Task {target['pid']} · {target['user']}")
    page.locator("#task-keep").get_by_role("button", name="Keep until …").click()
    page.locator("dialog[open] [name=because]").fill(why)
    page.locator("dialog[open]").get_by_role("button", name="Keep", exact=True).click()
    expect(words).to_contain_text(why)
    expect(person.row(target).locator(".t-keep")).to_be_visible()
    words.get_by_role("button", name="Stop keeping").click()
    expect(words).not_to_contain_text(why)
    person.row(other).locator(".t-user").click()
    expect(page.locator("#task-title")).to_have_text(f"Task {other['pid']} · {other['user']}")
    expect(page.locator("#task-acts [data-act=end]")).to_have_attribute(
        "data-targets", json.dumps([other["id"]]))
    assert f"task={other['id'].replace(':', '%3A')}" in page.url
    page.keyboard.press("Escape")
    expect(page.locator("#task-drawer")).to_be_hidden()
    assert "task=" not in page.url
    page.wait_for_timeout(3_000)  # longer than it asks again
    expect(page.locator("#task-drawer")).to_be_hidden()
    page.goto(f"{demo.url}/tasks?task=nobody&sort=nonsense")
    expect(page.locator("#task-title")).to_have_text("Unknown task")
    expect(page.locator("#task-state")).to_have_text("No node reports this task any more.")
    expect(page.locator(".t-idle[aria-sort=descending]")).to_be_visible()


def test_a_dialog_says_each_thing_once(demo: Demo, new_person: NewPerson) -> None:
    """Check the one amber line: a job's processes, what they hold, and that no way leads back."""
    def several() -> list[list[dict[str, Any]]]:
        return [job for job in jobs(demo) if len(job) > 1
                and min(age_s(task["pid"]) for task in job) > OLD_ENOUGH_S]

    assert soon(several), jobs(demo)
    target = random.choice(several())[0]
    person = new_person().open("/tasks?group=none")
    person.row(target).locator("[data-act=end]").click()
    person.dialog.locator(".act-item").wait_for()
    words = person.dialog.inner_text()
    assert words.count("processes of this job") == 1, words
    assert words.count("cannot be undone") == 1, words
    assert words.count("checkpoint is lost") == 1, words
    assert person.dialog.locator(".act-warning").count() == 1
    assert len(re.findall(r"GiB each\)", words)) <= 1, words
    person.page.keyboard.press("Escape")


def test_a_pause_is_at_most_four_clicks_from_the_map(demo: Demo, new_person: NewPerson) -> None:
    """Find the cell with the pointer, which says whose it is."""
    person = new_person().open("/")
    page, target = person.page, random.choice(alone(demo))
    (gpu,) = demo.ask(f"gpus?filter=task:{target['id']}")[:1]
    cell = "uuid => globalThis.gpudeck?.cell(uuid)"
    assert soon(lambda: page.evaluate(cell, gpu["uuid"]))
    person.count_clicks()
    box: Any = page.locator("#heatmap canvas").bounding_box()
    name, card = f"{gpu['host']} · GPU {gpu['place']}", page.locator("#hover header strong")
    spots = [(box["x"] + box["width"] * (0.04 + at / 24), box["y"] + box["height"] * (row / 24))
             for row in range(1, 24) for at in range(23)]
    for x, y in spots:
        page.mouse.move(x, y)
        if page.locator("#hover").is_visible() and card.inner_text() == name:
            break
    assert card.inner_text() == name
    page.mouse.click(x, y)
    task = page.locator("#drawer .tasks").get_by_role("button", name="Pause").first
    task.click()
    expect(person.dialog).to_have_attribute("data-targets", json.dumps([target["id"]]))
    person.give_reason(why := reason())
    expect(person.yes).to_be_enabled()
    person.yes.click()
    assert soon(lambda: state_of(target["pid"]) == "T")
    assert person.clicks() <= 4, person.clicks()
    # Its owner is told on the first page by whom, and why.
    notice = new_person("user", owns=target["user"]).open("/").page.locator("#own-paused")
    expect(notice).to_contain_text(f"was paused by {person.name}")
    expect(notice).to_contain_text(f"“{why}”")
    os.kill(target["pid"], signal.SIGCONT)


def test_an_old_look_is_not_acted_on(demo: Demo, new_person: NewPerson) -> None:
    person = new_person().open("/tasks?group=none")
    target = random.choice(alone(demo))
    person.row(target).locator("[data-act=pause]").click()
    expect(person.dialog.locator(".act-why")).to_have_text("Add a reason")
    person.give_reason(reason())
    expect(person.yes).to_be_enabled()
    expect(person.dialog.locator(".act-why")).to_have_text("")
    assert person.dialog.locator(".act-warning, .act-keep").count() <= 1
    person.page.evaluate("globalThis.now = Date.now; Date.now = () => now() + 61_000")
    expect(person.yes).to_be_disabled()
    expect(person.dialog).to_contain_text("Preview expired")
    person.page.evaluate("Date.now = now")
    person.dialog.get_by_role("button", name="Refresh").click()
    expect(person.yes).to_be_enabled()
    person.page.keyboard.press("Escape")
    assert state_of(target["pid"]) not in (None, "T")


def test_the_keyboard_alone_pauses_and_resumes(demo: Demo, new_person: NewPerson) -> None:
    person = new_person().open("/tasks?group=none")
    page = person.page
    target = random.choice(alone(demo))
    other_pids = living(task for task in tasks(demo) if task["id"] != target["id"])
    page.keyboard.press("/")
    page.keyboard.type(f"task:{target['id']}")
    expect(page.locator(".t-row")).to_have_count(1)
    page.keyboard.press("Tab")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("p")
    expect(person.dialog).to_have_attribute("data-targets", json.dumps([target["id"]]))
    person.dialog.locator(".act-item").wait_for()
    expect(person.dialog.locator("[name=reason]")).to_be_focused()
    page.keyboard.type(reason())
    expect(person.yes).to_be_enabled()
    for _ in range(8):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "Pause this job":
            break
    page.keyboard.press("Enter")
    assert soon(lambda: state_of(target["pid"]) == "T")
    person.dialog.get_by_role("button", name="Resume").focus()
    page.keyboard.press("Enter")
    expect(person.dialog.locator("h2")).to_have_text("Resume a task")
    expect(person.yes).to_be_enabled()
    person.yes.focus()
    page.keyboard.press("Enter")
    assert soon(lambda: state_of(target["pid"]) != "T")
    assert is_alive(target["pid"])
    assert {pid for pid in other_pids if not is_alive(pid)} == set(), "a neighbour has ended"


def test_a_viewer_finds_nothing_to_press(demo: Demo, new_person: NewPerson) -> None:
    target = random.choice(tasks(demo))
    person = new_person("viewer").open(f"/tasks?group=none&task={target['id']}")
    expect(person.page.locator("#task-title")).to_contain_text(str(target["pid"]))
    person.row(target).locator("input").click()
    assert person.page.locator("[data-act]:visible").count() == 0
    assert person.page.locator("#hold").is_hidden()
    person.row(target).focus()
    person.page.keyboard.press("e")
    assert person.dialog.count() == 0


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_it_fits_and_can_be_read(demo: Demo, new_person: NewPerson, theme: str) -> None:
    person = new_person(color_scheme=theme)
    target = random.choice(tasks(demo))
    for path in (f"/tasks?task={target['id']}", "/tasks?group=owner", "/audit"):
        person.open(path)
        person.page.locator(".t-row, table.audit tbody tr").first.wait_for()
        for width in (1440, 390):
            person.page.set_viewport_size({"width": width, "height": 844})
            wide = person.page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, (path, width)
            shots = os.environ.get("GPUDECK_SHOTS")
            if shots is not None:  # to look at them
                person.page.screenshot(path=f"{shots}/{theme}-{path[1:6].strip('/?')}-{width}.png")
        person.page.evaluate(axe_source())
        broken_rules = person.page.evaluate(
            "axe.run(document, {resultTypes: ['violations']}).then(({violations}) => violations)")
        assert [(rule["id"], node["html"][:160])
                for rule in broken_rules for node in rule["nodes"]] == []


def test_a_task_that_ends_while_rows_are_sorted_is_no_target_any_more(
        demo: Demo, new_person: NewPerson) -> None:
    """Sort while it ends: only a row that went in its place was taken out of the selection."""
    person = new_person().open("/tasks?group=none&sort=user&order=asc")
    page, (leaves, stays) = person.page, random.sample(alone(demo), 2)
    for target in (leaves, stays):
        person.row(target).locator("input[type=checkbox]").click()
    expect(page.locator("#tasks-chosen")).to_have_text("2 jobs selected")
    page.route("**/api/v1/tasks?**", lambda route: route.abort())  # it does not see it go
    os.kill(leaves["pid"], signal.SIGKILL)
    assert soon(lambda: leaves["id"] not in {task["id"] for task in tasks(demo)})
    page.unroute("**/api/v1/tasks?**")
    page.get_by_role("columnheader", name="Memory").get_by_role("button").click()
    expect(page.locator("#tasks-chosen")).to_have_text("1 job selected")
    expect(person.row(stays).locator("input[type=checkbox]")).to_be_checked()
    person.row(stays).locator("input[type=checkbox]").click()
    # One that goes in its place has no figures of its own any more.
    page.locator(".t-row").first.hover()
    last = random.choice([task for task in alone(demo) if task["id"] != stays["id"]])
    os.kill(last["pid"], signal.SIGKILL)
    expect(person.row(last)).to_have_class(re.compile(r"\bgone\b"))
    for name in ("memory", "sm", "age", "idle"):
        expect(person.row(last).locator(f".t-{name}")).to_have_text(re.compile(r"^\W$"))
