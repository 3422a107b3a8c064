"""A rule pauses a job that is proven to be one tree, as a whole or not at all: real children, whose
bystander runs on."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from agent.actions import guard
from agent.readings import GpuReading, Reading
from agent.tasks import jobs
from agent.tasks.processes import table
from gpudeck.contract.actions import CommandActor, Reply, RuleCondition
from gpudeck.contract.wire import GpuFacts
from gpudeck.measures.metrics import WIDTH, Absence
from tests.fakes.children import ORPHAN, TREE, Child, Children, a_ceiling, is_alive, state_of
from tests.fakes.hub import FakeHub, wait_for
from tests.integration.test_actions_agent import Bed, a_running_node

GPU = GpuFacts("GPU-1", 0, "NVIDIA H100", mem_total_bytes=80e9)
# Below the task a worker that waits inside the kernel (state D) for a child of its own, as after a
# vfork: SIGSTOP does not reach it.
STUCK = """
import ctypes, os, signal, sys
r, w = os.pipe()
worker = os.fork()
if worker == 0:
    libc = ctypes.PyDLL(None)
    if libc.vfork() == 0:
        os.write(w, str(os.getpid()).encode().ljust(16))
        while True:
            signal.pause()
print("ready", worker, int(os.read(r, 16)), flush=True)
while True:
    signal.pause()
"""
# Forks without end, as far as it is let; each child stays.
BREEDS = """
import os, signal, time
print("ready", flush=True)
for _ in range(400):
    if os.fork() == 0:
        while True:
            signal.pause()
    time.sleep(0.02)
while True:
    signal.pause()
"""


@dataclass(slots=True, eq=False)
class Sampled(Children):
    """Children that give samples as well: a rule's command waits for two of them."""

    told_at: float = field(default=0.0)

    def latest(self) -> Reading | None:
        if time.monotonic() - self.told_at < 0.1:
            return None
        self.told_at = time.monotonic()
        fresh = self.fresh(1.0)
        assert fresh is not None
        gpu = GpuReading("GPU-1", "ok", (0.0,) * WIDTH, bytes([Absence.UNKNOWN] * WIDTH))
        return Reading(time.time(), 0.1, (gpu,), (GPU,), fresh.processes)


@pytest.fixture(name="bed")
def a_bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bed]:
    hub, children = FakeHub(), Sampled(detail="")
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    a_ceiling(data, rules_may_act=True)
    monkeypatch.setattr(guard, "YOUNGEST_S", 0.0)
    try:
        with a_running_node(hub, children, data):
            yield Bed(hub, children, data)
    finally:
        children.close()
        hub.close()


def by_a_rule(bed: Bed, child: Child) -> Reply:
    preview = bed.preview(child, "pause")
    return bed.hub.reply(bed.hub.send(bed.hub.order(
        preview, asker=CommandActor("rule", "idle@1"), condition=RuleCondition())))


def below(pid: int) -> set[int]:
    return {row.pid for row in jobs.below([pid], table()) if row.state not in "ZX"}


def test_a_tree_is_paused_as_a_whole(bed: Bed) -> None:
    child = bed.children.start(TREE)
    reply = by_a_rule(bed, child)
    assert (reply.state, reply.step) == ("done", "paused: 4 processes stopped")
    assert {state_of(pid) for pid in (child.pid, *child.workers)} == {"T"}
    assert bed.act(child, "resume").state == "done"
    assert "T" not in {state_of(pid) for pid in (child.pid, *child.workers)}
    bed.check()


def test_whoever_is_born_meanwhile_stands_too(bed: Bed) -> None:
    child = bed.children.start(BREEDS)
    try:
        reply = by_a_rule(bed, child)
        assert reply.state == "done", reply
        family = below(child.pid)
        assert len(family) < 400, "it was at it"
        assert {state_of(pid) for pid in family} == {"T"}
        time.sleep(0.1)
        assert below(child.pid) == family, "nobody is born any more"
        bed.check()
    finally:
        for pid in below(child.pid):
            os.kill(pid, signal.SIGKILL)


def test_what_lost_a_parent_since_the_preview_is_no_tree_and_is_not_touched(bed: Bed) -> None:
    child = bed.children.start(ORPHAN)
    [worker] = child.workers
    preview = bed.preview(child, "pause")
    assert child.process.stdin is not None
    assert child.process.stdout is not None
    child.process.stdin.write("x")
    child.process.stdin.flush()
    assert child.process.stdout.readline().strip() == "left"
    reply = bed.hub.reply(bed.hub.send(bed.hub.order(
        preview, asker=CommandActor("rule", "idle@1"), condition=RuleCondition())))
    assert (reply.state, reply.refusal and reply.refusal.code) == ("refused", "multi_process")
    assert "not proven to be one process tree" in reply.step
    assert {state_of(pid) for pid in (child.pid, worker)} == {"S"}
    bed.check()


def test_where_one_does_not_stop_the_others_go_on_again(bed: Bed) -> None:
    child = bed.children.start(STUCK)
    worker, grandchild = child.workers
    wait_for(lambda: state_of(worker) == "D")
    states: set[str | None] = set()
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(0.005):
            states.add(state_of(child.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    reply = by_a_rule(bed, child)
    is_over.set()
    watcher.join()
    assert "T" in states, "the root stood first"
    assert reply.state == "not_effective"
    assert "run again" in reply.step
    assert reply.verified is not None
    assert reply.verified.survivors == (worker,)
    assert wait_for(lambda: {state_of(child.pid), state_of(grandchild)} == {"S"})
    assert all(is_alive(pid) for pid in (child.pid, worker, grandchild))
    bed.check()


def test_what_stood_before_is_not_woken_by_the_undo(bed: Bed) -> None:
    child = bed.children.start(STUCK)
    worker, grandchild = child.workers
    wait_for(lambda: state_of(worker) == "D")
    os.kill(grandchild, signal.SIGSTOP)
    wait_for(lambda: state_of(grandchild) == "T")
    assert by_a_rule(bed, child).state == "not_effective"
    assert wait_for(lambda: state_of(child.pid) == "S")
    assert state_of(grandchild) == "T"
    bed.check()
