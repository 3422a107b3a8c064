"""A GPU is taken out of service, repaired, split by MIG and returned on its page, as somebody does
it who has never done it: by what the buttons and sentences say. A real agent on the C fake of the
driver, with NVIDIA's programs as fakes; once in each theme."""

import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.demos import ROOT, Demo, soon
from tests.fakes.nvml import FakeNvml
from tests.fakes.vendor_tools import VendorTools

from .acting import Somebody, send
from .test_limits_page import do
from .test_look import axe_source

pytestmark = pytest.mark.browser
HOST = "service-node"
ACTIONS = ("cordon", "drain", "return_to_service", "reset_gpu", "diagnose_gpu", "set_mig_layout")
# What else runs on this machine does not concern it; it looks more often than every 10 s.
AGENT = ("import sys; from agent.limits import reconciler; reconciler.ROUND_S = 1.0; "
         "from agent.actions.kinds import mig_layout; mig_layout.other_manager = lambda: ''; "
         "from agent.backends.nvml import repair; repair.holders = lambda facts: (); "
         "from agent.cli.main import agent; sys.exit(agent(sys.argv[1:]))")
PASSED = {"DCGM Diagnostic": {"test_categories": [{"tests": [
    {"name": "memory", "results": [{"entity_group_id": 1, "entity_id": 0, "status": "Pass"}]}]}]}}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    with Demo(tmp_path_factory.mktemp("hub"), "--nodes", "1", "--gpus", "1", "--faults", "off",
              "--profile", "h100") as running:
        yield running


@pytest.fixture(scope="module")
def nvml(demo: Demo, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeNvml]:
    folder = tmp_path_factory.mktemp("agent")
    fake = FakeNvml(folder, gpus=2)
    for number, board in enumerate(fake.gpus):
        fake.splittable(board, is_on=False)
        board.update(minor=200 + number, util=0, mem_used=0)  # no device file of this machine
    fake.gpus[0]["recovery"] = 1
    fake.save()
    tools = VendorTools(folder, fake)
    tools.diag(PASSED)
    (folder / "ceiling.toml").write_text(f"root_tasks = true\nactions = {[*ACTIONS]}\n")
    token = send(demo, "POST", "enrolments", {"host": HOST})["token"]
    with (folder / "agent.log").open("w") as log:
        agent = subprocess.Popen(
            [sys.executable, "-c", AGENT, "--hub", demo.url, "--data", str(folder / "data"),
             "--backend", "nvml", "--host", HOST, "--ceiling", str(folder / "ceiling.toml")],
            cwd=ROOT, stdout=log, stderr=log,
            env={**fake.env(), "PATH": tools.path, "GPUDECK_TOKEN": token})
    try:
        assert soon(lambda: len(boards(demo)) == 2), (folder / "agent.log").read_text()
        yield fake
    finally:
        agent.terminate()
        agent.wait(20)


def boards(demo: Demo) -> list[dict[str, Any]]:
    return [board for board in demo.ask("mig") if board["host"] == HOST]


@pytest.fixture(params=["dark", "light"])
def person(request: pytest.FixtureRequest, browser: Browser, demo: Demo) -> Iterator[Somebody]:
    info, theme = demo.info(), request.param
    somebody = Somebody(browser, demo, info["user"], info["password"], color_scheme=theme)
    yield somebody
    trouble = somebody.trouble
    somebody.close()
    assert trouble == []


def side(person: Somebody, board: Any) -> Locator:
    person.open(f"/gpu/{board.uuid}")
    return person.page.locator("#lines-side")


def press(person: Somebody, panel: Locator, name: str, reason: str = "fan noise") -> None:
    panel.get_by_role("button", name=name, exact=True).click()
    person.dialog.locator("[name=reason]").fill(reason)
    do(person, name.lower().replace(" ", "-"))


def is_readable(person: Somebody, part: Literal[".service", ".mig"]) -> None:
    person.page.evaluate(axe_source())
    violations = person.page.evaluate(
        "async (part) => (await axe.run(part)).violations", f"#lines-side {part}")
    assert violations == [], part


def test_out_of_service_repaired_and_back(person: Somebody, nvml: FakeNvml, demo: Demo) -> None:
    board = nvml.gpus[0]
    board["recovery"] = 1
    nvml.save()
    service = side(person, board).locator(".service")
    expect(service).to_contain_text("In service.")
    press(person, service, "Drain")
    expect(service).to_contain_text("Out of service")
    expect(service).to_contain_text("fan noise")
    # Nobody is on it, so that it is empty by itself, and then it can be repaired.
    press(person, service, "Reset")
    expect(service).to_contain_text("drained")
    expect(service).to_contain_text("read again: it is well")
    service.get_by_role("button", name="Diagnose", exact=True).click()
    person.dialog.locator("[name=reason]").fill("to be sure")
    do(person, "diagnose")
    expect(service).to_contain_text("Level 1: 1 test passed")
    is_readable(person, ".service")
    press(person, service, "Return")
    expect(service).to_contain_text("In service.")
    assert [repair for repair in demo.ask("repairs") if repair["host"] == HOST] == []


def test_split_by_mig_and_whole_again(person: Somebody, nvml: FakeNvml, demo: Demo) -> None:
    board = nvml.gpus[1]
    whole = side(person, board)
    mig, service = whole.locator(".mig"), whole.locator(".service")
    expect(mig).to_contain_text("Not split: MIG is off")
    mig.get_by_role("button", name="Split by MIG").click()
    person.dialog.locator("[name=layout]").fill("2x 2g.20gb + 1x 3g.40gb")
    expect(person.dialog.locator(".act-refusal")).to_contain_text("cordoned or drained")
    expect(person.yes).to_be_disabled()
    person.page.keyboard.press("Escape")
    press(person, service, "Cordon")
    expect(service).to_contain_text("cordoned")
    mig.get_by_role("button", name="Split by MIG").click()
    person.dialog.locator("[name=layout]").fill("2x 2g.20gb + 1x 3g.40gb")
    expect(person.dialog.locator(".act-changes")).to_contain_text("MIG mode")
    person.dialog.locator("[name=reason]").fill("two teams")
    do(person, "split")
    expect(mig).to_contain_text("Split into 2x 2g.20gb + 1x 3g.40gb")
    expect(mig.locator(".limit")).to_have_attribute("data-state", "in_force")
    expect(mig).to_contain_text("two teams")
    is_readable(person, ".mig")
    [now] = [row for row in boards(demo) if row["gpu"] == board.uuid]
    assert (now["is_on"], len(now["instances"]), now["service"]) == (True, 3, "cordoned")
    mig.get_by_role("button", name="Split by MIG").click()
    person.dialog.locator("[name=layout]").fill("off")
    person.dialog.locator("[name=reason]").fill("one team")
    do(person, "whole")
    expect(mig).to_contain_text("Not split: MIG is off")
    expect(mig).to_contain_text("gpudeck keeps no layout here")
    press(person, service, "Return")
    expect(service).to_have_text(re.compile("In service"))
