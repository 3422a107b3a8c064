"""The pool in the shapes of a resource manager's API: docs/resource-manager.md. Pure."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from msgspec import Struct

from gpudeck.contract.pool_link import OfferedGpu, ReportedLease
from gpudeck.contract.pool_messages import Leased, LeasedGpu
from gpudeck.language.sizes import GB
from gpudeck.pool.core.claims import Claim
from gpudeck.pool.core.fragmentation import accepts
from gpudeck.pool.core.host_resources import FreeHost

from ..history.views import rfc_3339
from .plan import PendingOffer, PoolNode

Number = Callable[[str, str], float | None]  # of a GPU, by node and UUID


class UtilizationView(Struct):
    gpu_utilization: float | None
    gpu_memory_usage: float | None


class SourceNodeView(Struct):
    """GPUs of one model on one node. `memory_per_gpu`: GiB."""

    node_name: str
    gpu_type: str
    available_gpus: int
    memory_per_gpu: float | None
    utilization: float | None


class MonitoredNodeView(SourceNodeView):
    total_gpus: int
    leased_gpus: int
    memory_usage: float | None


class PoolStatusView(Struct):
    """Status of the pool. `total_nodes`: with those that have nothing free."""

    utilization: UtilizationView
    available_nodes: list[SourceNodeView]
    total_nodes: int
    timestamp: str


class SourceNodeList(Struct):
    nodes: list[SourceNodeView]
    total_nodes: int
    timestamp: str


class MonitoringView(Struct):
    utilization: UtilizationView
    nodes: list[MonitoredNodeView]
    leases: int
    waiting_claims: int
    waiting_gpus: int
    timestamp: str


class GpuProblemView(Struct):
    node_name: str
    gpu_uuid: str
    reason: str


class PoolHealthView(Struct):
    """Health of the pool. `degraded`: some GPU cannot be given out now."""

    status: Literal["healthy", "degraded"]
    total_nodes: int
    total_gpus: int
    problems: list[GpuProblemView]
    timestamp: str


class ValidationView(Struct):
    """Validation of a request. `valid`: it could be met if everything were free; `nodes`: where."""

    valid: bool
    available_now: bool
    nodes: list[str]
    available_nodes: list[str]
    waiting_claims: int
    reason: str


class GpuConfigView(Struct):
    gpu_count: int
    gpu_type: str | None
    memory_gb: float | None
    distributed_training: bool


class LeasedView(Struct, kw_only=True):
    """Lease as set up for a client. `host_words`: its CPUs and its memory of the node, and whether
    anything holds it to them."""

    success: bool
    node_name: str | None = None
    lease_id: str | None = None
    gpu_uuids: list[str] = []
    expires_at: str | None = None
    environment: dict[str, str] = {}
    host_words: str = ""
    reason: str = ""


class AllocationView(LeasedView, kw_only=True):
    gpu_config: GpuConfigView


class SetupView(LeasedView, kw_only=True):
    """Setup of a framework. `code`: lines for the program that uses the lease. Without one,
    `reason` says what to do first."""

    code: list[str] = []


class ReleaseView(Struct):
    success: bool
    lease_id: str
    reason: str = ""


def suits(node: PoolNode, lease: ReportedLease, claim: Claim) -> bool:
    """Return whether a lease has as many GPUs of these models and of so much memory each, and as
    many CPUs and as much memory of its node."""
    gpus = [gpu for gpu in node.report.gpus if gpu.uuid in lease.uuids]
    return len(gpus) >= claim.gpus and all(
        accepts(claim.models, gpu.model)
        and (gpu.mem_bytes or 0) >= (claim.mem_bytes or 0) for gpu in gpus) and FreeHost(
            lease.claim.cpu_milli or 0, lease.claim.ram_bytes or 0).has(claim)


@dataclass(frozen=True, slots=True)
class LiveNumbers:
    """Numbers of this moment. None: not known."""

    util_pct: Number
    mem_used_bytes: Number


@dataclass(frozen=True, slots=True)
class LiveGpu:
    node: PoolNode
    gpu: OfferedGpu
    is_leased: bool
    is_free: bool
    util_pct: float | None
    mem_used_bytes: float | None


def live_gpus(nodes: Iterable[PoolNode], pending: Iterable[PendingOffer], live: LiveNumbers
              ) -> list[LiveGpu]:
    offered = {(grant.node, uuid) for offer in pending for grant in offer.grants
               for uuid in grant.uuids}
    gpus = []
    for node in nodes:
        gpus += [LiveGpu(
            node, gpu, gpu.uuid in node.leased,
            gpu.uuid in node.available and (node.id, gpu.uuid) not in offered,
            live.util_pct(node.id, gpu.uuid), live.mem_used_bytes(node.id, gpu.uuid))
            for gpu in node.report.gpus]
    return gpus


def utilization(gpus: Iterable[LiveGpu]) -> UtilizationView:
    utils, used_bytes, total = [], 0.0, 0.0
    for live in gpus:
        if live.util_pct is not None:
            utils.append(live.util_pct)
        if live.mem_used_bytes is not None and live.gpu.mem_bytes is not None:
            used_bytes, total = used_bytes + live.mem_used_bytes, total + live.gpu.mem_bytes
    return UtilizationView(round(fmean(utils) / 100, 3) if utils else None,
                           round(used_bytes / total, 3) if total else None)


def monitored_nodes(gpus: Iterable[LiveGpu]) -> list[MonitoredNodeView]:
    kinds: dict[tuple[str, str, str, float | None], list[LiveGpu]] = {}
    for live in gpus:
        kinds.setdefault((live.node.host, live.node.id, live.gpu.model, live.gpu.mem_bytes),
                         []).append(live)
    views = []
    for (host, _, model, mem_bytes), alike in kinds.items():
        use = utilization(alike)
        views.append(MonitoredNodeView(
            host, model, sum(live.is_free for live in alike),
            None if mem_bytes is None else round(mem_bytes / 2**30, 1), use.gpu_utilization,
            len(alike), sum(live.is_leased for live in alike), use.gpu_memory_usage))
    return views


def available_nodes(gpus: Iterable[LiveGpu], models: tuple[str, ...] = (),
                    min_memory_gb: float = 0.0) -> list[SourceNodeView]:
    fitting = [live for live in gpus if accepts(models, live.gpu.model) and (
        not min_memory_gb or (live.gpu.mem_bytes or 0.0) >= min_memory_gb * GB)]
    return [SourceNodeView(view.node_name, view.gpu_type, view.available_gpus,
                           view.memory_per_gpu, view.utilization)
            for view in monitored_nodes(fitting) if view.available_gpus]


def leased(node: PoolNode, lease: ReportedLease) -> Leased:
    """Return a lease as the node itself would report it, as far as its hub knows."""
    gpus = {gpu.uuid: gpu for gpu in node.report.gpus}
    return Leased(
        lease.claim.id, node.host,
        tuple(LeasedGpu(gpu.uuid, gpu.model, gpu.index, gpu.is_mig, None, gpu.mem_bytes)
              for uuid in lease.uuids if (gpu := gpus.get(uuid)) is not None),
        lease.until, lease.claim.share_milli, lease.claim.mem_bytes, 0)


def moment(at: float) -> str:
    return rfc_3339(round(at))
