"""Parts of the quotas."""

from gpudeck.contract.actions import Preview
from gpudeck.contract.desired_state import InForce

from ..actions.signer_client import SignerClient
from ..audit.recorder import AuditRecorder
from ..composition import Capability, Core, Seam
from ..fleet.effect_handlers import EffectHandlers
from ..fleet.effects import NodeJoined
from ..fleet.state_machine import FleetStateMachine
from ..fleet.visibility import VisibleFleetCache
from ..history.reads.protocol import History
from ..nodes.connections import NodeLinks
from ..runtime.runner import TICK_S, Loop
from .active_quotas import ActiveQuotas
from .api import ROUTES as ROUTES
from .api import QuotasApi
from .deployment import QuotaDeployer
from .prometheus import quota_families
from .queries import QuotaQueries
from .service import HOLD_S, QuotaService
from .store import QuotasStore
from .views import Ladder

LADDER: Seam[[], Ladder] = Seam("how far the ladder of each job over a quota is")


def build(core: Core) -> Capability:
    machine, history, links = core.get(FleetStateMachine), core.get(History), core.get(NodeLinks)
    store, fleet = core.state.store(QuotasStore), machine.fleet
    end_after_s = core.settings.quota_end_after_s
    active = ActiveQuotas(store, core.get(AuditRecorder), core.events)
    deployer = QuotaDeployer(active, fleet, core.get(SignerClient), machine.link_of, links.send)
    quotas = core.add(QuotaService(active, store, fleet, history, min(HOLD_S, end_after_s / 2),
                                   core.events))
    queries = core.add(QuotaQueries(quotas, deployer, store, fleet, history))
    effects = core.get(EffectHandlers)
    effects.add(NodeJoined, lambda effect: deployer.joined(effect.node_id))
    effects.add_report(Preview, lambda _, preview: quotas.previewed(preview))
    effects.add_report(InForce, deployer.reported)
    ladder = core.call(LADDER)
    return Capability(
        loops=(Loop("quota_deployment", deployer.step, TICK_S),
               Loop("quotas", quotas.step, TICK_S)),
        metrics=lambda visible: quota_families(queries.all_seen_by(visible)),
        apis=lambda: (QuotasApi(active, queries, core.get(VisibleFleetCache), ladder,
                                end_after_s),))
