"""The fleet at a past moment, besides the metric on its map: owners, memory, waste, leases and
free GPUs, in the form of the live picture. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from gpudeck.measures.availability import GpuConditions, is_use, why_not
from gpudeck.measures.metrics import Absence
from gpudeck.measures.waste import LOADS, WASTED_AFTER_S, is_idle

from ..history.columns.instants import InstantMatrix, Pair
from .gpu_table import MAX_OWNERS, NO_TASK, SEVERAL, SPLIT, UNKNOWN_OWNER
from .metric_table import Mask
from .mig import NO_PARENT
from .past_views import LayoutSnapshot, cells_at
from .visibility import Slots

if TYPE_CHECKING:
    import pandas as pd

METRICS = (*LOADS, "mem_used_bytes", "rows_pending")
NO_LEASE = NO_TASK
WORDS = ("t", "gpu", "node", "task", "user", "kind", "mem_max_bytes", "sm_max_pct")


@dataclass(frozen=True, slots=True)
class PastLease:
    """A lease that was held then, or the claim for it that waited then."""

    node_id: str
    owner: str
    uuids: tuple[str, ...]
    gpus: int


@dataclass(frozen=True, slots=True)
class PastPool:
    """Leases of a moment, and the claims that waited then, the next first."""

    leases: Sequence[PastLease] = ()
    waiting: Sequence[PastLease] = ()


class PastWaste(msgspec.Struct):
    """Waste, as in the live totals: `slots` and `since` are little-endian uint32, `mem` float32."""

    gpus: int
    mem_bytes: float
    slots: bytes
    since: bytes
    mem: bytes


class PastQueue(msgspec.Struct):
    """Claims that have got their GPUs since, or wait still; what was withdrawn is not counted."""

    waiting: int
    owner: str | None  # of the next
    gpus: int | None


class PastMomentView(msgspec.Struct):
    """Arrays by GPU of the layout of this epoch: `owner` and `lessee` are little-endian uint16 and
    name one of `names` or `lessees`, as the live picture has them; `memory` is a byte for each,
    `free` a bit. `queue`: null for those who see a part of the fleet."""

    at: int
    epoch: int
    n: int
    names: list[str]
    owner: bytes
    lessees: list[str]
    lessee: bytes
    memory: bytes
    free: bytes
    gpus_free: int
    wasted: PastWaste
    queue: PastQueue | None


@dataclass(slots=True)
class MomentReads:
    """Answers of history: one moment of each of METRICS, and the tasks of its minute."""

    metrics: Mapping[str, InstantMatrix]
    tasks: "pd.DataFrame"

    def values(self, key: str) -> dict[Pair, float]:
        matrix = self.metrics[key]
        return {pair: float(value) for pair, value, why
                in zip(matrix.pairs, matrix.value[0], matrix.why[0], strict=True)
                if why == Absence.PRESENT}

    def held_idle(self) -> list[Pair]:
        """Return the GPUs that had tasks and memory in use and were idle in that second."""
        peak, memory = self.peak(), self.values("mem_used_bytes")
        tasks = set(zip(self.tasks["gpu"], self.tasks["node"], strict=True))
        return sorted(pair for pair in tasks & memory.keys() & peak.keys()
                      if is_idle(peak[pair], memory[pair]))

    def peak(self) -> dict[Pair, float]:
        """Return the highest load of the second, in percent."""
        return {pair: load for key in reversed(LOADS) for pair, load in self.values(key).items()}


def newest_minute(tasks: "pd.DataFrame") -> "pd.DataFrame":
    """Return each node's tasks of that moment's minute, or of the one before if it has none."""
    return tasks[tasks["t"] == tasks.groupby("node")["t"].transform("max")]


def moment_view(reads: MomentReads, since: Mapping[str, float], pool: PastPool,
                out_of_service: Collection[Pair], on: LayoutSnapshot, at: int, is_whole: bool
                ) -> PastMomentView:
    """`since`: since when each GPU of `held_idle` had been idle."""
    place = {slot: number for number, slot in enumerate(on.slots.tolist())}
    place_of = {pair: place[slot] for pair, slot in on.slot_of.items()}
    size, memory = len(on.slots), reads.values("mem_used_bytes")
    names, owner = _owners(reads.tasks, place_of, size)
    is_split = np.isin(on.slots, on.parent[on.parent != NO_PARENT])
    owner[is_split & (owner == NO_TASK)] = SPLIT
    lessees, lessee = _leases(pool.leases, place_of, size)
    wasted = {place_of[pair]: (since[pair[0]], memory[pair]) for pair in reads.held_idle()
              if pair in place_of and at - since.get(pair[0], at) >= WASTED_AFTER_S}
    free = _free(reads, lessee != NO_LEASE, is_split, place_of, out_of_service)
    slots = sorted(wasted)
    first = pool.waiting[0] if pool.waiting else None
    return PastMomentView(
        at, on.epoch, size, names, owner.astype("<u2").tobytes(), lessees,
        lessee.astype("<u2").tobytes(),
        cells_at(reads.metrics["mem_used_bytes"], on, "mem_used_bytes").tobytes(),
        np.packbits(free, bitorder="little").tobytes(), int(free.sum()),
        PastWaste(len(slots), float(sum(wasted[slot][1] for slot in slots)),
                  np.array(slots, "<u4").tobytes(),
                  np.array([wasted[slot][0] for slot in slots], "<u4").tobytes(),
                  np.array([wasted[slot][1] for slot in slots], "<f4").tobytes()),
        PastQueue(len(pool.waiting), None if first is None else first.owner,
                  None if first is None else first.gpus) if is_whole else None)


def _owners(tasks: "pd.DataFrame", place_of: Mapping[Pair, int], size: int
            ) -> tuple[list[str], Slots]:
    names: dict[str, int] = {}
    owner = np.full(size, NO_TASK, np.intp)
    for gpu, node, user in zip(tasks["gpu"], tasks["node"], tasks["user"], strict=True):
        if (at := place_of.get((gpu, node))) is None:
            continue
        number = UNKNOWN_OWNER
        if isinstance(user, str) and (user in names or len(names) < MAX_OWNERS):
            number = names.setdefault(user, len(names))
        owner[at] = number if owner[at] in (NO_TASK, number) else SEVERAL
    return [*names], owner


def _leases(leases: Sequence[PastLease], place_of: Mapping[Pair, int], size: int
            ) -> tuple[list[str], Slots]:
    names: dict[str, int] = {}
    lessee = np.full(size, NO_LEASE, np.intp)
    for lease in leases:
        for uuid in lease.uuids:
            if (at := place_of.get((uuid, lease.node_id))) is not None:
                number = names.setdefault(lease.owner, len(names))
                lessee[at] = number if lessee[at] in (NO_LEASE, number) else SEVERAL
    return [*names], lessee


def _free(reads: MomentReads, is_leased: Mask, is_split: Mask, place_of: Mapping[Pair, int],
          out_of_service: Collection[Pair]) -> Mask:
    """Apply the one definition of free, as far as history knows what that needs."""
    tasks, is_free = reads.tasks, np.zeros(len(is_leased), bool)
    used_pairs = {(gpu, node) for gpu, node, memory, sm, kind in zip(*(
        tasks[name] for name in ("gpu", "node", "mem_max_bytes", "sm_max_pct", "kind")),
        strict=True) if is_use(_number_or_none(memory), _number_or_none(sm), kind)}
    rows, memory = reads.values("rows_pending"), reads.values("mem_used_bytes")
    peak = reads.peak()
    for pair, at in place_of.items():
        mem_used, load = memory.get(pair, np.nan), peak.get(pair, np.nan)
        is_free[at] = why_not(GpuConditions(
            is_split=is_split[at], is_used=pair in used_pairs, is_leased=is_leased[at],
            is_out_of_service=pair in out_of_service, waits_for_remap=rows.get(pair, 0.0) > 0,
            mem_used_bytes=mem_used, peak_pct=load,
            is_unread=pair not in memory or pair not in peak)) is None
    return is_free


def _number_or_none(value: float | None) -> float | None:
    return None if value is None or value != value else value
