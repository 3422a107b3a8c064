"""REST of brakes, modes, confirmations and maintenance. What is allowed, the services decide."""

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

from flask import Flask, Response

from gpudeck.action_table import ON_RUNG
from gpudeck.action_views import CommandView
from gpudeck.actions import Preview, Refusal
from gpudeck.ladder import LadderStep

from ..access.policy import PermissionReach, Role
from ..access.requests import asker, body
from ..access.routes import Route, change, see, serve_routes
from ..actions.errors import ActionRefusedError
from ..actions.lifecycle import CommandRecord
from ..actions.service import ActionService
from ..actions.views import command_view
from ..alerts.admin import RuleAdmin
from ..alerts.queries import AlertQueries
from ..alerts.views import RuleView
from ..fleet.visibility import VisibilityScope, VisibleFleet, VisibleFleetCache
from ..web.answers import ApiError, answer
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
    lenses: VisibleFleetCache
    shown_rule: Callable[[str], Response]

    def _lens(self) -> VisibleFleet:
        return self.lenses.of(VisibilityScope.of(asker()))

    # -- brakes

    def show(self) -> Response:
        return answer(views.brakes_view(
            self.brakes.state, self.ladders.dispatcher.nodes(), self.ladders.runs.busy(),
            self._lens().sees_node, self.brakes.now()))

    def reset(self) -> Response:
        self.brakes.reset(asker(), body(views.BreakerReset).reason)
        return self.show()

    # -- modes

    def set_mode(self, rule_id: str) -> Response:
        asked = body(views.RuleModeChange)
        self.rules.set_mode(asker(), rule_id, asked.mode, asked.expires)
        return self.shown_rule(rule_id)

    # -- a person lets it happen

    def confirm(self, alert_id: str) -> Response:
        asked, actor, lens = body(views.LadderConfirmation), asker(), self._lens()
        alert = next((each for each in self.alerts.alerts.firing() if each.id == alert_id), None)
        if alert is None or not self.alerts.is_seen(alert.target, lens):
            raise ApiError(HTTPStatus.NOT_FOUND, "there is no such alert, or it is over")

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
        return answer(command_view(found, lens.reads), HTTPStatus.ACCEPTED)

    # -- maintenance

    def list_maintenance(self) -> Response:
        return answer(views.MaintenanceList([
            views.maintenance_view(one, self.alerts.host_of(one.node_id))
            for one in self.maintenance.seen_by(self._lens())]))

    def begin_maintenance(self, node_id: str) -> Response:
        asked = body(views.NewMaintenance)
        made = self.maintenance.put(asker(), node_id, asked.because, asked.until)
        return answer(views.maintenance_view(made, self.alerts.host_of(node_id)))

    def end_maintenance(self, node_id: str) -> Response:
        self.maintenance.end(asker(), node_id)
        return Response(status=HTTPStatus.NO_CONTENT)


ROUTES = (
    Route("GET brakes", AutomationApi.show, "get_brakes", see(Role.VIEWER),
          "What bounds automatic acts, and what holds now.", answer=views.BrakesView),
    Route("POST brakes", AutomationApi.reset, "reset_brakes", change(Role.ADMIN),
          "Lets automatic acts go on; what waited is dropped.", answer=views.BrakesView,
          body=views.BreakerReset, errors=(400, 409, 415, 503)),
    # Down is quick; for up the service asks for an admin with a fresh password.
    Route("POST rules/<rule_id>/mode", AutomationApi.set_mode, "set_rule_mode",
          change(Role.OPERATOR, is_fresh=False),
          "What a Rule may do by itself; up takes an admin, and auto what is proven of it.",
          answer=RuleView, body=views.RuleModeChange, errors=(400, 404, 409, 415, 503)),
    # As any order: the service asks for more with the victims in hand.
    Route("POST alerts/<path:alert_id>/confirm", AutomationApi.confirm, "confirm_alert",
          change(Role.USER, PermissionReach.TASKS, is_fresh=False),
          "A person lets a Rule in confirm take its next step.", answer=CommandView,
          body=views.LadderConfirmation, status=202, errors=(400, 404, 409, 415, 503)),
    Route("GET maintenance", AutomationApi.list_maintenance, "list_maintenance", see(Role.VIEWER),
          "Nodes that people work on.", answer=views.MaintenanceList),
    Route("PUT nodes/<node_id>/maintenance", AutomationApi.begin_maintenance, "begin_maintenance",
          change(Role.OPERATOR, PermissionReach.LENS, is_fresh=False),
          "Nothing is done there by itself, and by hand only on a second click.",
          answer=views.MaintenanceView, body=views.NewMaintenance,
          errors=(400, 404, 409, 415, 503)),
    Route("DELETE nodes/<node_id>/maintenance", AutomationApi.end_maintenance, "end_maintenance",
          change(Role.OPERATOR, PermissionReach.LENS),
          "Ends it now.", status=204, errors=(404, 503)),
)


def add_automation_api(server: Flask, api: AutomationApi) -> None:
    serve_routes(server, api, ROUTES)
