"""Parts of the rules, their alerts and rehearsals."""

from dataclasses import dataclass

from ..access.service import AccountService
from ..actions.service import ActionService
from ..audit.recorder import AuditRecorder
from ..composition import Capability, Core, Seam
from ..fleet.state_machine import FleetStateMachine
from ..fleet.visibility import VisibleFleetCache
from ..history.reads.protocol import History
from ..jobs.unused_allocations import UnusedAllocations
from ..nodes.enrolment import EnrolmentService
from ..runtime.runner import Loop
from .active_rules import ActiveRules
from .admin import RuleAdmin
from .api import ROUTES as OWN_ROUTES
from .api import AlertDetailSource, AlertsApi
from .core.firing_alerts import Alert
from .core.gpu_targets import HubSelfMetrics
from .core.rule import Rule
from .queries import AlertQueries
from .rehearsal.api import ROUTES as REHEARSAL_ROUTES
from .rehearsal.api import RehearsalsApi
from .rehearsal.service import RehearsalService
from .service import EVERY_S, AlertService, AlertSources
from .silences import SilenceService
from .store import AlertsStore

ROUTES = (*OWN_ROUTES, *REHEARSAL_ROUTES)
HUB_METRICS: Seam[[], HubSelfMetrics] = Seam("metrics of the hub itself")


@dataclass(frozen=True, slots=True)
class LastRun:
    """Rules and open alerts as the hub's last run left them."""

    rules: tuple[Rule, ...]
    open_alerts: tuple[Alert, ...]


def build(core: Core) -> Capability:
    settings, events, audit = core.settings, core.events, core.get(AuditRecorder)
    store, machine = core.state.store(AlertsStore), core.get(FleetStateMachine)
    fleet, visible_fleets = machine.fleet, core.get(VisibleFleetCache)
    nodes, person_of = core.get(EnrolmentService), core.get(AccountService).person_behind
    core.add(LastRun(tuple(rule for _, rule in store.rules().values()),
                     tuple(store.open_alerts())))
    rules, history = core.add(ActiveRules(store, events)), core.get(History).rules
    unused = UnusedAllocations(fleet, settings.slurm_nodes, settings.kubernetes_nodes)
    alerts = core.add(AlertService(AlertSources(
        fleet, machine.events,
        lambda: [member.node_id for member in nodes.members() if member.access == "revoked"],
        core.call(HUB_METRICS), unused.by_node, history), rules, store, events))
    silences = core.add(SilenceService(store, audit, fleet, rules))
    queries = core.add(AlertQueries(alerts, rules, store, fleet))
    rehearsals = RehearsalService(store, audit, fleet, history, nodes.members, person_of)
    admin = core.add(RuleAdmin(
        rules, store, audit, person_of, rehearsals.of_rule, core.get(ActionService).second_person,
        settings.rule_proof_h * 3_600.0))
    details = core.later(AlertDetailSource)
    return Capability(
        loops=(Loop("alerts", alerts.step, EVERY_S),),
        apis=lambda: (
            core.add(AlertsApi(queries, admin, silences, visible_fleets, details(),
                               settings.rule_proof_h)),
            RehearsalsApi(rehearsals, visible_fleets)),
        close=alerts.close)
