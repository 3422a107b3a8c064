"""Many `gpudeck run` and `gpudeck claim` of several users at a time on four nodes of one hub, while
runs, commands, agents and the hub are killed, ended and stopped. No GPU has two users at a time, no
lease ends before its work, none is left over, and each run ends as its command did."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

from tests.conftest import SEED
from tests.faults.pool_crowd import GPUS, Crowd, Node, StoppedProcess, TwoHandsError
from tests.integration.hubs import HubProcess, wait_for
from tests.patience import GIVE_UP_S

NODES, RUNS, SOAK_RUNS = 4, 24, 60  # of runs as many at a time
SECONDS = float(os.environ.get("GPUDECK_POOL_S", "60"))
SOAK_TOTAL = int(os.environ.get("GPUDECK_SOAK_POOL_RUNS", "2000"))
FAULT_EVERY_S = 1.0
FIRST_FAULT_S = 8.0


@pytest.fixture
def folder() -> Iterator[Path]:
    """Folder that other users can reach."""
    folder = Path(tempfile.mkdtemp(prefix="gpudeck-pool-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def crowd(folder: Path) -> Iterator[Crowd]:
    with HubProcess(folder / "hub", 0, "--pool", "on") as hub:
        nodes = [Node(hub, folder / f"n{number}") for number in range(NODES)]
        try:
            wait_for(lambda: hub.get("/api/v1/pool")["nodes"] == NODES)
            crowd = Crowd(hub, nodes, folder)
            yield crowd
            crowd.close()
        finally:
            for node in nodes:
                node.close()


def all_used(crowd: Crowd) -> bool:
    """Return whether each GPU was used. A busy machine takes longer."""
    return len({uuid for work in crowd.works.values() for uuid in work.note.seen}) == NODES * GPUS


def run_crowd(crowd: Crowd, is_enough: Callable[[], bool], most_runs: int) -> None:
    fault_at = time.monotonic() + FIRST_FAULT_S
    ended_at = time.monotonic()
    while not (is_enough() and all_used(crowd)):
        before = crowd.count["statuses"]
        crowd.look()
        ended_at = time.monotonic() if crowd.count["statuses"] > before else ended_at
        assert time.monotonic() < ended_at + GIVE_UP_S, f"no run comes to its end: {crowd.count}"
        if len(crowd.runs) < most_runs:
            crowd.start()
        if time.monotonic() >= fault_at:
            crowd.fault()
            fault_at = time.monotonic() + FAULT_EVERY_S
        time.sleep(0.02)
    drain(crowd)
    check(crowd)


def drain(crowd: Crowd) -> None:
    count, deadline = len(crowd.runs), time.monotonic() + GIVE_UP_S
    while crowd.runs:
        crowd.look()
        if len(crowd.runs) < count:
            count, deadline = len(crowd.runs), time.monotonic() + GIVE_UP_S
        assert time.monotonic() < deadline, f"{count} runs do not end"
        time.sleep(0.1)
    crowd.wake_all()
    wait_for(crowd.is_over, 2 * GIVE_UP_S, "a lease stays")


def check(crowd: Crowd) -> None:
    crowd.look()  # at what has ended since the last run did
    uses: dict[str, list[tuple[float, float]]] = {}
    for number, work in crowd.works.items():
        assert work.note.seen == work.note.given, work
        for uuid in work.note.seen if "began" in work.at else ():
            uses.setdefault(uuid, []).append((work.at["began"], crowd.end_of(number)))
    for uuid, spans in uses.items():
        assert all(before[1] <= after[0] for before, after in pairwise(sorted(spans))), uuid
    delays_s = crowd.release_delays_s()
    longest = max(delays_s, key=delays_s.__getitem__)
    faults = crowd.faults_after(longest, delays_s[longest])
    assert delays_s[longest] < GIVE_UP_S, ("a lease was kept after its work had ended", faults)
    print(f"seed {SEED}:", dict(sorted(crowd.count.items())),
          f"{sum(map(len, uses.values()))} uses of {len(uses)} GPUs; leases ended "
          f"{median(delays_s.values()):.1f} s after their work (median), {delays_s[longest]:.1f} "
          f"at most: that of run {longest} on {crowd.works[longest].note.lease}, while {faults}")


def test_each_sees_its_own_gpus_and_no_others(crowd: Crowd) -> None:
    until = time.monotonic() + SECONDS
    run_crowd(crowd, lambda: time.monotonic() >= until, RUNS)


@pytest.mark.soak
def test_so_it_is_for_two_thousand_runs(crowd: Crowd) -> None:
    run_crowd(crowd, lambda: crowd.count["statuses"] >= SOAK_TOTAL, SOAK_RUNS)


@contextmanager
def alone(folder: Path, *before: str, has_lock: bool = True) -> Iterator[Crowd]:
    """Start a crowd on one node without a hub."""
    node = Node(None, folder / "n0", has_lock)
    crowd = Crowd(None, [node], folder, before)
    try:
        yield crowd
    finally:
        crowd.close()
        node.close()


def test_what_is_stopped_goes_on_while_its_driver_waits() -> None:
    """Before, it stayed stopped, and for 40 s its lease did too, until its driver had a hub."""
    with subprocess.Popen(["sleep", "60"]) as process:
        stopped = StoppedProcess(os.pidfd_open(process.pid), 1.0)
        wait_for(lambda: os.waitid(os.P_PID, process.pid, os.WCONTINUED | os.WNOHANG))
        stopped.wake()  # again
        process.kill()


def test_a_node_without_its_lock_is_caught(folder: Path) -> None:
    """The control arm: without it the other tests would show nothing."""
    with alone(folder, has_lock=False) as crowd, pytest.raises(TwoHandsError):
        run_crowd(crowd, lambda: False, RUNS)


def test_a_command_on_a_wrong_gpu_is_caught(folder: Path) -> None:
    """The control arm for a command that uses GPUs of others."""
    with alone(folder, "env", "CUDA_VISIBLE_DEVICES=0,1,2,3") as crowd:
        while not crowd.works:  # its agent may be starting yet
            if not crowd.runs:
                crowd.start()
            crowd.look()
            time.sleep(0.1)
        drain(crowd)
        with pytest.raises(AssertionError, match="given="):
            check(crowd)
