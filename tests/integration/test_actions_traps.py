"""Process behaviour that an act must not fall for (pitfalls.md E), on real processes."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.actions import guard
from agent.actions.kinds.execution import ActionTimeouts
from agent.actions.signals import ProcessHandle, living, wait_for_end
from agent.actions.standalone import StandaloneNode
from agent.tasks.cgroup_freezer import is_frozen
from gpudeck.contract.action_table import TaskAction
from tests.fakes.children import Child, Children, a_ceiling, state_of
from tests.fakes.hub import wait_for
from tests.integration.test_actions_crash import write_world

# Its first thread leaves, and another goes on: the process is a zombie by its state alone.
HEADLESS = """
import ctypes, signal, threading, time
gone = threading.Event()
def work():
    gone.wait()
    time.sleep(0.2)
    print("ready", flush=True)
    while True:
        time.sleep(60)
threading.Thread(target=work).start()
gone.set()
ctypes.CDLL(None).syscall({number}, 0)
"""
EXIT = {"x86_64": 60, "aarch64": 93}.get(os.uname().machine)


def test_a_process_whose_first_thread_has_left_is_alive_until_all_have() -> None:
    """nvml E: a thread group whose leader is Z can still hold memory."""
    if EXIT is None:
        pytest.skip("the number of exit(2) on this kind of machine is not known here")
    process = subprocess.Popen([sys.executable, "-c", HEADLESS.format(number=EXIT)],
                               stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        assert state_of(process.pid) == "Z"
        handle = ProcessHandle.open(process.pid)
        assert handle is not None
        assert living([handle]) == [handle]
        assert handle.facts() is not None
        assert handle.send(signal.SIGTERM)
        assert wait_for_end([handle], 10.0) == []
        assert handle.facts() is None
        handle.close()
    finally:
        process.kill()
        process.communicate()


def test_the_number_of_a_thread_is_no_process() -> None:
    """nvml E: ENOENT, or EINVAL on older kernels."""
    is_ready, leave = threading.Event(), threading.Event()
    numbers: list[int] = []

    def stay() -> None:
        numbers.append(threading.get_native_id())
        is_ready.set()
        leave.wait()

    thread = threading.Thread(target=stay)
    thread.start()
    try:
        is_ready.wait()
        assert numbers[0] != os.getpid()
        assert ProcessHandle.open(numbers[0]) is None
    finally:
        leave.set()
        thread.join()


@contextmanager
def a_freezer(kind: str, pid: int) -> Iterator[None]:
    """Freeze this process in a cgroup of this machine; thaw it and remove the cgroup in the end."""
    here = Path({"v2": "/sys/fs/cgroup", "v1": "/sys/fs/cgroup/freezer"}[kind])
    if kind == "v2" and not (here / "cgroup.procs").exists():
        here = here / "unified"
    group = here / f"gpudeck-test-{pid}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup {kind} can be made here: {error}")
    file, frozen, thawed = (("cgroup.freeze", "1", "0") if kind == "v2"
                            else ("freezer.state", "FROZEN", "THAWED"))
    try:
        (group / "cgroup.procs").write_text(str(pid))
        (group / file).write_text(frozen)
        yield
        (group / file).write_text(thawed)
    finally:
        (group / file).write_text(thawed)
        (here / "cgroup.procs").write_text(str(pid))
        group.rmdir()


def refusals_of(here: StandaloneNode, child: Child, action: TaskAction) -> list[str]:
    return [refusal.code for refusal in here.preview(action, child.task_id).refusals]


@pytest.mark.parametrize("kind", ["v1", "v2"])
def test_a_frozen_task_is_left_alone_until_it_is_thawed(
    children: Children, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """nvml E: SIGTERM never arrives at a frozen one, and SIGKILL does."""
    monkeypatch.setattr(guard, "YOUNGEST_S", 0.0)
    ceiling = a_ceiling(tmp_path)
    child, neighbour = children.start(), children.start()
    write_world(tmp_path, [child, neighbour])
    data = tmp_path / "data"
    data.mkdir()
    with StandaloneNode(data, "simulated", f"node=n1,gpus=1,world={tmp_path}", ceiling,
                        ActionTimeouts(2.0, 2.0)) as here:
        with a_freezer(kind, child.pid):
            wait_for(lambda: refusals_of(here, child, "end") == ["condition"])
            assert refusals_of(here, child, "pause") == ["condition"]
            assert refusals_of(here, child, "resume") == ["condition"]
            assert refusals_of(here, child, "notify") == []
            assert refusals_of(here, neighbour, "end") == []
        preview = here.preview("end", child.task_id)
        assert preview.refusals == ()
        assert here.act(preview, "", "ada").state == "done"
    assert child.process.wait(1) == -signal.SIGTERM
    assert neighbour.is_alive()


@pytest.mark.parametrize(("cgroups", "frozen"), [
    ("0::/a/b", True), ("0::/a", False), ("0::/", False), ("0::/gone", False),
    ("6:freezer:/docker/x", True), ("6:cpu,freezer:/docker/x", True), ("6:freezer:/other", False),
    ("7:cpu:/docker/x\n6:freezer:/other\n0::/a/b", True), ("7:cpu:/docker/x;0::/a/b", True),
    ("0::/../two/a/b", False), ("", False), ("nonsense", False), ("0::/a\0b", False),
])
def test_frozen_by_v1_or_v2_wherever_they_are_mounted(
    tmp_path: Path, cgroups: str, frozen: bool
) -> None:
    """nvml E: the cgroup is found by /proc/PID/cgroup and the table of mounts, v2 is not
    assumed."""
    two, one, cpu = tmp_path / "two", tmp_path / "one", tmp_path / "cpu"
    for group, file, text in (
        (two, "cgroup.events", "populated 1\nfrozen 0\n"),
        (two / "a", "cgroup.events", "populated 1\nfrozen 0\n"),
        (two / "a/b", "cgroup.events", "populated 1\nfrozen 1\n"),
        (one / "docker/x", "freezer.state", "FREEZING\n"),
        (one / "other", "freezer.state", "THAWED\n"),
        (cpu / "docker/x", "freezer.state", "FROZEN\n"),
    ):
        group.mkdir(parents=True, exist_ok=True)
        (group / file).write_text(text)
    (tmp_path / "self").mkdir()
    (tmp_path / "self/mounts").write_text(
        f"proc /proc proc rw 0 0\ncgroup {cpu} cgroup rw,relatime,cpu 0 0\n"
        f"cgroup {one} cgroup rw,relatime,freezer 0 0\ncgroup2 {two} cgroup2 rw,nsdelegate 0 0\n")
    assert is_frozen(cgroups, tmp_path) is frozen
