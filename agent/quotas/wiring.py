"""Wiring of quotas into the node."""

from collections.abc import Callable

from gpudeck.contract.desired_state import SignedDesired
from gpudeck.contract.limits import MpsDaemon

from ..actions.context import NodeContext
from ..actions.standalone import OfflineNotifier
from ..capability import Capability, NodeCore
from ..runtime.action_lock import ActionLock
from ..telemetry.latest_sample import LatestSample
from .service import QuotaSample, QuotaService


def build(core: NodeCore, context: NodeContext, latest: LatestSample,
          daemons: Callable[[], tuple[MpsDaemon, ...] | None]) -> Capability:
    """`daemons`: of MPS, as seen last; None: not looked at yet."""
    quotas = QuotaService(
        OfflineNotifier(context, core.journal, ActionLock(core.data)), core.identity.hub,
        core.host, core.is_made_up, core.wake)

    def step(now: float, is_live: bool) -> None:
        sample = None if latest.gpu_tasks is None else QuotaSample(
            latest.gpu_tasks, latest.listed_at)
        quotas.step(now, sample, is_live, latest.driver_version, latest.facts, daemons())

    return Capability(
        name="quotas",
        handlers={SignedDesired: lambda message, now: quotas.receive(message)},
        connected=lambda welcome, now: quotas.connected(), accept_hub_key=quotas.set_hub_key,
        step=step, poll=lambda now: quotas.poll(), close=quotas.close)
