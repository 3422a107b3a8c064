"""The recorder between room, log and history: segments are kept while history wants them, and can
each be read alone."""

import random
from collections.abc import Sequence
from pathlib import Path

from dashboard.fleet.effects import MessageReceived, StreamRecord
from dashboard.fleet.state_machine import FleetStateMachine
from dashboard.history.ingest.headlog import CARRIED, HeadLog
from dashboard.history.reads.embedded import EmbeddedHistory
from dashboard.nodes.checkpoint import encode_nodes, restore
from dashboard.nodes.recorder import MessageRecorder
from dashboard.nodes.store import CheckpointStore
from dashboard.state import HubState
from gpudeck.contract.wire import Frame, FromAgent, Inventory, Tasks, encode
from tests.unit.fleets import MONO, facts, frame, hello, tasks

START = 1_700_000_100 - 1_700_000_100 % 3_600


class LooplessHub:
    """A hub without its loop: what would wait for disk is written at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = HubState.open(folder)
        self.machine = FleetStateMachine("hub", 1, MONO)
        self.history = EmbeddedHistory(folder / "history")
        self.history.open()
        checkpoints = self.state.store(CheckpointStore)
        self.recorder = MessageRecorder(folder, checkpoints.put, self.machine, lambda _: None,
                                        self.history, self.state.confirm)
        for checkpoint in checkpoints.all():
            restore(self.machine, checkpoint)
        self.recorder.recover()
        self.seq = 0

    def handle(self, message: FromAgent, now: float) -> list[StreamRecord]:
        effects = self.machine.handle(MessageReceived("a", message, encode(message)), now,
                                   MONO + now - START)
        return [effect for effect in effects if isinstance(effect, StreamRecord)]

    def connect_node(self) -> None:
        records = self.handle(hello(), START) + self.handle(
            Inventory(1, (facts("n1", 0), facts("n1", 1))), START)
        assert self.recorder._write(records, None) is None

    def second(self, t: int, util: float, work: Tasks | None = None, rotate: bool = False) -> None:
        self.seq += 1
        message: Frame = frame([{"util_pct": util}] * 2, self.seq, t + 0.2, tasks=work)
        nodes = encode_nodes(self.machine, t + 0.3, MONO + t + 0.3 - START) if rotate else None
        assert self.recorder._write(self.handle(message, t + 0.3), nodes) is None

    def close(self) -> None:
        self.recorder.close()
        self.state.close()

    def values(self, gpus: Sequence[str], end: int) -> dict[int, float]:
        frame = self.history.series(gpus, ["util_pct"], START, end, 1, ("max",))
        return dict(zip(frame["t"].tolist(), frame["util_pct_max"].tolist(), strict=True))


def segments(folder: Path) -> list[int]:
    return [number for number, _ in HeadLog(folder / "headlog").segments()]


def test_segments_are_kept_until_their_seconds_are_in_files(tmp_path: Path) -> None:
    hub = LooplessHub(tmp_path)
    hub.connect_node()
    truth = {}
    for t in range(START, START + 900):
        truth[t] = float(random.randint(0, 100))
        hub.second(t, truth[t], tasks(("t", 0, "alice")) if t == START else None, t % 100 == 99)
    assert segments(tmp_path)[0] == 1  # nothing is in files yet
    hub.history.store.maintain(START + 700)
    hub.second(START + 900, 1.0, rotate=True)
    first = segments(tmp_path)[0]
    assert first > 5
    truth[START + 900] = 1.0
    hub.close()
    reopened_hub = LooplessHub(tmp_path)
    assert reopened_hub.values(["GPU-n1-0"], START + 1_000) == truth
    # Who held it was said in a segment that is gone, and carried into those that are not.
    usage = reopened_hub.history.usage("user", 3_600, START, START + 1_000)
    assert dict(zip(usage["user"], usage["gpu_s"].astype(int), strict=True)) == {"alice": 901}
    reopened_hub.close()


def test_every_segment_but_the_first_begins_with_what_it_needs(tmp_path: Path) -> None:
    hub = LooplessHub(tmp_path)
    hub.connect_node()
    for t in range(START, START + 35):
        hub.second(t, 5.0, tasks(("t", 0, "alice")) if t == START else None, t % 10 == 9)
    hub.close()
    for number, entries in HeadLog(tmp_path / "headlog").segments():
        if number > 1:
            assert [entry.second for entry in list(entries)[:3]] == [CARRIED] * 3
    for old in sorted((tmp_path / "headlog").iterdir())[:-1]:
        old.unlink()
    alone = LooplessHub(tmp_path)
    assert set(alone.values(["GPU-n1-0"], START + 60)) == set(range(START + 30, START + 35))
    usage = alone.history.usage("user", 3_600, START, START + 60)
    assert dict(zip(usage["user"], usage["gpu_s"].astype(int), strict=True)) == {"alice": 5}
    alone.close()
