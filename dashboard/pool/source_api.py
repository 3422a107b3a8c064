"""REST of a resource manager, as its clients know it, on the pool: docs/resource-manager.md."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any

from flask import request
from msgspec import Meta, Struct

from gpudeck.contract.message_limits import Word
from gpudeck.contract.pool_link import ReportedLease
from gpudeck.contract.pool_messages import Leased
from gpudeck.language.sizes import GB
from gpudeck.pool.core.claims import CPU_MILLI, GPUS_MOST, TEXT_MOST, Claim
from gpudeck.pool.core.feasibility import words
from gpudeck.pool.core.host_resources import asks_for_host, lease_words
from gpudeck.pool.core.inventory import Node
from gpudeck.pool.core.placement import candidates
from gpudeck.pool.environment import environment

from ..access.policy import PermissionReach, Role
from ..access.requests import caller
from ..access.routes import Route, change, see
from ..errors import InvalidChangeError, NotFoundError
from ..web.answers import ApiError, bad, check_names
from . import source_views as views
from .api import Cpus, NewClaim, PoolApi, Size, size_of
from .excluded_nodes import ExcludedNodes, uncounting_nodes
from .plan import PlannedPass, PoolNode, free_nodes, never, waits
from .setup_code import pytorch_code, tensorflow_code

ALLOCATE_WITHIN_S = 5.0
RELEASE_WITHIN_S = 5.0
MEMORY_MOST_GB = 1e5
ALLOCATE_FIRST = ("no lease of yours has {}: POST gpu/allocate first, or name another by its "
                  "`lease_id`")
STILL_HELD = ("its node has not ended it yet; a lease with a running command ends only with that "
              "command")

SetupCode = Callable[[Leased, Mapping[str, str], float | None, bool, bool], list[str]]


class GpuRequest(Struct, forbid_unknown_fields=True):
    """Request of GPUs. `memory_gb`: of each board, at least. `gpu_memory_fraction` null: memory
    grows with use. `owner`: a user of the node; if it is left out, the token's own name there.
    `cpus`, `ram_bytes`: of the node, as in POST claims."""

    gpu_count: Annotated[int, Meta(ge=1, le=GPUS_MOST)] = 1
    gpu_type: Word | None = None
    memory_gb: Annotated[float, Meta(ge=0, le=MEMORY_MOST_GB)] | None = None
    distributed_training: bool = False
    mixed_precision: bool = False
    gpu_memory_fraction: Annotated[float, Meta(gt=0, le=1)] | None = 0.8
    owner: Word | None = None
    lease_id: Word | None = None
    cpus: Cpus | None = None
    ram_bytes: Size | None = None

    @property
    def models(self) -> tuple[str, ...]:
        return _models(self.gpu_type)

    @property
    def mem_bytes(self) -> int | None:
        return int((self.memory_gb or 0) * GB) or None

    @property
    def claim(self) -> Claim:
        """Claim for this request. Raises ApiError."""
        return Claim(
            id="asked", owner="asked", gpus=self.gpu_count, models=self.models,
            mem_bytes=self.mem_bytes, submitted_at=time.time(),
            cpu_milli=None if self.cpus is None else self.cpus * CPU_MILLI,
            ram_bytes=size_of("ram_bytes", self.ram_bytes))


class LeaseRelease(Struct, forbid_unknown_fields=True):
    lease_id: Word


def _models(gpu_type: str | None) -> tuple[str, ...]:
    return tuple(word.strip() for word in (gpu_type or "").split("|") if word.strip())[:16]


@dataclass(frozen=True, slots=True)
class ResourceManagerApi:
    pool: PoolApi
    live: Callable[[], views.LiveNumbers]  # of this moment

    def status(self) -> views.PoolStatusView:
        nodes, gpus = self._gpus()
        return views.PoolStatusView(views.utilization(gpus), views.available_nodes(gpus),
                                    len(nodes), views.moment(time.time()))

    def nodes(self) -> views.SourceNodeList:
        check_names(("gpu_type", "min_memory_gb"))
        gpu_type = request.args.get("gpu_type", "")
        if len(gpu_type) > TEXT_MOST:
            raise bad(f"gpu_type has at most {TEXT_MOST} characters")
        least = _memory(request.args.get("min_memory_gb"))
        nodes, gpus = self._gpus()
        return views.SourceNodeList(views.available_nodes(gpus, _models(gpu_type), least),
                                    len(nodes), views.moment(time.time()))

    def monitoring(self) -> views.MonitoringView:
        _, gpus = self._gpus()
        pool = self.pool.pool()
        return views.MonitoringView(
            views.utilization(gpus), views.monitored_nodes(gpus), pool.leases, pool.waiting,
            pool.waiting_gpus, views.moment(time.time()))

    def health(self) -> views.PoolHealthView:
        nodes, _ = self._ready()
        problems = [views.GpuProblemView(node.host, uuid, why)
                    for node in nodes for uuid, why in node.troubles.items()]
        return views.PoolHealthView(
            "degraded" if problems else "healthy", len(nodes),
            sum(len(node.report.gpus) for node in nodes), problems, views.moment(time.time()))

    def validate(self, body: GpuRequest) -> views.ValidationView:
        nodes, _ = self._ready()
        claim, service = body.claim, self.pool.service
        free = free_nodes(nodes, service.pending.values(), asks_for_host([claim]))

        def fits(node: Node) -> bool:
            return next(candidates(node, claim, 0.0), None) is not None

        closed = ExcludedNodes(
            uncounted=uncounting_nodes([claim], nodes).get(claim.id, frozenset()))
        could = [node for node in nodes if not node.report.managed_by
                 and node.id not in closed.nodes and fits(node.empty)]
        now = [node for node in could if fits(free[node.id])]
        reason = ""
        if not could:
            reason = never(claim, nodes) or closed.words(claim, nodes)
        elif not now:
            reason, _ = waits(claim, nodes, free, service.bookings.reserved, claim.submitted_at)
        return views.ValidationView(
            bool(could), bool(now), [node.host for node in could], [node.host for node in now],
            len(self.pool.seen_claims()), reason)

    def allocate(self, body: GpuRequest) -> views.AllocationView:
        self._ready()
        config = views.GpuConfigView(body.gpu_count, body.gpu_type, body.memory_gb,
                                     body.distributed_training)
        try:
            claim_id = self.pool.claim(NewClaim(
                gpus=body.gpu_count, owner=body.owner, models=body.models,
                mem_bytes=body.mem_bytes, cpus=body.cpus, ram_bytes=body.ram_bytes)).id
        except NotFoundError:
            raise
        except InvalidChangeError as why:
            return views.AllocationView(success=False, gpu_config=config, reason=str(why))
        service = self.pool.service
        refusal = "" if service.lease(claim_id) else service.news.wait(claim_id, ALLOCATE_WITHIN_S)
        leased = service.lease(claim_id)
        if leased is not None:
            return views.AllocationView(gpu_config=config, **_lease_fields(*leased))
        reason = refusal or self._why_waits(claim_id)
        service.withdraw(claim_id)
        return views.AllocationView(success=False, gpu_config=config, reason=reason)

    def _why_waits(self, claim_id: str) -> str:
        planned = self.pool.service.planned
        for _, standing in () if planned is None else planned.waiting({claim_id}):
            return f"number {standing.place} in the queue: {standing.why}"
        return f"no node has answered within {ALLOCATE_WITHIN_S:g} s"

    def release(self, body: LeaseRelease) -> views.ReleaseView:
        self.pool.give_back(body.lease_id)
        service = self.pool.service
        if service.lease(body.lease_id) is not None:
            service.news.wait(body.lease_id, RELEASE_WITHIN_S)
        is_held = service.lease(body.lease_id) is not None
        return views.ReleaseView(not is_held, body.lease_id, STILL_HELD if is_held else "")

    def set_up_tensorflow(self, body: GpuRequest) -> views.SetupView:
        return self._set_up(body, tensorflow_code)

    def set_up_pytorch(self, body: GpuRequest) -> views.SetupView:
        return self._set_up(body, pytorch_code)

    def _set_up(self, body: GpuRequest, code_of: SetupCode) -> views.SetupView:
        self._ready()
        lease_id = body.lease_id or self._newest_lease(body)
        if lease_id is None:
            return views.SetupView(success=False, reason=ALLOCATE_FIRST.format(words(body.claim)))
        node, lease = self.pool.lease(lease_id)
        fields = _lease_fields(node, lease)
        return views.SetupView(**fields, code=code_of(
            views.leased(node, lease), fields["environment"], body.gpu_memory_fraction,
            body.distributed_training, body.mixed_precision))

    def _newest_lease(self, body: GpuRequest) -> str | None:
        """Return the caller's or `owner`'s newest lease with at least such GPUs, CPUs and
        memory."""
        names = caller().scope.unix_names if body.owner is None else (body.owner,)
        claim = body.claim
        leases = [(lease.since, lease.claim.id) for node in self.pool.seen_nodes()
                  for lease in node.report.leases if lease.claim.owner in names
                  and views.suits(node, lease, claim)]
        return max(leases, default=(0.0, None))[1]

    def _gpus(self) -> tuple[list[PoolNode], list[views.LiveGpu]]:
        nodes, _ = self._ready()
        return nodes, views.live_gpus(nodes, self.pool.service.pending.values(), self.live())

    def _ready(self) -> tuple[list[PoolNode], PlannedPass]:
        service = self.pool.service
        if not service.is_on:
            raise ApiError(HTTPStatus.SERVICE_UNAVAILABLE,
                           "the pool is off; `gpudeck hub --pool on` switches it on")
        planned = service.planned
        nodes = [] if planned is None else [
            node for node in self.pool.seen_nodes() if node.id in planned.free]
        if planned is None or not nodes:
            raise ApiError(HTTPStatus.SERVICE_UNAVAILABLE,
                           "no node that you may see leases GPUs now (gpudeck agent --pool-socket)")
        return nodes, planned


def _memory(raw: str | None) -> float:
    try:
        least = 0.0 if raw is None else float(raw)
    except ValueError:
        least = -1.0
    if not 0 <= least <= MEMORY_MOST_GB:
        raise bad(f"min_memory_gb is a number from 0 to {MEMORY_MOST_GB:.0f}")
    return least


def _lease_fields(node: PoolNode, lease: ReportedLease) -> dict[str, Any]:
    # Whether its program sees the same boards as the agent only the program's machine can tell.
    change = environment(views.leased(node, lease), "auto", ())
    return {"success": True, "node_name": node.host, "lease_id": lease.claim.id,
            "gpu_uuids": list(lease.uuids), "expires_at": views.moment(lease.until),
            "environment": dict(change.set),
            "host_words": lease_words(lease.claim, lease.cores, lease.limits)}


_USES = change(Role.USER, PermissionReach.TASKS, is_fresh=False)
_NOT_READY = (503,)

ROUTES = (
    Route("GET gpu/status", ResourceManagerApi.status, "gpu_status", see(Role.VIEWER),
          "Usage of the pool's GPUs, and which are free where.", errors=_NOT_READY),
    Route("GET gpu/nodes", ResourceManagerApi.nodes, "gpu_nodes", see(Role.VIEWER),
          "Nodes with free GPUs, by type or minimum memory.", errors=_NOT_READY,
          query=(("gpu_type", {"type": "string", "maxLength": TEXT_MOST}),
                 ("min_memory_gb", {"type": "number", "minimum": 0, "maximum": MEMORY_MOST_GB}))),
    Route("GET gpu/health", ResourceManagerApi.health, "gpu_health", see(Role.VIEWER),
          "Health of the pool: whether it leases GPUs, and which are unavailable and why.",
          errors=_NOT_READY),
    Route("GET gpu/monitoring", ResourceManagerApi.monitoring, "gpu_monitoring",
          see(Role.VIEWER), "All nodes of the pool with usage and leases, and the queue.",
          errors=_NOT_READY),
    Route("POST gpu/validate", ResourceManagerApi.validate, "validate_gpus",
          change(Role.VIEWER, is_fresh=False),
          "Check whether such a claim could ever be met, whether now, where, and if not, why."),
    Route("POST gpu/allocate", ResourceManagerApi.allocate, "allocate_gpus", _USES,
          "Lease GPUs that are free now or within seconds; otherwise the request is withdrawn.",
          errors=(404,)),
    Route("POST gpu/release", ResourceManagerApi.release, "release_gpus", _USES,
          "Release a lease.", errors=(404,)),
    Route("POST gpu/setup-tensorflow", ResourceManagerApi.set_up_tensorflow, "setup_tensorflow",
          _USES, "Environment and lines of code that keep TensorFlow within a lease.",
          errors=(404,)),
    Route("POST gpu/setup-pytorch", ResourceManagerApi.set_up_pytorch, "setup_pytorch", _USES,
          "Environment and lines of code that keep PyTorch within a lease.", errors=(404,)),
)
