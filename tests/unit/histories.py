"""A seeded source of Frames with holes, and what history must say of it."""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from msgspec import UNSET

from dashboard.history.columns.layout import AT, KEYS, STORED
from dashboard.history.columns.rows import HistoryMessage
from gpudeck.contract.hosts import HostSample, HostTask
from gpudeck.contract.wire import (
    Event,
    Frame,
    GpuFacts,
    Hello,
    Inventory,
    Slow,
    Task,
    Tasks,
    Use,
    pack,
)
from gpudeck.measures.metrics import COLUMNS, SLOW_WIDTH, WIDTH, Absence

START = 1_700_000_100 - 1_700_000_100 % 3_600
EVENT = "gpu_lost"

Truth = dict[tuple[str, int], dict[str, float | str]]  # (gpu, second) -> metric -> value or why not


@dataclass
class Source:
    """Nodes; what they send, and the truth of it."""

    seed: int
    nodes: int = 2
    gpus: int = 2
    truth: Truth = field(default_factory=dict)
    tasks: dict[tuple[str, int, str], int] = field(default_factory=dict)  # gpu, minute, task
    events: list[tuple[str, int]] = field(default_factory=list)
    hosts: dict[tuple[str, int], list[float]] = field(default_factory=dict)  # node, minute
    seqs: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.uuids = {f"n{node}": [f"GPU-{self.random.getrandbits(64):016x}-{node}-{at}"
                                   for at in range(self.gpus)] for node in range(self.nodes)}

    def greetings(self, stream: str = "s") -> list[HistoryMessage]:
        messages = []
        for node, uuids in self.uuids.items():
            hello = Hello((1,), bytes(32), bytes(64), node, node, "boot", stream, 0, "0", "test")
            facts = tuple(GpuFacts(uuid, at, "H100") for at, uuid in enumerate(uuids))
            messages += [HistoryMessage(node, stream, 0.0, hello),
                         HistoryMessage(node, stream, 0.0, Inventory(1, facts))]
        return messages

    def second(self, t: int, received_at: float | None = None,
               whole: bool = False) -> list[HistoryMessage]:
        """Return the messages of one second; now and then a Node says nothing."""
        return [one for node in self.uuids if whole or self.random.random() > 0.1
                for one in self.node_second(node, t, received_at)]

    def node_second(self, node: str, t: int,
                    received_at: float | None = None) -> list[HistoryMessage]:
        received = t + 0.5 if received_at is None else received_at
        frame = self._frame(node, t)
        messages = [HistoryMessage(node, "s", received, frame, t)]
        if self.random.random() < 0.02:
            event = Event(self._seq(node), t + 0.25, EVENT, self.uuids[node][0])
            self.events.append((node, event.seq))
            messages.append(HistoryMessage(node, "s", received, event))
        return messages

    def _seq(self, node: str) -> int:
        self.seqs[node] = self.seqs.get(node, 0) + 1
        return self.seqs[node]

    def _frame(self, node: str, t: int) -> Frame:
        values, absent = [], bytearray()
        for uuid in self.uuids[node]:
            row, why = self._row()
            values += row
            absent += why
            self.truth.setdefault((uuid, t), _stored(row, why))
        tasks = self._tasks(node, t)
        slow = None
        if t % 20 == 0:
            slow = Slow(pack([float(self.random.randint(0, 1)) for _ in range(
                self.gpus * SLOW_WIDTH)]), bytes(self.gpus * SLOW_WIDTH))
        host = self._host(node, t) if t % 5 == 0 else UNSET
        return Frame(self._seq(node), t + self.random.random() * 0.9, 1.0, 1, pack(values),
                     bytes(absent), bytes(self.gpus), tasks, slow, host)

    def _host(self, node: str, t: int) -> HostSample:
        cpu_pct, busy_pct = self.random.uniform(0, 100), self.random.uniform(0, 800)
        self.hosts.setdefault((node, t - t % 60), []).append(cpu_pct)
        task = HostTask(f"boot:{node}:1", busy_pct, 1e9, None, None, 0.0)
        return HostSample({"cpu_pct": cpu_pct, "load_1m": -1.0, "of_the_future": 7.0}, {}, (task,))

    def _row(self) -> tuple[list[float], bytes]:
        row, why = [], bytearray()
        for metric in COLUMNS:
            if self.random.random() < 0.05:
                row.append(0.0)
                why.append(self.random.choice((1, 2, 3, 5)))
            else:
                row.append(self.random.uniform(metric.low, min(metric.high, 1e12)))
                why.append(0)
        return row, bytes(why)

    def _tasks(self, node: str, t: int) -> Tasks:
        task = Task(f"boot:{node}:1", 1, 1, 1.0, f"user-{node}", "python x.py", job_id="j")
        uuid = self.uuids[node][0]
        key = (uuid, t - t % 60, task.id)
        self.tasks[key] = self.tasks.get(key, 0) + 1
        return Tasks(True, (task,), (Use(task.id, 0, 1e9, 50.0),))

    def span(self, t0: int, t1: int) -> list[HistoryMessage]:
        return [one for t in range(t0, t1) for one in self.second(t)]

    @property
    def all_uuids(self) -> list[str]:
        return [uuid for uuids in self.uuids.values() for uuid in uuids]


def _stored(row: list[float], why: bytes) -> dict[str, float | str]:
    values: dict[str, float | str] = {}
    for at, column in enumerate(STORED):
        if why[at]:
            values[column.key] = Absence(why[at]).word
        else:
            values[column.key] = float(np.rint(row[at] * (1 / column.step)) * column.step)
    return values


assert len(KEYS) == WIDTH


def seconds_of(history: Any, source: Source, t0: int, t1: int) -> Truth:
    """Return every second as history has it, by `series`; a missing value is its null."""
    frame = history.series(source.all_uuids, list(KEYS), t0, t1, 1, ("max",))
    stored: Truth = {}
    for row in frame.to_dict("records"):
        stored[row["gpu"], int(row["t"])] = {
            key: row[f"{key}_max"] for key in KEYS}
    return stored


def differences(history: Any, source: Source, t0: int, t1: int) -> list[str]:
    stored = seconds_of(history, source, t0, t1)
    truth = {key: row for key, row in source.truth.items() if t0 <= key[1] < t1}
    wrong = [f"missing {key}" for key in truth if key not in stored]
    wrong += [f"made up {key}" for key in stored if key not in truth]
    for key in truth.keys() & stored.keys():
        wrong += [f"{key} {metric}: {stored[key][metric]} for {value}"
                  for metric, value in truth[key].items()
                  if not _same(stored[key][metric], value)]
    return wrong


def _same(stored: Any, truth: float | str) -> bool:
    if isinstance(truth, str):
        return bool(np.isnan(stored))
    return bool(stored == truth)


def by_second(stored: Iterable[HistoryMessage]) -> list[HistoryMessage]:
    return sorted(stored, key=lambda one: one.received_at)


assert AT
