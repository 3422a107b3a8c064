"""REST of brakes, modes, confirmations and maintenance. The services decide what is allowed."""

from collections.abc import Callable
from dataclasses import dataclass

from gpudeck.contract.action_views import CommandView

from ..access.policy import PermissionReach, Role
from ..access.requests import caller
from ..access.routes import Route, change, see
from ..fleet.visibility import VisibleFleet, VisibleFleetCache
from . import views
from .brakes import BrakeService
from .confirmations import StepConfirmations
from .holds import MaintenanceService
from .service import LadderService


@dataclass(frozen=True, slots=True)
class AutomationApi:
    ladders: LadderService
    brakes: BrakeService
    maintenance: MaintenanceService
    confirmations: StepConfirmations
    visible_fleets: VisibleFleetCache
    host_of: Callable[[str], str]

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

    # -- a person confirms a step

    def confirm(self, confirmation: views.LadderConfirmation, alert_id: str) -> CommandView:
        return self.confirmations.confirm(caller(), self._visible(), alert_id, confirmation)

    # -- maintenance

    def list_maintenance(self) -> views.MaintenanceList:
        return views.MaintenanceList([
            views.maintenance_view(window, self.host_of(window.node_id))
            for window in self.maintenance.seen_by(self._visible())])

    def begin_maintenance(self, new_maintenance: views.NewMaintenance, node_id: str
                          ) -> views.MaintenanceView:
        window = self.maintenance.put(
            caller(), node_id, new_maintenance.because, new_maintenance.until)
        return views.maintenance_view(window, self.host_of(node_id))

    def end_maintenance(self, node_id: str) -> None:
        self.maintenance.end(caller(), node_id)


ROUTES = (
    Route("GET brakes", AutomationApi.show, "get_brakes", see(Role.VIEWER),
          "Limits of automatic actions, and which are in effect now."),
    Route("POST brakes", AutomationApi.reset, "reset_brakes", change(Role.ADMIN),
          "Resume automatic actions; waiting ones are dropped."),
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
