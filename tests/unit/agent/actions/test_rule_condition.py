"""A node's own check of a rule's condition: it counts as the hub does, and doubt means no."""

import random

import pytest

from agent.actions.rule_condition import flaw
from agent.tasks.seen import GpuTask
from gpudeck.contract.actions import MetricBound, RuleCondition
from gpudeck.contract.wire import Task

AT = 1_700_000_000.0
GIB = 2.0**30


def gpu_task(task_id: str = "t", gpu: str = "GPU-1", mem: float | None = 4 * GIB,
             sm: float | None = 0.0, job: str | None = None, started_at: float | None = AT - 60.0
             ) -> GpuTask:
    return GpuTask(Task(task_id, 7, 1, started_at, "ann", "python", job_id=job), gpu, mem, sm,
                   "running")


def condition_of(*bounds: tuple[str, str, float]) -> RuleCondition:
    return RuleCondition(tuple(MetricBound(*bound) for bound in bounds))  # type: ignore[arg-type]


IDLE = condition_of(("sm_pct", "<=", 1.0), ("mem_used_bytes", ">=", GIB))
BUSY = condition_of(("busy_pct", "<", 5.0))


@pytest.mark.parametrize(("condition", "rows", "util", "says"), [
    (IDLE, [gpu_task()], {}, None),
    (RuleCondition(), [gpu_task(sm=None, mem=None)], {}, None),
    (IDLE, [gpu_task("other")], {}, "does not use a GPU"),
    (RuleCondition(), [], {}, "does not use a GPU"),
    (IDLE, [gpu_task(sm=1.5)], {}, "sm_pct is 1.5 %, and not <= 1 %"),
    (IDLE, [gpu_task(sm=0.6), gpu_task(gpu="GPU-2", sm=1.8)], {}, "sm_pct is 1.2 %"),
    (IDLE, [gpu_task(sm=0.6), gpu_task(gpu="GPU-2", sm=0.8)], {}, None),
    (IDLE, [gpu_task(sm=None)], {}, "is not known"),
    (IDLE, [gpu_task(), gpu_task(gpu="GPU-2", sm=None)], {}, "is not known"),
    (IDLE, [gpu_task(mem=GIB / 2), gpu_task(gpu="GPU-2", mem=GIB / 2)], {}, None),
    (IDLE, [gpu_task(mem=GIB / 4)], {}, "mem_used_bytes is 0.3 GiB, and not >= 1.0 GiB"),
    (BUSY, [gpu_task(sm=None)], {"GPU-1": 2.0}, None),
    (BUSY, [gpu_task(sm=None)], {"GPU-1": 40.0}, "busy_pct is 40 %"),
    (BUSY, [gpu_task(sm=None), gpu_task("other", sm=None)], {"GPU-1": 40.0}, "is not known"),
    (BUSY, [gpu_task(sm=0.0), gpu_task("other", sm=40.0)], {"GPU-1": 40.0}, None),
    (BUSY, [gpu_task(sm=0.0, job="j"), gpu_task("other", sm=40.0, job="j")], {"GPU-1": 40.0},
     "busy_pct is 40 %"),
    (BUSY, [gpu_task(sm=None)], {"GPU-1": None}, "is not known"),
    (condition_of(("age_s", ">", 30.0)), [gpu_task()], {}, None),
    (condition_of(("age_s", ">", 90.0)), [gpu_task()], {}, "age_s is 60 s, and not > 90 s"),
    (condition_of(("age_s", ">", 90.0)), [gpu_task(started_at=None)], {}, "is not known"),
])
def test_it_is_so_or_why_not(condition: RuleCondition, rows: list[GpuTask],
                             util: dict[str, float | None], says: str | None) -> None:
    random.shuffle(rows)
    reason = flaw(condition, "t", rows, util, AT)
    assert reason is None if says is None else says in (reason or "")
