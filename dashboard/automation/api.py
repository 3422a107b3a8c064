"""REST of brakes, modes, confirmations and maintenance. The services decide what is allowed."""

from collections.abc import Callable
from dataclasses import dataclass

from gpudeck.contract.action_table import ON_RUNG
from gpudeck.contract.action_views import CommandView
from gpudeck.contract.actions import Preview, Refusal
from gpudeck.contract.ladder import LadderStep

from ..access.policy import PermissionReach, Role
from ..access.requests import caller
from ..access.routes import Route, change, see
from ..actions.errors import ActionRefusedError
from ..actions.lifecycle import CommandRecord
from ..actions.service import ActionService
from ..actions.views import command_view
from ..alerts.admin import RuleAdmin
from ..alerts.queries import AlertQueries
from ..alerts.views import RuleView
from ..errors import NotFoundError
from ..fleet.visibility import VisibleFleet, VisibleFleetCache
from . import views
from .brakes import BrakeService
from .holds import MaintenanceService
from .intents import ActionIntent, preview_flaw
from .service import LadderService


@dataclass(frozen=True, slots=True)
class AutomationApi:
    alerts: AlertQueries
    ladders: LadderService
    brakes: BrakeService
    rules: RuleAdmin
    maintenance: MaintenanceService
    actions: ActionService
    visible_fleets: VisibleFleetCache
    rule_view: Callable[[str], RuleView]

    def _visible(self) -> VisibleFleet:
        return self.visible_fleets.seen_by(caller())

    # -- brakes

    def show(self) -> views.BrakesView:
        return views.brakes_view(
            self.brakes.state, self.ladders.dispatcher.node_count(), self.ladders.runs.busy(),
            self._visible().sees_node, self.brakes.now())

    def reset(self, breaker_reset: views.BreakerReset) -> views.BrakesView:
        self.brakes.reset(caller(), breaker_reset.reason)
        return self.show()

    # -- modes

    def set_mode(self, mode_change: views.RuleModeChange, rule_id: str) -> RuleView:
        self.rules.set_mode(caller(), rule_id, mode_change.mode, mode_change.expires)
        return self.rule_view(rule_id)

    # -- a person confirms a step

    def confirm(self, confirmation: views.LadderConfirmation, alert_id: str) -> CommandView:
        actor, visible = caller(), self._visible()
        alert = next((firing for firing in self.alerts.alerts.firing()
                      if firing.id == alert_id), None)
        if alert is None or not self.alerts.is_seen(alert.target, visible):
            raise NotFoundError("there is no such alert, or it is resolved")

        def order(intent: ActionIntent, step: LadderStep) -> CommandRecord:
            def flaw(preview: Preview) -> Refusal | None:
                return preview_flaw(intent, step.do, preview)

            reason = "; ".join(filter(None, (f"confirms {intent.cause}", intent.sentence,
                                             confirmation.reason)))
            return self.actions.order_exactly(actor, confirmation.preview, reason[:1_024],
                                              ON_RUNG[step.do], intent.node_id, flaw)

        outcome = self.ladders.confirm(alert_id, order)
        if isinstance(outcome, str):
            raise ActionRefusedError(409, "not_due", outcome)
        return command_view(outcome, visible.reads)

    # -- maintenance

    def list_maintenance(self) -> views.MaintenanceList:
        return views.MaintenanceList([
            views.maintenance_view(window, self.alerts.host_of(window.node_id))
            for window in self.maintenance.seen_by(self._visible())])

    def begin_maintenance(self, new_maintenance: views.NewMaintenance, node_id: str
                          ) -> views.MaintenanceView:
        window = self.maintenance.put(
            caller(), node_id, new_maintenance.because, new_maintenance.until)
        return views.maintenance_view(window, self.alerts.host_of(node_id))

    def end_maintenance(self, node_id: str) -> None:
        self.maintenance.end(caller(), node_id)


ROUTES = (
    Route("GET brakes", AutomationApi.show, "get_brakes", see(Role.VIEWER),
          "Limits of automatic actions, and which are in effect now."),
    Route("POST brakes", AutomationApi.reset, "reset_brakes", change(Role.ADMIN),
          "Resume automatic actions; waiting ones are dropped."),
    # Lowering is immediate; raising takes an admin with a fresh password, as the service checks.
    Route("POST rules/<rule_id>/mode", AutomationApi.set_mode, "set_rule_mode",
          change(Role.OPERATOR, is_fresh=False),
          "Set a Rule's mode; raising it takes an admin, and auto takes proof.",
          errors=(404,)),
    # Like any order: the service checks further rights once the victims are known.
    Route("POST alerts/<path:alert_id>/confirm", AutomationApi.confirm, "confirm_alert",
          change(Role.USER, PermissionReach.TASKS, is_fresh=False),
          "Confirm the next step of a Rule in mode confirm.", status=202, errors=(404,)),
    Route("GET maintenance", AutomationApi.list_maintenance, "list_maintenance", see(Role.VIEWER),
          "Nodes in maintenance."),
    Route("PUT nodes/<node_id>/maintenance", AutomationApi.begin_maintenance, "begin_maintenance",
          change(Role.OPERATOR, PermissionReach.VISIBLE, is_fresh=False),
          "Put a Node into maintenance: no automatic actions there, manual ones need a second "
          "confirmation.",
          errors=(404, 409)),
    Route("DELETE nodes/<node_id>/maintenance", AutomationApi.end_maintenance, "end_maintenance",
          change(Role.OPERATOR, PermissionReach.VISIBLE),
          "End maintenance now.", errors=(404,)),
)
