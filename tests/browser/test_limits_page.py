"""MPS and limits of GPUs from a page to the driver and back: what is shown is what is in force."""

import os
import random
import re
import subprocess
import sys
import urllib.error
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from agent.cli import limits as cli
from tests.demos import ROOT, Demo, soon
from tests.fakes.children import Children
from tests.fakes.mps_control import FakeMps
from tests.integration.test_actions_crash import write_world

from .acting import Somebody, add_person, send
from .test_look import axe_source

pytestmark = pytest.mark.browser
# It looks at its MPS more often than every 10 s, and not at what other tests run on this machine.
AGENT = ("import sys; from agent.limits import reconciler; "
         "from agent.limits import mps; from agent.cli.main import agent; "
         "reconciler.ROUND_S = 1.0; mps.found_pipes = frozenset; "
         "sys.exit(agent(sys.argv[1:]))")
HOST = "mps-node"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    with Demo(tmp_path_factory.mktemp("limits"), "--nodes", "2", "--gpus", "2", "--faults", "off",
              "--profile", "h100") as running:
        yield running


@pytest.fixture(scope="module")
def mps(demo: Demo, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeMps]:
    """A node of its own with MPS on it: a server and two clients, real processes."""
    folder, children = tmp_path_factory.mktemp("mps"), Children()
    daemon = FakeMps(folder / "m")
    assert daemon.start() == 0
    server = children.start(listed=False)
    clients = [children.start(kind="mps_client") for _ in range(2)]
    daemon.server(server.pid, *(child.pid for child in clients))
    write_world(folder, clients)
    (folder / "ceiling.toml").write_text("root_tasks = true\n")
    token = send(demo, "POST", "enrolments", {"host": HOST})["token"]
    with (folder / "agent.log").open("w") as log:
        agent = subprocess.Popen(
            [sys.executable, "-c", AGENT, "--hub", demo.url, "--data", str(folder / "data"),
             "--backend", "simulated", "--simulate", f"node=n1,gpus=1,world={folder}", "--host",
             HOST, "--ceiling", str(folder / "ceiling.toml")], cwd=ROOT, stdout=log, stderr=log,
            env={**os.environ, **daemon.env(), "GPUDECK_TOKEN": token})
    try:
        assert soon(lambda: daemons(demo, daemon)), (folder / "agent.log").read_text()
        yield daemon
    finally:
        agent.terminate()
        agent.wait(20)
        daemon.close()
        children.close()


def daemons(demo: Demo, mps: FakeMps) -> list[dict[str, Any]]:
    return [daemon for node in demo.ask("mps") if node["host"] == HOST
            for daemon in node["daemons"] if daemon["pipes"] == str(mps.pipes)]


@pytest.fixture(scope="module")
def signed_in(browser: Browser, demo: Demo) -> Iterator[Somebody]:
    info = demo.info()
    somebody = Somebody(browser, demo, info["user"], info["password"])
    yield somebody
    somebody.context.close()


@pytest.fixture
def admin(signed_in: Somebody) -> Iterator[Somebody]:
    """Yield the person who signed in once for all, and check that each test left no trouble."""
    yield signed_in
    signed_in.page.emulate_media(color_scheme="dark")
    signed_in.page.set_viewport_size({"width": 1440, "height": 900})
    trouble, signed_in.trouble = signed_in.trouble, []
    assert trouble == []


def at(person: Somebody, path: str) -> Somebody:
    """Open the page unless it is open: people keep pages open for long."""
    return person if person.page.url.endswith(path) else person.open(path)


@pytest.fixture
def node_id(demo: Demo, mps: FakeMps) -> str:
    return str(next(node["node"] for node in demo.ask("mps") if node["host"] == HOST))


def shoot(person: Somebody, name: str) -> None:
    folder = os.environ.get("GPUDECK_SHOTS")
    if folder:
        person.page.screenshot(path=Path(folder) / f"{name}.png")


def do(person: Somebody, name: str = "") -> None:
    """Confirm the dialog, wait until it is done, and close it, with a picture before and after."""
    person.dialog.locator(".act-changes").first.wait_for()
    shoot(person, f"{name}-look")
    expect(person.yes).to_be_enabled()
    person.yes.click()
    expect(person.dialog.locator(".act[data-state=done]")).to_be_visible()
    shoot(person, f"{name}-done")
    person.page.get_by_role("button", name="Close", exact=True).last.click()


def test_a_cap_from_the_page_to_the_driver_and_back(demo: Demo, admin: Somebody) -> None:
    uuid, gpu = random.choice([*demo.gpus().items()])
    person = at(admin, f"/gpu/{uuid}")
    panel = person.page.locator("#lines-side .limits")
    expect(panel).to_contain_text("No limit is set by gpudeck")
    low, high = gpu["facts"]["power_limit_min_w"], gpu["facts"]["power_limit_max_w"]
    watts = random.randint(int(low), int(high) - 50)
    panel.get_by_role("button", name="Cap power").click()
    # Before anything is entered; and once, when there is a preview.
    names = f"GPU{gpu['host']} · GPU {gpu['index']}Model{gpu['name']}"
    expect(person.dialog.locator(".act-about")).to_have_text(names)
    assert person.dialog.locator(".act-warning").count() == bool(gpu["tasks"])
    person.dialog.locator("[name=watts]").fill("1")
    expect(person.dialog.locator(".act-item")).not_to_contain_text(gpu["host"])
    expect(person.dialog.locator(".act-refusal")).to_contain_text("takes 200 to 700 W")
    expect(person.yes).to_be_disabled()
    person.dialog.locator("[name=watts]").fill(str(watts))
    expect(person.dialog.locator(".act-changes")).to_contain_text(f"{watts} W for 1 h")
    person.dialog.locator("[name=reason]").fill("the room is hot")
    do(person, "cap")
    expect(panel.locator(".limit")).to_have_attribute("data-state", "in_force")
    expect(panel).to_contain_text("the room is hot")
    shoot(person, "gpu-limits")
    [lease] = [lease for node in demo.ask("limits") for lease in node["leases"]]
    assert (lease["gpu_uuid"], lease["wanted"], lease["state"]) == (uuid, [watts], "in_force")
    assert any(f'"power_w":{watts}.0' in path.read_text()
               for path in demo.data.rglob("*.limits")), "what the simulated driver obeys"
    panel.get_by_role("button", name="Undo").click()
    do(person)
    expect(panel).to_contain_text("No limit is set by gpudeck")
    assert demo.ask("limits")[0]["leases"] == []
    panel.get_by_role("button", name="Compute mode").click()
    person.dialog.locator("[name=reason]").fill("MPS alone")
    do(person, "mode")
    expect(panel.locator(".limit")).to_have_attribute("data-state", "in_force")
    expect(panel).to_contain_text("One process at a time")
    expect(panel).to_contain_text("MPS alone")
    shoot(person, "gpu-mode")
    person.page.evaluate(axe_source())
    violations = person.page.evaluate("async () => (await axe.run('#lines-side')).violations")
    assert violations == []
    panel.get_by_role("button", name="Undo").click()
    do(person)
    expect(panel).to_contain_text("No limit is set by gpudeck")


Terminal = Callable[..., str]


@pytest.fixture
def terminal(demo: Demo, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
             ) -> Terminal:
    monkeypatch.setenv("GPUDECK_TOKEN", demo.info()["token"])
    monkeypatch.setenv("GPUDECK_HUB", demo.url)

    def run(program: Callable[[list[str]], int], *words: str) -> str:
        capsys.readouterr()
        code = program([*words])
        output = capsys.readouterr().out
        assert code == 0, output
        return output

    return run


def test_from_the_terminal_through_the_hub(demo: Demo, mps: FakeMps, terminal: Terminal) -> None:
    uuid, yes = random.choice([*demo.gpus()]), ("--yes", "--reason", "a test")
    assert "in force" in terminal(cli.gpu, "cap", uuid, "333", "--for", "90s", *yes)
    assert soon(lambda: "333 W until" in terminal(cli.gpu, "show"))
    assert "removed, and in force" in terminal(cli.gpu, "release", uuid, "power", *yes).lower()
    assert f"{mps.pipes}  answers  root" in terminal(cli.mps, "show", "--node", HOST)
    assert "in force" in terminal(cli.mps, "set", "priority", "0", "--node", HOST, "--pipes",
                                  str(mps.pipes), *yes)
    assert mps.changed()[-1] == "set_default_client_priority 0"


def test_the_focus_and_what_is_typed_survive_answers(
        demo: Demo, admin: Somebody, terminal: Terminal) -> None:
    """The panel comes every two seconds, and meanwhile somebody else sets a limit."""
    uuid, yes = random.choice([*demo.gpus()]), ("--yes", "--reason", "a test")
    page = at(admin, f"/gpu/{uuid}").page
    panel = page.locator("#lines-side .limits")
    expect(panel).to_contain_text("No limit is set by gpudeck")
    page.evaluate("""() => {
        globalThis.answers = 0;
        document.getElementById("page-answer").addEventListener("answered", () => answers += 1);
    }""")
    button = panel.get_by_role("button", name="Cap power")
    button.press("Enter")
    watts = admin.dialog.locator("[name=watts]")
    watts.press_sequentially("34")
    terminal(cli.gpu, "cap", uuid, "333", "--for", "90s", *yes)
    expect(panel.locator(".limit")).to_contain_text("Power 333 W")
    before = page.evaluate("answers")
    assert soon(lambda: page.evaluate("answers") > before + 1)
    expect(watts).to_have_value("34")
    expect(watts).to_be_focused()
    watts.press_sequentially("5")
    expect(admin.dialog.locator(".act-changes")).to_contain_text("345 W for 1 h")
    page.keyboard.press("Escape")
    expect(admin.dialog).to_have_count(0)
    expect(button).to_be_focused()
    terminal(cli.gpu, "release", uuid, "power", *yes)
    expect(panel).to_contain_text("No limit is set by gpudeck")
    expect(button).to_be_focused()


# What MPS misreads (agent/limits/mps.py), as somebody would send it.
WRONG: tuple[tuple[str, dict[str, Any]], ...] = (
    ("mps_memory", {"ordinal": 0, "mem_mib": "2.5G"}),
    ("mps_memory", {"ordinal": 0, "mem_mib": 2.5}),
    ("mps_memory", {"ordinal": "GPU-4a1f2c", "mem_mib": 2_048}),
    ("mps_memory", {"mem_mib": 2_048}),
    ("mps_memory", {"ordinal": 32, "mem_mib": 2_048}),
    ("mps_memory", {"ordinal": 0, "mem_mib": "2T"}),
    ("mps_memory", {"ordinal": 0, "mem_mib": "1024K"}),
    ("mps_memory", {"ordinal": 0, "mem_mib": -1}),
    ("mps_memory", {"ordinal": 0, "mem_mib": 0}),
    ("mps_percent", {"pct": 150}), ("mps_percent", {"pct": 0}), ("mps_percent", {"pct": -5}),
    ("mps_percent", {"pct": "banana"}), ("mps_percent", {"pct": "0 50"}), ("mps_percent", {}),
    ("mps_percent", {"pct": 33.3}), ("mps_percent", {"pct": 50, "server": "banana"}),
    ("mps_percent", {"pct": 50, "server": 2**22 + 9}),  # there is none of that number
    ("mps_percent", {"pct": 50, "pipes": "/p\nquit"}),
    ("mps_priority", {"priority": 2}), ("mps_preset", {"name": "banana"}),
    ("mps_banana", {}),
)


def test_what_mps_would_misread_is_refused_by_rest(demo: Demo, mps: FakeMps, node_id: str) -> None:
    before = mps.changed()
    for kind, fields in WRONG:
        setting = {"type": kind, "pipes": str(mps.pipes), **fields}
        body = {"action": "set_mps", "targets": [node_id], "params": {"setting": setting}}
        assert refusal(demo, body), setting
    assert mps.changed() == before


def refusal(demo: Demo, body: dict[str, Any]) -> str:
    """Return why the hub or the node's preview refuses; "": it would be done."""
    try:
        [item] = send(demo, "POST", "previews", body)["items"]
    except urllib.error.HTTPError as error:
        return error.read().decode() if error.code == HTTPStatus.BAD_REQUEST else ""
    return "; ".join(refusal_of_item["sentence"] for refusal_of_item in item["refusals"])


def test_who_may_not_is_not_tempted(demo: Demo, node_id: str, browser: Browser) -> None:
    uuid = next(iter(demo.gpus()))
    person = Somebody(browser, demo, *add_person(demo, "user")).open(f"/gpu/{uuid}")
    expect(person.page.locator("#lines-side .limits")).to_contain_text("No limit is set")
    assert person.page.locator("#lines-side .limits button").count() == 0
    expect(person.page.locator("#lines-side .service")).to_have_text("In service.")
    person.open(f"/node/{node_id}")
    expect(person.page.locator("#lines-side .mps-server")).to_be_visible()
    expect(person.page.locator(".mps-findings [data-code=exclusive]")).to_be_visible()
    assert person.page.locator("#lines-side .limits button").count() == 0
    status = person.page.evaluate("""async (uuid) => (await fetch('/api/v1/previews', {
        method: 'POST', headers: {'Content-Type': 'application/json', 'X-CSRFToken':
        decodeURIComponent(document.cookie.match(/gpudeck_csrf_[^=]*=([^;]*)/)[1])},
        body: JSON.stringify({action: 'set_power_cap', targets: [uuid], params: {setting:
        {type: 'power_cap', gpu_uuid: uuid, watts: 300, lease_s: 60}}})})).status""", uuid)
    person.close()
    assert status == 403


def test_mps_of_a_node(mps: FakeMps, node_id: str, admin: Somebody) -> None:
    """The share of new clients is set, those that run keep theirs, and the page says which."""
    admin.page.emulate_media(color_scheme="light")
    person = at(admin, f"/node/{node_id}")
    place = person.page.locator(f".limit[data-pipes='{mps.pipes}']")
    expect(place.locator(".mps-clients li")).to_have_count(2)
    shoot(person, "node-mps")
    pct = random.randint(1, 99)
    place.get_by_role("button", name="Share").click()
    commands_before, typed = mps.changed(), person.dialog.locator("[name=pct]")
    for wrong in random.sample(("150", "0", "2.5", "-5", "1e9"), 2):
        typed.fill(wrong)
        expect(person.dialog.locator(".act-waiting")).to_contain_text("Choose a value")
        expect(person.yes).to_be_disabled()
    typed.press_sequentially("banana 2G")  # of which a browser lets e and digits pass
    expect(person.yes).to_be_disabled()
    assert mps.changed() == commands_before
    person.dialog.locator("[name=pct]").fill(str(pct))
    expect(person.dialog.locator(".act-item")).to_contain_text("2 running clients keep")
    do(person, "share")
    expect(place).to_contain_text(f"new clients get {pct} %")
    assert all("100 %" in row for row in place.locator(".mps-clients li").all_inner_texts())
    assert f" {pct}" in mps.changed()[-1]
    shoot(person, "node-mps-set")
    commands_before = mps.changed()
    place.get_by_role("button", name="Memory").click()
    expect(person.dialog.locator(".act-changes")).to_contain_text("no limit")
    name, wrong = random.choice((("size", "2.5"), ("size", "0"), ("ordinal", "32"),
                                 ("ordinal", "-1"), ("ordinal", "0.5")))
    person.dialog.locator(f"[name={name}]").fill(wrong)
    expect(person.dialog.locator(".act-waiting")).to_contain_text("Choose a value")
    expect(person.yes).to_be_disabled()
    person.page.keyboard.press("Escape")
    assert mps.changed() == commands_before


def test_a_phone_shows_it_too(mps: FakeMps, node_id: str, admin: Somebody) -> None:
    admin.page.set_viewport_size({"width": 390, "height": 844})
    person = at(admin, f"/node/{node_id}")
    place = person.page.locator(f".limit[data-pipes='{mps.pipes}']")
    place.scroll_into_view_if_needed()
    expect(place.locator(".mps-clients li")).to_have_count(2)
    assert person.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    shoot(person, "phone-mps")


def test_the_doctor_on_the_page(mps: FakeMps, node_id: str, admin: Somebody) -> None:
    """Cause, remedy, and a fix that is an act like any other; at the end nothing is wrong."""
    person = at(admin, f"/node/{node_id}")
    doctor = person.page.locator(".mps-doctor")
    expect(doctor.locator("[data-code=exclusive]")).to_contain_text("EXCLUSIVE_PROCESS")
    expect(doctor).to_contain_text("no problems found")  # it is advice
    doctor.get_by_role("button", name=re.compile(r"^Make GPU \d+ exclusive$")).click()
    do(person, "exclusive")
    expect(doctor.locator("[data-code]")).to_have_count(0)
    shoot(person, "doctor-well")
    mps.kill()
    dead = doctor.locator("[data-code=dead]")
    expect(dead).to_contain_text("stale")
    expect(doctor).to_contain_text("problems found")
    shoot(person, "doctor-dead")
    person.page.evaluate(axe_source())
    assert person.page.evaluate("async () => (await axe.run('.mps-doctor')).violations") == []
    dead.get_by_role("button", name="Start MPS").click()
    do(person, "start")
    expect(dead).to_have_count(0)
    # What was set before from terminal and page is gone with the daemon, and it says so.
    lost_finding = doctor.locator("[data-code=lost]")
    if lost_finding.count():
        shoot(person, "doctor-lost")
    assert mps.ask("get_default_active_thread_percentage") == "100.0\n"
    assert mps.changed()[-1] == "-d"
