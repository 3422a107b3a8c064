"""Wiring of limits and repairs into the node."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from gpudeck.contract.limits import LimitsNow, MpsDaemon
from gpudeck.contract.repairs import RepairsNow
from gpudeck.contract.wire import Welcome

from ..capability import Capability, NodeCore, NodeObservation
from ..runtime.action_lock import ActionLock
from ..tasks.seen import SuspendedUse
from .control_groups import GroupTree
from .memory_keeper import MemoryLimitKeeper, MemoryMachine, MemorySource
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
    refresh: Callable[[], None]  # something was set by another part of the node


def open_daemons(core: NodeCore) -> LocalMpsDaemons:
    if core.is_made_up:
        return LocalMpsDaemons("")
    simulated = open_mps(core.options) if core.backend.capabilities.simulates_mps else None
    return simulated or LocalMpsDaemons()


def build(core: NodeCore, stores: LimitStores, holds: Callable[[], tuple[str, ...]],
          driver_facts: Callable[[], DriverFacts]) -> LimitCapability:
    """`holds`: who has stopped all actions. `driver_facts`: called on another thread."""
    limits = LimitReconciler(stores, core.boot_id, holds, ActionLock(core.data), driver_facts,
                             core.backend.suspend_trouble, core.wake)
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
        daemons=lambda: limits.daemons, suspended=suspensions.uses, refresh=limits.changed)


def build_memory(core: NodeCore, stores: LimitStores, holds: Callable[[], tuple[str, ...]],
                 sources: Sequence[MemorySource], changed: Callable[[], None]) -> Capability:
    """Build the keeper of memory limits. `sources`: (): this node sets none."""
    if core.is_made_up or not core.backend.capabilities.can_set_limits(core.options):
        return Capability(name="memory limits")
    keeper = MemoryLimitKeeper(memory_machine(stores, core.boot_id, holds), sources, changed)
    return Capability(
        name="memory limits", step=lambda now, is_live: keeper.step(now, core.source.state == "ok"),
        close=keeper.close)


def memory_machine(stores: LimitStores, boot_id: str, holds: Callable[[], tuple[str, ...]]
                   ) -> MemoryMachine:
    return MemoryMachine(driver=stores.applier, store=stores.memory, groups=GroupTree(),
                         boot_id=boot_id, holds=holds)
