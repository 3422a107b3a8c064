"""What a node sees for itself before a rule acts there: as the hub counts, and doubt means no."""

import random

import pytest

from agent.actions.rule_condition import flaw
from agent.tasks.seen import GpuTask
from gpudeck.actions import MetricBound, RuleCondition
from gpudeck.wire import Task

AT = 1_700_000_000.0
GIB = 2.0**30


def seen(task_id: str = "t", gpu: str = "GPU-1", mem: float | None = 4 * GIB,
         sm: float | None = 0.0, job: str | None = None, started_at: float | None = AT - 60.0
         ) -> GpuTask:
    return GpuTask(Task(task_id, 7, 1, started_at, "ann", "python", job_id=job), gpu, mem, sm,
                   "running")


def of(*bounds: tuple[str, str, float]) -> RuleCondition:
    return RuleCondition(tuple(MetricBound(*bound) for bound in bounds))  # type: ignore[arg-type]


IDLE = of(("sm_pct", "<=", 1.0), ("mem_used_bytes", ">=", GIB))
BUSY = of(("busy_pct", "<", 5.0))


@pytest.mark.parametrize(("condition", "rows", "util", "says"), [
    (IDLE, [seen()], {}, None),
    (RuleCondition(), [seen(sm=None, mem=None)], {}, None),
    (IDLE, [seen("other")], {}, "does not use a GPU"),
    (RuleCondition(), [], {}, "does not use a GPU"),
    (IDLE, [seen(sm=1.5)], {}, "sm_pct is 1.5 %"),
    (IDLE, [seen(sm=0.6), seen(gpu="GPU-2", sm=1.8)], {}, "sm_pct is 1.2 %"),
    (IDLE, [seen(sm=0.6), seen(gpu="GPU-2", sm=0.8)], {}, None),
    (IDLE, [seen(sm=None)], {}, "is not known"),
    (IDLE, [seen(), seen(gpu="GPU-2", sm=None)], {}, "is not known"),
    (IDLE, [seen(mem=GIB / 2), seen(gpu="GPU-2", mem=GIB / 2)], {}, None),
    (IDLE, [seen(mem=GIB / 4)], {}, "mem_used_bytes"),
    (BUSY, [seen(sm=None)], {"GPU-1": 2.0}, None),
    (BUSY, [seen(sm=None)], {"GPU-1": 40.0}, "busy_pct is 40 %"),
    (BUSY, [seen(sm=None), seen("other", sm=None)], {"GPU-1": 40.0}, "is not known"),
    (BUSY, [seen(sm=0.0), seen("other", sm=40.0)], {"GPU-1": 40.0}, None),
    (BUSY, [seen(sm=0.0, job="j"), seen("other", sm=40.0, job="j")], {"GPU-1": 40.0},
     "busy_pct is 40 %"),
    (BUSY, [seen(sm=None)], {"GPU-1": None}, "is not known"),
    (of(("age_s", ">", 30.0)), [seen()], {}, None),
    (of(("age_s", ">", 90.0)), [seen()], {}, "age_s is 60 s"),
    (of(("age_s", ">", 90.0)), [seen(started_at=None)], {}, "is not known"),
])
def test_it_is_so_or_why_not(condition: RuleCondition, rows: list[GpuTask],
                             util: dict[str, float | None], says: str | None) -> None:
    random.shuffle(rows)
    found = flaw(condition, "t", rows, util, AT)
    assert found is None if says is None else says in (found or "")
