"""REST of quality of service."""

import time
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta, Struct

from ..access.policy import PermissionReach, Role
from ..access.requests import asker
from ..access.routes import Route, change, see
from ..fleet.visibility import VisibleFleetCache
from .core.qos import KINDS, MOST, QosKind, QosPolicy, QosViolation, of_week
from .qos_service import QosService

SHOWN = 200


class QosWeek(Struct):
    """Violations of one kind in the last seven days; one that goes on counts until now."""

    kind: QosKind
    violations: int
    seconds: float


class QosTenantView(Struct):
    """A tenant. `gpus`: boards that its tasks use or its leases hold; `waiting`: its claims that
    wait, and `longest_wait_s` the longest of them; `throttled_pct`: now. Null: not known, or
    nothing waits. `unkept`: violations that go on."""

    policy: QosPolicy
    gpus: int | None
    waiting: int | None
    longest_wait_s: float | None
    throttled_pct: float | None
    unkept: list[QosKind]
    week: list[QosWeek]


class QosReport(Struct):
    """The tenants and their violations. `violations`: the newest first."""

    items: list[QosTenantView]
    violations: list[QosViolation]


class NewQosPolicies(Struct, forbid_unknown_fields=True):
    items: Annotated[tuple[QosPolicy, ...], Meta(max_length=MOST)]


@dataclass(frozen=True, slots=True)
class QosApi:
    service: QosService
    visible_fleets: VisibleFleetCache

    def report(self) -> QosReport:
        """Return the report. Tenants have GPUs on all nodes: a user who sees a part of the fleet
        gets none of them."""
        if not self.visible_fleets.seen_by(asker()).is_whole:
            return QosReport([], [])
        service, now = self.service, time.time()
        violations = service.tracker.all()
        newest = sorted(violations, key=lambda violation: -violation.began_at)[:SHOWN]
        return QosReport([self._tenant(policy, violations, now) for policy in service.policies],
                         newest)

    def _tenant(self, policy: QosPolicy, violations: list[QosViolation], now: float
                ) -> QosTenantView:
        state = self.service.states.get(policy.tenant)
        open_now = self.service.tracker.open
        week = [QosWeek(kind, *of_week(violations, policy.tenant, kind, now)) for kind in KINDS]
        unkept = [kind for kind in KINDS if (policy.tenant, kind) in open_now]
        if state is None:
            return QosTenantView(policy, None, None, None, None, unkept, week)
        return QosTenantView(policy, state.gpus, len(state.waiting_s),
                             max(state.waiting_s, default=None), state.throttled_pct, unkept, week)

    def replace(self, request: NewQosPolicies) -> QosReport:
        self.service.set_policies(asker(), request.items)
        return self.report()


ROUTES = (
    Route("GET qos", QosApi.report, "list_qos", see(Role.OPERATOR),
          "What each tenant was promised (GPUs, longest wait, most throttling) and gets, and how "
          "often it was not kept in the last seven days."),
    Route("PUT qos", QosApi.replace, "put_qos", change(Role.ADMIN, PermissionReach.NONE,
                                                       is_fresh=False),
          "Replace all promises. Violations of before are kept for 91 days.", errors=(409,)),
)
