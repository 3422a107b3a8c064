"""Is what a Rule acts on still so, in this one look at the Gpus' Tasks? Pure."""

from collections.abc import Mapping, Sequence

from gpudeck.actions import MetricBound, RuleCondition

from ..tasks.seen import GpuTask

UNITS = {"sm_pct": " %", "busy_pct": " %", "mem_used_bytes": " bytes", "age_s": " s"}


def flaw(condition: RuleCondition, task_id: str, seen: Sequence[GpuTask],
         util_pct: Mapping[str, float | None], at: float) -> str | None:
    """Why nothing is to be done, for people; None: it is so. What cannot be told is not so.
    `util_pct`: of each Gpu; `at`: UTC, of the look."""
    its = [each for each in seen if each.task.id == task_id]
    if not its:
        return "the task does not use a Gpu any more"
    for bound in condition.bounds:
        value = _value(bound, its, seen, util_pct, at)
        if value is None:
            return f"its {bound.name} cannot be told at this moment"
        if not _holds(bound, value):
            return (f"its {bound.name} is {value:g}{UNITS[bound.name]}, and not {bound.op} "
                    f"{bound.number:g}")
    return None


def _value(bound: MetricBound, its: Sequence[GpuTask], seen: Sequence[GpuTask],
           util_pct: Mapping[str, float | None], at: float) -> float | None:
    """As the hub counts it (dashboard/alerts/core/workload_targets.py)."""
    match bound.name:
        case "sm_pct":
            return _sum([each.sm_pct for each in its])
        case "mem_used_bytes":
            return _sum([each.mem_used_bytes for each in its])
        case "busy_pct":
            witnesses = [each.sm_pct for each in its] + [
                util_pct.get(each.gpu_uuid) for each in its if _is_alone(each, seen)]
            known = [value for value in witnesses if value is not None]
            return max(known) if known else None
        case "age_s":
            started_at = its[0].task.started_at
            return None if started_at is None else at - started_at


def _is_alone(one: GpuTask, seen: Sequence[GpuTask]) -> bool:
    """With its own Job: what its Gpu does, it does."""
    jobs = {each.task.job_id or each.task.id for each in seen if each.gpu_uuid == one.gpu_uuid}
    return len(jobs) == 1


def _sum(amounts: Sequence[float | None]) -> float | None:
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known and len(known) == len(amounts) else None


def _holds(bound: MetricBound, value: float) -> bool:
    match bound.op:
        case "<":
            return value < bound.number
        case "<=":
            return value <= bound.number
        case ">":
            return value > bound.number
        case ">=":
            return value >= bound.number
        case "=":
            return value == bound.number
        case "!=":
            return value != bound.number
