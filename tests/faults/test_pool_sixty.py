"""Sixty `gpudeck run` at a time on four nodes of one hub, while runs, commands, agents and the hub
are killed. Each command says which boards CUDA shows it."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gpudeck.errors import ExitCode
from gpudeck.pool.messages import LEASE_ENV, SOCKET_ENV
from tests.fakes.hub import wait_for
from tests.fakes.nvml import FakeNvml
from tests.integration.hubs import HubProcess
from tests.integration.test_agent_process import flags

ROOT = Path(__file__).parents[2]
CUDA = ROOT / "tests/fakes/libcuda/cuda.c"
NODES, GPUS, RUNS, SOAK_RUNS = 4, 4, 24, 60
SECONDS = float(os.environ.get("GPUDECK_POOL_S", "40"))
SOAK_SECONDS = float(os.environ.get("GPUDECK_SOAK_POOL_S", "600"))
KILL_EVERY_S = 1.5
PATIENCE_S = 120.0
DRAIN_S = 300.0  # sixty runs have to take their turn on sixteen GPUs
# Says which boards it sees and which it was given, when it begins and when it ends.
WORKS = """
import ctypes, json, os, sys, time
cuda = ctypes.CDLL(sys.argv[1])
cuda.cuInit(0)
count, word = ctypes.c_int(), ctypes.create_string_buffer(64)
cuda.cuDeviceGetCount(ctypes.byref(count))
seen = [cuda.fakeDeviceUuid(at, word, 64) or word.value.decode() for at in range(count.value)]
said = {"pid": os.getpid(), "number": int(sys.argv[3]), "lease": os.environ["GPUDECK_LEASE"],
        "given": os.environ["GPUDECK_GPU_UUIDS"].split(","), "seen": seen}
def note(what):
    with open(sys.argv[2], "a") as file:
        file.write(json.dumps(said | {what: time.time()}) + "\\n")
note("began")
time.sleep(float(sys.argv[4]))
note("ended")
os._exit(int(sys.argv[5]))
"""


@pytest.fixture(scope="module")
def cuda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("cuda") / "libcuda.so.1"
    subprocess.run(["gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o",
                    str(library), str(CUDA)], check=True)
    return library


class Node:
    def __init__(self, hub: HubProcess, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        nvml = FakeNvml(folder / "nvml.txt", gpus=0)
        for _ in range(GPUS):
            nvml.gpu(util=0, mem_used=2**29, name="NVIDIA H100 80GB HBM3",
                     mem_total=80 * 2**30)
        nvml.save()
        self.env = nvml.env() | {
            SOCKET_ENV: str(folder / "pool.sock"),
            "FAKE_CUDA_BOARDS": ",".join(gpu.uuid for gpu in nvml.gpus)}
        self._flags = [*flags(hub, folder), "--host", folder.name,  # type: ignore[arg-type]
                       "--pool-socket", str(folder / "pool.sock")]
        self.start()

    def start(self) -> None:
        with open(self._folder / "agent.log", "ab") as log:
            self.agent = subprocess.Popen([sys.executable, "-m", "agent", *self._flags], cwd=ROOT,
                                          env=self.env, stderr=log)

    def kill(self) -> None:
        self.agent.kill()
        self.agent.wait()
        self.start()

    def close(self) -> None:
        self.agent.terminate()
        self.agent.wait(20)


@dataclass
class Started:
    process: "subprocess.Popen[bytes]"
    number: int
    status: int | None  # that its command ends with; None: it was ended by somebody


class Crowd:
    def __init__(self, hub: HubProcess, nodes: list[Node], cuda: Path, journal: Path) -> None:
        self.hub, self.nodes, self.cuda, self.journal = hub, nodes, cuda, journal
        self.runs: list[Started] = []
        # Lease of a command to when. Not its pid: in ten minutes those are used again.
        self.killed: dict[str, float] = {}
        self.said: Counter[str] = Counter()

    def start(self) -> None:
        number = self.said["started"]
        self.said["started"] += 1
        status = random.choice((0, 0, 3, 77))
        log = open(self.journal.with_suffix(".err"), "ab")  # noqa: SIM115
        with log:
            process = subprocess.Popen(
                [sys.executable, "-m", "gpudeck.cli", "run", "--gpus", str(random.randint(1, 3)),
                 "--", sys.executable, "-S", "-c", WORKS, str(self.cuda), str(self.journal),
                 str(number), f"{random.uniform(1, 8):.2f}", str(status)],
                cwd=ROOT, env=self.nodes[number % NODES].env, stderr=log)
        self.runs.append(Started(process, number, status))

    def look(self) -> None:
        """Whoever has ended ended as its command did."""
        for run in list(self.runs):
            ended = run.process.poll()
            if ended is None:
                continue
            self.runs.remove(run)
            if ended == ExitCode.UNREACHABLE:  # its agent was just being started: nothing began
                assert run.number not in {each["number"] for each in self.notes()}
                self.said["agents not there"] += 1
            elif run.status is not None:
                assert ended == run.status, (run.number, ended)
                self.said["statuses"] += 1

    def close(self) -> None:
        """A test that failed leaves nobody behind."""
        for run in self.runs:
            run.process.kill()
            run.process.wait()
        for each in self.alive():
            kill(each)

    def notes(self) -> list[dict[str, Any]]:
        if not self.journal.exists():
            return []
        return [json.loads(line) for line in self.journal.read_text().splitlines()]

    def alive(self) -> list[dict[str, Any]]:
        notes = self.notes()
        over = {each["lease"] for each in notes if "ended" in each} | self.killed.keys()
        return [each for each in notes if each["lease"] not in over]

    def kill(self) -> None:
        match random.choice(("run", "run", "command", "command", "agent", "hub")):
            case "run" if self.runs:
                run = random.choice(self.runs)
                run.status = None
                run.process.kill()
                self.said["runs killed"] += 1
            case "command":
                self._kill_command()
            case "agent":
                random.choice(self.nodes).kill()
                self.said["agents killed"] += 1
            case "hub":
                self._restart_hub()
                self.said["hubs killed"] += 1

    def _restart_hub(self) -> None:
        """Beside sixty others on a busy machine it may need a second try."""
        self.hub.kill()
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self.hub.start()
            except AssertionError:
                if time.monotonic() >= deadline:
                    raise

    def _kill_command(self) -> None:
        alive = self.alive()
        if not alive:
            return
        found = random.choice(alive)
        run = next((each for each in self.runs if each.number == found["number"]), None)
        if run is None or run.status is None:
            return
        at = time.time()  # before: on a busy machine its GPUs may be somebody's by the next line
        if not kill(found):
            return
        self.killed[found["lease"]] = at
        run.status = 128 + signal.SIGKILL if run.status is not None else None
        self.said["commands killed"] += 1


def kill(command: dict[str, Any]) -> bool:
    """By its handle, and only if it is that one."""
    try:
        pidfd = os.pidfd_open(command["pid"])
    except ProcessLookupError:
        return False
    try:
        mark = f"{LEASE_ENV}={command['lease']}".encode()
        if mark not in Path(f"/proc/{command['pid']}/environ").read_bytes().split(b"\0"):
            return False
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(pidfd)
    return True


def spans(crowd: Crowd) -> dict[str, list[tuple[float, float]]]:
    """GPU to when it was whose."""
    ends = {each["lease"]: each["ended"] for each in crowd.notes() if "ended" in each}
    found: dict[str, list[tuple[float, float]]] = {}
    for each in crowd.notes():
        if "began" in each:
            ended = min(ends.get(each["lease"], float("inf")),
                        crowd.killed.get(each["lease"], float("inf")))
            assert ended < float("inf"), each
            for uuid in each["seen"]:
                found.setdefault(uuid, []).append((each["began"], ended))
    return found


@pytest.fixture
def crowd(tmp_path: Path, cuda: Path) -> Iterator[Crowd]:
    with HubProcess(tmp_path / "hub", 0, "--pool", "on") as hub:
        nodes = [Node(hub, tmp_path / f"n{number}") for number in range(NODES)]
        try:
            wait_for(lambda: hub.get("/api/v1/pool")["nodes"] == NODES, PATIENCE_S)
            crowd = Crowd(hub, nodes, cuda, tmp_path / "journal")
            yield crowd
            crowd.close()
        finally:
            for node in nodes:
                node.close()


def has_shown(crowd: Crowd, seconds: float) -> bool:
    """Each GPU was somebody's, and enough came to their end. A busy machine takes longer."""
    used = {uuid for each in crowd.notes() for uuid in each["seen"]}
    return len(used) == NODES * GPUS and crowd.said["statuses"] > seconds / 10


def crowded(crowd: Crowd, seconds: float, most_runs: int) -> None:
    began = time.monotonic()
    until, kill_at = began + seconds, began + 8
    while (now := time.monotonic()) < until or not has_shown(crowd, seconds):
        assert now < until + PATIENCE_S, dict(crowd.said)
        crowd.look()
        if len(crowd.runs) < most_runs:
            crowd.start()
        if now >= kill_at:
            kill_at = now + KILL_EVERY_S
            crowd.kill()
        time.sleep(0.05)
    deadline = time.monotonic() + DRAIN_S
    while crowd.runs:
        crowd.look()
        assert time.monotonic() < deadline, f"{len(crowd.runs)} runs do not end"
        time.sleep(0.2)

    def all_free() -> bool:
        free = sum(each["free"] for each in crowd.hub.get("/api/v1/pool")["models"])
        return crowd.hub.get("/api/v1/leases")["items"] == [] and bool(free == NODES * GPUS)

    wait_for(all_free, PATIENCE_S)
    for each in crowd.notes():
        assert each["seen"] == each["given"], each
    held = spans(crowd)
    for uuid, times in held.items():
        assert all(before[1] <= after[0] for before, after in pairwise(sorted(times))), uuid
    print(dict(crowd.said), f"{sum(map(len, held.values()))} uses of {len(held)} GPUs")


def test_each_sees_its_own_gpus_and_no_others(crowd: Crowd) -> None:
    crowded(crowd, SECONDS, RUNS)


@pytest.mark.soak
def test_so_it_is_for_ten_minutes(crowd: Crowd) -> None:
    crowded(crowd, SOAK_SECONDS, SOAK_RUNS)


def test_a_command_on_a_wrong_gpu_is_caught(crowd: Crowd) -> None:
    """Else the others would show nothing."""
    wrong = "import os, sys; os.environ['CUDA_VISIBLE_DEVICES'] = '0,1,2,3'; exec(sys.stdin.read())"
    found = subprocess.run(
        [sys.executable, "-m", "gpudeck.cli", "run", "--", sys.executable, "-S", "-c", wrong,
         str(crowd.cuda), str(crowd.journal), "0", "0", "0"], cwd=ROOT, env=crowd.nodes[0].env,
        input=WORKS, text=True, capture_output=True, timeout=60, check=False)
    assert found.returncode == 0, found.stderr
    [note, _] = crowd.notes()
    assert len(note["given"]) == 1
    assert len(note["seen"]) == GPUS
