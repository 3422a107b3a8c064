"""GPUs of this node as its pool sees them, and why one is not given out. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from gpudeck.contract.repairs import GpuRepair, of_gpu
from gpudeck.contract.vendors import INTEL, vendor_of
from gpudeck.contract.wire import GpuFacts, GpuLink
from gpudeck.measures.availability import GpuConditions, sentence, why_not
from gpudeck.pool.core.host_resources import NOT_COUNTED, FreeHost

from ..readings import GpuReading, conditions
from ..tasks.seen import GpuTask
from .lock import BOARD_LEASED, PoolGpu
from .uses import LeaseUse

# Level Zero numbers boards and the graphics of processors together, and tiles where it likes to: a
# wrong number is somebody else's board.
UNCONFINED = "gpudeck leases no boards of Intel: it cannot confine a program to one"
_BY_USE = ("memory", "busy", "unknown")  # which a lease that is not known may explain


@dataclass(frozen=True, slots=True)
class PoolSnapshot:
    """GPUs and tasks of this node at one moment. `tasks` None: they have not been listed yet.
    `managed_by`: the scheduler that assigns them; "": the pool does. `host`: CPUs and memory."""

    gpus: Mapping[str, PoolGpu]
    tasks: Sequence[GpuTask] | None
    managed_by: str = ""
    host: FreeHost = NOT_COUNTED


def host_resources(snapshot: PoolSnapshot | None) -> FreeHost:
    return NOT_COUNTED if snapshot is None else snapshot.host


def pool_gpus(facts: Sequence[GpuFacts], links: Iterable[GpuLink],
              readings: Iterable[GpuReading], pending: Collection[str]) -> dict[str, PoolGpu]:
    """Return the GPUs that can be given out, by UUID: of a board that is split its instances, not
    itself. `pending`: boards on which rows of memory wait to be remapped. That takes a reset, which
    would end what is started there now."""
    split = {gpu.parent_uuid for gpu in facts}
    cliques = _cliques(len(facts), links)
    by_uuid = {reading.uuid: reading for reading in readings}
    return {gpu.uuid: PoolGpu(
        gpu.uuid, gpu.name, gpu.index, gpu.parent_uuid is not None, gpu.numa_node,
        cliques[place], None if gpu.mem_total_bytes is None else int(gpu.mem_total_bytes),
        "", gpu.pci_bus_id, board := gpu.parent_uuid or gpu.uuid,
        read=GpuConditions(is_lost=True) if gpu.uuid not in by_uuid else conditions(
            by_uuid[gpu.uuid], gpu.parent_uuid is not None, False, board in pending))
        for place, gpu in enumerate(facts) if gpu.uuid not in split}


def with_reasons(snapshot: PoolSnapshot, repairs: Sequence[GpuRepair], maintenance: str,
                 uses: Iterable[LeaseUse], leased: Collection[str], leases: str
                 ) -> dict[str, PoolGpu]:
    """Return the GPUs, each with the reason why it is not given out. `maintenance`: why its node is
    in it; "": it is not. `leases`: why the leases of this node are not known; "": they are. An
    instance is out of service with its board."""
    outside: dict[str, list[LeaseUse]] = {}
    for use in uses:
        if use.is_outside:
            outside.setdefault(use.gpu_task.gpu_uuid, []).append(use)
    gpus = {uuid: _with_reason(
        gpu, snapshot, of_gpu(repairs, gpu.board_uuid or uuid) if repairs else None, maintenance,
        outside.get(uuid, ()), uuid in leased, gpu.is_mig and gpu.board_uuid in leased)
        for uuid, gpu in snapshot.gpus.items()}
    return gpus if not leases else {
        uuid: replace(gpu, reason="unknown", trouble=leases) if gpu.reason in ("", *_BY_USE)
        else gpu for uuid, gpu in gpus.items()}


def _with_reason(gpu: PoolGpu, snapshot: PoolSnapshot, repair: GpuRepair | None, maintenance: str,
                 outside: Sequence[LeaseUse], is_leased: bool, is_board_leased: bool) -> PoolGpu:
    is_unconfined = vendor_of(gpu.uuid) == INTEL
    reason = why_not(replace(
        gpu.read, in_maintenance=bool(maintenance), is_out_of_service=repair is not None,
        is_managed=bool(snapshot.managed_by) or is_unconfined, is_used=bool(outside),
        is_paused=all(use.gpu_task.state == "paused" for use in outside), is_leased=is_leased,
        is_unread=gpu.read.is_unread or snapshot.tasks is None))
    if (reason is None or reason == "leased") and is_board_leased:
        return replace(gpu, reason="leased", trouble=BOARD_LEASED)
    if reason is None or reason == "leased":
        return gpu
    sentences = {"maintenance": maintenance,
                 "out_of_service": "" if repair is None else repair.sentence,
                 "managed": UNCONFINED if is_unconfined else f"managed by {snapshot.managed_by}"}
    if outside:
        task = outside[0].gpu_task.task
        sentences["task"] = (f"used by {task.user or 'an unknown user'} without a lease "
                             f"(process {task.pid})")
        sentences["paused"] = f"{sentences['task']}, and paused"
    return replace(gpu, reason=reason, trouble=sentences.get(reason) or sentence(
        reason, gpu.read.mem_used_bytes))


def _cliques(count: int, links: Iterable[GpuLink]) -> list[int | None]:
    """Return the number of each GPU's NVLink clique; None: NVLink joins nothing to it."""
    root = list(range(count))

    def find(place: int) -> int:
        while root[place] != place:
            place = root[place]
        return place

    pairs = [(link.a, link.b) for link in links
             if link.nvlinks and link.a < count and link.b < count]
    for a, b in pairs:
        root[find(a)] = find(b)
    members = {place for pair in pairs for place in pair}
    return [find(place) if place in members else None for place in range(count)]
