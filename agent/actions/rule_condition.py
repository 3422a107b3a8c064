"""The condition that a rule acts on, checked in one look at the tasks on the GPUs. Pure."""

import operator
from collections.abc import Callable, Mapping, Sequence

from gpudeck.contract.actions import MetricBound, RuleCondition
from gpudeck.measures.jobs import average_sm_pct, job_key
from gpudeck.words.quantities import in_unit

from ..tasks.seen import GpuTask

UNITS = {"sm_pct": "%", "busy_pct": "%", "mem_used_bytes": "B", "age_s": "s"}
OPERATIONS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "=": operator.eq,
    "!=": operator.ne}


def flaw(condition: RuleCondition, task_id: str, gpu_tasks: Sequence[GpuTask],
         util_pct: Mapping[str, float | None], at: float) -> str | None:
    """Return why the action must not run, for people; None: the condition is met. An unknown value
    does not meet it.
    `util_pct`: of each GPU; `at`: UTC, of the look."""
    its = [entry for entry in gpu_tasks if entry.task.id == task_id]
    if not its:
        return "the task does not use a GPU any more"
    for bound in condition.bounds:
        value = _value(bound, its, gpu_tasks, util_pct, at)
        if value is None:
            return f"its {bound.name} is not known at the moment"
        if not OPERATIONS[bound.op](value, bound.number):
            value_words, limit_words = (
                in_unit(number, UNITS[bound.name]) for number in (value, bound.number))
            return f"its {bound.name} is {value_words}, and not {bound.op} {limit_words}"
    return None


def _value(bound: MetricBound, its: Sequence[GpuTask], gpu_tasks: Sequence[GpuTask],
           util_pct: Mapping[str, float | None], at: float) -> float | None:
    """Return the value as the hub reads it (dashboard/alerts/core/numbers.py); what is not known of
    one GPU is not known of the task."""
    match bound.name:
        case "sm_pct":
            return average_sm_pct((entry.gpu_uuid, entry.sm_pct) for entry in its)
        case "mem_used_bytes":
            return _combine(sum, [entry.mem_used_bytes for entry in its])
        case "busy_pct":
            return _combine(max, [_busy_pct(entry, gpu_tasks, util_pct) for entry in its])
        case "age_s":
            started_at = its[0].task.started_at
            return None if started_at is None else at - started_at


def _busy_pct(task: GpuTask, gpu_tasks: Sequence[GpuTask], util_pct: Mapping[str, float | None]
              ) -> float | None:
    """Return how busy it is; alone with its own job, it does what its GPU does."""
    jobs = {job_key("", other.task.id, other.task.job_id, other.task.user, other.task.launch)
            for other in gpu_tasks if other.gpu_uuid == task.gpu_uuid}
    witnesses = [task.sm_pct, util_pct.get(task.gpu_uuid) if len(jobs) == 1 else None]
    return max((value for value in witnesses if value is not None), default=None)


def _combine(join: Callable[[list[float]], float], amounts: Sequence[float | None]) -> float | None:
    numbers = [amount for amount in amounts if amount is not None]
    return join(numbers) if len(numbers) == len(amounts) else None
