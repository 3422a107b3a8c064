"""Settings of GPUs as acts on this very machine: shown, done, read back, held, undone. On simulated
GPUs, and on the C fake of the driver with its setters recorded."""

import random
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from agent.actions import guard
from agent.actions.execute import ActionExecutor, never_recalled
from agent.actions.kinds.execution import ActionTimeouts
from agent.actions.replies import first_reply
from agent.actions.standalone import StandaloneNode, own_command
from agent.backends import NVML, SIMULATED
from agent.backends.simulation.folder import SimulationControlFile
from agent.backends.simulation.reader import SimulatedReader, parse_options
from agent.journal.store import ActionJournal, ActionStore
from agent.limits.apply import UNSURE, LimitApplier
from agent.readings import GpuLimits
from agent.tasks.boot_id import boot_id
from gpudeck.contract.actions import CommandActor, Reply
from gpudeck.contract.limits import (
    ClockLock,
    ComputeMode,
    LimitRelease,
    PowerCap,
    Setting,
    TimedLimit,
)
from gpudeck.measures.metrics import COLUMN
from tests.fakes.children import Children
from tests.fakes.hub import wait_for
from tests.fakes.nvml import FakeNvml
from tests.integration.limits_bench import HOUR_S, Bench, Held, codes, done, shown


@pytest.fixture
def bench(tmp_path: Path, children: Children, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(guard, "YOUNGEST_S", 0.0)
    children.start()
    return Bench(tmp_path, children)


def test_a_cap_is_read_back_held_and_undone(bench: Bench) -> None:
    low, high = bench.facts.power_limit_min_w, bench.facts.power_limit_max_w
    assert low is not None and high is not None  # noqa: PT018
    watts, before = random.randint(int(low), int(high) - 10), bench.power_w()
    with bench.here() as here:
        look = shown(here, PowerCap(bench.gpu, watts, HOUR_S))
        [change] = look.changes
        assert (change.before, change.after) == (f"{before:.0f} W", f"{watts} W for 1 h")
        assert look.refusals == ()
        for wrong in (int(low) - 1, int(high) + 1):
            assert codes(here, PowerCap(bench.gpu, wrong, HOUR_S)) == ["setting"]
        assert codes(here, LimitRelease(bench.gpu, "power")) == ["setting"], "there is none of ours"
        assert codes(here, PowerCap("GPU-nobody", watts, HOUR_S)) == ["setting"]
        assert bench.power_w() == before, "looking touches nothing"
        reply = here.act(look, "the room is hot", "ada")
        assert reply.state == "done"
        assert reply.verified is not None
        assert (reply.verified.applied, reply.verified.in_force) == (True, True)
        assert bench.power_w() == watts
        [lease] = bench.book().all()
        assert (lease.before, lease.by, lease.reason) == ((before,), "ada", "the room is hot")
        with bench.keeper() as run:
            run.round()
            assert [lease.state for lease in run.leases] == ["in_force"]
        assert done(here, LimitRelease(bench.gpu, "power")).state == "done"
    assert bench.power_w() == before
    assert bench.book().all() == ()
    assert all(child.is_alive() for child in bench.children.all)


def test_the_gpus_of_a_task_are_limited_for_a_time_and_taken_back_by_whom_they_were(
        bench: Bench) -> None:
    """The rung `limit` of a ladder."""
    child = bench.children.start(gpu=bench.gpu)
    before = bench.power_w() or 0.0
    watts = round(max(before * 0.7, bench.facts.power_limit_min_w or 0.0))
    with bench.here(rules_may_act=True) as here:
        shown_first = here.preview("limit", child.task_id)
        reply = here.act(shown_first, "too hot", "hot@12345678")
        assert (reply.state, reply.step) == ("done", f"limited to {watts} W for 1 h at most")
        assert bench.power_w() == watts
        [limit] = bench.book().all()
        assert (limit.before, limit.by, limit.what) == ((before,), "hot@12345678", "power")
        reply = here.act(here.preview("limit", child.task_id), "again", "other@12345678")
        assert (reply.state, "has a timed power limit already" in reply.step) == ("refused", True)
        for whose, state, left_w in (("other@12345678", "refused", watts),
                                     ("hot@12345678", "done", before)):
            reply = as_rule(here, LimitRelease(bench.gpu, "power"), whose)
            assert reply.state == state, reply.step
            assert state == "done" or "takes back its own alone" in reply.step
            assert bench.power_w() == left_w
        assert bench.book().all() == ()
        other = bench.children.start(gpu=bench.gpu)
        reply = here.act(here.preview("limit", child.task_id), "too hot", "hot@12345678")
        assert (reply.state, "would slow them" in reply.step) == ("refused", True)
        assert bench.power_w() == before
    assert child.is_alive()
    assert other.is_alive()


def test_a_board_that_takes_no_lower_power_limit_gets_its_clocks_locked(bench: Bench) -> None:
    child = bench.children.start(gpu=bench.gpu)
    bench.limiter.set_power(bench.gpu, bench.facts.power_limit_min_w or 0.0)
    before = bench.limiter.read([bench.gpu])[bench.gpu]
    top = round((before.clock_max_mhz or 0.0) * 0.7)
    with bench.here(rules_may_act=True) as here:
        reply = here.act(here.preview("limit", child.task_id), "too hot", "hot@12345678")
        assert (reply.state, reply.step) == (
            "done", f"limited to clocks of {top} MHz for 1 h at most")
        assert bench.limiter.read([bench.gpu])[bench.gpu].locked_mhz == (210.0, float(top))
        reply = here.act(here.preview("limit", child.task_id), "again", "other@12345678")
        assert (reply.state, "has a timed clock lock already" in reply.step) == ("refused", True)
        reply = as_rule(here, LimitRelease(bench.gpu, "clocks"), "hot@12345678")
        assert reply.state == "done", reply.step
    after = bench.limiter.read([bench.gpu])[bench.gpu]
    assert (after.locked_mhz, after.power_w) == (None, before.power_w)
    assert child.is_alive()


def as_rule(here: StandaloneNode, setting: Setting, name: str) -> Reply:
    command = own_command("n1", shown(here, setting), CommandActor("rule", name), "over")
    accepted = here._journal.record_first(command, command.command_id,
                                          first_reply(command, "accepted"))
    return ActionExecutor(here._context, here._journal, lambda reply: None, ActionTimeouts(),
                          never_recalled).act(command, accepted)


def test_a_capped_gpu_draws_less_and_a_locked_one_clocks_lower(bench: Bench) -> None:
    """The limits last until the driver is reloaded."""
    control = bench.folder / "control.json"
    at = [time.time()]
    reader = SimulatedReader(parse_options(f"node=n1,gpus=1,world={bench.folder}"),
                             SimulationControlFile(control), clock=lambda: at[0])

    def mean(key: str) -> float:
        values = []
        for _ in range(20):
            at[0] += 1
            values.append(reader.read().gpus[0].values[COLUMN[key]])
        return sum(values) / len(values)

    free_w, free_mhz = max(mean("power_w"), 1.0), mean("sm_clock_mhz")
    idle_w = bench.facts.power_limit_min_w or 0.0
    bench.limiter.set_power(bench.gpu, idle_w)
    assert mean("power_w") <= idle_w
    bench.limiter.lock_clocks(bench.gpu, 210, 600)
    assert mean("sm_clock_mhz") <= 600 < free_mhz
    assert mean("power_w") < free_w
    assert "wrong for this GPU" in bench.limiter.set_power(bench.gpu, 1e4)


def test_expiry_drift_and_a_restart(bench: Bench) -> None:
    """The agent sets nothing twice; what somebody else set is shown, and left alone at the end."""
    low = int(bench.facts.power_limit_min_w or 0)
    before = bench.power_w()
    sets: list[float] = []

    class Counting(LimitApplier):
        def set_power(self, uuid: str, watts: float) -> str:
            sets.append(watts)
            return super().set_power(uuid, watts)

    limiter = Counting(SIMULATED, bench.options, lambda _: "")
    with bench.here() as here:
        assert done(here, PowerCap(bench.gpu, low, HOUR_S)).state == "done"
    for _ in range(2):  # the agent is restarted, and all is as it was
        with bench.keeper(limiter) as run:
            run.round()
            run.round()
            assert [lease.state for lease in run.leases] == ["in_force"]
            assert len(run.said) == 1, "said once"
    assert sets == []
    bench.limiter.set_power(bench.gpu, before or 0.0)  # the driver was reloaded meanwhile
    with bench.keeper(limiter) as run:
        run.round()
        assert (sets, bench.power_w()) == ([low], low)
        assert [lease.state for lease in run.leases] == ["in_force"]
        bench.limiter.set_power(bench.gpu, before or 0.0)
        run.round(is_ok=False)
        run.round()  # as above, and the agent lived on
        assert (sets, bench.power_w()) == ([low, low], low)
        bench.limiter.set_power(bench.gpu, low + 50.0)  # somebody's own doing
        run.round()
        assert [lease.state for lease in run.leases] == ["drifted"]
        assert f"{low + 50} W" in run.leases[0].words
        assert (sets, bench.power_w()) == ([low, low], low + 50)
    with bench.here() as here:
        assert done(here, PowerCap(bench.gpu, low, 1.0)).state == "done"  # another, for a second
        with bench.keeper(limiter) as run:
            run.round()
            wait_for(lambda: run.round() == ())
        assert bench.power_w() == before, "what was before the first of them"


def test_a_gpu_that_is_slow_to_come_back_gets_its_limit_all_the_same(bench: Bench) -> None:
    """The limit is set once after the driver was reloaded; what somebody sets later is theirs."""
    low = int(bench.facts.power_limit_min_w or 0)
    before = bench.power_w() or 0.0
    mute = {"read": 2, "set": 1}

    class Slow(LimitApplier):
        def read(self, uuids: Sequence[str]) -> dict[str, GpuLimits]:
            mute["read"] -= 1
            return super().read(uuids) if mute["read"] < 0 else {
                uuid: GpuLimits(uuid, trouble=UNSURE) for uuid in uuids}

        def set_power(self, uuid: str, watts: float) -> str:
            mute["set"] -= 1
            return super().set_power(uuid, watts) if mute["set"] < 0 else UNSURE

    with bench.here() as here:
        assert done(here, PowerCap(bench.gpu, low, HOUR_S)).state == "done"
    bench.limiter.set_power(bench.gpu, before)
    with bench.keeper(Slow(SIMULATED, bench.options, lambda _: "")) as run:
        for state in ("unknown", "unknown", "not_in_force", "in_force"):
            run.round()
            assert [lease.state for lease in run.leases] == [state]
        assert bench.power_w() == low
        assert recorded(bench, "lease_again") == ["not_in_force", "in_force"], "each is an attempt"
        bench.limiter.set_power(bench.gpu, low + 50.0)
        run.round()
        assert [lease.state for lease in run.leases] == ["drifted"]


def recorded(bench: Bench, kind: str) -> list[str]:
    """States, out of the Audit of the node."""
    journal = ActionJournal(ActionStore(bench.data / "acts.db"))
    records = [msgspec.json.decode(link.body) for link in journal.audit.links()]
    return [str(body.get("mode", body)["state"]) for body in records if body.get("kind") == kind]


def test_what_waits_for_a_hold_nobody_is_said_to_have_changed(bench: Bench) -> None:
    low, before = int(bench.facts.power_limit_min_w or 0), bench.power_w() or 0.0
    with bench.here() as here:
        assert done(here, PowerCap(bench.gpu, low, HOUR_S)).state == "done"
    bench.limiter.set_power(bench.gpu, before)  # the driver was reloaded
    held_back = ["a hold"]
    with bench.keeper(holds=lambda: tuple(held_back)) as run:
        for _ in range(2):
            run.round()
            [lease] = run.leases
            assert (lease.state, "somebody" in lease.words, "are stopped" in lease.words) == (
                "not_in_force", False, True)
        held_back.clear()
        run.round()
        assert [lease.state for lease in run.leases] == ["in_force"]
    assert bench.power_w() == low


def test_a_hold_stops_undoing_too_and_says_so(bench: Bench) -> None:
    low = int(bench.facts.power_limit_min_w or 0)
    with bench.here() as here:
        assert done(here, PowerCap(bench.gpu, low, 1.0)).state == "done"
        (bench.data / "hold").write_text("careful\n")
        assert codes(here, PowerCap(bench.gpu, low, HOUR_S)) == ["hold"]
        assert codes(here, LimitRelease(bench.gpu, "power")) == ["hold"]
    assert bench.power_w() == low


def test_what_an_act_left_open_is_taken_back(bench: Bench) -> None:
    """The agent was killed between the disk and the driver, or just behind it."""
    low = int(bench.facts.power_limit_min_w or 0)
    before = bench.power_w()
    for is_set in (True, False):
        if is_set:
            bench.limiter.set_power(bench.gpu, low)
        bench.book().begin(TimedLimit("c-1", bench.gpu, "power", (float(low),), (before or 0.0,),
                                      "ada",
                                      "", time.time(), time.time() + HOUR_S, boot_id(), 1e9,
                                      "beginning"))
        with bench.keeper() as run:
            run.round()
            assert run.leases == ()
        assert bench.power_w() == before


def test_it_counts_as_an_act_and_not_as_a_kill(bench: Bench) -> None:
    low = int(bench.facts.power_limit_min_w or 0)
    with bench.here(kills_per_hour=0) as here:
        assert codes(here, PowerCap(bench.gpu, low, HOUR_S)) == []
    with bench.here(actions=["end"]) as here:
        assert codes(here, PowerCap(bench.gpu, low, HOUR_S)) == ["type"]
        assert codes(here, LimitRelease(bench.gpu, "power")) == ["type", "setting"]
    with bench.here(terminal_may_act=False) as here:
        reply = here.act(shown(here, PowerCap(bench.gpu, low, HOUR_S)), "", "ada")
    assert reply.state == "refused"
    assert bench.book().all() == ()


def test_on_the_drivers_own_library(bench: Bench, tmp_path: Path,
                                    monkeypatch: pytest.MonkeyPatch) -> None:
    """The library reports success and does nothing, or refuses."""
    nvml = FakeNvml(tmp_path / "nvml", gpus=0)
    gpu = nvml.gpu(power_mw=250_000, power_limit_mw=700_000, power_min_mw=200_000,
                   power_max_mw=700_000, power_default_mw=700_000, util=90, sm_clock=1_900,
                   sm_clock_max=1_980)
    nvml.save()
    nvml.use_in_children(monkeypatch)
    uuid = str(gpu["uuid"])
    setter = "nvmlDeviceSetPowerManagementLimit"
    with bench.here("nvml") as here:
        watts = random.randint(200, 690)
        assert codes(here, PowerCap(uuid, 199, HOUR_S)) == ["setting"]
        assert nvml.calls(setter) == []
        reply = done(here, PowerCap(uuid, watts, HOUR_S))
        assert reply.state == "done", reply
        assert [call.arguments for call in nvml.calls(setter)] == [(str(watts * 1_000),)]
        assert not nvml.calls(f"{setter}_v2")
        gpu.ignore(setter)
        nvml.save()
        reply = done(here, PowerCap(uuid, 200, HOUR_S))
        assert (reply.state, reply.verified and reply.verified.applied) == ("not_effective", True)
        assert f"{watts} W" in reply.step
        gpu.error(setter, 4)
        nvml.save()
        reply = done(here, PowerCap(uuid, 210, HOUR_S))
        assert (reply.state, reply.refusal and reply.refusal.code) == ("refused", "permission")
        assert "CAP_SYS_ADMIN" in reply.step
        assert [limit.wanted for limit in bench.book().all()] == [(200.0,)], "the one before"
        reply = done(here, ClockLock(uuid, 210, 1_410, HOUR_S))
        assert reply.state == "done"
        assert "cannot read a lock back" in reply.step
        assert codes(here, ClockLock(uuid, 1_410, 210, HOUR_S)) == ["setting"]
        assert codes(here, ClockLock(uuid, 210, 9_000, HOUR_S)) == ["setting"]


def test_a_gpu_is_made_exclusive_and_opened_again(bench: Bench) -> None:
    """Running tasks go on; the preview names those that would hinder the others."""
    child = bench.children.start(gpu=bench.gpu)
    with bench.here(kills_per_hour=0) as here:
        look = shown(here, ComputeMode(bench.gpu, "exclusive_process"))
        [change] = look.changes
        assert (change.before.split(":")[0], change.after.split(":")[0]) == ("default", "exclusive")
        assert look.refusals == ()
        assert any(str(child.pid) in words and "without MPS" in words for words in look.warnings)
        assert not any("slows" in words for words in look.warnings)
        reply = here.act(look, "", "ada")
        assert reply.state == "done", reply
        assert reply.verified is not None
        assert (reply.verified.applied, reply.verified.in_force) == (True, True)
        assert bench.limiter.read([bench.gpu])[bench.gpu].compute_mode == 3
        assert bench.book().all() == (), "it has no end of its own"
        assert done(here, ComputeMode(bench.gpu, "default")).state == "done"
        assert codes(here, ComputeMode("GPU-nobody", "default")) == ["setting"]
    with bench.here(actions=["set_power_cap"]) as here:
        assert codes(here, ComputeMode(bench.gpu, "default")) == ["type"]
    assert bench.limiter.read([bench.gpu])[bench.gpu].compute_mode == 0
    assert child.is_alive()


def test_the_mode_on_the_drivers_own_library(bench: Bench, tmp_path: Path,
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml(tmp_path / "nvml", gpus=0)
    gpu = nvml.gpu(compute_mode=0)
    nvml.save()
    nvml.use_in_children(monkeypatch)
    uuid, setter = str(gpu["uuid"]), "nvmlDeviceSetComputeMode"
    with bench.here("nvml") as here:
        assert done(here, ComputeMode(uuid, "exclusive_process")).state == "done"
        assert [call.arguments for call in nvml.calls(setter)] == [("3",)]
        gpu.ignore(setter)
        nvml.save()
        reply = done(here, ComputeMode(uuid, "default"))
        assert (reply.state, reply.verified and reply.verified.applied) == ("not_effective", True)
        assert "applied, not in force" in reply.step
        gpu.error(setter, 4)
        nvml.save()
        reply = done(here, ComputeMode(uuid, "default"))
        assert (reply.state, reply.refusal and reply.refusal.code) == ("refused", "permission")
        gpu.error("nvmlDeviceGetComputeMode", 3)  # as of a board that MIG has split
        nvml.save()
        assert codes(here, ComputeMode(uuid, "default")) == ["setting"]


def test_a_mode_is_held_until_it_is_set_back(bench: Bench) -> None:
    """The agent sets it once more after the driver was reloaded or itself restarted, and never
    otherwise; what somebody else has set is left alone for good."""
    sets: list[float] = []

    class Counting(LimitApplier):
        def set_mode(self, uuid: str, mode: int) -> str:
            sets.append(mode)
            return super().set_mode(uuid, mode)

    def mode() -> int | None:
        return bench.limiter.read([bench.gpu])[bench.gpu].compute_mode

    def mode_states(run: Held, is_ok: bool = True) -> list[str]:
        run.round(is_ok)
        return [entry.state for entry in run.said[-1].modes]

    limiter = Counting(SIMULATED, bench.options, lambda _: "")
    reason = f"MPS alone {random.random()}"
    with bench.here() as here:
        assert done(here, ComputeMode(bench.gpu, "exclusive_process"), reason).state == "done"
        for _ in range(2):  # the agent is restarted, and all is as it was
            with bench.keeper(limiter) as run:
                assert mode_states(run) == mode_states(run) == ["in_force"]
                [entry] = run.said[-1].modes
                assert (entry.gpu_uuid, entry.by, entry.reason) == (bench.gpu, "ada", reason)
        assert (sets, recorded(bench, "mode_again")) == ([], [])
        bench.limiter.set_mode(bench.gpu, 0)  # the driver was reloaded meanwhile
        with bench.keeper(limiter) as run:
            assert (mode_states(run), sets, mode()) == (["in_force"], [3], 3)
            assert recorded(bench, "mode_again") == ["in_force"]
            bench.limiter.set_mode(bench.gpu, 0)
            run.round(is_ok=False)  # as above, and the agent lived on
            assert (mode_states(run), sets, mode()) == (["in_force"], [3, 3], 3)
            bench.limiter.set_mode(bench.gpu, 2)  # somebody's own doing
            assert mode_states(run) == ["drifted"]
            assert "prohibited" in run.said[-1].modes[0].words
            bench.limiter.set_mode(bench.gpu, 0)
            run.round(is_ok=False)
            assert mode_states(run) == ["drifted"]
        with bench.keeper(limiter) as run:
            assert (mode_states(run), sets, mode()) == (["drifted"], [3, 3], 0)
        assert done(here, ComputeMode(bench.gpu, "exclusive_process")).state == "done"
        assert done(here, ComputeMode(bench.gpu, "default")).state == "done"  # the undo
        bench.limiter.set_mode(bench.gpu, 0)
        with bench.keeper(limiter) as run:
            assert (mode_states(run), sets, mode()) == ([], [3, 3], 0)


def test_a_mode_waits_for_a_driver_that_is_slow_and_for_a_hold(bench: Bench) -> None:
    mute = {"read": 2, "set": 1}

    class Slow(LimitApplier):
        def read(self, uuids: Sequence[str]) -> dict[str, GpuLimits]:
            mute["read"] -= 1
            return super().read(uuids) if mute["read"] < 0 else {
                uuid: GpuLimits(uuid, trouble=UNSURE) for uuid in uuids}

        def set_mode(self, uuid: str, mode: int) -> str:
            mute["set"] -= 1
            return super().set_mode(uuid, mode) if mute["set"] < 0 else UNSURE

    with bench.here() as here:
        assert done(here, ComputeMode(bench.gpu, "exclusive_process")).state == "done"
    bench.limiter.set_mode(bench.gpu, 0)
    with bench.keeper(Slow(SIMULATED, bench.options, lambda _: ""), lambda: ("held",)) as run:
        for state in ("unknown", "unknown", "not_in_force", "not_in_force"):
            run.round()
            assert [entry.state for entry in run.said[-1].modes] == [state]
        assert "are stopped" in run.said[-1].modes[0].words
    mute["read"] = 2
    with bench.keeper(Slow(SIMULATED, bench.options, lambda _: "")) as run:
        for state in ("unknown", "unknown", "not_in_force", "in_force"):
            run.round()
            assert [entry.state for entry in run.said[-1].modes] == [state]
    assert bench.limiter.read([bench.gpu])[bench.gpu].compute_mode == 3


def test_a_mode_that_the_driver_ignores_or_refuses_is_not_in_force(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sentence blames nobody for a change. An undo that is refused leaves the mode kept."""
    nvml = FakeNvml(tmp_path / "nvml", gpus=0)
    gpu = nvml.gpu(compute_mode=0)
    nvml.save()
    nvml.use_in_children(monkeypatch)
    uuid, setter = str(gpu["uuid"]), "nvmlDeviceSetComputeMode"
    with bench.here("nvml") as here:
        assert done(here, ComputeMode(uuid, "exclusive_process")).state == "done"
        gpu.error(setter, 4)
        nvml.save()
        assert done(here, ComputeMode(uuid, "default")).state == "refused"
    for way in ("refuses", "ignores"):
        gpu.heal()
        nvml.reload_driver()
        gpu.error(setter, 4) if way == "refuses" else gpu.ignore(setter)
        nvml.save()
        with bench.keeper(LimitApplier(NVML, "", lambda _: "")) as run:
            for _ in range(2):
                run.round()
                [entry] = run.said[-1].modes
                assert (entry.gpu_uuid, entry.state) == (uuid, "not_in_force")
                assert ("CAP_SYS_ADMIN" in entry.words) == (way == "refuses")
