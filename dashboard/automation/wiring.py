"""Parts of automation: ladders of rules, quotas and pre-emption, and everything that can hold them
back."""

from ..actions.commander import Commander
from ..actions.holds import HoldService
from ..actions.owner_keeps import OwnerKeepService
from ..actions.preview_requests import PreviewRequester
from ..actions.service import ActionService
from ..actions.wiring import MAINTENANCE
from ..alerts.api import AlertDetailSource
from ..alerts.queries import AlertQueries
from ..alerts.service import AlertService
from ..alerts.silences import SilenceService
from ..alerts.wiring import HUB_METRICS
from ..audit.recorder import AuditRecorder
from ..composition import Capability, Core, Seam
from ..fleet.state_machine import FleetStateMachine
from ..fleet.visibility import VisibleFleetCache
from ..nodes.connections import NodeLinks
from ..pool.service import LeaseEnds, PoolService
from ..quotas.service import QuotaService
from ..quotas.wiring import LADDER
from ..runtime.runner import TICK_S, Loop
from .alert_details import AlertDetails
from .api import ROUTES as ROUTES
from .api import AutomationApi
from .brakes import BrakeService, BrakesReset
from .confirmations import StepConfirmations
from .dispatch import ActionDispatcher
from .holds import HubHolds, MaintenanceService
from .intents import ActionIntent
from .limit_returns import LimitReturns
from .preemption_source import PreemptionIntentSource
from .quota_source import QuotaIntentSource
from .rule_cordons import RuleCordons
from .rule_source import RuleIntentSource
from .service import LadderService
from .store import AutomationStore
from .suspension_returns import SuspensionReturns

NOTIFY_OWNER: Seam[[ActionIntent, str], None] = Seam("a notification of an owner by a ladder")


def build(core: Core) -> Capability:
    audit, events, store = core.get(AuditRecorder), core.events, core.state.store(AutomationStore)
    machine, visible_fleets = core.get(FleetStateMachine), core.get(VisibleFleetCache)
    fleet, alerts = machine.fleet, core.get(AlertService)
    maintenance = MaintenanceService(store, audit, fleet, visible_fleets)
    brakes = BrakeService(store, audit, events)
    core.join(MAINTENANCE, maintenance.why)
    core.join(HUB_METRICS, brakes.hub_metrics)
    hub_holds = HubHolds(core.get(OwnerKeepService), core.get(HoldService), maintenance)
    rules = core.add(RuleIntentSource(alerts, core.get(SilenceService), brakes, hub_holds))
    quotas = QuotaIntentSource(core.get(QuotaService), fleet, hub_holds, lambda: alerts.since_mono)
    dispatcher = ActionDispatcher(machine, core.get(PreviewRequester), core.get(Commander),
                                  core.get(NodeLinks))
    own = core.later(LadderService)
    preemptions = core.add(PreemptionIntentSource(core.get(PoolService), lambda: own().runs, fleet,
                                                  hub_holds, dispatcher), LeaseEnds)
    ladders = core.add(LadderService((rules, quotas, preemptions), brakes, dispatcher, audit, store,
                                     events, core.call(NOTIFY_OWNER)))
    core.join(LADDER, lambda: quotas.progress(ladders))
    events.listen(BrakesReset, lambda _: alerts.restart_acting_rules())
    core.add(AlertDetails(rules, ladders), AlertDetailSource)
    core.get(Commander).recover()
    return Capability(
        loops=(LimitReturns(fleet, ladders.runs, dispatcher).loop,
               SuspensionReturns(core.get(PoolService), fleet, dispatcher).loop,
               RuleCordons(rules.cordons, fleet, rules.brakes, dispatcher, audit).loop,
               Loop("maintenance", maintenance.step, TICK_S),
               Loop("ladders", ladders.step, TICK_S)),
        apis=lambda: (AutomationApi(
            ladders, brakes, maintenance,
            StepConfirmations(core.get(AlertQueries), ladders, core.get(ActionService)),
            visible_fleets, core.get(AlertQueries).host_of),))
