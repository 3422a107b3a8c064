"""The heartbeat of the hub."""

from ..actions.commander import Commander
from ..alerts.service import AlertService
from ..composition import Capability, Core
from ..fleet.effect_handlers import EffectHandlers
from ..fleet.state_machine import FleetStateMachine
from ..web.bounded_socket import BoundedSocketIO
from ..web.http_server import ServerCounters
from .service import Heartbeat


def build(core: Core) -> Capability:
    effects = core.get(EffectHandlers)
    heartbeat = core.add(Heartbeat(
        core.state, core.get(FleetStateMachine), core.get(BoundedSocketIO), core.get(AlertService),
        core.get(Commander), core.get(ServerCounters), effects.submit, effects.perform))
    return Capability(loops=(heartbeat.loop,), start=heartbeat.start)
