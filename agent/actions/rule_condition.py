"""Whether what a rule acts on still holds, in this one look at the tasks on the GPUs. Pure."""

import operator
from collections.abc import Callable, Mapping, Sequence

from gpudeck.actions import MetricBound, RuleCondition
from gpudeck.jobs import average_sm_pct, job_key

from ..tasks.seen import GpuTask

UNITS = {"sm_pct": " %", "busy_pct": " %", "mem_used_bytes": " bytes", "age_s": " s"}
OPERATIONS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "=": operator.eq,
    "!=": operator.ne}


def flaw(condition: RuleCondition, task_id: str, seen: Sequence[GpuTask],
         util_pct: Mapping[str, float | None], at: float) -> str | None:
    """Why the action must not run, for people; None: the condition is met. An unknown value does
    not meet it.
    `util_pct`: of each GPU; `at`: UTC, of the look."""
    its = [each for each in seen if each.task.id == task_id]
    if not its:
        return "the task does not use a GPU any more"
    for bound in condition.bounds:
        value = _value(bound, its, seen, util_pct, at)
        if value is None:
            return f"its {bound.name} is not known at the moment"
        if not OPERATIONS[bound.op](value, bound.number):
            return (f"its {bound.name} is {value:g}{UNITS[bound.name]}, and not {bound.op} "
                    f"{bound.number:g}")
    return None


def _value(bound: MetricBound, its: Sequence[GpuTask], seen: Sequence[GpuTask],
           util_pct: Mapping[str, float | None], at: float) -> float | None:
    """As the hub reads it (dashboard/alerts/core/numbers.py); what is not known of one GPU is not
    known of the task."""
    match bound.name:
        case "sm_pct":
            return average_sm_pct((each.gpu_uuid, each.sm_pct) for each in its)
        case "mem_used_bytes":
            return _joined(sum, [each.mem_used_bytes for each in its])
        case "busy_pct":
            return _joined(max, [_busy_pct(each, seen, util_pct) for each in its])
        case "age_s":
            started_at = its[0].task.started_at
            return None if started_at is None else at - started_at


def _busy_pct(one: GpuTask, seen: Sequence[GpuTask], util_pct: Mapping[str, float | None]
              ) -> float | None:
    """Alone with its own job, what its GPU does, it does."""
    jobs = {job_key("", each.task.id, each.task.job_id, each.task.user, each.task.launch)
            for each in seen if each.gpu_uuid == one.gpu_uuid}
    witnesses = [one.sm_pct, util_pct.get(one.gpu_uuid) if len(jobs) == 1 else None]
    return max((value for value in witnesses if value is not None), default=None)


def _joined(join: Callable[[list[float]], float], amounts: Sequence[float | None]) -> float | None:
    known = [amount for amount in amounts if amount is not None]
    return join(known) if len(known) == len(amounts) else None
