"""Quotas of GPU memory that the driver enforces: for whom, where, and never for somebody else."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from agent.quotas.evaluate import FRESH_S, QuotaRefusals
from agent.quotas.memory import with_limits
from agent.quotas.memory_source import QuotaMemory
from agent.tasks.seen import GpuTask
from gpudeck.contract.desired_state import DesiredState, QuotaEnforcement
from gpudeck.contract.limits import GroupMemoryLimit
from gpudeck.contract.quota import Quota
from gpudeck.contract.wire import GpuFacts, Task

from .test_evaluate import desired

GIB = 2**30
ID, UID = "ab" * 32, "0a1b2c3d-0001-4002-8003-000000000004"
POD_SLICE = f"/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice"
ALICE = "/user.slice/user-7.slice"
LOGIN = f"{ALICE}/session-1.scope"


def quota(subject: str = "user:alice", **more: Any) -> Quota:
    return msgspec.structs.replace(
        Quota("q", subject, "node:host", mem_bytes=10 * GIB, mode="act"), **more)


def task(name: str = "t", **facts: Any) -> Task:
    return msgspec.structs.replace(Task(name, 1, 1, 1.0, "alice", None, uid=7), **facts)


@dataclass
class Node:
    """Node with two boards, one of them split by MIG."""

    desired: DesiredState | None
    groups: Mapping[str, str | None] = field(default_factory=dict)
    is_read: bool = True
    end: str = ""
    now: float = 0.0
    gpu_tasks: tuple[GpuTask, ...] | None = ()
    listed_at: float = 0.0
    facts = (GpuFacts("G0", 0, "H100", mem_total_bytes=80.0 * GIB),
             GpuFacts("G1", 1, "H100", mem_total_bytes=80.0 * GIB),
             GpuFacts("M1", 2, "H100", parent_uuid="G1", mem_total_bytes=40.0 * GIB))

    def __post_init__(self) -> None:
        quotas: Any = self
        self.memory = QuotaMemory(quotas, quotas, "n", "host", lambda task: self.groups[task.id],
                                  lambda: self.now)

    def rights(self) -> QuotaRefusals:
        return QuotaRefusals("", self.end)

    def targets(self, *tasks: tuple[Task, str], gpu: str = "G0") -> list[tuple[str, str, float]]:
        self.groups = {task.id: group for task, group in tasks}
        self.gpu_tasks = tuple(GpuTask(task, gpu, 1.0, None, None) for task, _ in tasks)
        return self.read()

    def read(self) -> list[tuple[str, str, float]]:
        targets = self.memory.targets()
        assert targets is not None
        return [(target.gpu_uuid, target.group, target.limit_bytes) for target in targets]


@pytest.mark.parametrize(("subject", "facts", "group", "limited"), [
    ("user:alice", {}, LOGIN, ALICE),
    ("*", {}, f"{ALICE}/user@7.service/app.slice/x.scope", ALICE),
    ("group:lab", {"groups": ("lab",)}, LOGIN, ALICE),
    (f"container:{ID[:12]}", {"container": ID}, f"/system.slice/docker-{ID}.scope/init",
     f"/system.slice/docker-{ID}.scope"),
    ("slurm:12", {"slurm_job": "12"},
     "/system.slice/slurmstepd.scope/job_12/step_0/user/task_0",
     "/system.slice/slurmstepd.scope/job_12"),
    ("k8s:lab/p", {"namespace": "lab", "pod": "p"}, f"{POD_SLICE}/cri-containerd-{ID}.scope",
     POD_SLICE)])
def test_the_group_of_a_holder_is_limited_to_the_quota(subject: str, facts: dict[str, Any],
                                                      group: str, limited: str) -> None:
    node = Node(desired(quota(subject)))
    assert node.targets((task(**facts), group)) == [("G0", limited, 10 * GIB)]


@pytest.mark.parametrize(("subject", "facts", "group"), [
    ("user:alice", {}, f"/system.slice/docker-{ID}.scope"),  # dockerd is no user's
    ("user:alice", {}, "/user.slice/user-70.slice/session-1.scope"),
    ("user:alice", {"uid": None}, LOGIN), ("*", {"user": None}, LOGIN), ("user:alice", {}, None),
    ("user:alice", {}, "/"),
    ("k8s:lab", {"namespace": "lab", "pod": "p"}, f"{POD_SLICE}/cri-containerd-{ID}.scope"),
    ("slurm:12", {"slurm_job": "12"}, LOGIN)])
def test_a_holder_without_a_group_of_its_own_is_left_to_the_ladder(
        subject: str, facts: dict[str, Any], group: str) -> None:
    assert Node(desired(quota(subject))).targets((task(**facts), group)) == []


@pytest.mark.parametrize("more", [
    {"mode": "warn"}, {"mode": "observe"}, {"count": "together"}, {"mem_bytes": None, "gpus": 1},
    {"mem_bytes": 80 * GIB}, {"scope": "node:other"}, {"scope": "gpu:G1"}])
def test_only_a_quota_that_acts_here_on_each_holder_is_enforced(more: dict[str, Any]) -> None:
    assert Node(desired(quota(**more))).targets((task(), LOGIN)) == []


@pytest.mark.parametrize("gpu", ["G1", "M1"])
def test_boards_that_are_split_cannot_be_limited(gpu: str) -> None:
    assert Node(desired(quota())).targets((task(), LOGIN), gpu=gpu) == []


def test_a_group_in_which_a_task_counts_otherwise_is_not_limited() -> None:
    """Else a container of alice, with a quota of its own, would get the limit of hers."""
    own = quota(f"container:{ID[:12]}", id="own", mem_bytes=40 * GIB)
    node = Node(desired(quota(), own))
    inner = task("c", container=ID), f"{ALICE}/user@7.service/libpod-{ID}.scope"
    assert node.targets((task(), LOGIN), inner) == [("G0", inner[1], 40 * GIB)]
    assert node.targets((task(), LOGIN)) == [
        ("G0", inner[1], 40 * GIB), ("G0", ALICE, 10 * GIB)]
    assert node.targets((task(), LOGIN), inner) == [("G0", inner[1], 40 * GIB)]
    bob = task("b", user="bob", uid=8), LOGIN
    assert ("G0", ALICE, 10 * GIB) not in node.targets((task(), LOGIN), bob)


def test_it_goes_on_between_two_tasks_until_the_quotas_are_others() -> None:
    node = Node(desired(quota()))
    node.targets((task(), LOGIN))
    assert node.targets() == [("G0", ALICE, 10 * GIB)]
    node.desired = desired(quota(), issued_at=5.0)  # signed again, for a new connection
    assert node.targets() == [("G0", ALICE, 10 * GIB)]
    node.desired = desired(quota(mem_bytes=20 * GIB), generation=2)
    assert node.targets() == []
    assert node.targets((task(), LOGIN)) == [("G0", ALICE, 20 * GIB)]


def test_what_is_not_known_yet_is_not_nothing() -> None:
    assert Node(desired(quota()), is_read=False).memory.targets() is None
    node = Node(desired(quota()), gpu_tasks=None)
    assert node.memory.targets() is None
    node.gpu_tasks, node.now = (), FRESH_S + 1.0
    assert node.memory.targets() is None, "an old list of tasks"
    node.now = 0.0
    assert node.targets((task(), LOGIN))
    node.now = FRESH_S + 1.0
    assert node.read() == [("G0", ALICE, 10 * GIB)]


def test_nothing_is_limited_where_rules_may_not_act_or_there_are_no_quotas() -> None:
    assert Node(desired(quota()), end="no").targets((task(), LOGIN)) == []
    assert Node(None).targets((task(), LOGIN)) == []


def test_the_proof_says_what_the_driver_enforces_and_why_not() -> None:
    mark = QuotaEnforcement("q", True, "ladder", "2 tasks of it seen here")
    limits = [GroupMemoryLimit("G0", ALICE, "1", GIB, "quota q of alice", "b", 0.0, GIB,
                               "in_force"),
              GroupMemoryLimit("G0", "/b", "1", GIB, "quota qq of bob", "b", 0.0, GIB, "in_force"),
              GroupMemoryLimit("G0", "/c", "1", GIB, "quota q of carol", "b", 0.0, None,
                               "not_in_force", "it is too late")]
    assert with_limits(mark, limits).proof == (
        "2 tasks of it seen here; the driver limits the memory of 1 control group on each GPU; "
        "the driver does not limit /c: it is too late")
    assert with_limits(mark, []) == mark
