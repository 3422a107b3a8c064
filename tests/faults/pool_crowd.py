"""Users who queue `gpudeck run` and `gpudeck claim` on the nodes of a hub, faults that kill them,
their commands, the agents and the hub, and the witnesses: a lock for each GPU that its command
takes, a journal of all commands, and the audit logs of the nodes."""

import contextlib
import os
import pwd
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

import msgspec

from agent.tasks.processes import NO_PROCESS
from gpudeck.contract.pool_messages import LEASE_ENV, SOCKET_ENV
from gpudeck.errors import ExitCode
from tests.fakes.nvml import FakeNvml
from tests.forks import ForkedProcess, commands
from tests.integration.hubs import HubProcess
from tests.integration.pools import records
from tests.integration.test_agent_process import flags
from tests.patience import GIVE_UP_S

ROOT = Path(__file__).parents[2]
CUDA = ROOT / "tests/fakes/libcuda/cuda.c"
GPUS = 4
MOST_GPUS = 3  # of one run
STATUSES = (0, 0, 3, 77)
STOPPED_S = 5.0  # at most
CLAIMS, LEAVING = 0.1, 0.25  # parts of all: claims before their run; commands that leave one behind
UNUSED_S = 120.0  # a claim whose agent was killed before it could answer goes back then
# Takes the locks of the boards that it sees, says which it sees and which it was given, when it
# begins and when it ends. What it leaves behind holds the locks, too.
WORKS = """
import ctypes, fcntl, json, os, sys, time
library, journal, locks, number, seconds, longer, status = sys.argv[1:]
cuda = ctypes.CDLL(library)
cuda.cuInit(0)
count, word = ctypes.c_int(), ctypes.create_string_buffer(64)
cuda.cuDeviceGetCount(ctypes.byref(count))
seen = [cuda.fakeDeviceUuid(at, word, 64) or word.value.decode() for at in range(count.value)]
work = {"number": int(number), "pid": os.getpid(), "lease": os.environ["GPUDECK_LEASE"],
        "given": os.environ["GPUDECK_GPU_UUIDS"].split(","), "seen": seen, "left": None}
def note(what):
    with open(journal, "a") as file:
        file.write(json.dumps(work | {"what": what, "at": time.time()}) + "\\n")
for uuid in seen:
    try:
        fcntl.flock(os.open(locks + "/" + uuid, os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        note("found it locked: " + uuid)
        os._exit(66)
if float(longer):
    work["left"] = os.fork()
    if work["left"] == 0:
        os.setsid()
        time.sleep(float(seconds) + float(longer))
        note("left")
        os._exit(0)
note("began")
time.sleep(float(seconds))
note("ended")
os._exit(int(status))
"""
# The control arm: of the leases that are there, neither the lock nor who places claims knows.
WITHOUT_LOCK = """
from agent.pool import lock
refusal, free_node = lock.refusal, lock.free_node
lock.refusal = lambda leases, *more: refusal((), *more)
lock.free_node = lambda node_id, host, gpus, leases, cpus: free_node(node_id, host, gpus, (), cpus)
from agent.cli.main import agent
from gpudeck.errors import run_as_program
run_as_program(agent)
"""


class StoppedProcess:
    """Process that is stopped and goes on by itself after a while, whatever the thread that stopped
    it waits for by then, such as a hub that starts. Takes over the pidfd."""

    def __init__(self, pidfd: int, for_s: float) -> None:
        self._pidfd = pidfd
        self._lock = threading.Lock()
        signal.pidfd_send_signal(pidfd, signal.SIGSTOP)
        timer = threading.Timer(for_s, self.wake)
        timer.daemon = True
        timer.start()

    def wake(self) -> None:
        with self._lock:
            if self._pidfd < 0:
                return
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGCONT)
            os.close(self._pidfd)
            self._pidfd = -1


class TwoHandsError(Exception):
    """A GPU that a command got was in use."""


def other_users() -> tuple[list[int], str]:
    """Ids of users other than our own for whom we can start commands, and a Python that they can
    execute; no ids where there are no such users."""
    if os.geteuid() == 0:
        for python in (sys.executable, "/usr/bin/python3"):
            try:
                subprocess.run([python, "-S", "-c", "import ctypes, fcntl, json"], user=1, group=1,
                               extra_groups=[], check=True, capture_output=True)
            except (OSError, subprocess.CalledProcessError):
                continue
            return [user.pw_uid for user in pwd.getpwall()[1:4]], python
    return [], sys.executable


class Node:
    """`hub` None: its agent runs without a hub."""

    def __init__(self, hub: HubProcess | None, folder: Path, has_lock: bool = True) -> None:
        folder.mkdir(mode=0o755)
        self.name = folder.name
        self._folder = folder
        nvml = FakeNvml(folder / "nvml.txt", gpus=0)
        for _ in range(GPUS):
            nvml.gpu(util=0, mem_used=2**29, name="NVIDIA H100 80GB HBM3",
                     mem_total=80 * 2**30)
        nvml.save()
        self.uuids = [gpu.uuid for gpu in nvml.gpus]
        self.env = nvml.env() | {SOCKET_ENV: str(folder / "pool.sock"),
                                 "FAKE_CUDA_BOARDS": ",".join(self.uuids)}
        where = ["--alone", "--data", str(folder / "data")] if hub is None else flags(
            hub, folder)  # type: ignore[arg-type]
        self._words = [*where, "--host", folder.name, "--pool-socket", str(folder / "pool.sock"),
                       "--pool-unused-s", f"{UNUSED_S:.0f}"]
        self._has_lock = has_lock
        self.agent = self.start()

    def start(self) -> "ForkedProcess | subprocess.Popen[bytes]":
        path = self._folder / "agent.log"
        if self._has_lock:
            return ForkedProcess(commands(), ("agent", *self._words), path, {}, self.env)
        with path.open("ab") as log:
            return subprocess.Popen([sys.executable, "-c", WITHOUT_LOCK, *self._words], cwd=ROOT,
                                    env=self.env, stderr=log)

    def restart(self, number: signal.Signals) -> None:
        self.agent.send_signal(number)
        self.agent.send_signal(signal.SIGCONT)
        self.agent.wait(GIVE_UP_S)
        self.agent = self.start()

    def close(self) -> None:
        self.agent.terminate()
        self.agent.send_signal(signal.SIGCONT)
        self.agent.wait(GIVE_UP_S)

    def ends(self) -> dict[str, tuple[str, float] | None]:
        """Lease to how it ended, and when; None: it has not. From this node's audit log."""
        ends: dict[str, tuple[str, float] | None] = {}
        for record in records(self._folder / "data" / "acts.db"):
            match record.get("pool"):
                case "granted":
                    ends[record["lease"]] = None
                case "waiting":  # taken back before it had begun
                    ends.pop(record["lease"])
                case "released" | "preempted" as how:
                    ends[record["lease"]] = (how, record["at"])
        return ends


class Note(msgspec.Struct, frozen=True):
    number: int
    pid: int
    lease: str
    given: list[str]
    seen: list[str]
    left: int | None  # pid of what it leaves behind
    what: str
    at: float


@dataclass
class Work:
    """A command that has begun."""

    note: Note
    at: dict[str, float] = field(default_factory=dict)


@dataclass
class Started:
    process: ForkedProcess
    number: int
    status: int  # of its command
    node: Node
    faults: set[int] = field(default_factory=set)  # statuses that what was done to it may cause
    claims: Path | None = None  # it is a claim, and this is what it prints


class Crowd:
    """`before`: words put in front of each command."""

    def __init__(self, hub: HubProcess | None, nodes: Sequence[Node], folder: Path,
                 before: Sequence[str] = ()) -> None:
        self.hub, self.nodes, self._before = hub, nodes, before
        self.runs: list[Started] = []
        self.works: dict[int, Work] = {}
        self.killed: dict[int, float] = {}  # run to just before a signal that ends its command
        self.count: Counter[str] = Counter()
        self._folder = folder
        self._users, self._python = other_users()
        self._cuda = folder / "libcuda.so.1"
        subprocess.run(["gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC",
                        "-o", str(self._cuda), str(CUDA)], check=True)
        self._locks = folder / "locks"
        self._locks.mkdir()
        self._journal = folder / "journal"
        for path in (self._journal, *(self._locks / uuid for node in nodes
                                      for uuid in node.uuids)):
            path.touch()
            path.chmod(0o666)
        self._read_to = 0
        self._stopped: list[StoppedProcess] = []
        self._faults: list[tuple[float, str]] = []  # when, and what was done to what

    def start(self) -> None:
        number = self.count["started"]
        self.count["started"] += 1
        words = ("--gpus", str(random.randint(1, MOST_GPUS)))
        node = self.nodes[number % len(self.nodes)]
        if random.random() < CLAIMS:
            claims = self._folder / f"claim-{number}"
            self._begin(number, node, ("claim", *words, "--export"), claims, claims)
        else:
            self._run(number, node, words)

    def _run(self, number: int, node: Node, words: Sequence[str]) -> None:
        status = random.choice(STATUSES)
        longer = random.uniform(0.3, 3.0) if random.random() < LEAVING else 0.0
        self._begin(number, node, (
            "run", *words, "--", *self._before, self._python, "-S", "-c", WORKS, str(self._cuda),
            str(self._journal), str(self._locks), str(number), f"{random.uniform(0.5, 6):.2f}",
            f"{longer:.2f}", str(status)), self._folder / "runs.log", None, status)

    def _begin(self, number: int, node: Node, words: Sequence[str], log: Path,
               claims: Path | None, status: int = 0) -> None:
        """Start a run or claim; users take turns so that each user has runs on each node."""
        users = [None, *self._users]
        user = users[number // len(self.nodes) % len(users)]
        process = ForkedProcess(commands(), words, log, {}, node.env, user)
        self.runs.append(Started(process, number, status, node, claims=claims))

    def look(self) -> None:
        """Check that runs that have ended have the exit status of their command."""
        for run in list(self.runs):
            status = run.process.poll()
            if status is None:
                continue
            self._read()
            self.runs.remove(run)
            work = self.works.get(run.number)
            if status == ExitCode.UNREACHABLE:  # its agent was just being started: nothing began
                assert work is None, (run.number, status)
                self.count["agents not there"] += 1
            elif run.claims is not None:
                assert status == 0, (run.claims.read_text(), status)
                self._use_claim(run)
            else:
                has_ended = work is not None and "ended" in work.at
                right = run.faults | ({run.status} if has_ended or not run.faults else set())
                assert status in right, (run.number, status, right)
                self.count["statuses"] += 1
        self._read()

    def _use_claim(self, run: Started) -> None:
        assert run.claims is not None
        match = re.search(rf"{LEASE_ENV}=(\S+)", run.claims.read_text())
        assert match is not None
        self.count["claims"] += 1
        self._run(run.number, run.node, ("--lease", match[1]))

    def _read(self) -> None:
        with self._journal.open("rb") as file:
            file.seek(self._read_to)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._read_to += len(line)
                note = msgspec.json.decode(line, type=Note)
                if note.what.startswith("found"):
                    raise TwoHandsError(note)
                self.works.setdefault(note.number, Work(note)).at[note.what] = note.at

    def _alive(self) -> list[Work]:
        return [work for number, work in self.works.items()
                if "began" in work.at and "ended" not in work.at and number not in self.killed]

    def fault(self) -> None:
        what = random.choice(("run", "run", "run", "command", "command", "command", "agent", "hub"))
        how = random.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP))
        at = time.time()
        victim = getattr(self, f"_fault_of_{what}")(how)
        if victim:
            self.count[f"{what} {how.name}"] += 1
            self._faults.append((at, f"{how.name} to {victim}, done after "
                                     f"{time.time() - at:.1f} s"))

    def _fault_of_run(self, how: signal.Signals) -> str:
        runs = [run for run in self.runs if run.claims is None]
        if not runs:
            return ""
        run = random.choice(runs)
        if how == signal.SIGSTOP:
            return f"run {run.number}" if self._stop(run.process) else ""
        run.faults |= {-how, 128 + how}
        if how == signal.SIGTERM:  # it forwards it
            self.killed.setdefault(run.number, time.time())
        run.process.send_signal(how)
        return f"run {run.number}"

    def _fault_of_command(self, how: signal.Signals) -> str:
        alive = self._alive()
        if not alive:
            return ""
        note = random.choice(alive).note
        at = time.time()  # before: on a busy machine its GPUs may be somebody's by the next line
        pidfd = open_command(note.pid, note.lease)
        if pidfd is None:
            return ""
        if how == signal.SIGSTOP:
            return f"command {note.number}" if self._stop_pidfd(pidfd) else ""
        with closing_fd(pidfd):
            signal.pidfd_send_signal(pidfd, how)
        self.killed[note.number] = at
        for run in self.runs:
            if run.number == note.number:
                run.faults.add(128 + how)
        return f"command {note.number}"

    def _fault_of_agent(self, how: signal.Signals) -> str:
        node = random.choice(self.nodes)
        if how != signal.SIGSTOP:
            node.restart(how)
        elif not self._stop(node.agent):
            return ""
        return f"agent of {node.name}"

    def _fault_of_hub(self, how: signal.Signals) -> str:
        if self.hub is None:
            return ""
        if how == signal.SIGSTOP:
            return "hub" if self._stop(self.hub.process) else ""
        self.hub.kill()
        deadline = time.monotonic() + GIVE_UP_S
        while True:
            try:
                self.hub.start()
                return "hub"
            except AssertionError:  # beside many others on a busy machine it may need a second try
                if time.monotonic() >= deadline:
                    raise

    def _stop(self, process: "ForkedProcess | subprocess.Popen[bytes]") -> bool:
        """Stop a process for a while. The fork server alone reaps it, when it is asked."""
        return process.poll() is None and self._stop_pidfd(os.pidfd_open(process.pid))

    def _stop_pidfd(self, pidfd: int) -> bool:
        try:
            self._stopped.append(StoppedProcess(pidfd, random.uniform(0.5, STOPPED_S)))
        except ProcessLookupError:
            os.close(pidfd)
            return False
        return True

    def wake_all(self) -> None:
        for stopped in self._stopped:
            stopped.wake()
        self._stopped.clear()

    def is_over(self) -> bool:
        """Return whether no lease is left, by the nodes' audit logs and by the hub."""
        if any(end is None for node in self.nodes for end in node.ends().values()):
            return False
        if self.hub is None:
            return True
        free = sum(model["free"] for model in self.hub.get("/api/v1/pool")["models"])
        return self.hub.get("/api/v1/leases")["items"] == [] and bool(
            free == len(self.nodes) * GPUS)

    def release_delays_s(self) -> dict[int, float]:
        """Run to the seconds for which its lease was there after its work had ended."""
        ends: dict[str, Any] = {}
        for node in self.nodes:
            ends |= node.ends()
        delays_s = {}
        for number, work in self.works.items():
            how, at = ends[work.note.lease]
            assert how == "released", work
            delays_s[number] = at - self.end_of(number)
            assert delays_s[number] >= 0, (
                f"the lease ended {-delays_s[number]} s before its work: {work}")
        return delays_s

    def faults_after(self, number: int, seconds: float) -> list[str]:
        """Return what was done in these seconds after the work of a run had ended, and a little
        before, to say why its lease was there for as long."""
        end = self.end_of(number)
        return [f"{at - end:+.1f} s {words}" for at, words in self._faults
                if -2 * STOPPED_S <= at - end <= seconds]

    def end_of(self, number: int) -> float:
        """Return when the work of this run had ended, at the earliest; infinite: it has not."""
        at = self.works[number].at
        if self.works[number].note.left is not None:
            return at.get("left", inf)
        return at.get("left") or at.get("ended") or self.killed[number]

    def close(self) -> None:
        """Kill what a failed test has left."""
        self.wake_all()
        for run in self.runs:
            run.process.kill()
            run.process.wait()
        for work in self.works.values():
            for pid in (work.note.pid, work.note.left):
                if pid and (pidfd := open_command(pid, work.note.lease)) is not None:
                    with closing_fd(pidfd):
                        signal.pidfd_send_signal(pidfd, signal.SIGKILL)


@contextlib.contextmanager
def closing_fd(fd: int) -> Iterator[None]:
    """Close a pidfd after a signal to it, which comes too late where its process has ended."""
    try:
        with contextlib.suppress(ProcessLookupError):
            yield
    finally:
        os.close(fd)


def open_command(pid: int, lease: str) -> int | None:
    """Return a pidfd of a command, and only if it is of this lease: pids are used again."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError as error:
        if error.errno in NO_PROCESS:
            return None
        raise
    with contextlib.suppress(OSError):
        if f"{LEASE_ENV}={lease}".encode() in Path(
                f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            return pidfd
    os.close(pidfd)
    return None
