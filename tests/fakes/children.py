"""Real processes that stand in for tasks, and a source that lists them as a driver would."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from agent.readings import BackendEvent, OnDemandReading, ProcessReading, Reading
from agent.tasks.boot_id import boot_id
from agent.tasks.processes import row_of
from gpudeck.contract.wire import ReaderState

STEADY = """
import signal
print("ready", flush=True)
while True:
    signal.pause()
"""
# Belongs to somebody else, where we may make it so.
OTHERS = """
import os, signal, sys
os.setuid(int(sys.argv[1]))
print("ready", flush=True)
while True:
    signal.pause()
"""
# Writes down each SIGTERM, and stays.
COUNTS = """
import signal, sys
def note(*_):
    with open(sys.argv[1], "a") as file:
        file.write("t")
signal.signal(signal.SIGTERM, note)
print("ready", flush=True)
while True:
    signal.pause()
"""
STUBBORN = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
while True:
    signal.pause()
"""
# Three workers, one of them in a session of its own; they outlive their parent if let.
TREE = """
import os, signal, sys
pids = []
for number in range(3):
    pid = os.fork()
    if pid == 0:
        if number == 0:
            os.setsid()
        while True:
            signal.pause()
    pids.append(pid)
print("ready", *pids, flush=True)
while True:
    signal.pause()
"""
# A worker below a helper that leaves when a byte comes: the worker is init's child then.
ORPHAN = """
import os, signal, sys
r, w = os.pipe()
middle = os.fork()
if middle == 0:
    worker = os.fork()
    if worker == 0:
        while True:
            signal.pause()
    os.write(w, str(worker).encode().ljust(16))
    sys.stdin.buffer.read(1)
    os._exit(0)
print("ready", int(os.read(r, 16)), flush=True)
os.waitpid(middle, 0)
print("left", flush=True)
while True:
    signal.pause()
"""
# Forks a worker when it is asked to end, and stays itself.
FORKS_ON_TERM = """
import os, signal
def fork(*_):
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            signal.pause()
signal.signal(signal.SIGTERM, fork)
print("ready", flush=True)
while True:
    signal.pause()
"""
# Becomes another program at the first byte: same pid, same start.
EXECS = """
import os, sys
print("ready", flush=True)
sys.stdin.read(1)
os.execv("/bin/sleep", ["sleep", "1000"])
"""
SAVES = """
import signal, sys
def save(*_):
    open(sys.argv[1], "w").write("saved")
    sys.exit(0)
signal.signal(signal.SIGUSR1, save)
print("ready", flush=True)
while True:
    signal.pause()
"""


@dataclass(slots=True, eq=False)
class Child:
    process: "subprocess.Popen[str]"
    words: tuple[str, ...]
    start_ticks: int
    gpu: str
    mem_used_bytes: float | None
    kind: str = "compute"
    leaks: bool = False

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def task_id(self) -> str:
        return f"{boot_id()[:8]}-{self.pid}-{self.start_ticks}"

    @property
    def workers(self) -> list[int]:
        return [int(word) for word in self.words]

    def is_alive(self) -> bool:
        return is_alive(self.pid)


@dataclass(slots=True, eq=False)
class Children:
    """Source of readings for `run_node` and of processes for acts. `close` ends every child and
    worker."""

    state: ReaderState = "ok"
    detail: str = ""
    age_s: float | None = 0.1
    read_s: float | None = None
    pids: frozenset[int] = frozenset()
    hangs: bool = False
    after_list: Callable[[], None] = lambda: None  # called after each fresh list
    all: list[Child] = field(default_factory=list)
    more: list[ProcessReading] = field(default_factory=list)
    readings: deque[Reading] = field(default_factory=deque)  # which the node gets, one by one
    wake: Callable[[], None] = lambda: None  # the node that reads them

    def readers_of(self, uuid: str) -> frozenset[int]:
        return self.pids

    def start(
        self, code: str = STEADY, *arguments: str, gpu: str = "GPU-1", listed: bool = True,
        kind: str = "compute", **more: object,
    ) -> Child:
        process = subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", code, *arguments], start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            **more,  # type: ignore[call-overload]
        )
        ready, *words = process.stdout.readline().split()
        assert ready == "ready"
        row = row_of(process.pid)
        assert row is not None
        child = Child(process, tuple(words), row.start_ticks, gpu if listed else "",
                      float(random.randint(2**28, 2**33)), kind)
        self.all.append(child)
        return child

    def take_events(self) -> tuple[BackendEvent, ...]:
        return ()

    def fresh(self, timeout_s: float) -> OnDemandReading | None:
        if self.hangs:
            return None
        living = [child for child in self.all if child.gpu and child.is_alive()]
        holding = living + [child for child in self.all if child.leaks and child not in living]
        mem_bytes: dict[str, float | None] = dict.fromkeys((child.gpu for child in self.all), 0.0)
        for child in holding:
            mem_bytes[child.gpu] = (mem_bytes[child.gpu] or 0.0) + (child.mem_used_bytes or 0.0)
        listed = [ProcessReading(child.pid, child.gpu, child.mem_used_bytes, 1.0,
                                 child.kind)  # type: ignore[arg-type]
                  for child in living]
        fresh = OnDemandReading((*listed, *self.more), mem_bytes)
        self.after_list()
        return fresh

    def latest(self) -> Reading | None:
        if len(self.readings) > 1:
            self.wake()
        return self.readings.popleft() if self.readings else None

    def close(self) -> None:
        for child in self.all:
            for pid in (child.pid, *([] if not child.words else child.workers)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            child.process.kill()
            child.process.wait()
            for pipe in (child.process.stdin, child.process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()


def is_alive(pid: int) -> bool:
    row = row_of(pid)
    return row is not None and row.state not in "ZX"


def state_of(pid: int) -> str | None:
    row = row_of(pid)
    return None if row is None else row.state


def a_ceiling(folder: Path, **keys: object) -> Path:
    """Write a ceiling file. root_tasks, because tests run as root in CI."""
    values = {"root_tasks": True, "kills_per_hour": 1_000, "pauses_per_hour": 10**7, **keys}
    words = {True: "true", False: "false"}
    path = folder / "ceiling.toml"
    path.write_text("".join(
        f"{name} = {words.get(value, repr(value)) if isinstance(value, bool) else repr(value)}\n"
        for name, value in values.items()))
    path.chmod(0o600)
    return path


def wait_until_old(child: Child) -> None:
    """Wait until a task may be acted on: in its first seconds nothing is done to it."""
    while time.clock_gettime(time.CLOCK_BOOTTIME) - child.start_ticks / os.sysconf(
            "SC_CLK_TCK") < 5.05:
        time.sleep(0.05)

