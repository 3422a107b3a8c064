"""Kills of the hub and of its ingest process beside many agents: of what was acknowledged nothing
is missing, and nothing is on disk twice."""

import os
import random
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from dashboard.history.ingest.headlog import HeadLog, HeadLogEntry
from tests.demos import Demo, soon

KILLS = int(os.environ.get("GPUDECK_INGEST_KILLS", "3"))
SOAK_KILLS = int(os.environ.get("GPUDECK_SOAK_INGEST_KILLS", "60"))
NODES = 150  # more than the number from which the ingest process serves them
Stream = tuple[str, str]  # node id and stream


class StoredMessages:
    """Messages of a hub's log, read again and again: it drops old segments."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._received_at: dict[tuple[Stream, int], float] = {}
        self.doubled: list[tuple[Stream, int]] = []

    def read(self) -> None:
        now: set[tuple[Stream, int]] = set()
        for entry in self._entries():
            key = (entry.node_id, entry.stream), entry.seq
            if key in now or self._received_at.get(key, entry.received_at) != entry.received_at:
                self.doubled.append(key)
            now.add(key)
            self._received_at[key] = entry.received_at

    def _entries(self) -> Iterator[HeadLogEntry]:
        while True:
            try:
                entries = [*HeadLog(self._folder).read()]
            except FileNotFoundError:  # a segment that was dropped just now
                continue
            # What a segment begins with has no number, nor do Hello and Inventory.
            yield from (entry for entry in entries if entry.seq and entry.stream != "hub")
            return

    def __len__(self) -> int:
        return len(self._received_at)

    def seqs(self) -> dict[Stream, list[int]]:
        streams: dict[Stream, list[int]] = {}
        for stream, seq in sorted(self._received_at):
            streams.setdefault(stream, []).append(seq)
        return streams

    def gaps(self) -> list[str]:
        return [f"{stream}: {first} is followed by {second}"
                for stream, seqs in self.seqs().items()
                for first, second in pairwise([0, *seqs]) if second != first + 1]


def acked(demo: Demo) -> dict[Stream, int]:
    return {(node["id"], node["frames"]["stream"]): node["frames"]["acked_seq"]
            for node in demo.ask("nodes?limit=1000")}


def ingest_pid(demo: Demo) -> int | None:
    """Return the pid of the ingest process; None: there is none now."""
    try:
        children = psutil.Process(demo.info()["hub_pid"]).children()
        return next((child.pid for child in children
                     if "ingest.process" in " ".join(child.cmdline())), None)
    except psutil.Error:
        return None


def serves(demo: Demo) -> bool:
    """Return whether most agents are connected and the ingest process has sockets of theirs."""
    try:
        pid = ingest_pid(demo)
        return (pid is not None and len(psutil.Process(pid).net_connections("tcp")) > NODES // 2
                and sum(node["state"] == "live" for node in demo.ask("nodes?limit=1000"))
                > NODES // 2)
    except (OSError, psutil.Error):
        return False


def is_stored(demo: Demo, stored: StoredMessages, acked_seqs: dict[Stream, int]) -> bool:
    """Return whether all is there, up to more than what was acknowledged before."""
    stored.read()
    seqs = stored.seqs()
    return not stored.gaps() and all(
        stream in seqs and seqs[stream][-1] > seq for stream, seq in acked_seqs.items())


def kill(demo: Demo, victim: str) -> None:
    """End the hub or its ingest process, and wait until another one is there."""
    pid = demo.info()["hub_pid"] if victim == "hub" else ingest_pid(demo)
    assert pid is not None
    psutil.Process(pid).kill()
    now = (lambda: demo.info()["hub_pid"]) if victim == "hub" else (lambda: ingest_pid(demo))
    assert soon(lambda: now() not in (None, pid)), f"another {victim}"


def run_kills(folder: Path, kills: int) -> None:
    seed = random.randrange(10**9)
    dice, victims = random.Random(seed), {"hub": 0, "ingest process": 0}
    with Demo(folder / "demo", "--nodes", str(NODES), "--gpus", "1", "--faults", "off") as demo:
        stored, acked_seqs = StoredMessages(demo.data / "hub" / "headlog"), dict[Stream, int]()
        for at in range(kills):
            assert soon(lambda: serves(demo)), f"seed {seed}, after {at} kills"
            time.sleep(dice.random() * 3.0)  # anywhere in what it does next
            stored.read()
            for stream, seq in acked(demo).items():
                acked_seqs[stream] = max(seq, acked_seqs.get(stream, 0))
            victim = [*victims][at] if at < len(victims) else dice.choice([*victims])
            victims[victim] += 1
            kill(demo, victim)
        assert soon(lambda: is_stored(demo, stored, acked_seqs)), (seed, stored.gaps()[:5])
        assert len(stored.seqs()) == len(acked_seqs) == NODES
        assert stored.doubled == []
        assert all(node["frames"]["missing"] == 0 for node in demo.ask("nodes?limit=1000"))
        print(f"{victims} killed, seed {seed}: of {len(stored)} messages of {NODES} nodes "
              f"0 missing, 0 doubled")


def test_nothing_that_was_acked_is_missing_or_doubled(tmp_path: Path) -> None:
    run_kills(tmp_path, KILLS)


@pytest.mark.soak
def test_soak_nothing_that_was_acked_is_missing_or_doubled(tmp_path: Path) -> None:
    run_kills(tmp_path, SOAK_KILLS)


def test_the_count_can_fail(tmp_path: Path) -> None:
    log = HeadLog(tmp_path)
    log.open()
    stored = StoredMessages(tmp_path)
    log.append([HeadLogEntry("n", "s", seq, 1.0, b"x") for seq in (1, 2, 4)])
    stored.read()
    assert (stored.gaps(), stored.doubled) == (["('n', 's'): 2 is followed by 4"], [])
    log.append([HeadLogEntry("n", "s", 2, 3.0, b"x")])
    log.close()
    stored.read()
    assert stored.doubled == [(("n", "s"), 2)]
