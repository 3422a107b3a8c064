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

from dashboard.history.headlog import HeadLog
from tests.demos import Demo, soon
from tests.patience import GIVE_UP_S

Seen = Counter[tuple[str, str, int]]  # node id, stream, seq


@contextmanager
def tapped(demo: Demo) -> Iterator[Seen]:
    """Counts what the hub says it applied, from outside, until the block ends."""
    seen: Seen = Counter()
    client = socketio.Client(serializer="msgpack", reconnection=False)

    def applied(told: dict[str, list[list[object]]]) -> None:
        seen.update((str(node), str(stream), int(str(seq)))
                    for node, stream, seq, _ in told["frames"])

    client.on("applied", applied, namespace="/live")
    told = demo.told()
    client.connect(told["url"], headers={"Authorization": f"Bearer {told['token']}"},
                   transports=["websocket"], namespaces=["/live"], wait_timeout=GIVE_UP_S)
    client.emit("tap", True, namespace="/live")
    try:
        yield seen
    finally:
        client.disconnect()


def by_stream(seen: Seen) -> dict[tuple[str, str], list[int]]:
    found: dict[tuple[str, str], list[int]] = {}
    for node, stream, seq in sorted(seen):
        found.setdefault((node, stream), []).append(seq)
    return found


def faults_of(seen: Seen) -> list[str]:
    """What is missing or doubled, in words."""
    twice = [f"{key} came {times} times" for key, times in seen.items() if times != 1]
    gaps = [f"{key}: {first} is followed by {second}"
            for key, seqs in by_stream(seen).items()
            for first, second in pairwise(seqs) if second != first + 1]
    return twice + gaps


def on_disk(demo: Demo) -> Seen:
    """What the hub acked is in its log; read the way it would itself after a crash."""
    log = HeadLog(demo.data / "hub" / "headlog")
    return Counter((entry.node_id, entry.stream, entry.seq) for entry in log.read() if entry.seq)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [(Counter({("n", "s", 1): 1, ("n", "s", 3): 1}), "1 is followed by 3"),
     (Counter({("n", "s", 1): 2}), "came 2 times")],
)
def test_the_count_can_fail(wrong: Seen, sentence: str) -> None:
    assert any(sentence in fault for fault in faults_of(wrong))


def test_half_a_minute_of_every_node(tmp_path: Path) -> None:
    seconds = 30.0
    with Demo(tmp_path / "demo", "--nodes", "8", "--gpus", "8") as demo:
        with tapped(demo) as seen:
            time.sleep(seconds)
        streams = by_stream(seen)
        assert len(streams) == 8
        assert faults_of(seen) == []
        assert min(map(len, streams.values())) >= seconds - 3
        assert all(node["frames"]["missing"] == 0 for node in demo.ask("nodes"))


def test_across_kill_9_of_an_agent_and_of_the_hub(tmp_path: Path) -> None:
    with Demo(tmp_path / "demo", "--nodes", "6", "--gpus", "2") as demo:
        time.sleep(3)
        victim = demo.told()["agents"][1]
        os.kill(victim["pid"], signal.SIGKILL)
        assert soon(lambda: demo.told()["agents"][1]["pid"] != victim["pid"])
        time.sleep(2)
        acked_before = acked(demo)
        hub_pid = demo.told()["hub_pid"]
        os.kill(hub_pid, signal.SIGKILL)
        assert soon(lambda: demo.told()["hub_pid"] != hub_pid)
        # Full jitter: whoever called while the hub was away may wait for some seconds.
        assert soon(lambda: all_live(demo))
        time.sleep(3)
        # What is live comes first, what was said meanwhile after it: that may be on its way.
        assert soon(lambda: faults_of(on_disk(demo)) == []), faults_of(on_disk(demo))
        seen = on_disk(demo)
        assert len(by_stream(seen)) == 6
        for key, seqs in by_stream(seen).items():
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
