"""Wiring of the pool into the node."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpudeck.contract.pool_link import PoolPlan

from ..actions.context import NodeContext
from ..capability import Capability, NodeCore, NodeObservation, ignore
from ..limits.memory_limits import MemoryTarget
from ..limits.mps import LocalMpsDaemons
from .node_pool import open_exclusive, open_pool


@dataclass(frozen=True, slots=True)
class PoolOptions:
    socket: Path
    managed_by: str  # a scheduler; "": none
    local_claims: bool
    exclusive_leases: bool
    unused_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolCapability(Capability):
    memory_targets: Callable[[], Sequence[MemoryTarget] | None]  # called on another thread


def build(core: NodeCore, options: PoolOptions | None, context: NodeContext,
          mps: LocalMpsDaemons, holds: Callable[[], tuple[str, ...]]) -> PoolCapability:
    """`options` None: this node is in no pool."""
    if options is None:
        return PoolCapability(name="pool", handlers={PoolPlan: ignore}, memory_targets=tuple)
    pool = open_pool(
        options.socket, core.identity.node_id, core.host, core.boot_id, core.journal, mps,
        context.people, options.managed_by, options.local_claims, options.unused_s, core.wake,
        context.guards.why_rules_end_nothing, context.limits.repairs.all_or_closed,
        context.limits.suspensions,
        None if not options.exclusive_leases else open_exclusive(
            core.journal, context.limits, holds), context.limits.memory.all)

    def observe(observation: NodeObservation) -> None:
        if observation.reading is not None:
            pool.put(observation.reading, observation.gpu_tasks)

    return PoolCapability(
        name="pool", handlers={PoolPlan: lambda message, now: pool.receive(message)},
        connected=lambda welcome, now: pool.connected(), observe=observe, step=pool.step,
        poll=lambda now: pool.poll(), close=pool.close,
        memory_targets=pool.memory_targets)
