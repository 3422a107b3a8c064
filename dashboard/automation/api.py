"""REST of brakes, modes, confirmations and maintenance. What is allowed, the services decide."""

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

from flask import Blueprint, Flask, Response

from gpudeck.actions import Preview, Refusal
from gpudeck.ladder import LadderStep

from ..access.requests import asker, body
from ..actions.errors import ActionRefusedError
from ..actions.lifecycle import CommandRecord
from ..actions.service import ActionService
from ..actions.views import command_view
from ..alerts.modes import RuleModeService
from ..alerts.service import AlertService
from ..fleet.visibility import VisibilityScope, VisibleFleet, VisibleFleetCache
from ..web.answers import PREFIX, ApiError, answer
from .brakes import BrakeService
from .intents import ACTION, ActionIntent, preview_flaw
from .maintenance import MaintenanceService
from .service import LadderService
from .views import (
    BreakerReset,
    LadderConfirmation,
    MaintenanceList,
    NewMaintenance,
    RuleModeChange,
    brakes_view,
    maintenance_view,
)


@dataclass(frozen=True, slots=True)
class AutomationApi:
    desk: AlertService
    ladders: LadderService
    brakes: BrakeService
    modes: RuleModeService
    maintenance: MaintenanceService
    actions: ActionService
    lenses: VisibleFleetCache
    shown_rule: Callable[[str], Response]

    def _lens(self) -> VisibleFleet:
        return self.lenses.of(VisibilityScope.of(asker()))

    # -- brakes

    def show(self) -> Response:
        return answer(brakes_view(self.brakes.state, self.ladders.hands.nodes(),
                                  self.ladders.busy(), self._lens().sees_node, self.brakes.now()))

    def reset(self) -> Response:
        self.brakes.reset(asker(), body(BreakerReset).reason)
        return self.show()

    # -- modes

    def set_mode(self, rule_id: str) -> Response:
        asked = body(RuleModeChange)
        self.modes.set_mode(asker(), rule_id, asked.mode, asked.expires)
        return self.shown_rule(rule_id)

    # -- a person lets it happen

    def confirm(self, alert_id: str) -> Response:
        asked, actor, lens = body(LadderConfirmation), asker(), self._lens()
        alert = next((each for each in self.desk.alerts.firing() if each.id == alert_id), None)
        if alert is None or not self.desk.is_seen(alert.target, lens):
            raise ApiError(HTTPStatus.NOT_FOUND, "there is no such alert, or it is over")

        def order(want: ActionIntent, step: LadderStep) -> CommandRecord:
            def flaw(preview: Preview) -> Refusal | None:
                return preview_flaw(want, step.do, preview)

            reason = "; ".join(filter(None, (f"confirms {want.cause}", want.sentence,
                                             asked.reason)))
            return self.actions.order_exactly(actor, asked.preview, reason[:1_024],
                                              ACTION[step.do], want.node_id, flaw)

        found = self.ladders.confirm(alert_id, order)
        if isinstance(found, str):
            raise ActionRefusedError(409, "not_due", found)
        return answer(command_view(found, lens.reads), HTTPStatus.ACCEPTED)

    # -- maintenance

    def list_maintenance(self) -> Response:
        return answer(MaintenanceList([maintenance_view(one, self.desk.host_of(one.node_id))
                                       for one in self.maintenance.seen_by(self._lens())]))

    def begin_maintenance(self, node_id: str) -> Response:
        asked = body(NewMaintenance)
        made = self.maintenance.put(asker(), node_id, asked.because, asked.until)
        return answer(maintenance_view(made, self.desk.host_of(node_id)))

    def end_maintenance(self, node_id: str) -> Response:
        self.maintenance.end(asker(), node_id)
        return Response(status=HTTPStatus.NO_CONTENT)


def add_ladders_api(server: Flask, api: AutomationApi) -> None:
    routes = Blueprint("ladders", __name__, url_prefix=PREFIX)
    table: tuple[tuple[str, str, Callable[..., Response]], ...] = (
        ("GET", "/brakes", api.show), ("POST", "/brakes", api.reset),
        ("POST", "/rules/<rule_id>/mode", api.set_mode),
        ("POST", "/alerts/<path:alert_id>/confirm", api.confirm),
        ("GET", "/maintenance", api.list_maintenance),
        ("PUT", "/nodes/<node_id>/maintenance", api.begin_maintenance),
        ("DELETE", "/nodes/<node_id>/maintenance", api.end_maintenance),
    )
    for method, rule, view in table:
        routes.add_url_rule(rule, f"{view.__name__} {method}", view, methods=[method],
                            provide_automatic_options=False)
    server.register_blueprint(routes)
