"""REST of quality of service."""

import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from ..access.policy import PermissionReach, Role
from ..access.requests import caller
from ..access.routes import Route, change, see
from ..fleet.visibility import VisibleFleetCache
from ..web.answers import ApiError
from .core.qos import (
    GIB,
    KINDS,
    MOST,
    PromisedGpus,
    PromisedMemory,
    PromisedThrottling,
    PromisedWait,
    QosKind,
    QosPolicy,
    QosViolation,
    Tenant,
    of_week,
)
from .qos_service import QosService

SHOWN = 200


class QosWeek(Struct):
    """Violations of one kind in the last seven days; one that goes on counts until now."""

    kind: QosKind
    violations: int
    seconds: float


class QosTenantView(Struct):
    """A tenant. `gpus`: boards that its tasks use or its leases hold; `memory_gib`: of GPUs, where
    it is promised, of shared ones its part; `waiting`: its claims that wait, and `longest_wait_s`
    the longest of them; `throttled_pct`: now. Null: not known, or nothing waits. `unkept`:
    promises that are not kept now; `pending`: those of them that do not count as a violation yet,
    as they have not lasted for a minute."""

    policy: QosPolicy
    gpus: int | None
    memory_gib: float | None
    waiting: int | None
    longest_wait_s: float | None
    throttled_pct: float | None
    unkept: list[QosKind]
    week: list[QosWeek]
    pending: list[QosKind] = []


class QosReport(Struct):
    """The tenants and their violations. `violations`: the newest first."""

    items: list[QosTenantView]
    violations: list[QosViolation]


class NewQosPromise(Struct, forbid_unknown_fields=True):
    gpus: PromisedGpus | None = None
    wait_s: PromisedWait | None = None
    throttled_pct: PromisedThrottling | None = None
    memory_gib: PromisedMemory | None = None


class NewQosPolicies(Struct, forbid_unknown_fields=True):
    items: Annotated[tuple[QosPolicy, ...], Meta(max_length=MOST)]


@dataclass(frozen=True, slots=True)
class QosApi:
    service: QosService
    visible_fleets: VisibleFleetCache

    def report(self) -> QosReport:
        """Return the report. Tenants have GPUs on all nodes: a user who sees a part of the fleet
        gets none of them."""
        if not self.visible_fleets.seen_by(caller()).is_whole:
            return QosReport([], [])
        service, now = self.service, time.time()
        violations = service.tracker.all()
        newest = sorted(violations, key=lambda violation: -violation.began_at)[:SHOWN]
        return QosReport([self._tenant(policy, violations, now) for policy in service.policies],
                         newest)

    def _tenant(self, policy: QosPolicy, violations: list[QosViolation], now: float
                ) -> QosTenantView:
        state = self.service.states.get(policy.tenant)
        tracker = self.service.tracker
        week = [QosWeek(kind, *of_week(violations, policy.tenant, kind, now)) for kind in KINDS]
        unkept = tracker.unkept(policy.tenant)
        pending = [kind for kind in unkept if (policy.tenant, kind) not in tracker.open]
        if state is None:
            return QosTenantView(policy, None, None, None, None, None, unkept, week, pending)
        memory_gib = None if state.memory_bytes is None else round(state.memory_bytes / GIB, 3)
        return QosTenantView(policy, state.gpus, memory_gib, len(state.waiting_s),
                             max(state.waiting_s, default=None), state.throttled_pct, unkept, week,
                             pending)

    def replace(self, request: NewQosPolicies) -> QosReport:
        self.service.set_policies(caller(), request.items)
        return self.report()

    def put(self, request: NewQosPromise, tenant: str) -> None:
        policy = QosPolicy(_tenant(tenant), request.gpus, request.wait_s, request.throttled_pct,
                           request.memory_gib)
        self.service.put(caller(), policy)

    def remove(self, tenant: str) -> None:
        self.service.remove(caller(), tenant)


def _tenant(text: str) -> str:
    try:
        return msgspec.convert(text, Tenant)
    except msgspec.ValidationError as error:
        raise ApiError(HTTPStatus.BAD_REQUEST, "a tenant is user:NAME or team:NAME") from error


CHANGE = change(Role.ADMIN, PermissionReach.NONE, is_fresh=False)

ROUTES = (
    Route("GET qos", QosApi.report, "list_qos", see(Role.OPERATOR),
          "What each tenant was promised (GPUs, memory, longest wait, most throttling) and gets, "
          "and how often it was not kept in the last seven days."),
    Route("PUT qos", QosApi.replace, "put_qos", CHANGE,
          "Replace all promises. Violations of before are kept for 91 days.", errors=(409,)),
    Route("PUT qos/<path:tenant>", QosApi.put, "put_qos_promise", CHANGE,
          "Promise this to one tenant, `user:NAME` or `team:NAME`, in place of what it was "
          "promised before.", status=204, errors=(409,)),
    Route("DELETE qos/<path:tenant>", QosApi.remove, "remove_qos_promise", CHANGE,
          "Promise nothing to this tenant any longer; its violations are kept for 91 days.",
          status=204, errors=(404,)),
)
