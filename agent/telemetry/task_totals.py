"""Totals of what a Task used from its beginning to its end, as far as we saw it. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from gpudeck.contract.wire import Event, Task

from ..readings import ProcessAccounting
from ..tasks.seen import GpuTask
from .event_text import duration, event_of

# A list that did not come for longer says nothing about what was used meanwhile.
GAP_MAX_S = 30.0
MAX_TASKS = 4_096


class TaskTotals(Struct):
    """Totals of a Task. `sm_pct` is the mean over its GPUs, memory the sum."""

    name: str  # for people: "python of alice (process 4711)"
    first_at: float
    started_at: float | None
    gpus: list[str]
    pid: int | None = None
    mem_s: float = 0.0  # seconds for which it is known
    mem_byte_s: float = 0.0
    mem_peak_bytes: float = 0.0
    sm_s: float = 0.0
    sm_pct_s: float = 0.0
    sm_peak_pct: float = 0.0

    def numbers(self, at: float) -> dict[str, float]:
        """Return the numbers that are known: the driver need not report what a process holds."""
        began = self.first_at if self.started_at is None else self.started_at
        numbers = {"seconds": max(0.0, at - began), "gpus": float(len(self.gpus))}
        if self.mem_s > 0:
            numbers["mem_peak_bytes"] = self.mem_peak_bytes
            numbers["mem_mean_bytes"] = self.mem_byte_s / self.mem_s
        if self.sm_s > 0:
            numbers["sm_peak_pct"] = self.sm_peak_pct
            numbers["sm_mean_pct"] = self.sm_pct_s / self.sm_s
        return numbers


def totals_of(
    was: Mapping[str, TaskTotals], gpu_tasks: Iterable[GpuTask], at: float, seconds: float
) -> dict[str, TaskTotals]:
    """Return the totals of all that are there now; `seconds` since the last list."""
    by_task: dict[str, list[GpuTask]] = {}
    for entry in gpu_tasks:
        by_task.setdefault(entry.task.id, []).append(entry)
    totals: dict[str, TaskTotals] = {}
    for task_id, uses in by_task.items():
        task = uses[0].task
        total = was.get(task_id) or TaskTotals(
            name_of(task), at, task.started_at, [], task.pid)
        total.gpus = [use.gpu_uuid for use in uses]
        _add(total, _sum([use.mem_used_bytes for use in uses]), _mean([use.sm_pct for use in uses]),
             seconds if task_id in was and seconds <= GAP_MAX_S else 0.0)
        if len(totals) < MAX_TASKS:
            totals[task_id] = total
    return totals


def _sum(parts: Sequence[float | None]) -> float | None:
    """A sum with an unknown part is unknown."""
    amounts = [part for part in parts if part is not None]
    return sum(amounts) if len(amounts) == len(parts) else None


def _mean(parts: Sequence[float | None]) -> float | None:
    total = _sum(parts)
    return None if total is None else total / len(parts)


def _add(total: TaskTotals, mem: float | None, sm: float | None, seconds: float) -> None:
    """Add a reading. The first one counts a little, so that a Task of one reading has a mean."""
    weight = seconds or 1e-3
    if mem is not None:
        total.mem_s += weight
        total.mem_byte_s += mem * weight
        total.mem_peak_bytes = max(total.mem_peak_bytes, mem)
    if sm is not None:
        total.sm_s += weight
        total.sm_pct_s += sm * weight
        total.sm_peak_pct = max(total.sm_peak_pct, sm)


def name_of(task: Task) -> str:
    """Return the program, never its arguments: not everybody who reads Events may see those."""
    program = (task.command or "").strip().split(" ", 1)[0].rpartition("/")[2][:64]
    owner = "" if task.user is None else f" of {task.user}"
    return f"{program or 'a task'}{owner} (process {task.pid})"


def began_event(task_id: str, total: TaskTotals, at: float) -> Event:
    return event_of("task_began", at, f"{total.name} began on {_gpus(total)}",
                    gpu_uuid=_first_gpu(total), task_id=task_id)


def ended_event(
    task_id: str, total: TaskTotals, at: float, while_away: bool,
    accounted: Sequence[ProcessAccounting] = (),
) -> Event:
    """`accounted`: by the driver, of this Task's process."""
    by_driver = driver_numbers(total, accounted)
    numbers = total.numbers(at) | by_driver
    parts = [f"{total.name} ended after {duration(numbers['seconds'])} on {_gpus(total)}"]
    if while_away:
        parts[0] += ", while the agent was away"
    if "mem_peak_bytes" in numbers:
        parts.append(f"at most {numbers['mem_peak_bytes'] / 2**30:.1f} GiB")
    if "sm_mean_pct" in numbers:
        parts.append(f"on average {numbers['sm_mean_pct']:.0f} % of the SMs")
    if "driver_mem_peak_bytes" in by_driver:
        parts.append(f"peak {by_driver['driver_mem_peak_bytes'] / 2**30:.1f} GiB by the driver")
    if "driver_util_pct" in by_driver:
        parts.append(f"busy {by_driver['driver_util_pct']:.0f} % of the time by the driver")
    return event_of("task_ended", at, "; ".join(parts), numbers, _first_gpu(total), task_id)


def driver_numbers(total: TaskTotals, accounted: Sequence[ProcessAccounting]) -> dict[str, float]:
    """Return the driver's numbers of a Task all of whose GPUs are reported.
    Peaks need not be of one moment, so the sum is
    an upper bound for more than one."""
    if not total.gpus or {row.gpu_uuid for row in accounted} != set(total.gpus):
        return {}
    seconds = [row.seconds for row in accounted if row.seconds is not None]
    numbers = {
        "driver_mem_peak_bytes": _sum([row.mem_peak_bytes for row in accounted]),
        "driver_util_pct": _mean([row.util_pct for row in accounted]),
        "driver_mem_util_pct": _mean([row.mem_util_pct for row in accounted]),
        "driver_seconds": max(seconds) if len(seconds) == len(accounted) else None,
    }
    return {key: value for key, value in numbers.items() if value is not None}


def _first_gpu(total: TaskTotals) -> str | None:
    return total.gpus[0] if total.gpus else None


def _gpus(total: TaskTotals) -> str:
    return "1 GPU" if len(total.gpus) == 1 else f"{len(total.gpus)} GPUs"
