"""A board that is out of service is split by MIG and made whole again, on the C fake of the driver:
instances in use are never touched, what fails is taken back, and whoever dies in the middle leaves
a board that says how to go on or back."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.actions import guard, quiet_window
from agent.actions.kinds import mig_layout
from agent.backends import NVML, mig_managers
from agent.backends.nvml import repair as nvml_repair
from agent.cli.mig import mig as cli_mig
from agent.journal.facts import Fact
from agent.limits.apply import LimitApplier
from agent.limits.stores import MigLayoutStore
from agent.tasks.boot_id import boot_id
from gpudeck.contract.limits import MigLayout
from gpudeck.contract.wire import GpuFacts
from tests.fakes.children import Children
from tests.fakes.nvml import FakeGpu
from tests.integration.killing import killed_at_every_step
from tests.integration.limits_bench import Held, codes, shown
from tests.integration.mig_bench import WISH, MigBench, in_this_process

WISHED = {14: 2, 9: 1}
INSUFFICIENT, IN_USE, UNKNOWN = 23, 19, 999
CREATE, CREATE_PART = ("nvmlDeviceCreateGpuInstanceWithPlacement",
                       "nvmlGpuInstanceCreateComputeInstance")
SET_MODE = "nvmlDeviceSetMigMode"
DESTROY, DESTROY_PART = "nvmlGpuInstanceDestroy", "nvmlComputeInstanceDestroy"


def state(run: Held) -> str:
    return run.said[-1].layouts[0].state


@pytest.fixture
def bench(tmp_path: Path, children: Children, monkeypatch: pytest.MonkeyPatch) -> MigBench:
    monkeypatch.setattr(guard, "YOUNGEST_S", 0.0)
    monkeypatch.setattr(mig_layout, "other_manager", lambda: "")
    monkeypatch.setattr(nvml_repair, "holders", lambda facts: ())  # not of this machine's /proc
    children.start(gpu="GPU-elsewhere")
    new_bench = MigBench(tmp_path, children)
    new_bench.nvml.use(monkeypatch)
    in_this_process(monkeypatch)
    return new_bench


def test_what_a_driver_fails_at_in_any_order_is_made(bench: MigBench) -> None:
    """2g+2g+3g, by its own child process of the driver too."""
    with bench.node() as here:
        assert codes(here, MigLayout(bench.gpu, WISH)) == ["setting"], "it is in service"
    bench.cordon()
    reply = bench.act()
    assert (reply.state, bench.there()) == ("done", WISHED), reply.step
    record = bench.kept()
    assert record is not None
    assert (record.state, record.layout, record.before) == ("in_force", WISH, "none")
    assert bench.act("none").state == "done"
    assert (bench.there(), bench.kept()) == ({}, None)


def test_the_real_child_process_makes_an_instance(bench: MigBench, monkeypatch: pytest.MonkeyPatch
                                                  ) -> None:
    monkeypatch.undo()
    bench.nvml.use(monkeypatch)
    applier = LimitApplier(NVML, "", lambda _: "")
    assert applier.create_instance(bench.gpu, 9, 4) == ""
    [instance] = applier.mig(bench.gpu).instances
    assert (instance.profile, instance.start, len(instance.uuids)) == (9, 4, 1)
    assert applier.destroy_instance(bench.gpu, instance.id) == ""
    assert applier.mig(bench.gpu).instances == ()
    assert "no room" in (applier.create_instance(bench.gpu, 9, 4)
                         or applier.create_instance(bench.gpu, 5, 0)
                         or applier.create_instance(bench.gpu, 0, 0))


def test_the_terminal_says_how_each_board_is_split(bench: MigBench,
                                                   capsys: pytest.CaptureFixture[str]) -> None:
    words = ["show", "--data", str(bench.data), "--backend", "nvml"]
    bench.cordon()
    assert bench.act().state == "done"
    assert cli_mig(words) == 0
    output = capsys.readouterr().out
    assert "GPU 0  now: 2x 2g.20gb + 1x 3g.40gb  kept: " in output
    assert "in force" in output
    assert bench.act("off").state == "done"
    assert cli_mig(words) == 0
    assert "GPU 0  now: off  no layout is kept" in capsys.readouterr().out


def test_one_in_use_stays_and_the_rest_is_made_around_it(bench: MigBench, children: Children
                                                         ) -> None:
    busy, idle = bench.instance(9, 4), bench.instance(19, 0)
    child = on(bench, children, busy)
    bench.cordon()
    with bench.node() as here:
        look = shown(here, MigLayout(bench.gpu, WISH))
        assert look.refusals == ()
        assert [bystander.task_id for bystander in look.bystanders] == [child.task_id]
        assert any("In use or leased" in warning for warning in look.warnings)
        assert codes(here, MigLayout(bench.gpu, "none")) == ["setting"]
        assert here.act(look, "why", "ada").state == "done"
    assert bench.there() == WISHED
    assert busy.uuid in {uuid for mig in bench.driver().instances for uuid in mig.uuids}
    assert idle.uuid not in {uuid for mig in bench.driver().instances for uuid in mig.uuids}
    assert child.is_alive()


def on(bench: MigBench, children: Children, device: FakeGpu) -> Any:
    child = children.start(gpu=device.uuid)
    device.process(child.pid, 2**30)
    bench.nvml.save()
    return child


def test_without_that_guard_the_driver_is_asked_to_destroy_it(
    bench: MigBench, children: Children, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control arm; with the guard it is not asked, whatever it would answer."""
    busy = bench.instance(9, 0)
    on(bench, children, busy)
    bench.cordon()
    assert bench.act("7g.80gb").state == "refused"
    assert bench.nvml.calls(DESTROY_PART) == []
    monkeypatch.setattr(mig_layout, "_in_use", lambda *_: ())
    bench.act("7g.80gb")
    assert [call.code for call in bench.nvml.calls(DESTROY_PART)][:1] == [IN_USE]


def test_a_leased_instance_is_in_use_without_a_task(bench: MigBench) -> None:
    leased = bench.instance(9, 0)
    bench.cordon()
    with bench.node() as here:
        here._journal.keep(Fact.POOL_LEASES, f'{{"boot_id": "{boot_id()}", "leases": '
                                   f'[{{"uuids": ["{leased.uuid}"]}}]}}')
        [refusal] = shown(here, MigLayout(bench.gpu, "7g.80gb")).refusals
        assert "in use" in refusal.sentence
        here._journal.keep(Fact.POOL_LEASES, f'{{"boot_id": "{boot_id()}", "leases": '
                                   f'[{{"uuids": ["{bench.gpu}"]}}]}}')
        [refusal] = shown(here, MigLayout(bench.gpu, "7g.80gb")).refusals
        assert "whole board is leased" in refusal.sentence


def test_a_task_that_came_after_the_preview_is_seen(bench: MigBench, children: Children) -> None:
    device = bench.instance(9, 0)
    bench.cordon()
    with bench.node() as here:
        look = shown(here, MigLayout(bench.gpu, "7g.80gb"))
        assert look.refusals == ()
        on(bench, children, device)
        assert here.act(look, "why", "ada").state == "refused"
    assert bench.nvml.calls(DESTROY_PART) == []


def test_not_to_know_is_no_permission(bench: MigBench, children: Children) -> None:
    bench.cordon()
    with bench.node() as here:
        children.hangs = True
        [refusal] = shown(here, MigLayout(bench.gpu, WISH)).refusals
        assert "does not list its processes" in refusal.sentence
        children.hangs = False
        children.start(gpu="MIG-of-nobody-we-know")
        [refusal] = shown(here, MigLayout(bench.gpu, WISH)).refusals
        assert "not known on which instance" in refusal.sentence


@pytest.mark.parametrize(("values", "layout", "why"), [
    ({"mig": 0, "mig_pending": 0}, WISH, "-mig 1"),
    ({"mig": 1, "mig_pending": 0}, WISH, "waits for a reset"), ({}, "off", "-mig 0"),
    ({"mig": None}, WISH, "cannot be split")])
def test_a_mode_that_needs_a_reset_is_left_to_people(bench: MigBench, values: dict[str, object],
                                                     layout: str, why: str) -> None:
    bench.board.update(values)
    bench.board["field_184"] = random.choice((None, "ui 0", "error 3"))
    bench.nvml.save()
    bench.cordon()
    with bench.node() as here:
        [refusal] = shown(here, MigLayout(bench.gpu, layout)).refusals
    assert why in refusal.sentence
    assert bench.nvml.calls(SET_MODE) == []


def test_the_mode_is_a_step_of_the_plan_where_no_reset_is_needed(bench: MigBench) -> None:
    bench.board.update(mig=0, mig_pending=0)
    bench.nvml.save()
    bench.cordon()
    with bench.node() as here:
        look = shown(here, MigLayout(bench.gpu, WISH))
        assert [(change.what, change.before, change.after) for change in look.changes][:2] == [
            ("MIG", "off", WISH), ("MIG mode", "off", "on")]
        assert any("nobody has open" in warning for warning in look.warnings)
        assert here.act(look, "why", "ada").state == "done"
    assert bench.mode_and_layout() == (True, WISHED)
    assert not (bench.data / quiet_window.QUIET_FILE).exists(), "the readers may read again"
    assert bench.act("none").state == "done"
    assert bench.mode_and_layout() == (True, {}), "none leaves the mode"
    assert bench.act("off").state == "done"
    assert (bench.mode_and_layout(), bench.kept()) == ((False, {}), None)


@pytest.mark.parametrize("fault", ["mig_held", "mig_needs_reset"])
def test_a_refused_mode_does_not_stay_pending(bench: MigBench, fault: str) -> None:
    """Else the board would change at its next reset, when nobody expects it."""
    bench.board.update({"mig": 0, "mig_pending": 0, fault: 1})
    bench.nvml.save()
    bench.cordon()
    reply = bench.act()
    assert (reply.state, bench.mode_and_layout()) == ("not_effective", (False, {}))
    assert "gone back to off" in reply.step
    assert bench.kept() is None


def test_a_mode_that_is_pending_is_cleared(bench: MigBench) -> None:
    bench.board.update(mig=0, mig_pending=1)
    bench.nvml.save()
    bench.cordon()
    assert bench.act("off").state == "done"
    assert bench.mode_and_layout() == (False, {})


@pytest.mark.parametrize("holders", [("train (4711)",), None])
def test_a_board_that_is_open_keeps_its_mode(bench: MigBench, holders: tuple[str, ...] | None,
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml_repair, "holders", lambda facts: holders)
    bench.board.update(mig=0, mig_pending=0)
    bench.nvml.save()
    bench.cordon()
    assert bench.act().state == "not_effective"
    assert bench.nvml.calls(SET_MODE) == []


def test_a_task_on_a_whole_board_keeps_its_mode(bench: MigBench, children: Children,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    """The control arm follows: without that guard the driver is asked."""
    bench.board.update(mig=0, mig_pending=0)
    child = on(bench, children, bench.board)
    bench.cordon()
    assert bench.act().state == "refused"
    assert bench.nvml.calls(SET_MODE) == []
    monkeypatch.setattr(mig_layout, "_in_use", lambda *_: ())
    bench.act()
    assert len(bench.nvml.calls(SET_MODE)) > 0
    assert child.is_alive()


@pytest.mark.parametrize(("layout", "why"), [
    ("3x 3g.40gb", "room for 2"), ("1g.99gb", "no profile"), ("seven", "not part of a layout")])
def test_what_cannot_be_is_said(bench: MigBench, layout: str, why: str) -> None:
    bench.cordon()
    with bench.node() as here:
        [refusal] = shown(here, MigLayout(bench.gpu, layout)).refusals
    assert why in refusal.sentence


@pytest.mark.parametrize(("call", "code", "after"), [
    (CREATE, INSUFFICIENT, 0), (CREATE, UNKNOWN, 2), (CREATE_PART, UNKNOWN, 1),
    (DESTROY, IN_USE, 0), (CREATE, 4, 0)])
def test_what_fails_is_taken_back(bench: MigBench, call: str, code: int, after: int) -> None:
    """A refusal of the driver at any step; only once, so that there is a way back."""
    bench.instance(19, 0)
    bench.board.error(call, code, after=after, times=1)
    for device in bench.board.instances:
        device.error(call, code, after=after, times=1)
    bench.nvml.save()
    bench.cordon()
    reply = bench.act("1x 4g.40gb + 1x 3g.40gb")
    assert (reply.state, bench.there()) in (("not_effective", {19: 1}), ("done", {5: 1, 9: 1}))
    if reply.state != "done":
        assert "gone back to 1x 1g.10gb" in reply.step
        assert bench.kept() is None


def test_what_cannot_be_taken_back_says_how(bench: MigBench) -> None:
    bench.instance(19, 0)
    bench.board.error(CREATE, UNKNOWN, after=1)
    bench.nvml.save()
    bench.cordon()
    reply = bench.act("1x 4g.40gb + 1x 3g.40gb")
    record = bench.kept()
    assert record is not None
    assert (reply.state, record.state) == ("not_effective", "half_made")
    for words in (reply.step, record.words):
        assert "`gpudeck mig apply '1x 1g.10gb'` goes back" in words
    bench.board.heal()
    bench.nvml.save()
    assert bench.act("1g.10gb").state == "done"
    assert bench.there() == {19: 1}


def test_a_driver_that_says_yes_and_does_nothing_is_noticed(bench: MigBench) -> None:
    bench.board.ignore(CREATE_PART)
    bench.nvml.lines.append(f"ignore * {DESTROY}")
    bench.instance(19, 0)
    bench.cordon()
    assert bench.act("7g.80gb").state == "not_effective"


STEPS = [(LimitApplier, name) for name in ("destroy_instance", "create_instance", "set_mig_mode",
                                           "mig")] + [(MigLayoutStore, "keep")]


@pytest.mark.parametrize("after", [False, True])
def test_killed_at_every_step(bench: MigBench, after: bool, monkeypatch: pytest.MonkeyPatch
                              ) -> None:
    """A kill on the way from 1g + 1g to 4g + 3g leaves the former layout, the wanted one, or one
    that says how to come to either; and both ways are gone."""
    bench.instance(19, 0)
    bench.instance(19, 1)
    bench.cordon()
    ways = {"1x 3g.40gb + 1x 4g.40gb": {5: 1, 9: 1}, "2x 1g.10gb": {19: 2}}
    half_made = 0
    for number in killed(bench, monkeypatch, "1x 3g.40gb + 1x 4g.40gb", after):
        half_made += both_ways_are_gone(bench, ways, "2x 1g.10gb", number)
    assert half_made >= 3, "else this kills nowhere in the middle"


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("target", ["1x 3g.40gb + 1x 4g.40gb", "off"])
def test_killed_at_every_step_of_another_mode(bench: MigBench, after: bool, target: str,
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill on the way between a whole board and one in two parts, in either direction."""
    ways: dict[str, dict[int, int]] = {"1x 3g.40gb + 1x 4g.40gb": {5: 1, 9: 1}, "off": {}}
    [former] = {*ways} - {target}
    bench.cordon()
    assert bench.act(former).state == "done"
    half_made = 0
    for number in killed(bench, monkeypatch, target, after):
        half_made += both_ways_are_gone(bench, ways, former, number)
    assert half_made >= 2, "else this kills nowhere in the middle"


def killed(bench: MigBench, monkeypatch: pytest.MonkeyPatch, target: str, after: bool
           ) -> Iterator[int]:
    return killed_at_every_step(monkeypatch, STEPS, lambda: bench.act(target).state, after=after,
                                at_least=6)


def both_ways_are_gone(bench: MigBench, ways: dict[str, dict[int, int]], former: str, number: int
                       ) -> bool:
    """Check that what is left is the former layout, the wanted one, or one that says how to come to
    either, and go both ways. End with the former; return whether it was half made."""
    # A new agent waits until the window of the dead one is over.
    (bench.data / quiet_window.QUIET_FILE).unlink(missing_ok=True)
    is_half_made = False
    if bench.kept() is not None:
        now = bench.follow()
        assert now.state in ("in_force", "half_made"), (number, now)
        is_half_made = now.state == "half_made"
        assert not is_half_made or f"`gpudeck mig apply '{former}'` goes back" in now.words
    for layout in (*({*ways} - {former}), former):
        if bench.mode_and_layout() != (layout != "off", ways[layout]):
            reply = bench.act(layout)
            assert reply.state == "done", (number, layout, reply.step)
        assert bench.mode_and_layout() == (layout != "off", ways[layout])
    return is_half_made


def test_killed_between_the_two_halves_of_an_instance(bench: MigBench) -> None:
    """The child that speaks to the driver dies: a GPU instance without a compute instance."""
    bench.cordon()
    bench.board.error(CREATE_PART, UNKNOWN)
    bench.nvml.lines += [f"error * {CREATE_PART} {UNKNOWN}", f"error * {DESTROY} {UNKNOWN}"]
    bench.nvml.save()
    assert bench.act("7g.80gb").state == "not_effective"
    assert [instance.is_complete for instance in bench.driver().instances] == [False]
    assert bench.follow().state == "half_made"
    bench.nvml.lines.clear()
    bench.board.heal()
    bench.nvml.save()
    assert bench.act("none").state == "done"
    assert bench.driver().instances == ()


def test_lost_with_a_reset_it_is_made_again_on_an_empty_board_only(bench: MigBench) -> None:
    bench.cordon()
    assert bench.act().state == "done"
    assert bench.follow().state == "in_force"
    bench.nvml.reload_driver()
    now = bench.follow()
    assert (now.state, bench.there()) == ("in_force", WISHED)
    assert "created again" in now.words
    bench.nvml.reload_driver()
    bench.instance(19, 6)  # of somebody else, since
    assert bench.follow().state == "drifted"
    assert bench.there() == {19: 1}, "nothing was touched"


def test_with_the_mode_lost_it_waits(bench: MigBench) -> None:
    bench.cordon()
    assert bench.act().state == "done"
    bench.nvml.reload_driver()
    bench.board.update(mig=0, mig_pending=0)
    bench.nvml.save()
    with bench.keeper(LimitApplier(NVML, "", lambda _: "")) as run:
        run.round()
        assert state(run) == "not_in_force"
        bench.board.update(mig=1, mig_pending=1)
        bench.nvml.save()
        run.round()
        assert state(run) == "in_force"
    assert bench.there() == WISHED


def test_what_somebody_took_away_while_we_looked_on_is_drift(bench: MigBench) -> None:
    bench.cordon()
    assert bench.act("7g.80gb").state == "done"
    with bench.keeper(LimitApplier(NVML, "", lambda _: "")) as run:
        run.round()
        bench.nvml.reload_driver()
        run.round()
        assert state(run) == "drifted"
    assert bench.there() == {}


def test_while_actions_are_stopped_nothing_is_made_again(bench: MigBench) -> None:
    bench.cordon()
    assert bench.act("7g.80gb").state == "done"
    bench.nvml.reload_driver()
    with bench.keeper(LimitApplier(NVML, "", lambda _: ""), lambda: ("ops",)) as run:
        run.round()
        assert state(run) == "not_in_force"
    assert bench.there() == {}
    assert bench.follow().state == "in_force"


def test_a_ceiling_that_does_not_name_it_forbids_it(bench: MigBench) -> None:
    bench.cordon()
    with bench.here("nvml") as here:
        here._context.tasks.recent.set_facts([GpuFacts(bench.gpu, 0, "H100")])
        assert codes(here, MigLayout(bench.gpu, WISH)) == ["type"]


def test_another_manager_of_layouts_is_left_to_it(tmp_path: Path) -> None:
    wants = tmp_path / "wants"
    wants.mkdir()
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "comm").write_text("python\n")
    assert mig_managers.other_manager(tmp_path, wants) == ""
    (tmp_path / "7" / "comm").write_text("nvidia-mig-mana\n")
    assert "operator" in mig_managers.other_manager(tmp_path, wants)
    (wants / mig_managers.UNIT).symlink_to("/nowhere")
    assert "mig-parted" in mig_managers.other_manager(tmp_path, wants)
