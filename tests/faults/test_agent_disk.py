"""The agent's disk full, by real errors of the kernel (a small tmpfs; a limit on file size): it
goes on live from memory, says so, counts what it drops, and recovers by itself."""

import contextlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.doctor.node import data_check
from agent.link.outbox import Outbox
from agent.link.outbox_file import OutboxFile
from agent.telemetry.self_cost import disk_trouble
from gpudeck.contract.wire import Event
from tests.fakes.hub import FakeHub, wait_for
from tests.fakes.nvml import FakeNvml
from tests.faults.outage import World
from tests.integration.test_agent_process import an_agent, flags, more_frames


@contextlib.contextmanager
def small_disk(at: Path, size: str = "1m") -> Iterator[Path]:
    at.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(at)],
                             capture_output=True, check=False)
    if mounted.returncode:
        if os.environ.get("CI"):
            pytest.fail(f"a tmpfs is needed here: {mounted.stderr.decode()}")
        pytest.skip("mounting a tmpfs needs root")
    try:
        yield at
    finally:
        subprocess.run(["umount", "-l", str(at)], check=True)


def fill(disk: Path) -> Path:
    """Fill the disk block by block, so that not even one more block fits."""
    filler = disk / "filler"
    with open(filler, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4_096))
    return filler


def event(outbox: Outbox) -> Event:
    return Event(outbox.last_seq + 1, 0.0, "xid", text=str(random.random()) * 10)


def test_a_full_disk_and_room_again(tmp_path: Path) -> None:
    """reliability 5.33: nothing is lost while memory holds it, and live messages always pass."""
    with small_disk(tmp_path / "disk") as disk:
        world = World(disk, 1, random.randrange(10**6))
        [agent] = world.agents
        world.run(20.0)
        filler = fill(disk)
        world.run(20.0)
        assert "full" in agent.outbox.trouble
        assert "free some space" in agent.outbox.trouble
        assert world.hub.machine is not None
        assert world.hub.machine.fleet.nodes["n0"].newest[1] >= agent.outbox.last_seq - 2
        world.hub.kill()
        world.run(300.0)
        world.hub.start()
        world.settle()
        assert agent.outbox.dropped == 0
        filler.unlink()
        agent.produces = True
        world.run(2.0)
        assert agent.outbox.trouble == ""
        world.settle()
        assert world.read_back("n0") == agent.messages
        agent.kill()  # and what is on disk now is what was in memory
        agent.produces = True
        world.run(20.0)
        world.settle()
        assert world.read_back("n0") == agent.messages
        assert agent.journal is not None
        agent.journal.close()


def test_more_than_memory_takes_is_dropped_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.link.outbox_rows.UNSAVED_MAX", 100)
    with small_disk(tmp_path / "disk") as disk:
        world = World(disk, 1, random.randrange(10**6))
        [agent] = world.agents
        world.run(10.0)
        world.hub.kill()
        filler = fill(disk)
        world.run(400.0)
        unsaved = len(agent.outbox._rows.unsaved)
        assert unsaved <= 100
        filler.unlink()
        world.hub.start()
        world.settle()
        agent.produces = True
        world.run(20.0)
        world.settle()
        stored = set(world.read_back("n0"))
        missing = [message for message in agent.messages if message not in stored]
        assert len(missing) == agent.outbox.dropped > 100
        assert agent.journal is not None
        agent.journal.close()


def test_killed_while_the_disk_is_full_gives_no_number_twice(tmp_path: Path) -> None:
    """Messages sent from memory are not on the agent's disk: their numbers come again, and the hub
    must not take the new messages for the old."""
    with small_disk(tmp_path / "disk") as disk:
        world = World(disk, 1, random.randrange(10**6))
        [agent] = world.agents
        world.run(20.0)
        filler = fill(disk)
        world.run(60.0)
        assert agent.outbox.trouble
        assert agent.outbox.pending < 3, "the hub has them"
        filler.unlink()
        in_memory = agent.outbox.pending
        agent.kill()
        world.run(60.0)
        world.settle()
        stored = world.read_back("n0")
        missing = [message for message in agent.messages if message not in set(stored)]
        assert len(missing) <= in_memory, "only what was in memory and not sent"
        assert [message for message in agent.messages if message in set(stored)] == stored
        assert agent.journal is not None
        agent.journal.close()


def lately(hub: FakeHub, words: str) -> bool:
    return words in hub.beats[-1][1].detail


def test_the_agent_starts_on_a_full_disk(hub: FakeHub, tmp_path: Path) -> None:
    nvml = FakeNvml(tmp_path / "nvml.txt", gpus=1)
    with small_disk(tmp_path / "data") as disk:
        arguments = flags(hub, tmp_path)
        with an_agent(*arguments, env=nvml.env()):
            wait_for(more_frames(hub, 2))
            hub.send(hub.order(None, action="hold", reason="mine"))
            wait_for(lambda: hub.beats[-1][1].holds)
        filler, before = fill(disk), max(hub.seqs(hub.stream))
        with an_agent(*arguments, env=nvml.env()) as agent:
            wait_for(more_frames(hub, 3))
            wait_for(lambda: lately(hub, "free some space"))
            assert lately(hub, "Actions that cannot be recorded are refused")
            assert "not known" in hub.beats[-1][1].holds[0], "a hold may be in what is not read"
            check_what_is_said(disk, nvml)
            hub.crash()
            hub.start()
            wait_for(more_frames(hub, 3))
            filler.unlink()
            wait_for(lambda: hub.beats[-1][1].detail == "")
            wait_for(lambda: [hold for hold in hub.beats[-1][1].holds if "mine" in hold])
            assert not [hold for hold in hub.beats[-1][1].holds if "not known" in hold]
            agent.kill()
        with an_agent(*arguments, env=nvml.env()):
            wait_for(more_frames(hub, 2))
    assert len({hello.stream for hello in hub.hellos}) == 1, "the numbers went on"
    assert hub.broken == []
    seqs = hub.seqs(hub.stream)
    assert seqs == list(range(1, len(seqs) + 1))
    assert max(seqs) > before


def check_what_is_said(disk: Path, nvml: FakeNvml) -> None:
    check = data_check(disk)
    assert (check.verdict, check.remedy) == ("problem", disk_trouble(disk))
    result = subprocess.run(
        [sys.executable, "-m", "gpudeck.cli.main", "status", "--data", str(disk), "--json"],
        env=nvml.env(), capture_output=True, text=True, timeout=60, check=False)
    assert "is full" in json.loads(result.stdout)["disk"], result.stderr


def test_no_journal_yet_and_no_room_for_one(tmp_path: Path) -> None:
    """The outbox begins in memory, and is on disk when there is room."""
    with small_disk(tmp_path / "disk") as disk:
        filler = fill(disk)
        journal = OutboxFile(disk / "j.db")
        assert "free some space" in journal.trouble
        outbox = Outbox(journal)
        events = []
        for at in range(5):
            events.append(event(outbox))
            outbox.append(events[-1:], float(at))
        assert outbox.pending == 5
        stream = outbox.stream
        filler.unlink()
        events.append(event(outbox))
        outbox.append(events[-1:], 6.0)
        assert outbox.trouble == ""
        reopened = Outbox(OutboxFile(disk / "j.db"))
        assert (reopened.stream, reopened.pending, reopened.last_seq) == (stream, 6, 6)
        journal.close()


def test_what_is_pending_is_known_on_a_full_disk(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        journal = OutboxFile(disk / "j.db")
        outbox = Outbox(journal)
        for at in range(9):
            outbox.append([event(outbox)], float(at))
        before = outbox.entries(0, 9, 100)
        journal.close()
        filler = fill(disk)
        full = OutboxFile(disk / "j.db")
        reopened = Outbox(full)
        assert (reopened.stream, reopened.entries(0, 9, 100)) == (outbox.stream, before)
        reopened.append([event(reopened)], 10.0)
        assert "free some space" in reopened.trouble
        filler.unlink()
        reopened.append([event(reopened)], 11.0)
        assert (reopened.trouble, reopened.last_seq, reopened.pending) == ("", 11, 11)
        full.close()


def test_a_file_that_may_not_grow(tmp_path: Path) -> None:
    """A limit needs no root: the kernel refuses each write beyond a size. In a child, as a thread
    cannot have its own limit."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = _beyond_the_limit(tmp_path / "j.db")
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def _beyond_the_limit(path: Path) -> int:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    outbox = Outbox(OutboxFile(path))
    outbox.append([event(outbox)], 0.0)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.with_name("j.db-wal").stat().st_size, hard))
    while not outbox.trouble:
        outbox.append([event(outbox)], 1.0)
    for _ in range(20):
        outbox.append([event(outbox)], 2.0)
    whole = [seq for seq, _ in outbox.entries(0, outbox.last_seq, 10_000)]
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    outbox.append([event(outbox)], 3.0)
    reopened = Outbox(OutboxFile(path))
    is_right = (whole == list(range(1, outbox.last_seq)) and outbox.trouble == ""
                and reopened.pending == outbox.pending == outbox.last_seq)
    return 0 if is_right else 2
