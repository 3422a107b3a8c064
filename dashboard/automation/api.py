"""REST of brakes, modes, confirmations and maintenance. What is allowed, the services decide."""

from collections.abc import Callable
from dataclasses import dataclass

from gpudeck.action_table import ON_RUNG
from gpudeck.action_views import CommandView
from gpudeck.actions import Preview, Refusal
from gpudeck.ladder import LadderStep

from ..access.policy import PermissionReach, Role
from ..access.requests import asker
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
    shown_rule: Callable[[str], RuleView]

    def _visible(self) -> VisibleFleet:
        return self.visible_fleets.seen_by(asker())

    # -- brakes

    def show(self) -> views.BrakesView:
        return views.brakes_view(
            self.brakes.state, self.ladders.dispatcher.nodes(), self.ladders.runs.busy(),
            self._visible().sees_node, self.brakes.now())

    def reset(self, asked: views.BreakerReset) -> views.BrakesView:
        self.brakes.reset(asker(), asked.reason)
        return self.show()

    # -- modes

    def set_mode(self, asked: views.RuleModeChange, rule_id: str) -> RuleView:
        self.rules.set_mode(asker(), rule_id, asked.mode, asked.expires)
        return self.shown_rule(rule_id)

    # -- a person lets it happen

    def confirm(self, asked: views.LadderConfirmation, alert_id: str) -> CommandView:
        actor, visible = asker(), self._visible()
        alert = next((each for each in self.alerts.alerts.firing() if each.id == alert_id), None)
        if alert is None or not self.alerts.is_seen(alert.target, visible):
            raise NotFoundError("there is no such alert, or it is resolved")

        def order(intent: ActionIntent, step: LadderStep) -> CommandRecord:
            def flaw(preview: Preview) -> Refusal | None:
                return preview_flaw(intent, step.do, preview)

            reason = "; ".join(filter(None, (f"confirms {intent.cause}", intent.sentence,
                                             asked.reason)))
            return self.actions.order_exactly(actor, asked.preview, reason[:1_024],
                                              ON_RUNG[step.do], intent.node_id, flaw)

        found = self.ladders.confirm(alert_id, order)
        if isinstance(found, str):
            raise ActionRefusedError(409, "not_due", found)
        return command_view(found, visible.reads)

    # -- maintenance

    def list_maintenance(self) -> views.MaintenanceList:
        return views.MaintenanceList([
            views.maintenance_view(one, self.alerts.host_of(one.node_id))
            for one in self.maintenance.seen_by(self._visible())])

    def begin_maintenance(self, asked: views.NewMaintenance, node_id: str
                          ) -> views.MaintenanceView:
        made = self.maintenance.put(asker(), node_id, asked.because, asked.until)
        return views.maintenance_view(made, self.alerts.host_of(node_id))

    def end_maintenance(self, node_id: str) -> None:
        self.maintenance.end(asker(), node_id)


ROUTES = (
    Route("GET brakes", AutomationApi.show, "get_brakes", see(Role.VIEWER),
          "Limits of automatic actions, and which are in effect now."),
    Route("POST brakes", AutomationApi.reset, "reset_brakes", change(Role.ADMIN),
          "Resume automatic actions; waiting ones are dropped."),
    # Down is quick; for up the service asks for an admin with a fresh password.
    Route("POST rules/<rule_id>/mode", AutomationApi.set_mode, "set_rule_mode",
          change(Role.OPERATOR, is_fresh=False),
          "Set a Rule's mode; raising it takes an admin, and auto takes proof.",
          errors=(404,)),
    # As any order: the service asks for more with the victims in hand.
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
