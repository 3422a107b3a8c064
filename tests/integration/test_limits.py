"""Settings of Gpus and of MPS as acts on this very machine: shown, done, read back, held, undone.
On simulated Gpus, on the C fake of the driver with its setters recorded, and on the fake control
program of MPS."""

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent import guard
from agent.acts_journal import ActsJournal, ActsStore
from agent.backends.simulated import SimulatedReader, parse_options
from agent.backends.simulation.folder import ControlFile
from agent.lease_book import LeaseBook
from agent.limit_keeper import LimitKeeper, Machine
from agent.limiter import Limiter
from agent.local import Local
from agent.lock import ActLock
from agent.mps_book import MpsBook
from agent.scene import Place
from agent.tasks import boot_id
from gpudeck.acts import NO_TASK, Params, Preview, Reply
from gpudeck.limits import (
    ClockLock,
    ComputeMode,
    Lease,
    LimitOff,
    LimitsNow,
    MpsMemory,
    MpsPercent,
    MpsPreset,
    MpsPriority,
    MpsRestart,
    MpsStart,
    MpsStop,
    PowerCap,
    Setting,
    action_of,
)
from gpudeck.metrics import COLUMN
from tests.fakes.children import Child, Children, a_ceiling
from tests.fakes.hub import wait_for
from tests.fakes.mps_control import FakeMps
from tests.fakes.nvml import FakeNvml
from tests.integration.test_acts_crash import write_world

HOUR_S = 3_600.0


@pytest.fixture
def children() -> Iterator[Children]:
    made = Children()
    yield made
    made.close()


@pytest.fixture
def mps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMps]:
    made = FakeMps(tmp_path / "mps")
    for name, value in made.env().items():
        monkeypatch.setenv(name, value)
    made.start()
    yield made
    made.close()


class Bench:
    """One node with a folder of its own, acted on at its terminal."""

    def __init__(self, folder: Path, children: Children) -> None:
        self.folder, self.children = folder, children
        self.data = folder / "data"
        self.data.mkdir()
        self.ceiling = a_ceiling(folder)
        write_world(folder, children.all)
        self.options = f"node=n1,gpus=1,world={folder}"
        self.reader = SimulatedReader(parse_options(self.options), None)
        [facts] = self.reader.read().facts
        self.gpu = facts.uuid
        self.facts = facts

    def machine(self) -> Machine:
        return Machine(1, "580.95.05", {self.gpu: self.limiter.read([self.gpu])[
            self.gpu].compute_mode})

    @contextmanager
    def here(self, backend: str = "simulated", **ceiling: object) -> Iterator[Local]:
        a_ceiling(self.folder, **ceiling)
        with Local(self.data, backend, self.options, self.ceiling, source=self.children) as local:  # type: ignore[arg-type]
            yield local

    @property
    def limiter(self) -> Limiter:
        return Limiter("simulated", self.options)

    def power_w(self) -> float | None:
        return self.limiter.read([self.gpu])[self.gpu].power_w

    def book(self) -> LeaseBook:
        return LeaseBook(ActsJournal(ActsStore(self.data / "acts.db")))

    @contextmanager
    def keeper(self, limiter: Limiter | None = None) -> Iterator["Held"]:
        """As the agent has one; another each time, as after its restart."""
        store = ActsStore(self.data / "acts.db")
        journal = ActsJournal(store)
        book = LeaseBook(journal)
        place = Place("n1", boot_id(), self.children, lambda: (), lambda _: 0, self.ceiling, False,
                      limiter=limiter or self.limiter, book=book,
                      mps_book=MpsBook(journal, boot_id()))
        held = Held(LimitKeeper(place, book, ActLock(self.data),
                                self.machine, lambda: None))
        try:
            yield held
        finally:
            held.keeper.close()
            store.close()


class Held:
    def __init__(self, keeper: LimitKeeper) -> None:
        self.keeper = keeper
        self.said: list[LimitsNow] = []

    def round(self, is_ok: bool = True) -> tuple[Lease, ...]:
        self.keeper.changed()
        self.keeper.step(time.monotonic(), is_ok)
        wait_for(lambda: self.keeper._worker.is_idle)
        self.said += self.keeper.say()
        return self.leases

    @property
    def leases(self) -> tuple[Lease, ...]:
        return self.said[-1].leases


@pytest.fixture
def bench(tmp_path: Path, children: Children, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(guard, "YOUNGEST_S", 0.0)
    children.start()
    return Bench(tmp_path, children)


def shown(here: Local, setting: Setting, grace_s: float = 1.0) -> Preview:
    return here.preview(action_of(setting), NO_TASK, Params(grace_s=grace_s, setting=setting))


def done(here: Local, setting: Setting, reason: str = "a test", grace_s: float = 1.0) -> Reply:
    return here.act(shown(here, setting, grace_s), reason, "ada")


def codes(here: Local, setting: Setting) -> list[str]:
    return [each.code for each in shown(here, setting).refusals]


# --- Gpus


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
        assert codes(here, LimitOff(bench.gpu, "power")) == ["setting"], "there is none of ours"
        assert codes(here, PowerCap("GPU-nobody", watts, HOUR_S)) == ["setting"]
        assert bench.power_w() == before, "looking touches nothing"
        reply = here.act(look, "the room is hot", "ada")
        assert reply.state == "done"
        assert reply.verified is not None
        assert (reply.verified.applied, reply.verified.in_force) == (True, True)
        assert bench.power_w() == watts
        [lease] = bench.book().all()
        assert (lease.before, lease.by, lease.reason) == ((before,), "ada", "the room is hot")
        with bench.keeper() as held:
            held.round()
            assert [each.state for each in held.leases] == ["in_force"]
        assert done(here, LimitOff(bench.gpu, "power")).state == "done"
    assert bench.power_w() == before
    assert bench.book().all() == ()
    assert all(child.is_alive() for child in bench.children.all)


def test_a_capped_gpu_draws_less_and_a_locked_one_clocks_lower(bench: Bench) -> None:
    """Until the driver is loaded anew."""
    control = bench.folder / "control.json"
    at = [time.time()]
    reader = SimulatedReader(parse_options(f"node=n1,gpus=1,world={bench.folder}"),
                             ControlFile(control), clock=lambda: at[0])

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
    assert "wrong for this Gpu" in bench.limiter.set_power(bench.gpu, 1e4)


def test_expiry_drift_and_a_restart(bench: Bench) -> None:
    """Nothing is set twice; what somebody else has set is shown, and left alone at the end."""
    low = int(bench.facts.power_limit_min_w or 0)
    before = bench.power_w()
    sets: list[float] = []

    class Counting(Limiter):
        def set_power(self, uuid: str, watts: float) -> str:
            sets.append(watts)
            return super().set_power(uuid, watts)

    limiter = Counting("simulated", bench.options)
    with bench.here() as here:
        assert done(here, PowerCap(bench.gpu, low, HOUR_S)).state == "done"
    for _ in range(2):  # the agent is started anew, and all is as it was
        with bench.keeper(limiter) as held:
            held.round()
            held.round()
            assert [each.state for each in held.leases] == ["in_force"]
            assert len(held.said) == 1, "said once"
    assert sets == []
    bench.limiter.set_power(bench.gpu, before or 0.0)  # the driver was loaded anew meanwhile
    with bench.keeper(limiter) as held:
        held.round()
        assert (sets, bench.power_w()) == ([low], low)
        assert [each.state for each in held.leases] == ["in_force"]
        bench.limiter.set_power(bench.gpu, before or 0.0)
        held.round(is_ok=False)
        held.round()  # as above, and the agent lived on
        assert (sets, bench.power_w()) == ([low, low], low)
        bench.limiter.set_power(bench.gpu, low + 50.0)  # somebody's own doing
        held.round()
        assert [each.state for each in held.leases] == ["drifted"]
        assert f"{low + 50} W" in held.leases[0].words
        assert (sets, bench.power_w()) == ([low, low], low + 50)
    with bench.here() as here:
        assert done(here, PowerCap(bench.gpu, low, 1.0)).state == "done"  # another, for a second
        with bench.keeper(limiter) as held:
            held.round()
            wait_for(lambda: held.round() == ())
        assert bench.power_w() == before, "what was before the first of them"


def test_a_hold_stops_undoing_too_and_says_so(bench: Bench) -> None:
    low = int(bench.facts.power_limit_min_w or 0)
    with bench.here() as here:
        assert done(here, PowerCap(bench.gpu, low, 1.0)).state == "done"
        (bench.data / "hold").write_text("careful\n")
        assert codes(here, PowerCap(bench.gpu, low, HOUR_S)) == ["hold"]
        assert codes(here, LimitOff(bench.gpu, "power")) == ["hold"]
    assert bench.power_w() == low


def test_what_an_act_left_open_is_taken_back(bench: Bench) -> None:
    """The agent was killed between the disk and the driver, or just behind it."""
    low = int(bench.facts.power_limit_min_w or 0)
    before = bench.power_w()
    for is_set in (True, False):
        if is_set:
            bench.limiter.set_power(bench.gpu, low)
        bench.book().begin(Lease("c-1", bench.gpu, "power", (float(low),), (before or 0.0,), "ada",
                                 "", time.time(), time.time() + HOUR_S, boot_id(), 1e9,
                                 "beginning"))
        with bench.keeper() as held:
            held.round()
            assert held.leases == ()
        assert bench.power_w() == before


def test_it_counts_as_an_act_and_not_as_a_kill(bench: Bench) -> None:
    low = int(bench.facts.power_limit_min_w or 0)
    with bench.here(kills_per_hour=0) as here:
        assert codes(here, PowerCap(bench.gpu, low, HOUR_S)) == []
    with bench.here(actions=["end"]) as here:
        assert codes(here, PowerCap(bench.gpu, low, HOUR_S)) == ["type"]
        assert codes(here, LimitOff(bench.gpu, "power")) == ["type", "setting"]
    with bench.here(terminal_may_act=False) as here:
        reply = here.act(shown(here, PowerCap(bench.gpu, low, HOUR_S)), "", "ada")
    assert reply.state == "refused"
    assert bench.book().all() == ()


def test_on_the_drivers_own_library(bench: Bench, tmp_path: Path,
                                    monkeypatch: pytest.MonkeyPatch) -> None:
    """Which says success and does nothing, or refuses."""
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
        assert [each.wanted for each in bench.book().all()] == [(200.0,)], "the one before"
        reply = done(here, ClockLock(uuid, 210, 1_410, HOUR_S))
        assert reply.state == "done"
        assert "cannot read a lock back" in reply.step
        assert codes(here, ClockLock(uuid, 1_410, 210, HOUR_S)) == ["setting"]
        assert codes(here, ClockLock(uuid, 210, 9_000, HOUR_S)) == ["setting"]


def test_a_gpu_is_made_exclusive_and_opened_again(bench: Bench) -> None:
    """Who runs goes on; it is shown who would hinder the others."""
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


# --- MPS


def served(bench: Bench, mps: FakeMps, clients: int = 2) -> tuple[Child, list[Child]]:
    server = bench.children.start(listed=False)
    theirs = [bench.children.start(kind="mps_client") for _ in range(clients)]
    mps.server(server.pid, *(child.pid for child in theirs))
    return server, theirs


def test_new_clients_only_and_which_keep_the_old_value(bench: Bench, mps: FakeMps) -> None:
    server, clients = served(bench, mps)
    pipes = str(mps.pipes)
    with bench.here() as here:
        pct = random.randint(1, 99)
        look = shown(here, MpsPercent(pipes, pct, server.pid))
        assert look.refusals == ()
        assert {each.task_id for each in look.bystanders} == {each.task_id for each in clients}
        assert any("2 running clients keep the old value" in words for words in look.warnings)
        assert mps.changed() == ["-d"]
        reply = here.act(look, "", "ada")
        assert reply.state == "done", reply
        assert reply.verified is not None
        assert reply.verified.in_force is True
        assert reply.verified.bystanders_alive is True
        assert mps.changed() == ["-d", f"set_active_thread_percentage {server.pid} {pct}"]
        new = bench.children.start(kind="mps_client")
        mps.server(server.pid, *(child.pid for child in (*clients, new)))
        with bench.keeper() as held:
            held.round()
        [daemon] = [each for each in held.said[-1].daemons if each.pipes == pipes]
        assert {each.pid: each.pct for each in daemon.clients} == {
            **{child.pid: 100.0 for child in clients}, new.pid: float(pct)}
        for setting, line in (
            (MpsMemory(pipes, 3, 1_536), "set_default_device_pinned_mem_limit 3 1536M"),
            (MpsMemory(pipes, 3, None, server.pid),
             f"set_device_pinned_mem_limit {server.pid} 3 0M"),
            (MpsPriority(pipes, 1), "set_default_client_priority 1"),
        ):
            assert done(here, setting).state == "done"
            assert mps.changed()[-1] == line
        assert done(here, MpsPreset(pipes, "low", server.pid)).state == "done"
        assert mps.changed()[-2:] == [f"set_active_thread_percentage {server.pid} 10",
                                      "set_default_client_priority 1"]
    assert all(child.is_alive() for child in bench.children.all)


def test_applied_and_not_in_force(bench: Bench, mps: FakeMps) -> None:
    """It takes the setting without a word, and ignores it."""
    mps.save(ignores=True)
    with bench.here() as here:
        for setting in (MpsPercent(str(mps.pipes), 50), MpsMemory(str(mps.pipes), 0, 900),
                        MpsPriority(str(mps.pipes), 1)):
            reply = done(here, setting)
            assert reply.state == "not_effective"
            assert reply.verified is not None
            assert (reply.verified.applied, reply.verified.in_force) == (True, False)
            assert "applied, not in force" in reply.step


@pytest.mark.parametrize("how", ["keeps", "refuses"])
def test_a_silent_refusal_is_reported_as_refused(bench: Bench, mps: FakeMps, how: str) -> None:
    """Status 0 each time: the old value is printed, or a sentence."""
    server, _ = served(bench, mps)
    pipes = str(mps.pipes)
    mps.save(**{how: True})
    settings: list[Setting] = [MpsPercent(pipes, 50), MpsPercent(pipes, 50, server.pid),
                               MpsPreset(pipes, "low", server.pid)]
    if how == "refuses":
        settings += [MpsMemory(pipes, 0, 900), MpsPriority(pipes, 1), MpsStop(pipes)]
    with bench.here(kills_per_hour=99) as here:
        for setting in settings:
            reply = done(here, setting)
            assert (reply.state, reply.refusal and reply.refusal.code) == ("refused", "setting")
            assert "nothing was changed" in reply.step
        assert here.preview("terminate_client", bench.children.all[-1].task_id).refusals == ()
        if how == "refuses":
            reply = here.act(here.preview("terminate_client", bench.children.all[-1].task_id),
                             "it leaks", "ada")
            assert (reply.state, reply.refusal and reply.refusal.code) == ("refused", "mps")
    assert mps.ask("get_default_active_thread_percentage") == "100.0\n"
    assert server.is_alive()
    with bench.keeper() as held:
        held.round()
        assert "lost" not in [each.code for each in held.said[-1].findings], "it is not wanted"


def test_a_preset_of_which_half_is_taken(bench: Bench, mps: FakeMps) -> None:
    mps.save(refuses_priority=True)
    with bench.here() as here:
        reply = done(here, MpsPreset(str(mps.pipes), "low"))
    assert (reply.state, reply.verified and reply.verified.applied) == ("not_effective", True)
    assert "set_default_client_priority" in reply.step
    assert mps.ask("get_default_active_thread_percentage") == "10.0\n"


def test_what_was_set_is_known_to_be_gone(bench: Bench, mps: FakeMps) -> None:
    """A daemon that is started anew has forgotten it, and says nothing; the agent was too."""
    pipes, pct = str(mps.pipes), random.randint(1, 99)
    bench.children.start(gpu=bench.gpu)
    with bench.here() as here:
        for setting in (MpsPercent(pipes, 77), MpsPercent(pipes, pct), MpsMemory(pipes, 1, 900),
                        MpsPriority(pipes, 1)):
            assert done(here, setting).state == "done"
        with bench.keeper() as held:
            held.round()
            assert [each.code for each in held.said[-1].findings] == ["exclusive"]
        mps.kill()
        assert mps.start() == 0
        with bench.keeper() as held:
            held.round()
            lost = held.said[-1].findings[0]
            assert (lost.code, lost.weight) == ("lost", "fault")
            assert f"100 %, not {pct} %" in lost.cause
            assert "no limit, not 900M" in lost.cause
            assert lost.fixes == (MpsPercent(pipes, pct), MpsMemory(pipes, 1, 900),
                                  MpsPriority(pipes, 1))
            for fix in lost.fixes:
                assert done(here, fix).state == "done"
            held.round()
            assert [each.code for each in held.said[-1].findings] == ["exclusive"]
            [exclusive] = held.said[-1].findings
            assert exclusive.fixes == (ComputeMode(bench.gpu, "exclusive_process"),)
            assert done(here, exclusive.fixes[0]).state == "done"
            held.round()
            assert held.said[-1].findings == ()
        assert any("stays in exclusive mode" in words
                   for words in shown(here, MpsStop(pipes)).warnings)
        assert done(here, MpsStop(pipes)).state == "done"
        assert mps.start() == 0
        with bench.keeper() as held:
            held.round()
            assert held.said[-1].findings == (), "it was stopped by us: nothing is wanted"


def test_looking_does_not_fill_the_log_of_the_daemon(bench: Bench, mps: FakeMps) -> None:
    """Each question is some five lines there; all is asked when who is there has changed."""
    server, clients = served(bench, mps)
    with bench.keeper() as held:
        held.round()
        asked = len(mps.asked())
        for _ in range(3):
            held.keeper.connected()
            held.keeper.step(time.monotonic(), True)
            wait_for(lambda: held.keeper._worker.is_idle)
        assert len(mps.asked()) - asked <= 3 * 2, "servers, and the clients of one"
        late = bench.children.start(kind="mps_client")
        mps.server(server.pid, *(child.pid for child in (*clients, late)))
        held.keeper.connected()
        held.keeper.step(time.monotonic(), True)
        wait_for(lambda: held.keeper._worker.is_idle)
        held.said += held.keeper.say()
        assert [len(daemon.clients) for daemon in held.said[-1].daemons
                if daemon.pipes == str(mps.pipes)] == [3]


def test_what_mps_cannot_do_is_refused_before(bench: Bench, mps: FakeMps) -> None:
    pipes = str(mps.pipes)
    with bench.here() as here:
        gone = 2**22 + 7
        [refusal] = shown(here, MpsPercent(pipes, 50, gone)).refusals
        assert str(gone) in refusal.sentence
        assert codes(here, MpsStart(pipes)) == ["setting"]
        assert codes(here, MpsPercent(str(mps.folder / "none"), 50)) == ["setting"]
        assert codes(here, MpsStart("/proc/nowhere")) == ["setting"]
        look = shown(here, MpsPercent(pipes, 50))
        mps.ask("set_default_active_thread_percentage 40")  # meanwhile
        reply = here.act(look, "", "ada")
        assert (reply.state, reply.refusal and reply.refusal.code) == ("refused", "changed")
        assert mps.ask("get_default_active_thread_percentage") == "40.0\n"


def test_a_stop_names_its_victims_and_a_restart_keeps_the_defaults(
    bench: Bench, mps: FakeMps
) -> None:
    server, [client] = served(bench, mps, 1)
    pipes = str(mps.pipes)
    with bench.here() as here:
        look = shown(here, MpsStop(pipes))
        assert [victim.process.pid for victim in look.victims] == [client.pid]
        assert any(str(client.pid) in words for words in look.warnings)
        late = bench.children.start(kind="mps_client")
        mps.server(server.pid, client.pid, late.pid)
        reply = here.act(look, "", "ada")
        assert (reply.state, reply.refusal and reply.refusal.code) == ("refused", "changed")
        assert server.is_alive()
        assert done(here, MpsPercent(pipes, 33)).state == "done"
        assert done(here, MpsMemory(pipes, 0, 2_048)).state == "done"
        assert done(here, MpsRestart(pipes)).state == "done"
        wait_for(lambda: not server.is_alive())
        assert mps.ask("get_default_active_thread_percentage") == "33.0\n"
        assert mps.ask("get_default_device_pinned_mem_limit 0") == "2G\n"
        assert done(here, MpsStop(pipes)).state == "done"
        assert not (mps.pipes / "control").exists()
        assert done(here, MpsStart(pipes)).state == "done"
        assert mps.ask("get_default_active_thread_percentage") == "100.0\n"
    with bench.here(kills_per_hour=0) as here:
        assert codes(here, MpsStop(pipes)) == ["budget"]
    with bench.here(protected_users=["root"]) as here:
        served(bench, mps, 1)
        assert "protected" in codes(here, MpsStop(pipes))


def test_a_client_is_taken_out_and_lives(bench: Bench, mps: FakeMps) -> None:
    server, [client, other] = served(bench, mps)
    with bench.here() as here:
        look = here.preview("terminate_client", client.task_id)
        assert [victim.process.pid for victim in look.victims] == [client.pid]
        assert look.refusals == ()
        reply = here.act(look, "it leaks", "ada")
        assert reply.state == "done", reply
        assert reply.verified is not None
        assert reply.verified.in_force is True
        assert mps.ask(f"get_client_list {server.pid}") == f"{other.pid}\n"
        mps.save(ignores=True)
        reply = here.act(here.preview("terminate_client", other.task_id), "it leaks", "ada")
        assert (reply.state, reply.verified and reply.verified.in_force) == ("not_effective", False)
        plain = bench.children.all[0]
        assert [each.code for each in here.preview("terminate_client", plain.task_id).refusals
                ] == ["mps"]
    assert client.is_alive()
    assert other.is_alive()


