"""What a stretch of work cost: from what was seen meanwhile to numbers. Pure.

A reading speaks of the second before it and a share of time of the two before it, so each counts
with the part that lies within the stretch. Energy is the difference of two looks at the counter,
one at each end, so that it does not depend on where in a second the work began. The looks lie a
little outside the stretch, and on a busy machine not that little: the stretch gets its share.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gpudeck.actions import total
from gpudeck.notebook_pipe import PipeMarkReply, PipeSnapshot

READING_S, SHARE_S = 1.0, 2.0

Item = dict[str, Any]


@dataclass(frozen=True, slots=True)
class GpuSample:
    """One GPU at one moment. None: not asked then, or not known."""

    at: float
    uuid: str
    util_pct: float | None = None
    power_w: float | None = None
    mem_bytes: float | None = None  # of this process
    sm_pct: float | None = None  # of this process
    is_on: bool | None = None  # whether this process holds anything here


@dataclass(frozen=True, slots=True)
class GpuCost:
    uuid: str
    place: str
    name: str
    sm_mean_pct: float | None
    sm_peak_pct: float | None
    mem_mean_bytes: float | None
    mem_peak_bytes: float | None
    util_mean_pct: float | None
    util_peak_pct: float | None
    energy_j: float | None  # of the whole GPU
    shared_with: tuple[str, ...]  # whose tasks were there too


@dataclass(frozen=True, slots=True)
class Cost:
    wall_s: float
    cpu_s: float
    gpus: tuple[GpuCost, ...]  # on which this process was
    note: str = ""  # why there is no more

    @property
    def energy_j(self) -> float | None:
        return total(gpu.energy_j for gpu in self.gpus)


def points_of(seen: PipeSnapshot, pid: int) -> Iterator[GpuSample]:
    uses = None if seen.tasks is None else {
        use["uuid"]: use for task in seen.tasks if task["pid"] == pid for use in task["gpus"]}
    for gpu in seen.gpus:
        use = None if uses is None else uses.get(gpu["uuid"])
        yield GpuSample(
            seen.at, gpu["uuid"], gpu["values"].get("util_pct"), gpu["values"].get("power_w"),
            None if use is None else use["mem_used_bytes"], None if use is None else use["sm_pct"],
            None if uses is None else use is not None)


def points_of_mark(mark: PipeMarkReply, pid: int) -> Iterator[GpuSample]:
    for uuid, held in mark.held.items():
        yield GpuSample(mark.at, uuid, mem_bytes=held.get(pid), is_on=pid in held)


def beside(tasks: Sequence[Item] | None, pid: int) -> Iterator[tuple[str, str]]:
    """Each other task's GPU, and whose it is."""
    for task in tasks or ():
        if task["pid"] != pid:
            for use in task["gpus"]:
                yield use["uuid"], task["user"] or "unknown user"


def costs(points: Sequence[GpuSample], begin: PipeMarkReply, end: PipeMarkReply,
          gpus: Iterable[Item], others: Iterable[tuple[str, str]], wall_s: float
          ) -> tuple[GpuCost, ...]:
    """Of the GPUs on which this process was at any time."""
    sharers = set(others)
    on = {point.uuid for point in points if point.is_on}
    return tuple(_cost(gpu, [point for point in points if point.uuid == gpu["uuid"]], begin, end,
                       wall_s, tuple(sorted(who for uuid, who in sharers if uuid == gpu["uuid"])))
                 for gpu in gpus if gpu["uuid"] in on)


def _cost(gpu: Item, points: list[GpuSample], begin: PipeMarkReply, end: PipeMarkReply,
          wall_s: float, others: tuple[str, ...]) -> GpuCost:
    span = begin.at, end.at
    held = [point.mem_bytes for point in points
            if point.mem_bytes is not None and span[0] <= point.at <= end.at + 1.0]
    util = [(point.at, point.util_pct) for point in points]
    sm = [(point.at, point.sm_pct) for point in points]
    return GpuCost(
        gpu["uuid"], str(gpu.get("place", gpu["index"])), gpu["name"],
        *_mean_and_peak(sm, span, SHARE_S),
        sum(held) / len(held) if held else None, max(held, default=None),
        *_mean_and_peak(util, span, READING_S), _energy(gpu["uuid"], begin, end, wall_s), others)


def _mean_and_peak(values: Iterable[tuple[float, float | None]], span: tuple[float, float],
                   covers_s: float) -> tuple[float | None, float | None]:
    parts = [(value, min(span[1], at) - max(span[0], at - covers_s))
             for at, value in values if value is not None]
    parts = [(value, within_s) for value, within_s in parts if within_s > 0]
    if not parts:
        return None, None
    mean = sum(value * within_s for value, within_s in parts) / sum(s for _, s in parts)
    return mean, max(value for value, _ in parts)


def _energy(uuid: str, begin: PipeMarkReply, end: PipeMarkReply, wall_s: float) -> float | None:
    """A counter that went back was set anew with its driver: nothing is known then."""
    before, after = begin.energy_j.get(uuid), end.energy_j.get(uuid)
    if before is None or after is None or after < before:
        return None
    return (after - before) * min(1.0, wall_s / max(end.at - begin.at, 1e-6))


def rows(points: Sequence[GpuSample], begin_at: float, places: dict[str, str]) -> list[Item]:
    """For a table: one row per GPU and moment."""
    return [{"seconds": point.at - begin_at, "gpu": places.get(point.uuid, "?"),
             "uuid": point.uuid, "util_pct": point.util_pct, "power_w": point.power_w,
             "my_sm_pct": point.sm_pct, "my_mem_bytes": point.mem_bytes}
            for point in sorted(points, key=lambda each: each.at)]
