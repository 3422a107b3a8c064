"""Parts of the actions of people, and the guards that may refuse them."""

from gpudeck.contract.actions import Preview, Reply
from gpudeck.contract.wire import Beat

from ..access.service import AccountService
from ..audit.recorder import AuditRecorder
from ..composition import Capability, Core, Seam
from ..fleet.effect_handlers import EffectHandlers
from ..fleet.effects import NodeJoined
from ..fleet.node_names import NodeNames
from ..fleet.state_machine import FleetStateMachine
from ..fleet.visibility import VisibleFleetCache
from ..fleet.wiring import KEEP_OF
from ..nodes.connections import NodeLinks
from ..runtime.runner import TICK_S, Loop
from .api import ROUTES as ROUTES
from .api import ActionsApi
from .commander import Commander
from .guards import ActionGuards
from .holds import HoldService
from .owner_keeps import OwnerKeepService
from .preview_requests import PreviewRequester
from .service import ActionService
from .signer_client import CHECK_EVERY_S, SignerClient
from .standing_store import StandingStore
from .store import CommandsStore

UNREACHED: Seam[[str | None], str | None] = Seam("why an owner cannot be reached")
MAINTENANCE: Seam[[str], str | None] = Seam("why a node is in maintenance")


def build(core: Core) -> Capability:
    settings, events, standing = core.settings, core.events, core.state.store(StandingStore)
    machine, links = core.get(FleetStateMachine), core.get(NodeLinks)
    fleet, audit = machine.fleet, core.get(AuditRecorder)
    visible_fleets = core.get(VisibleFleetCache)
    store, signer = core.state.store(CommandsStore), core.get(SignerClient)
    keeps = core.add(OwnerKeepService(standing, audit, fleet, visible_fleets))
    commander = core.add(Commander(store, audit, signer, machine.fence, links, events))
    holds = core.add(HoldService(standing, audit, fleet, visible_fleets,
                                 machine.link_of.__contains__, commander.hold, events))
    requester = core.add(PreviewRequester(signer, links.send))
    guards = ActionGuards(holds.refusal, core.call(MAINTENANCE), keeps.of_any, core.call(UNREACHED))
    actions = core.add(ActionService(
        machine, visible_fleets, core.get(AccountService), requester, commander, audit, guards,
        settings.second_person == "on", settings.slurm_nodes))
    core.join(KEEP_OF, keeps.view_of)
    effects = core.get(EffectHandlers)
    effects.add(NodeJoined, lambda effect: commander.node_joined(effect.node_id))
    effects.add_report(Preview, requester.preview_received)
    effects.add_report(Reply, commander.replied)
    effects.add_report(Beat, lambda node_id, _: holds.beat_received(node_id))
    return Capability(
        loops=(Loop("signer", signer.step, CHECK_EVERY_S, is_vital=True),
               Loop("holds", holds.step, TICK_S, holds.wake, is_vital=True)),
        apis=lambda: (ActionsApi(actions, store, fleet, holds, keeps, core.get(NodeNames)),),
        close=signer.close)
