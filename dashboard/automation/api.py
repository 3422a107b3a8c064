"""REST of brakes, modes, confirmations and maintenance. What is allowed, the services decide."""

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

from flask import Blueprint, Flask, Response

from gpudeck.actions import Preview, Refusal
from gpudeck.ladder import Step

from ..access.api import asker, body
from ..actions.lifecycle import CommandRecord
from ..actions.service import Acts, CannotAct
from ..actions.views import command_view
from ..alerts.modes import RuleModes
from ..alerts.service import AlertDesk
from ..fleet.api import PREFIX, Wrong, answer
from ..fleet.visibility import Lens, Lenses, Sight
from .brakes import Brakes
from .intents import ACTION, Want, preview_flaw
from .maintenance import MaintenanceDesk
from .service import Ladders
from .views import (
    Confirm,
    MaintenanceList,
    NewMaintenance,
    NewMode,
    Reset,
    brakes_view,
    maintenance_view,
)


@dataclass(frozen=True, slots=True)
class LaddersApi:
    desk: AlertDesk
    ladders: Ladders
    brakes: Brakes
    modes: RuleModes
    maintenance: MaintenanceDesk
    acts: Acts
    lenses: Lenses
    shown_rule: Callable[[str], Response]

    def _lens(self) -> Lens:
        return self.lenses.of(Sight.of(asker()))

    # -- brakes

    def show(self) -> Response:
        return answer(brakes_view(self.brakes.state, self.ladders.hands.nodes(),
                                  self.ladders.busy(), self._lens().sees_node, self.brakes.now()))

    def reset(self) -> Response:
        self.brakes.reset(asker(), body(Reset).reason)
        return self.show()

    # -- modes

    def set_mode(self, rule_id: str) -> Response:
        asked = body(NewMode)
        self.modes.set_mode(asker(), rule_id, asked.mode, asked.expires)
        return self.shown_rule(rule_id)

    # -- a person lets it happen

    def confirm(self, alert_id: str) -> Response:
        asked, actor, lens = body(Confirm), asker(), self._lens()
        alert = next((each for each in self.desk.alerts.firing() if each.id == alert_id), None)
        if alert is None or not self.desk.is_seen(alert.target, lens):
            raise Wrong(HTTPStatus.NOT_FOUND, "there is no such alert, or it is over")

        def order(want: Want, step: Step) -> CommandRecord:
            def flaw(preview: Preview) -> Refusal | None:
                return preview_flaw(want, step.do, preview)

            reason = "; ".join(filter(None, (f"confirms {want.cause}", want.sentence,
                                             asked.reason)))
            return self.acts.order_exactly(actor, asked.preview, reason[:1_024],
                                           ACTION[step.do], want.node_id, flaw)

        found = self.ladders.confirm(alert_id, order)
        if isinstance(found, str):
            raise CannotAct(409, "not_due", found)
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


def add_ladders_api(server: Flask, api: LaddersApi) -> None:
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
