"""MPS and limits of Gpus from a page to the driver and back: what is shown is what is in force."""

import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.demos import ROOT, Demo, soon
from tests.fakes.children import Children
from tests.fakes.mps_control import FakeMps
from tests.integration.test_acts_crash import write_world

from .acting import Somebody, add_person, send
from .test_look import axe_source

pytestmark = pytest.mark.browser
expect.set_options(timeout=40_000)
AGENT = "import sys; from agent.cli import agent; sys.exit(agent(sys.argv[1:]))"
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
    made = FakeMps(folder / "m")
    assert made.start() == 0
    server = children.start(listed=False)
    clients = [children.start(kind="mps_client") for _ in range(2)]
    made.server(server.pid, *(child.pid for child in clients))
    write_world(folder, clients)
    (folder / "ceiling.toml").write_text("root_tasks = true\n")
    token = send(demo, "POST", "enrolments", {"host": HOST})["token"]
    with (folder / "agent.log").open("w") as log:
        agent = subprocess.Popen(
            [sys.executable, "-c", AGENT, "--hub", demo.url, "--data", str(folder / "data"),
             "--backend", "simulated", "--simulate", f"node=n1,gpus=1,world={folder}", "--host",
             HOST, "--ceiling", str(folder / "ceiling.toml")], cwd=ROOT, stdout=log, stderr=log,
            env={**os.environ, **made.env(), "GPUDECK_TOKEN": token})
    try:
        assert soon(lambda: daemons(demo, made), 40), (folder / "agent.log").read_text()
        yield made
    finally:
        agent.terminate()
        agent.wait(20)
        made.close()
        children.close()


def daemons(demo: Demo, mps: FakeMps) -> list[dict[str, Any]]:
    return [daemon for node in demo.ask("mps") if node["host"] == HOST
            for daemon in node["daemons"] if daemon["pipes"] == str(mps.pipes)]


Comes = Callable[..., Somebody]


@pytest.fixture
def comes(browser: Browser, demo: Demo) -> Iterator[Comes]:
    there: list[Somebody] = []

    def come(role: str = "admin", **look: Any) -> Somebody:
        told = demo.told()
        who = (told["user"], told["password"]) if role == "admin" else add_person(demo, role)
        there.append(Somebody(browser, demo, *who, **look))
        return there[-1]

    yield come
    for one in there:
        one.close()


def shoot(person: Somebody, name: str) -> None:
    folder = os.environ.get("GPUDECK_SHOTS")
    if folder:
        person.page.screenshot(path=Path(folder) / f"{name}.png")


def do(person: Somebody, name: str = "") -> None:
    """What the dialog shows, and then it is done and closed."""
    person.dialog.locator(".act-changes").first.wait_for()
    shoot(person, f"{name}-look")
    expect(person.yes).to_be_enabled()
    person.yes.click()
    expect(person.dialog.locator(".act[data-state=done]")).to_be_visible()
    shoot(person, f"{name}-done")
    person.page.get_by_role("button", name="Close", exact=True).last.click()


def test_a_cap_from_the_page_to_the_driver_and_back(demo: Demo, comes: Comes) -> None:
    uuid, gpu = random.choice([*demo.gpus().items()])
    person = comes().open(f"/gpu/{uuid}")
    panel = person.page.locator("#lines-side .limits")
    expect(panel).to_contain_text("gpudeck holds no limit on it")
    low, high = gpu["facts"]["power_limit_min_w"], gpu["facts"]["power_limit_max_w"]
    watts = random.randint(int(low), int(high) - 50)
    panel.get_by_role("button", name="Cap power").click()
    person.dialog.locator("[name=watts]").fill("1")
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
    expect(panel).to_contain_text("gpudeck holds no limit on it")
    assert demo.ask("limits")[0]["leases"] == []
    person.page.evaluate(axe_source())
    found = person.page.evaluate("async () => (await axe.run('#lines-side')).violations")
    assert found == []


def terminal(demo: Demo, program: str, *words: str) -> str:
    code = (f"import sys; from agent.limits_cli import {program}; "
            f"sys.exit({program}(sys.argv[1:]))")
    done = subprocess.run(
        [sys.executable, "-c", code, "--hub", demo.url, *words], cwd=ROOT, text=True, timeout=60,
        env={**os.environ, "GPUDECK_TOKEN": demo.told()["token"]}, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_from_the_terminal_through_the_hub(demo: Demo, mps: FakeMps) -> None:
    uuid, yes = random.choice([*demo.gpus()]), ("--yes", "--reason", "a test")
    assert "in force" in terminal(demo, "gpu", "cap", uuid, "333", "--for", "90s", *yes)
    assert soon(lambda: "333 W until" in terminal(demo, "gpu", "show"), 20)
    assert "taken back, and in force" in terminal(demo, "gpu", "release", uuid, "power",
                                                  *yes).lower()
    assert f"{mps.pipes}  answers  root" in terminal(demo, "mps", "show", "--node", HOST)
    assert "in force" in terminal(demo, "mps", "set", "priority", "1", "--node", HOST, "--pipes",
                                  str(mps.pipes), *yes)
    assert mps.changed()[-1] == "set_default_client_priority 1"


def test_who_may_not_is_not_tempted(demo: Demo, mps: FakeMps, comes: Comes) -> None:
    uuid = next(iter(demo.gpus()))
    [node] = [node for node in demo.ask("mps") if node["host"] == HOST]
    person = comes("user").open(f"/gpu/{uuid}")
    expect(person.page.locator("#lines-side .limits")).to_contain_text("holds no limit")
    assert person.page.locator("#lines-side .limits button").count() == 0
    person.open(f"/node/{node['node']}")
    expect(person.page.locator("#lines-side .mps-server")).to_be_visible()
    assert person.page.locator("#lines-side .limits button").count() == 0
    status = person.page.evaluate("""async (uuid) => (await fetch('/api/v1/previews', {
        method: 'POST', headers: {'Content-Type': 'application/json', 'X-CSRFToken':
        decodeURIComponent(document.cookie.match(/_csrf_token=([^;]*)/)[1])},
        body: JSON.stringify({action: 'set_power_cap', targets: [uuid], params: {setting:
        {type: 'power_cap', gpu_uuid: uuid, watts: 300, lease_s: 60}}})})).status""", uuid)
    assert status == 403


def test_mps_of_a_node(demo: Demo, mps: FakeMps, comes: Comes) -> None:
    """The share of new clients is set, those that run keep theirs, and the page says which."""
    [node] = [node for node in demo.ask("mps") if node["host"] == HOST]
    person = comes(color_scheme="light").open(f"/node/{node['node']}")
    place = person.page.locator(f".limit[data-pipes='{mps.pipes}']")
    expect(place.locator(".mps-clients li")).to_have_count(2)
    shoot(person, "node-mps")
    pct = random.randint(1, 99)
    place.get_by_role("button", name="Share").click()
    person.dialog.locator("[name=pct]").fill("150")
    assert "Say what to set" in person.dialog.inner_text()
    person.dialog.locator("[name=pct]").fill(str(pct))
    expect(person.dialog.locator(".act-item")).to_contain_text("2 running clients keep")
    do(person, "share")
    expect(place).to_contain_text(f"new clients get {pct} %")
    assert all("100 %" in row for row in place.locator(".mps-clients li").all_inner_texts())
    assert f" {pct}" in mps.changed()[-1]
    shoot(person, "node-mps-set")


def test_a_phone_shows_it_too(demo: Demo, mps: FakeMps, comes: Comes) -> None:
    [node] = [node for node in demo.ask("mps") if node["host"] == HOST]
    person = comes(viewport={"width": 390, "height": 844}).open(f"/node/{node['node']}")
    place = person.page.locator(f".limit[data-pipes='{mps.pipes}']")
    place.scroll_into_view_if_needed()
    expect(place.locator(".mps-clients li")).to_have_count(2)
    assert person.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    shoot(person, "phone-mps")
