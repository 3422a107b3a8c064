"""History beside a slow model in plain Python: boards that move, indices that are used again,
holes, late and doubled Frames; from memory, from files, after merging and after restarts."""

import random
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dashboard.history.columns.grid import HistoryGrid
from dashboard.history.columns.layout import KEYS, MASKS, MIB, NO_MEAN, STORED
from dashboard.history.columns.memory import BLOCK_S
from dashboard.history.columns.rows import HistoryMessage
from dashboard.history.files.sealing import GRACE_S, LATE_S
from dashboard.history.reads.embedded import LOOK_BACK_S, EmbeddedHistory
from gpudeck.contract.wire import Frame, GpuFacts, Hello, Inventory, Task, Tasks, Use, pack
from gpudeck.measures.metrics import COLUMNS, Absence
from tests.unit.histories import START

HOUR_S, MINUTE_S = 3_600, 60
BEGIN = START + HOUR_S - 460  # across the end of an hour
END = BEGIN + 800
SEGMENT_S = 120
STEP = {column.key: column.step for column in STORED}
METRICS = ("power_w", "util_pct", "mem_used_bytes", "throttle_bits", "energy_j")
NODES = ("n0", "n1", "n2")

Row = dict[str, float | str]


@dataclass
class Fleet:
    """GPU-a moves from n0 to n2; on n0 its index is another one's from then on."""

    lots: random.Random
    moves_at: int
    rows: dict[tuple[str, str, int], Row] = field(default_factory=dict)  # gpu, node, second
    held_s: dict[tuple[str, str, int], int] = field(default_factory=lambda: defaultdict(int))
    seqs: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def listed(self, node: str, generation: int) -> list[str]:
        return {("n0", 1): ["GPU-a", "GPU-b"], ("n0", 2): ["GPU-f", "GPU-b"],
                ("n2", 1): ["GPU-e"], ("n2", 2): ["GPU-e", "GPU-a"]}.get(
                    (node, generation), ["GPU-c", "GPU-d"])

    def greetings(self) -> list[HistoryMessage]:
        messages = []
        for node in NODES:
            hello = Hello((1,), bytes(32), bytes(64), node, node, "boot", "s", 0, "0", "test")
            messages.append(HistoryMessage(node, "s", 0.0, hello))
            for generation in (1, 2):
                facts = tuple(GpuFacts(uuid, at, "H100") for at, uuid in enumerate(
                    self.listed(node, generation)))
                messages.append(HistoryMessage(node, "s", 0.0, Inventory(generation, facts)))
        return messages

    def message(self, node: str, t: int, received_at: float, is_backfill: bool) -> HistoryMessage:
        generation = 1 if t < self.moves_at else 2
        gpus = self.listed(node, generation)
        values: list[float] = []
        absent = bytearray()
        for gpu in gpus:
            row, why = self._numbers()
            values += row
            absent += why
            self.rows[gpu, node, t] = {
                column.key: Absence(why[at]).word if why[at] else float(
                    np.rint(row[at] * (1 / column.step)) * column.step)
                for at, column in enumerate(STORED)}
        user = self.user(node, t)
        self.held_s[gpus[0], user, t - t % MINUTE_S] += 1
        task = Task(f"boot:{user}:1", 1, 1, 1.0, user, "python x.py")
        self.seqs[node] += 1
        frame = Frame(self.seqs[node], float(t), 1.0, generation, pack(values), bytes(absent),
                      bytes(len(gpus)),
                      Tasks(True, (task,), (Use(task.id, 0, 1e9, None),)))
        return HistoryMessage(node, "s", received_at, frame, t, is_backfill)

    def user(self, node: str, t: int) -> str:
        return f"u{(t // 200 + NODES.index(node)) % 3}"

    def _numbers(self) -> tuple[list[float], bytes]:
        row, why = [], bytearray()
        for metric in COLUMNS:
            is_there = self.lots.random() > 0.1
            why.append(0 if is_there else self.lots.choice((1, 2, 3, 5)))
            row.append(self.lots.uniform(metric.low, min(metric.high, 1e12)) if is_there else 0.0)
        return row, bytes(why)


class Story:
    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.lots = folder, random.Random(seed)
        self.fleet = Fleet(self.lots, self.lots.randrange(BEGIN + 200, END - 200))
        self.log: list[tuple[int, list[HistoryMessage]]] = []
        self.later: dict[int, list[HistoryMessage]] = defaultdict(list)
        self.now = BEGIN
        self.history = self._opened()

    def _opened(self) -> EmbeddedHistory:
        history = EmbeddedHistory(self.folder)
        history.open()
        history.append(self.fleet.greetings(), 1)
        return history

    def restart(self) -> None:
        """Reopen history from the log: all that is in no file, and the last two segments."""
        newest = self.log[-1][0]
        needed = min(self.history.store.first_segment() or newest, newest - 1)
        self.history.close()
        self.history = self._opened()
        for segment, messages in self.log:
            if segment >= needed:
                self.history.append(messages, segment)

    def play(self, t: int) -> None:
        self.now = t
        messages = self.later.pop(t, [])
        for node in NODES:
            lot = self.lots.random()
            if lot < 0.06:
                continue
            if lot < 0.2 and t < END - 400:
                at = t + self.lots.choice((1, 40, 350))
                self.later[min(at, END - 1)].append(self.fleet.message(node, t, at + 0.5, True))
            else:
                messages.append(self.fleet.message(node, t, t + 0.5, False))
        messages += [one for one in messages if self.lots.random() < 0.05]
        self.log.append((1 + (t - BEGIN) // SEGMENT_S, messages))
        self.history.append(messages, self.log[-1][0])
        if t % 20 == 0:
            self.history.store.maintain(t)

    def arrived(self) -> set[tuple[str, str, int]]:
        """Return the keys of the rows that came so far."""
        waits = {(one.node_id, one.second) for messages in self.later.values() for one in messages}
        return {key for key in self.fleet.rows if key[1:] not in waits}

    def check(self) -> None:
        arrived = self.arrived()
        rows = {key: row for key, row in self.fleet.rows.items() if key in arrived}
        for step in (1, 7, 60, 300, HOUR_S):
            check_series(self, rows, step)
        check_moments(self, rows)
        if not self.later:
            check_usage(self)


def check_series(story: Story, rows: dict[tuple[str, str, int], Row], step: int) -> None:
    gpus = story.lots.sample(["GPU-a", "GPU-b", "GPU-c", "GPU-e", "GPU-f", "GPU-none"], 4)
    nodes = story.lots.choice((None, frozenset({"n0"}), frozenset({"n0", "n2"})))
    t0 = story.lots.randrange(BEGIN - 100, END)
    t1 = story.lots.randrange(t0, END + 100)
    buckets: dict[tuple[str, int], list[Row]] = defaultdict(list)
    first, last = t0 // step * step, -(-t1 // step) * step
    for (gpu, node, t), row in rows.items():
        if gpu in gpus and (nodes is None or node in nodes) and first <= t < last:
            buckets[gpu, t - t % step].append(row)
    frame = story.history.series(gpus, METRICS, t0, t1, step, ("min", "mean", "max", "n"), nodes)
    answer = {(row["gpu"], int(row["t"])): row for row in frame.to_dict("records")}
    assert answer.keys() == buckets.keys()
    for key, parts in buckets.items():
        for metric in METRICS:
            check_bucket(answer[key], metric, [value for row in parts if isinstance(
                value := row[metric], float)])


def check_bucket(row: dict[str, Any], metric: str, values: list[float]) -> None:
    assert row[f"{metric}_n"] == len(values)
    low, mean, high = (row[f"{metric}_{end}"] for end in ("min", "mean", "max"))
    if not values:
        assert np.isnan([low, mean, high]).all()
        return
    if metric in MASKS:
        bits = [int(value) for value in values]
        assert (low, high) == (np.bitwise_and.reduce(bits), np.bitwise_or.reduce(bits))
    else:
        assert (low, high) == (min(values), max(values))
    if metric in NO_MEAN:
        assert np.isnan(mean)
    else:
        # A file keeps means to an eighth of a step, of bytes to a mebibyte. Each merge of late
        # seconds rounds to half of that again: four at most here.
        kept_to = MIB if metric == "mem_used_bytes" else STEP[metric] / 8
        slack = 4 * kept_to / 2
        assert mean == pytest.approx(sum(values) / len(values), abs=slack, rel=1e-6)


def check_moments(story: Story, rows: dict[tuple[str, str, int], Row]) -> None:
    seams = [START + HOUR_S + at for at in range(-1, 3)]
    for t in (*seams, *story.lots.sample(range(BEGIN, story.now + 5), 4)):
        frame = story.history.instant("power_w", t)
        answer = {(row["gpu"], row["node"]): row for row in frame.to_dict("records")}
        assert len(answer) == len(frame)
        newest = {key[:2]: key for key in sorted(rows, key=lambda one: one[2])
                  if t - LOOK_BACK_S < key[2] <= t}
        assert answer.keys() == newest.keys()
        for pair, key in newest.items():
            value = rows[key]["power_w"]
            assert answer[pair]["t"] == key[2]
            assert answer[pair]["missing" if isinstance(value, str) else "value"] == value
    t = story.lots.randrange(BEGIN, END)
    start = t - t % BLOCK_S
    grid = HistoryGrid(start, 1, BLOCK_S)
    story.history.rules.past({"temp_c": frozenset(("max",))}, grid)
    wide = grid.of("temp_c", "max")
    in_block = {} if wide is None else {
        (*pair, start + second): float(wide[row, second]) for pair, row in grid.rows.items()
        for second in range(BLOCK_S) if not np.isnan(wide[row, second])}
    assert in_block == {key: row["temp_c"] for key, row in rows.items()
                        if start <= key[2] < start + BLOCK_S and isinstance(row["temp_c"], float)}


def check_usage(story: Story) -> None:
    held_s = story.fleet.held_s
    for hour in (START, START + HOUR_S):
        for by, at in (("gpu", 0), ("user", 1)):
            expected_s: dict[str, int] = defaultdict(int)
            for key, seconds in held_s.items():
                if key[2] - key[2] % HOUR_S == hour:
                    expected_s[str(key[at])] += seconds
            frame = story.history.usage(by, HOUR_S, hour, hour + HOUR_S)  # type: ignore[arg-type]
            assert {row[by]: row["gpu_s"] for row in frame.to_dict("records")} == expected_s
            mem = float(frame["mem_byte_s"].sum())
            assert mem == pytest.approx(1e9 * sum(expected_s.values()))


def test_history_says_what_a_slow_model_says(tmp_path: Path) -> None:
    seed = random.randrange(10**9)
    print(f"seed {seed}")
    story = Story(tmp_path, seed)
    stops = set(story.lots.sample(range(BEGIN + 100, END - 50), 2))
    for t in range(BEGIN, END):
        story.play(t)
        if t in stops:
            story.check()
            story.restart()
            story.check()
    assert not story.later
    story.check()
    for now in (END + BLOCK_S, END + BLOCK_S + GRACE_S + LATE_S, END + 3 * HOUR_S):
        story.history.store.maintain(now)
        story.check()
    assert story.history.info().open_seconds == 0
    story.restart()
    story.check()
    story.history.close()


assert set(METRICS) <= set(KEYS)
