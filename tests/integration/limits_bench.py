"""A node with its own folder, whose GPUs and MPS are set at its terminal; and its reconciler."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from agent.actions.standalone import StandaloneNode
from agent.backends import SIMULATED
from agent.backends.simulation.reader import SimulatedReader, parse_options
from agent.journal.store import ActionJournal, ActionStore
from agent.limits.apply import LimitApplier
from agent.limits.mps import LocalMpsDaemons
from agent.limits.reconciler import DriverFacts, LimitReconciler
from agent.limits.stores import TimedLimitStore, open_limits
from agent.runtime.action_lock import ActionLock
from agent.schedulers import Schedulers
from agent.tasks.boot_id import boot_id
from gpudeck.contract.actions import NO_TASK, ActionParams, Preview, Reply
from gpudeck.contract.limits import LimitsNow, Setting, TimedLimit, action_of
from gpudeck.contract.wire import GpuFacts
from tests.fakes.children import Children, a_ceiling
from tests.fakes.hub import wait_for
from tests.integration.test_actions_crash import write_world

HOUR_S = 3_600.0


class Bench:
    """A node with its own folder, acted on at its terminal."""

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

    def machine(self) -> DriverFacts:
        return DriverFacts(1, "580.95.05", {self.gpu: self.limiter.read([self.gpu])[
            self.gpu].compute_mode})

    @contextmanager
    def here(self, backend: str = "simulated", schedulers: Schedulers | None = None,
             **ceiling: object) -> Iterator[StandaloneNode]:
        a_ceiling(self.folder, **ceiling)
        with StandaloneNode(self.data, backend, self.options, self.ceiling, schedulers=schedulers,
                            source=self.children) as local:  # type: ignore[arg-type]
            yield local

    @contextmanager
    def opened(self, actions: list[str], facts: list[GpuFacts]) -> Iterator[StandaloneNode]:
        """Open a node of the C fake whose readings have had these facts."""
        with self.here("nvml", actions=actions) as local:
            local._context.tasks.recent.set_facts(facts)
            yield local

    @property
    def limiter(self) -> LimitApplier:
        return LimitApplier(SIMULATED, self.options, lambda _: "")

    def power_w(self) -> float | None:
        return self.limiter.read([self.gpu])[self.gpu].power_w

    def book(self) -> TimedLimitStore:
        return TimedLimitStore(ActionJournal(ActionStore(self.data / "acts.db")))

    @contextmanager
    def keeper(self, limiter: LimitApplier | None = None,
               holds: Callable[[], tuple[str, ...]] = lambda: ()) -> Iterator["Held"]:
        """Start a reconciler as the agent does; another each time, as after its restart."""
        store = ActionStore(self.data / "acts.db")
        journal = ActionJournal(store)
        limits = open_limits(limiter or self.limiter, LocalMpsDaemons(is_alone=True), journal,
                             boot_id(), True)
        run = Held(LimitReconciler(limits, boot_id(), holds, ActionLock(self.data), self.machine,
                                   SIMULATED.suspend_trouble, lambda: None))
        try:
            yield run
        finally:
            run.keeper.close()
            store.close()


class Held:
    def __init__(self, keeper: LimitReconciler) -> None:
        self.keeper = keeper
        self.said: list[LimitsNow] = []

    def round(self, is_ok: bool = True) -> tuple[TimedLimit, ...]:
        self.keeper.changed()
        self.keeper.step(time.monotonic(), is_ok)
        wait_for(lambda: self.keeper.is_idle)
        self.said += self.keeper.poll()
        return self.leases

    @property
    def leases(self) -> tuple[TimedLimit, ...]:
        return self.said[-1].leases


def shown(here: StandaloneNode, setting: Setting, grace_s: float = 1.0) -> Preview:
    return here.preview(action_of(setting), NO_TASK, ActionParams(grace_s=grace_s, setting=setting))


def done(here: StandaloneNode, setting: Setting, reason: str = "a test",
         grace_s: float = 1.0) -> Reply:
    return here.act(shown(here, setting, grace_s), reason, "ada")


def codes(here: StandaloneNode, setting: Setting) -> list[str]:
    return [refusal.code for refusal in shown(here, setting).refusals]
