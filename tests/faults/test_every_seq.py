"""An outside script counts every seq of every node over real sockets: none missing, none twice,
also across a kill -9 of the hub and of an agent."""

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
import socketio

from dashboard.history.ingest.headlog import HeadLog
from tests.demos import Demo, soon
from tests.patience import GIVE_UP_S

SeqCounts = Counter[tuple[str, str, int]]  # node id, stream, seq


@contextmanager
def tapped(demo: Demo) -> Iterator[SeqCounts]:
    """Count what the hub says it applied, from outside, until the block ends."""
    counts: SeqCounts = Counter()
    client = socketio.Client(serializer="msgpack", reconnection=False)

    def applied(message: dict[str, list[list[object]]]) -> None:
        counts.update((str(node), str(stream), int(str(seq)))
                      for node, stream, seq, _ in message["frames"])

    client.on("applied", applied, namespace="/live")
    info = demo.info()
    client.connect(info["url"], headers={"Authorization": f"Bearer {info['token']}"},
                   transports=["websocket"], namespaces=["/live"], wait_timeout=GIVE_UP_S)
    client.emit("tap", True, namespace="/live")
    try:
        yield counts
    finally:
        client.disconnect()


def by_stream(counts: SeqCounts) -> dict[tuple[str, str], list[int]]:
    streams: dict[tuple[str, str], list[int]] = {}
    for node, stream, seq in sorted(counts):
        streams.setdefault((node, stream), []).append(seq)
    return streams


def faults_of(counts: SeqCounts) -> list[str]:
    """Describe what is missing or doubled."""
    twice = [f"{key} came {times} times" for key, times in counts.items() if times != 1]
    gaps = [f"{key}: {first} is followed by {second}"
            for key, seqs in by_stream(counts).items()
            for first, second in pairwise(seqs) if second != first + 1]
    return twice + gaps


def on_disk(demo: Demo) -> SeqCounts:
    """Count what the hub acked, which is in its log; read as it would read it after a crash."""
    log = HeadLog(demo.data / "hub" / "headlog")
    return Counter((entry.node_id, entry.stream, entry.seq) for entry in log.read() if entry.seq)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [(Counter({("n", "s", 1): 1, ("n", "s", 3): 1}), "1 is followed by 3"),
     (Counter({("n", "s", 1): 2}), "came 2 times")],
)
def test_the_count_can_fail(wrong: SeqCounts, sentence: str) -> None:
    assert any(sentence in fault for fault in faults_of(wrong))


def test_half_a_minute_of_every_node(tmp_path: Path) -> None:
    seconds = 30.0
    with Demo(tmp_path / "demo", "--nodes", "8", "--gpus", "8") as demo:
        with tapped(demo) as counts:
            time.sleep(seconds)
        streams = by_stream(counts)
        assert len(streams) == 8
        assert faults_of(counts) == []
        assert min(map(len, streams.values())) >= seconds - 3
        assert all(node["frames"]["missing"] == 0 for node in demo.ask("nodes"))


def test_across_kill_9_of_an_agent_and_of_the_hub(tmp_path: Path) -> None:
    with Demo(tmp_path / "demo", "--nodes", "6", "--gpus", "2") as demo:
        time.sleep(3)
        victim = demo.info()["agents"][1]
        os.kill(victim["pid"], signal.SIGKILL)
        assert soon(lambda: demo.info()["agents"][1]["pid"] != victim["pid"])
        time.sleep(2)
        acked_before = acked(demo)
        hub_pid = demo.info()["hub_pid"]
        os.kill(hub_pid, signal.SIGKILL)
        assert soon(lambda: demo.info()["hub_pid"] != hub_pid)
        # Full jitter: an agent that called while the hub was away may wait for some seconds.
        assert soon(lambda: all_live(demo))
        time.sleep(3)
        # What is live comes first; what was sent meanwhile comes after it and may be on its way.
        assert soon(lambda: faults_of(on_disk(demo)) == []), faults_of(on_disk(demo))
        counts = on_disk(demo)
        assert len(by_stream(counts)) == 6
        for key, seqs in by_stream(counts).items():
            assert seqs[0] == 1, "from the first one on"
            assert seqs[-1] > acked_before[key] > 0, "it went on, past what was acked before"
        assert all(node["frames"]["missing"] == 0 for node in demo.ask("nodes"))


def acked(demo: Demo) -> dict[tuple[str, str], int]:
    return {(node["id"], node["frames"]["stream"]): node["frames"]["acked_seq"]
            for node in demo.ask("nodes")}


def all_live(demo: Demo) -> bool:
    try:
        return all(node["state"] == "live" for node in demo.ask("nodes"))
    except OSError:
        return False
