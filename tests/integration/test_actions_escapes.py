"""Ends of tasks whose children try to get away: forked while they are ended, in a session of their
own, below parents that have gone. On real processes."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.actions import born, guard, targets
from agent.actions.kinds.execution import ActionTimeouts
from agent.actions.standalone import StandaloneNode
from agent.tasks.births import watch_births
from gpudeck.contract.actions import ActionParams, Reply
from tests.fakes.children import Child, Children, a_ceiling, is_alive
from tests.fakes.hub import wait_for
from tests.integration.test_actions_crash import write_world
from tests.patience import GIVE_UP_S

# On SIGTERM it forks three, each as `how` says, writes down their pids and ends at once.
ESCAPES = """
import os, signal, sys, time
how, file = sys.argv[1:]
def child():
    os.setsid()
    if "twice" in how and os.fork():
        os._exit(0)
    if "stubborn" in how:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with open(file, "a") as said:
        said.write(f"{os.getpid()}\\n")
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))
    if "exec" in how:
        time.sleep(0.3)
        os.execv("/bin/sleep", ["sleep", "600"])
    while True:
        signal.pause()
def leave(*_):
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))
    for _ in range(3):
        if os.fork() == 0:
            child()
    while "late" not in how and (not os.path.exists(file) or len(open(file).read().split()) < 3):
        time.sleep(0.01)
    os._exit(0)
signal.signal(signal.SIGTERM, leave)
print("ready", flush=True)
while True:
    signal.pause()
"""


def _births_are_reported() -> bool:
    births = watch_births()
    if births is not None:
        births.close()
    return births is not None


needs_births = pytest.mark.skipif(
    "CI" not in os.environ and not _births_are_reported(),
    reason="the kernel does not tell of births here (CAP_NET_ADMIN)")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandaloneNode]:
    monkeypatch.setattr(guard, "YOUNGEST_S", 0.0)
    ceiling = a_ceiling(tmp_path)
    (tmp_path / "data").mkdir()
    write_world(tmp_path, [])
    with StandaloneNode(tmp_path / "data", "simulated", f"node=n1,gpus=1,world={tmp_path}",
                        ceiling, ActionTimeouts(GIVE_UP_S, GIVE_UP_S)) as node:
        yield node


@contextlib.contextmanager
def fleeing_task(children: Children, folder: Path, how: str) -> Iterator[tuple[Child, Child, Path]]:
    """A task whose children escape as `how` says, a neighbour, and the file of their pids."""
    file = folder / "pids"
    task, neighbour = children.start(ESCAPES, how, str(file)), children.start()
    write_world(folder, [task, neighbour])
    try:
        yield task, neighbour, file
    finally:
        for pid in escaped_pids(file):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def escaped_pids(file: Path) -> list[int]:
    return [int(pid) for pid in file.read_text().split()] if file.exists() else []


def end_task(here: StandaloneNode, task: Child, grace_s: float = 2.0) -> Reply:
    until = time.monotonic() + 20
    while (preview := here.preview("end", task.task_id,
                                   ActionParams(grace_s=grace_s))).refusals:
        assert time.monotonic() < until, preview.refusals
        time.sleep(0.1)
    return here.act(preview, "", "ada")


@needs_births
@pytest.mark.parametrize("how", ["plain", "twice", "stubborn", "twice stubborn exec", "late",
                                 "twice late stubborn"])
def test_who_flees_while_the_task_is_ended_ends_with_it(
    children: Children, here: StandaloneNode, tmp_path: Path, how: str
) -> None:
    """Found by examiners: "done, ended on SIGTERM", and three children lived on."""
    with fleeing_task(children, tmp_path, how) as (task, neighbour, file):
        reply = end_task(here, task)
        assert (reply.state, reply.refusal) == ("done", None), reply
        assert len(escaped_pids(file)) == 3 or "late" in how
        assert not [pid for pid in escaped_pids(file) if is_alive(pid)]
        assert neighbour.is_alive()
        assert ("SIGKILL" in reply.step) == ("stubborn" in how)


def test_where_births_are_not_told_what_is_left_is_said(
    children: Children, here: StandaloneNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(born, "watch_births", lambda: None)
    monkeypatch.setattr(targets.TargetProcessSet, "adopt", lambda _: None)  # it may be in time
    with fleeing_task(children, tmp_path, "late") as (task, neighbour, file):
        reply = end_task(here, task)
        wait_for(lambda: len(escaped_pids(file)) == 3)
        alive = [pid for pid in escaped_pids(file) if is_alive(pid)]
        assert len(alive) == 3
        assert "still there, not touched" in reply.step
        assert all(str(pid) in reply.step for pid in alive)
        assert neighbour.is_alive()


@needs_births
def test_who_is_told_of() -> None:
    """Forks by strangers, and children of a victim that come and go: only the latter."""
    script = ("import os\nfor _ in range(int(input())):\n pid = os.fork()\n"
              " if pid == 0: os._exit(0)\n os.waitpid(pid, 0)\n")
    victim, stranger = (subprocess.Popen([sys.executable, "-c", script], text=True,
                                         stdin=subprocess.PIPE) for _ in range(2))
    births = watch_births()
    assert births is not None
    births.lineage.follow((victim.pid,))
    stranger.communicate("300\n")
    assert births.born() == {}
    count, began_s = random.randrange(50, 300), time.clock_gettime(time.CLOCK_BOOTTIME)
    victim.communicate(f"{count}\n")
    born_at = births.born()
    assert len(born_at) == count
    assert all(began_s <= at_s <= time.clock_gettime(time.CLOCK_BOOTTIME)
               for at_s in born_at.values())
    births.close()


@needs_births
@pytest.mark.parametrize("what", ["another user", "another time"])
def test_who_is_not_surely_its_child_is_left_and_said(
    children: Children, here: StandaloneNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    what: str
) -> None:
    """A number in the line that is somebody else's by now."""
    monkeypatch.setattr(targets.TargetProcessSet, "adopt", lambda _: None)
    if what == "another user":
        monkeypatch.setattr(targets.TargetProcessSet, "uid", property(lambda _: 54_321))
    else:
        monkeypatch.setattr(born, "BORN_WITHIN_S", -1.0)
    with fleeing_task(children, tmp_path, "late") as (task, _, file):
        reply = end_task(here, task)
        wait_for(lambda: len(escaped_pids(file)) == 3)
        assert [pid for pid in escaped_pids(file) if is_alive(pid)] == escaped_pids(file)
        assert "born of it are still there, not touched" in reply.step
