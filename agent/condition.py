"""Is what a Rule acts on still so, in this one look at the Gpus' Tasks? Pure."""

from collections.abc import Iterable, Sequence

from gpudeck.acts import Bound, Condition

from .sampler import Seen

UNITS = {"sm_pct": " %", "mem_used_bytes": " bytes", "age_s": " s"}


def flaw(condition: Condition, task_id: str, seen: Iterable[Seen], at: float) -> str | None:
    """Why nothing is to be done, for people; None: it is so. What cannot be told is not so. `at`:
    UTC, of the look."""
    its = [each for each in seen if each.task.id == task_id]
    if not its:
        return "the task does not use a Gpu any more"
    for bound in condition.bounds:
        values = _values(bound, its, at)
        known = [value for value in values if value is not None]
        if len(known) < len(values) or not values:
            return f"its {bound.name} cannot be told at this moment"
        if not all(_holds(bound, value) for value in known):
            found = ", ".join(f"{value:g}" for value in known)
            return f"its {bound.name} is {found}{UNITS[bound.name]}, and not {bound.op} " \
                   f"{bound.number:g}"
    return None


def _values(bound: Bound, its: Sequence[Seen], at: float) -> list[float | None]:
    """Of a share every Gpu has to agree."""
    match bound.name:
        case "sm_pct":
            return [each.sm_pct for each in its]
        case "mem_used_bytes":
            amounts = [each.mem_used_bytes for each in its]
            known = [amount for amount in amounts if amount is not None]
            return [sum(known)] if len(known) == len(amounts) else [None]
        case "age_s":
            started_at = its[0].task.started_at
            return [None if started_at is None else at - started_at]


def _holds(bound: Bound, value: float) -> bool:
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
