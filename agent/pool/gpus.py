"""This node's GPUs as the pool sees them: healthy or not, in service or not, used without a lease
or not. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from gpudeck.repairs import GpuRepair, of_gpu
from gpudeck.wire import GpuFacts, GpuLink, GpuState

from ..tasks.seen import GpuTask
from .lock import PoolGpu
from .uses import LeaseUse

LOST = "the driver has lost it"
RESET = "a row remap is pending: it needs a reset"
TROUBLE: Mapping[GpuState, str] = {
    "ok": "", "stale": "its readings are old", "lost": LOST,
    "error": "every driver call for it fails"}


@dataclass(frozen=True, slots=True)
class PoolSnapshot:
    """This node's GPUs and tasks at one moment. `tasks` None: they have not been listed yet.
    `managed_by`: the scheduler that assigns them; "": the pool does. `cpus` None: not known."""

    gpus: Mapping[str, PoolGpu]
    tasks: Sequence[GpuTask] | None
    managed_by: str = ""
    cpus: int | None = None


def pool_gpus(facts: Sequence[GpuFacts], links: Iterable[GpuLink],
              states: Mapping[str, GpuState]) -> dict[str, PoolGpu]:
    """A board that is split is not given out itself: its instances are."""
    split = {each.parent_uuid for each in facts}
    cliques = _cliques(len(facts), links)
    return {each.uuid: PoolGpu(
        each.uuid, each.name, each.index, each.parent_uuid is not None, each.numa_node,
        cliques[place], None if each.mem_total_bytes is None else int(each.mem_total_bytes),
        TROUBLE[states.get(each.uuid, "lost")], each.pci_bus_id, each.parent_uuid or each.uuid)
        for place, each in enumerate(facts) if each.uuid not in split}


def managed(gpus: Mapping[str, PoolGpu], by: str) -> dict[str, PoolGpu]:
    """Of a node that a scheduler manages all are shown, and none is leased."""
    return with_trouble(gpus, f"managed by {by}" if by else "")


def with_trouble(gpus: Mapping[str, PoolGpu], trouble: str) -> dict[str, PoolGpu]:
    """`trouble`: of the whole node; "": there is none."""
    return {uuid: replace(gpu, trouble=gpu.trouble or trouble) if trouble else gpu
            for uuid, gpu in gpus.items()}


def with_repairs(gpus: Mapping[str, PoolGpu], repairs: Sequence[GpuRepair]) -> dict[str, PoolGpu]:
    """An instance is out of service with its board."""
    if not repairs:
        return dict(gpus)
    found = {uuid: of_gpu(repairs, gpu.board_uuid or uuid) for uuid, gpu in gpus.items()}
    return {uuid: gpu if gpu.trouble or (repair := found[uuid]) is None
            else replace(gpu, trouble=repair.sentence) for uuid, gpu in gpus.items()}


def with_resets(gpus: Mapping[str, PoolGpu], pending: Collection[str]) -> dict[str, PoolGpu]:
    """`pending`: boards on which rows of memory wait to be remapped. That takes a reset, which
    would end what is started there now."""
    return {uuid: gpu if gpu.trouble or (gpu.board_uuid or uuid) not in pending
            else replace(gpu, trouble=RESET) for uuid, gpu in gpus.items()}


def with_users(gpus: Mapping[str, PoolGpu], uses: Iterable[LeaseUse]) -> dict[str, PoolGpu]:
    """What somebody uses without a lease is in trouble too: nobody else can count on it."""
    found = dict(gpus)
    for each in uses:
        gpu = found.get(each.seen.gpu_uuid)
        if gpu is not None and not gpu.trouble and each.is_outside:
            user = each.seen.task.user or "an unknown user"
            found[gpu.uuid] = replace(
                gpu, trouble=f"used by {user} without a lease (process {each.seen.task.pid})")
    return found


def _cliques(count: int, links: Iterable[GpuLink]) -> list[int | None]:
    """Numbers of groups that NVLink joins; None: it joins nothing to it."""
    root = list(range(count))

    def find(place: int) -> int:
        while root[place] != place:
            place = root[place]
        return place

    joined = [(link.a, link.b) for link in links
              if link.nvlinks and link.a < count and link.b < count]
    for a, b in joined:
        root[find(a)] = find(b)
    members = {place for pair in joined for place in pair}
    return [find(place) if place in members else None for place in range(count)]
