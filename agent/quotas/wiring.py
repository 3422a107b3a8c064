"""Wiring of quotas into the node."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpudeck.contract.desired_state import SignedDesired
from gpudeck.contract.limits import MpsDaemon

from ..actions.context import NodeContext
from ..actions.standalone import OfflineNotifier
from ..capability import Capability, NodeCore
from ..limits.memory_limits import MemoryTarget
from ..runtime.action_lock import ActionLock
from ..telemetry.latest_sample import LatestSample
from .memory_source import QuotaMemory, place_of
from .service import QuotaSample, QuotaService


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaCapability(Capability):
    memory_targets: Callable[[], Sequence[MemoryTarget] | None]  # called on another thread


def build(core: NodeCore, context: NodeContext, latest: LatestSample,
          daemons: Callable[[], tuple[MpsDaemon, ...] | None], limits_memory: bool
          ) -> QuotaCapability:
    """`daemons`: of MPS, as seen last; None: not looked at yet. `limits_memory`: the driver is to
    limit the memory of control groups."""
    quotas = QuotaService(
        OfflineNotifier(context, core.journal, ActionLock(core.data)), core.identity.hub,
        core.host, core.is_made_up, core.wake, context.limits.memory.all,
        limits_memory)
    memory = QuotaMemory(quotas, latest, context.node.node_id, core.host, place_of,
                         time.monotonic)

    def step(now: float, is_live: bool) -> None:
        sample = None if latest.gpu_tasks is None else QuotaSample(
            latest.gpu_tasks, latest.listed_at)
        quotas.step(now, sample, is_live, latest.driver_version, latest.facts, daemons())

    return QuotaCapability(
        name="quotas",
        handlers={SignedDesired: lambda message, now: quotas.receive(message)},
        connected=lambda welcome, now: quotas.connected(), accept_hub_key=quotas.set_hub_key,
        step=step, poll=lambda now: quotas.poll(), close=quotas.close,
        memory_targets=memory.targets)
