"""The page for Prometheus."""

import time

from flask import Flask

from ..actions.store import CommandsStore
from ..composition import Capability, Core
from ..fleet.state_machine import FleetStateMachine
from ..fleet.visibility import VisibleFleetCache
from ..heartbeat.service import Heartbeat
from .page import PrometheusPage, add_metrics_page


def build(core: Core) -> Capability:
    heartbeat = core.get(Heartbeat)
    add_metrics_page(core.get(Flask), PrometheusPage(
        core.get(FleetStateMachine), core.get(VisibleFleetCache), core.state.store(CommandsStore),
        heartbeat.counts, heartbeat.lag_s, time.time(),
        [capability.metrics for capability in core.built],
        [capability.hub_metrics for capability in core.built]))
    return Capability()
