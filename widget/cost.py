"""Cost of a stretch of work, computed from readings taken meanwhile. Pure.

A reading covers the second before it and a share of time the two before it, so each counts with the
part that lies within the stretch. Energy is the difference of two readings of the counter, one at
each end, so that it does not depend on where in a second the work began. These readings lie a
little outside the stretch, and on a busy machine not that little: the stretch gets its share.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from gpudeck.contract.actions import total
from gpudeck.contract.notebook_pipe import PipeMarkReply, PipeSnapshot

READING_S, SHARE_S = 1.0, 2.0

Item = dict[str, Any]


class ProcessUse(NamedTuple):
    mem_bytes: float | None
    sm_pct: float | None


@dataclass(frozen=True, slots=True)
class GpuSample:
    """A GPU at one moment. None: not read then, or not known."""

    at: float
    uuid: str
    util_pct: float | None = None
    power_w: float | None = None
    used_bytes: float | None = None
    uses: Mapping[int, ProcessUse] | None = None  # by pid, of the kernel and what it started

    @property
    def mem_bytes(self) -> float | None:
        return None if self.uses is None else total(use.mem_bytes for use in self.uses.values())

    @property
    def sm_pct(self) -> float | None:
        return None if self.uses is None else total(use.sm_pct for use in self.uses.values())


@dataclass(frozen=True, slots=True)
class ProcessCost:
    """Cost of one process on one GPU, or of all the kernel's processes there."""

    sm_mean_pct: float | None
    sm_peak_pct: float | None
    mem_mean_bytes: float | None
    mem_peak_bytes: float | None


@dataclass(frozen=True, slots=True)
class GpuCost:
    uuid: str
    place: str
    name: str
    sm_mean_pct: float | None  # these four: of the kernel and what it started, together
    sm_peak_pct: float | None
    mem_mean_bytes: float | None
    mem_peak_bytes: float | None
    util_mean_pct: float | None  # from here on: of the whole GPU
    util_peak_pct: float | None
    used_mean_bytes: float | None
    used_peak_bytes: float | None
    energy_j: float | None
    shared_with: tuple[str, ...]  # owners of other tasks there
    is_mine: bool | None  # None: the shares cannot be told apart
    processes: Mapping[int, ProcessCost]  # the kernel's, by pid


@dataclass(frozen=True, slots=True)
class Cost:
    wall_s: float
    cpu_s: float
    gpus: tuple[GpuCost, ...]  # used by the kernel, or by what it started
    kernel_pid: int
    commands: Mapping[int, str | None]  # of its processes
    note: str = ""  # why there is no more

    @property
    def energy_j(self) -> float | None:
        return total(gpu.energy_j for gpu in self.gpus)


def points_of(snapshot: PipeSnapshot) -> Iterator[GpuSample]:
    for gpu in snapshot.gpus:
        uses = None if snapshot.tasks is None else {
            task["pid"]: ProcessUse(use["mem_used_bytes"], use["sm_pct"])
            for task in snapshot.tasks if task["kernel"]
            for use in task["gpus"] if use["uuid"] == gpu["uuid"]}
        values = gpu["values"]
        yield GpuSample(snapshot.at, gpu["uuid"], values.get("util_pct"), values.get("power_w"),
                        values.get("mem_used_bytes"), uses)


def points_of_mark(mark: PipeMarkReply) -> Iterator[GpuSample]:
    for uuid, uses in mark.held.items():
        yield GpuSample(mark.at, uuid, uses={
            pid: ProcessUse(mem_bytes, None) for pid, mem_bytes in uses.items()})


def beside(tasks: Sequence[Item] | None) -> Iterator[tuple[str, str]]:
    """Yield each GPU of others' tasks, and its user."""
    for task in tasks or ():
        if not task["kernel"]:
            for use in task["gpus"]:
                yield use["uuid"], task["user"] or "unknown user"


def costs(points: Sequence[GpuSample], begin: PipeMarkReply, end: PipeMarkReply,
          gpus: Iterable[Item], neighbours: Iterable[tuple[str, str]], wall_s: float,
          also: Mapping[str, bool | None]) -> tuple[GpuCost, ...]:
    """Return the cost on GPUs on which the kernel or what it started was at any time; and on those
    of `also`, with their `is_mine`."""
    sharers = set(neighbours)
    mine = {**also, **dict.fromkeys((point.uuid for point in points if point.uses), True)}
    return tuple(_cost(gpu, [point for point in points if point.uuid == gpu["uuid"]], begin, end,
                       wall_s, tuple(sorted(user for uuid, user in sharers if uuid == gpu["uuid"])),
                       mine[gpu["uuid"]])
                 for gpu in gpus if gpu["uuid"] in mine)


def _cost(gpu: Item, points: list[GpuSample], begin: PipeMarkReply, end: PipeMarkReply,
          wall_s: float, shared_with: tuple[str, ...], is_mine: bool | None) -> GpuCost:
    span = begin.at, end.at
    together = _use([(point.at, ProcessUse(point.mem_bytes, point.sm_pct)) for point in points],
                    span)
    pids = dict.fromkeys(pid for point in points for pid in point.uses or ())
    return GpuCost(
        gpu["uuid"], str(gpu.get("place", gpu["index"])), gpu["name"],
        together.sm_mean_pct, together.sm_peak_pct, together.mem_mean_bytes,
        together.mem_peak_bytes,
        *_mean_and_peak([(point.at, point.util_pct) for point in points], span, READING_S),
        *_mean_and_peak([(point.at, point.used_bytes) for point in points], span, READING_S),
        _energy(gpu["uuid"], begin, end, wall_s), shared_with, is_mine,
        {pid: _use([(point.at, point.uses[pid]) for point in points
                    if point.uses and pid in point.uses], span) for pid in pids})


def _use(uses: Sequence[tuple[float, ProcessUse]], span: tuple[float, float]) -> ProcessCost:
    sizes = [use.mem_bytes for at, use in uses
             if use.mem_bytes is not None and span[0] <= at <= span[1] + 1.0]
    return ProcessCost(*_mean_and_peak([(at, use.sm_pct) for at, use in uses], span, SHARE_S),
                       sum(sizes) / len(sizes) if sizes else None, max(sizes, default=None))


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
    """Return the energy. A counter that went back was reset with its driver: the energy is not
    known then."""
    before, after = begin.energy_j.get(uuid), end.energy_j.get(uuid)
    if before is None or after is None or after < before:
        return None
    return (after - before) * min(1.0, wall_s / max(end.at - begin.at, 1e-6))


def rows(points: Sequence[GpuSample], begin_at: float, places: dict[str, str]) -> list[Item]:
    """Return table rows: one per GPU and second, with the last known values in it. Readings and
    process lists come at other moments."""
    by_second: dict[tuple[int, str], Item] = {}
    for point in sorted(points, key=lambda point: point.at):
        second = math.floor(point.at - begin_at)
        row = by_second.setdefault((second, point.uuid), {
            "seconds": second, "gpu": places.get(point.uuid, "?"), "uuid": point.uuid})
        values = {"util_pct": point.util_pct, "power_w": point.power_w,
                  "mem_used_bytes": point.used_bytes, "my_sm_pct": point.sm_pct,
                  "my_mem_bytes": point.mem_bytes}
        row |= {key: value for key, value in values.items() if value is not None}
    return [row for (second, _), row in by_second.items() if second >= 0]
