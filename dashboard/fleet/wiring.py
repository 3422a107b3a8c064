"""Parts of the fleet: its state machine, and the views of it."""

import time

from gpudeck.contract.action_views import KeepView

from ..audit.wiring import HOST_OF, SEES_NODE
from ..composition import Capability, Core, Seam
from ..history.reads.protocol import History
from ..history.wiring import INVENTORY
from ..runtime.runner import Loop
from ..web.query_pool import QueryPool
from ..web.shared_answers import SharedAnswers
from .api import ROUTES as OWN_ROUTES
from .api import FleetApi
from .effect_handlers import EffectHandlers
from .effects import EpochRaised
from .events_api import ROUTES as EVENTS_ROUTES
from .events_api import EventsApi
from .idle_history import IDLE_LOOK_S, IdleHistory
from .inventory import FleetInventory
from .node_names import NodeNames
from .past_api import ROUTES as PAST_ROUTES
from .past_api import FleetPastApi
from .past_moment import PastPool
from .state_machine import FleetStateMachine
from .visibility import VisibleFleetCache

ROUTES = (*OWN_ROUTES, *EVENTS_ROUTES, *PAST_ROUTES)
KEEP_OF: Seam[[str, str], KeepView | None] = Seam("the request of a task's owner to leave it alone")
POOL_AT: Seam[[float], PastPool] = Seam("the leases of a moment")


def build(core: Core) -> Capability:
    state, history = core.state, core.get(History)
    machine = core.add(FleetStateMachine(state.hub_id(), core.epoch, time.monotonic()))
    fleet = core.add(machine.fleet)
    visible_fleets = core.add(VisibleFleetCache(fleet))
    effects = core.add(EffectHandlers(machine, core.guard, state.confirm))
    effects.add(EpochRaised, lambda effect: core.guard.call(  # else the heartbeat writes it
        state.put, "epoch", str(effect.epoch)))
    idle = core.add(IdleHistory(fleet, history))
    core.join(SEES_NODE, lambda actor, node: visible_fleets.seen_by(actor).sees_node(node))
    core.join(HOST_OF, fleet.host_of)
    core.join(INVENTORY, lambda actor: FleetInventory(fleet, visible_fleets.seen_by(actor)))
    keep_of, pool_at, questions = core.call(KEEP_OF), core.call(POOL_AT), core.get(QueryPool)
    return Capability(
        loops=(Loop("idle history", idle.step, IDLE_LOOK_S, idle.wake),),
        apis=lambda: (FleetApi(machine, visible_fleets, core.get(NodeNames), keep_of,
                                 SharedAnswers(time.perf_counter)),
                      EventsApi(machine, visible_fleets, history, questions),
                      FleetPastApi(history, questions, fleet, visible_fleets, pool_at)))
