"""Uses of GPUs by lease, and those without one."""

import random
from dataclasses import replace

import pytest

from agent.pool.gpus import PoolSnapshot, with_reasons
from agent.pool.lock import LeasedProcess, Marks, NodeLease
from agent.pool.uses import lease_uses, misplaced_gpus, outside_uses, task_ids
from agent.tasks.seen import GpuTask
from gpudeck.contract.wire import Task
from tests.unit.agent.pool.test_lock import GPUS, lease

GIB = 2**30
ANN, BOB = 1_000, 2_000


def task(gpu: str, uid: int = ANN, pid: int = 77, mem: float | None = 40.0 * GIB,
         sm: float | None = 0.0, kind: str = "compute", container: str | None = None) -> GpuTask:
    user = {ANN: "ann", BOB: "bob"}.get(uid)
    return GpuTask(Task(f"t{pid}", pid, 1, None, user, None, kind=kind, uid=uid,  # type: ignore[arg-type]
                        container=container), gpu, mem, sm, None)


@pytest.mark.parametrize(("gpu_task", "trouble"), [
    (task("G0", BOB), "used by bob without a lease (process 77)"),
    (task("G0", BOB, mem=None), "used by bob without a lease (process 77)"),
    (task("G0", BOB, mem=0.5 * GIB, sm=30.0), "used by bob without a lease (process 77)"),
    (task("G0", BOB, mem=0.5 * GIB), ""),  # forgotten, and in nobody's way
    (task("G0", ANN), ""),  # its own
    (task("G0", BOB, kind="mps_server"), ""),
    (task("G0", 65_000), "used by an unknown user without a lease (process 77)"),
])
def test_what_is_used_without_a_lease_is_not_given_out(gpu_task: GpuTask, trouble: str) -> None:
    uses = lease_uses([gpu_task], [lease("a", "G0")], {})
    gpu = with_reasons(PoolSnapshot(GPUS, (gpu_task,)), (), "", uses, {"G0"}, "")["G0"]
    assert (gpu.trouble, gpu.reason) == (trouble, "task" if trouble else "")
    assert [(use.gpu, use.task_id) for use in outside_uses(uses)] == (
        [("G0", "t77")] if trouble else [])


def test_a_container_is_known_by_the_mark_of_one_of_its_processes() -> None:
    """Processes in it are root's, and some have no environment."""
    mine = lease("a", "G0")
    inside = [task("G0", 0, 10, container="c1"), task("G0", 0, 11, container="c1")]
    marks: Marks = {"a": {(10, 1)}}
    assert outside_uses(lease_uses(inside, [mine], marks)) == ()
    stranger = task("G0", 0, 12, container="c2")
    [outside] = outside_uses(lease_uses([*inside, stranger], [mine], marks))
    assert outside.pid == 12
    assert outside_uses(lease_uses(inside, [mine], {"a": {(10, 2)}})), "another process of that pid"


def two(mine: str = "G0", other: str = "G1") -> tuple[NodeLease, NodeLease]:
    return (replace(lease("a", mine), process=LeasedProcess(10, 1, None)),
            replace(lease("b", other), process=LeasedProcess(20, 1, None)))


def test_processes_on_gpus_that_are_not_of_their_lease_are_found() -> None:
    a, b = two()
    on = [task("G0", pid=10), task("G1", pid=10), task("G2", pid=11), task("G1", pid=20)]
    uses = lease_uses(on, [a, b], {"a": {(11, 1)}})
    assert misplaced_gpus(a, uses, [a, b]) == ("G1", "G2")
    assert misplaced_gpus(b, uses, [a, b]) == ()


def test_a_process_with_two_leases_is_at_home_on_both() -> None:
    a, b = two()
    uses = lease_uses([task("G0", pid=10), task("G1", pid=10)], [a, b], {"b": {(10, 1)}})
    assert misplaced_gpus(a, uses, [a, b]) == misplaced_gpus(b, uses, [a, b]) == ()


def test_what_nobody_can_tell_of_two_shares_of_one_user_is_of_neither() -> None:
    a, b = two("G0", "G0")
    unmarked = random.randrange(100, 1_000)
    uses = lease_uses([task("G0", pid=unmarked), task("G0", pid=20)], [a, b], {})
    assert (task_ids(a, uses), task_ids(b, uses)) == ((), ("t20",))
    assert [use.may_be_of(a) for use in uses] == [True, False], "it may keep either"
    [alone] = lease_uses([task("G0", pid=unmarked)], [a], {})
    assert task_ids(a, [alone]) == (f"t{unmarked}",)
