"""Wiring of limits and repairs into the node."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from gpudeck.contract.limits import LimitsNow, MpsDaemon
from gpudeck.contract.repairs import RepairsNow
from gpudeck.contract.wire import Welcome

from ..capability import Capability, NodeCore, NodeObservation
from ..runtime.action_lock import ActionLock
from ..tasks.seen import SuspendedUse
from .mps import LocalMpsDaemons
from .mps_simulated import open_mps
from .reconciler import DriverFacts, LimitReconciler
from .repairs import RepairKeeper
from .stores import LimitStores
from .suspensions import SuspensionKeeper


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitCapability(Capability):
    daemons: Callable[[], tuple[MpsDaemon, ...] | None]  # of MPS, as seen last
    suspended: Callable[[], Iterable[SuspendedUse]]


def open_daemons(core: NodeCore) -> LocalMpsDaemons:
    if core.is_made_up:
        return LocalMpsDaemons("")
    simulated = open_mps(core.options) if core.backend.capabilities.simulates_mps else None
    return simulated or LocalMpsDaemons()


def build(core: NodeCore, stores: LimitStores, holds: Callable[[], tuple[str, ...]],
          driver_facts: Callable[[], DriverFacts]) -> LimitCapability:
    """`holds`: who has stopped all actions. `driver_facts`: called on another thread."""
    limits = LimitReconciler(stores, core.boot_id, holds, ActionLock(core.data), driver_facts,
                             core.wake)
    repairs = RepairKeeper(stores.repairs, core.boot_id, ActionLock(core.data), core.wake)
    suspensions = SuspensionKeeper(stores.suspensions, core.boot_id, ActionLock(core.data),
                                   core.backend.suspend_module(), core.wake)

    def connected(welcome: Welcome, now: float) -> None:
        limits.connected()
        repairs.connected()

    def observe(observation: NodeObservation) -> None:
        if observation.reading is not None and observation.gpu_tasks is not None:
            repairs.observe(observation.gpu_tasks, observation.reading.facts)

    def step(now: float, is_live: bool) -> None:
        limits.step(now, core.source.state == "ok")
        repairs.step(now)
        suspensions.step(now)

    def poll(now: float) -> Iterator[LimitsNow | RepairsNow]:
        yield from limits.poll()
        yield from repairs.poll()

    def note_outcome() -> None:
        limits.changed()
        repairs.changed()
        suspensions.changed()

    def close() -> None:
        limits.close()
        repairs.close()
        suspensions.close()

    return LimitCapability(
        name="limits", connected=connected, observe=observe, step=step, poll=poll,
        note_outcome=note_outcome, close=close, trouble=lambda: suspensions.trouble,
        daemons=lambda: limits.daemons, suspended=suspensions.uses)
