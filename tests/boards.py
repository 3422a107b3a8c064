"""Real children on the C fake's boards: their memory comes back when they have really ended."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from agent.tasks.boot_id import boot_id
from tests.demos import soon
from tests.fakes.nvml import FakeNvml

GIB = 2**30
OLD_ENOUGH_S = 5.2
# Says that it is ready; what it does on SIGTERM leaves a trace.
CHILD = """
import os, signal, subprocess, sys, time
trace, stubborn, workers = sys.argv[1], sys.argv[2] == "stubborn", int(sys.argv[3])
def asked(number, frame):
    open(trace, "a").write(f"{number}\\n")
    if not stubborn:
        sys.exit(0)
signal.signal(signal.SIGTERM, asked)
kids = [subprocess.Popen([sys.executable, "-S", "-E", "-c", "import time; time.sleep(600)"])
        for _ in range(workers)]
open(trace + ".ready", "w").write(" ".join(str(kid.pid) for kid in kids))
while True:
    time.sleep(0.05)
"""


class Child:
    def __init__(self, folder: Path, name: str, gpu: int, gib: int, stubborn: bool = False,
                 workers: int = 0) -> None:
        self.gpu = gpu
        self.mem_used_bytes = gib * GIB
        self.trace = folder / name
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", CHILD, str(self.trace),
             "stubborn" if stubborn else "obliging", str(workers)], start_new_session=True)
        ready = Path(f"{self.trace}.ready")
        assert soon(ready.exists)
        assert soon(lambda: workers == 0 or ready.read_text())
        self.pids = {self.process.pid, *map(int, ready.read_text().split())}
        self._pidfds = [os.pidfd_open(pid) for pid in self.pids]
        stat = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        self.task_id = f"{boot_id()[:8]}-{self.process.pid}-{stat[19]}"

    def kill(self) -> None:
        """Kill by the pidfds opened at the start; a pid may be another process's by now."""
        for pidfd in self._pidfds:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            os.close(pidfd)
        self.process.wait(10)

    @property
    def lives(self) -> bool:
        return self.process.poll() is None

    @property
    def heard_sigterm(self) -> bool:
        return self.trace.exists()

    @property
    def all_gone(self) -> bool:
        """A worker without its parent may wait for init to reap it."""
        def has_ended(pid: int) -> bool:
            try:
                return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
            except OSError:
                return True
        return not self.lives and all(has_ended(pid) for pid in self.pids)


class Boards:
    """Children, and a fake driver whose processes and memory follow them."""

    def __init__(self, folder: Path, gpus: int = 2) -> None:
        self.folder = folder
        self.nvml = FakeNvml(folder / "nvml.txt", gpus=gpus)
        self.children: list[Child] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow)
        self._thread.start()

    def child(self, name: str, gpu: int = 0, gib: int = 4, stubborn: bool = False,
              workers: int = 0) -> Child:
        child = Child(self.folder, name, gpu, gib, stubborn, workers)
        self.children.append(child)
        return child

    def ceiling(self, **more: str) -> Path:
        """Permits what a test's root in its own pid namespace needs."""
        path = self.folder / "ceiling.toml"
        settings = {"root_tasks": "true", "own_pid_namespace": "true", "kills_per_hour": "100",
                    "pauses_per_hour": "100", **more}
        path.write_text("".join(f"{name} = {value}\n" for name, value in settings.items()))
        path.chmod(0o600)
        return path

    def _follow(self) -> None:
        before = None
        while not self._stop.wait(0.03):
            living = [child for child in [*self.children] if child.lives]
            rows = [(child.gpu, child.process.pid, child.mem_used_bytes) for child in living]
            if rows != before:
                before = rows
                self.nvml.lines = [f"process {gpu} compute {pid} {size}" for gpu, pid, size in rows]
                for number, gpu in enumerate(self.nvml.gpus):
                    gpu["mem_total"] = 80 * GIB
                    gpu["mem_used"] = GIB // 2 + sum(size for on, _, size in rows if on == number)
                self.nvml.write()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        for child in self.children:
            child.kill()
