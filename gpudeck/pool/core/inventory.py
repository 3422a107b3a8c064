"""GPUs and nodes to give out, as placement sees them. Pure."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from operator import attrgetter
from typing import NamedTuple

from gpudeck.pool.core.claims import WHOLE_MILLI, Claim
from gpudeck.pool.core.host_resources import FreeHost

_FREE = attrgetter("free_milli")


class FreeGpu(NamedTuple):
    """Free part of one GPU that may be given out. `clique`: GPUs that NVLink joins; None: not
    known. `free_until`: when a reservation begins. A tuple, for a pass compares thousands."""

    model: str
    is_mig: bool
    clique: int | None
    numa: int | None
    board_bytes: int | None
    free_milli: int = WHOLE_MILLI
    free_bytes: int | None = None  # None: not known, or all that the board has
    free_until: float = inf

    def has(self, mem_bytes: int | None) -> bool:
        free = self.board_bytes if self.free_bytes is None else self.free_bytes
        return mem_bytes is None or (free is not None and free >= mem_bytes)

    def changed(self, milli: int, mem_bytes: int | None) -> "FreeGpu":
        """Return the GPU after so much was given out; less than nothing: after it came back."""
        free_milli = self.free_milli - milli
        if free_milli == WHOLE_MILLI:
            return self._replace(free_milli=free_milli, free_bytes=None)
        if mem_bytes is None or self.board_bytes is None:
            return self._replace(free_milli=free_milli)
        free = self.board_bytes if self.free_bytes is None else self.free_bytes
        return self._replace(free_milli=free_milli, free_bytes=free - mem_bytes)


class MeasuredLoad(NamedTuple):
    """Load of a node: utilization in the last ten minutes, and tasks now. None: not known."""

    load_pct: float | None
    tasks: int


@dataclass(frozen=True, slots=True)
class Node:
    """A node's GPUs, in an order that makes nodes with the same left over alike.

    `uuids` and `gpus` go together. `free_cpu_milli`, `free_ram_bytes`
    None: CPUs, or host memory, are not counted here."""

    id: str
    host: str
    uuids: tuple[str, ...]
    gpus: tuple[FreeGpu, ...]
    free_cpu_milli: int | None = None
    load_pct: float | None = None  # of its GPUs, in the last ten minutes
    tasks: int = 0
    free_ram_bytes: int | None = None

    @property
    def free_host(self) -> FreeHost:
        return FreeHost(self.free_cpu_milli, self.free_ram_bytes)

    @property
    def free_milli(self) -> int:
        return sum(map(_FREE, self.gpus))

    @property
    def is_full(self) -> bool:
        return self.free_cpu_milli is None and not any(map(_FREE, self.gpus))

    def measured(self, load: MeasuredLoad) -> "Node":
        """Return the node with its load. A lease counts as a task until it has any."""
        return replace(self, load_pct=load.load_pct, tasks=max(load.tasks, self.tasks))

    def after_grant(self, uuids: Collection[str], claim: Claim) -> "Node":
        return self._changed(uuids, claim, 1)

    def after_grants(self, grants: Iterable[tuple[Claim, Collection[str]]]) -> "Node":
        """Return the node after many grants, with its GPUs sorted once."""
        claims: dict[str, list[Claim]] = {}
        granted_claims: list[Claim] = []
        for claim, uuids in grants:
            granted_claims.append(claim)
            for uuid in uuids:
                claims.setdefault(uuid, []).append(claim)

        def change(uuid: str, gpu: FreeGpu) -> FreeGpu:
            for claim in claims.get(uuid, ()):
                gpu = gpu.changed(claim.share_milli, claim.mem_bytes)
            return gpu

        return self.with_gpus(change, self.free_host.after_grants(granted_claims),
                              self.tasks + len(granted_claims)) if granted_claims else self

    def after_return(self, uuids: Collection[str], claim: Claim) -> "Node":
        return self._changed(uuids, claim, -1)

    def _changed(self, uuids: Collection[str], claim: Claim, sign: int) -> "Node":
        mem_bytes = None if claim.mem_bytes is None else sign * claim.mem_bytes
        return self.with_gpus(
            lambda uuid, gpu: gpu.changed(sign * claim.share_milli, mem_bytes)
            if uuid in uuids else gpu,
            self.free_host.after_grants((claim,), sign), self.tasks + sign)

    def held_from(self, uuids: Collection[str], at: float) -> "Node":
        """Return the node with these GPUs held from then on: nothing that lasts longer may take
        them."""
        return self.with_gpus(lambda uuid, gpu: gpu._replace(free_until=min(gpu.free_until, at))
                              if uuid in uuids else gpu, self.free_host, self.tasks)

    def held_until(self, times: Mapping[str, float]) -> "Node":
        """Return the node with these GPUs free until those times, whatever was held of them
        before."""
        return self.with_gpus(lambda uuid, gpu: gpu._replace(free_until=times[uuid])
                              if uuid in times else gpu, self.free_host, self.tasks)

    def with_gpus(self, change: Callable[[str, FreeGpu], FreeGpu], free: FreeHost,
                  tasks: int) -> "Node":
        return node_of(self.id, self.host, [
            (uuid, change(uuid, gpu)) for uuid, gpu in zip(self.uuids, self.gpus, strict=True)],
            free.cpu_milli, self.load_pct, tasks, free.ram_bytes)


def node_of(node_id: str, host: str, gpus: Sequence[tuple[str, FreeGpu]],
            free_cpu_milli: int | None = None, load_pct: float | None = None,
            tasks: int = 0, free_ram_bytes: int | None = None) -> Node:
    """Build a node with sorted GPUs. Stable: GPUs alike keep the order in which they are given."""
    sorted_gpus = sorted(gpus, key=lambda pair: _order(pair[1]))
    return Node(node_id, host, tuple(uuid for uuid, _ in sorted_gpus),
                tuple(gpu for _, gpu in sorted_gpus), free_cpu_milli, load_pct, tasks,
                free_ram_bytes)


def _order(gpu: FreeGpu) -> tuple[object, ...]:
    return (gpu.model, gpu.is_mig, _or(gpu.clique), _or(gpu.numa), gpu.free_milli,
            _or(gpu.free_bytes), _or(gpu.board_bytes), gpu.free_until)


def _or(number: int | None) -> int:
    return -1 if number is None else number
