"""Wiring of the pool into the node."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gpudeck.contract.pool_link import PoolPlan

from ..actions.context import NodeContext
from ..capability import Capability, NodeCore, NodeObservation, ignore
from ..limits.mps import LocalMpsDaemons
from .node_pool import open_exclusive, open_pool


@dataclass(frozen=True, slots=True)
class PoolOptions:
    socket: Path
    managed_by: str  # a scheduler; "": none
    local_claims: bool
    exclusive_leases: bool
    unused_s: float


def build(core: NodeCore, options: PoolOptions | None, context: NodeContext,
          mps: LocalMpsDaemons, holds: Callable[[], tuple[str, ...]]) -> Capability:
    """`options` None: this node is in no pool."""
    if options is None:
        return Capability(name="pool", handlers={PoolPlan: ignore})
    pool = open_pool(
        options.socket, core.identity.node_id, core.host, core.boot_id, core.journal, mps,
        context.people, options.managed_by, options.local_claims, options.unused_s, core.wake,
        context.guards.why_rules_end_nothing, context.limits.repairs.all_or_closed,
        context.limits.suspensions,
        None if not options.exclusive_leases else open_exclusive(
            core.journal, context.limits, holds))

    def observe(observation: NodeObservation) -> None:
        if observation.reading is not None:
            pool.put(observation.reading, observation.gpu_tasks)

    return Capability(
        name="pool", handlers={PoolPlan: lambda message, now: pool.receive(message)},
        connected=lambda welcome, now: pool.connected(), observe=observe, step=pool.step,
        poll=lambda now: pool.poll(), close=pool.close)
