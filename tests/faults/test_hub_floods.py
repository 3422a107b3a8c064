"""A hub whose process was taken over can send much and sign nothing: an endless flood costs a node
neither memory nor disk nor log, and the node goes on."""

import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpudeck.contract.actions import Recall
from gpudeck.contract.wire import FromHub, Inquire, SignedCommand
from tests.fakes.hub import FakeHub, wait_for
from tests.fakes.nvml import FakeNvml
from tests.integration.test_agent_process import ROOT, flags, frames, more_frames

FOR_S = 8.0
MIB = 2**20


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def flood(what: str) -> FromHub:
    match what:
        case "recalls":
            return Recall(secrets.token_hex(16), "x" * 1_000)
        case "orders":
            return SignedCommand(secrets.token_bytes(2_000), secrets.token_bytes(64))
        case "large orders":
            return SignedCommand(bytes(900_000), secrets.token_bytes(64))
        case _:
            return Inquire(tuple(secrets.token_hex(16) for _ in range(1_000)))


@contextmanager
def an_agent(hub: FakeHub, folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Start an agent with its log in a file: a pipe that nobody reads would block it."""
    nvml = FakeNvml(folder / "nvml.txt", gpus=1)
    with (folder / "log").open("wb") as log, subprocess.Popen(
            [sys.executable, "-m", "agent", *flags(hub, folder)], cwd=ROOT, env=nvml.env(),
            stderr=log) as process:
        try:
            yield process
        finally:
            process.terminate()


@pytest.mark.parametrize("what", ["recalls", "orders", "large orders", "inquiries"])
def test_a_flood_of_the_hub_is_bounded(hub: FakeHub, tmp_path: Path, what: str) -> None:
    with an_agent(hub, tmp_path) as agent:
        wait_for(more_frames(hub, 2))
        before, memory = size(tmp_path / "data"), resident(agent.pid)
        ends, most = time.monotonic() + FOR_S, 0
        while time.monotonic() < ends:
            for _ in range(50):
                hub.tell(flood(what))
            most = max(most, resident(agent.pid))
        frame_count = len(frames(hub))
        wait_for(lambda: len(frames(hub)) > frame_count + 1)  # it came back by itself
        assert agent.poll() is None
    grown = size(tmp_path / "data") - before
    logged = (tmp_path / "log").stat().st_size
    print(f"{what}: data +{grown}, log {logged}, memory +{most - memory} bytes")
    assert logged < MIB / 4
    assert grown < MIB
    assert most - memory < 64 * MIB


def resident(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) * 1_024
