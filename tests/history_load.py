"""The load behind `bench/history.py`: the cost of taking, sealing and merging a point, its size on
disk, and how long queries take while more comes in.

Seconds of a made-up fleet go in as fast as they can, through the head log, and all of them are
sealed in the end; what is counted is the CPU of this process without that of making them up.
"""

import random
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dashboard.history.columns.layout import AT, KEYS
from dashboard.history.columns.memory import BLOCK_S
from dashboard.history.columns.rows import HistoryMessage
from dashboard.history.files.sealing import GRACE_S
from dashboard.history.ingest.headlog import HeadLog, HeadLogEntry
from dashboard.history.reads.embedded import EmbeddedHistory
from gpudeck.contract.wire import Frame, GpuFacts, Hello, Inventory, Task, Tasks, Use, encode
from gpudeck.measures.metrics import WIDTH

START = 1_700_000_100 - 1_700_000_100 % 3_600
PER_NODE = 8
NO_FAN = 1
ROUNDS = 15
SWITCH_S = 0.001  # between threads, as the hub has it

FigureRow = tuple[str, float, str, float | None]  # name, value, unit, goal


class Fleet:
    """Jobs that come and go; three noisy metrics, the rest steady, as on real boards."""

    def __init__(self, gpus: int) -> None:
        self.many = gpus
        self.rng = np.random.default_rng(1)
        self.busy = self.rng.random(gpus) < 0.6
        self.temp, self.mem = np.full(gpus, 40.0), np.zeros(gpus)
        self.energy = self.rng.uniform(0, 1e9, gpus)
        names = random.Random(3)
        self.uuids = [f"GPU-{names.getrandbits(128):032x}" for _ in range(gpus)]
        self.absent = bytes([NO_FAN * (key == "fan_pct") for key in KEYS]) * PER_NODE

    def greetings(self) -> list[HistoryMessage]:
        messages = []
        for at in range(self.many // PER_NODE):
            node = f"{at:064x}"
            hello = Hello((1,), bytes(32), bytes(64), node, "h", "b", "s", 0, "0", "t")
            facts = tuple(GpuFacts(uuid, index, "H100") for index, uuid in enumerate(
                self.uuids[at * PER_NODE : (at + 1) * PER_NODE]))
            messages += [HistoryMessage(node, "s", 0.0, hello),
                         HistoryMessage(node, "s", 0.0, Inventory(1, facts))]
        return messages

    def second(self, t: int) -> list[HistoryMessage]:
        rows = self._rows()
        messages = []
        for at in range(self.many // PER_NODE):
            if self.rng.random() < 0.003:
                continue
            node = f"{at:064x}"
            part = rows[at * PER_NODE : (at + 1) * PER_NODE]
            # Processes are read every two seconds.
            tasks = self._tasks(at, t) if (t + at) % 2 == 0 or t == START else None
            messages.append(HistoryMessage(node, "s", t + 0.5, Frame(
                t - START + 1, t + 0.5, 1.0, 1, part.tobytes(), self.absent, bytes(PER_NODE),
                tasks), t))
        return messages

    def _tasks(self, at: int, t: int) -> Tasks:
        ids = [f"boot:{at}:{gpu}" for gpu in range(PER_NODE)]
        began = tuple(Task(task_id, 1, 1, 1.0, f"user{at % 50}", "python") for task_id in ids)
        return Tasks(t <= START + 1, began if t <= START + 1 else (),
                     tuple(Use(task_id, gpu, 1e9, 50.0) for gpu, task_id in enumerate(ids)))

    def _rows(self) -> Any:
        many, rng = self.many, self.rng
        turned = rng.random(many) < 1 / 600
        self.busy ^= turned
        util = np.where(self.busy, np.clip(rng.normal(96, 3, many), 0, 100), 0)
        util = np.rint(util * 6) / 6  # the driver samples six times a second
        self.mem = np.where(turned, np.where(self.busy, rng.integers(100, 1_200, many) * 2**26,
                                             2**29), self.mem)
        power = np.where(self.busy, rng.normal(600, 20, many), rng.normal(75, 1, many)).clip(0)
        self.temp += (power / 10 + 20 - self.temp) / 60
        self.energy += power
        rows = np.zeros((many, WIDTH))
        pcie = [np.where(self.busy, rng.lognormal(18, 1, many), 0) for _ in range(2)]
        for key, values in {
            "util_pct": util, "mem_util_pct": np.rint(util * 2.4) / 6, "sm_active_pct": util * 0.8,
            "util_max_pct": np.minimum(100, np.ceil(util) + 2), "mem_used_bytes": self.mem,
            "temp_c": np.rint(self.temp), "mem_temp_c": np.rint(self.temp + 8), "power_w": power,
            "power_max_w": power * 1.02, "energy_j": self.energy, "mem_clock_mhz": 2_619,
            "sm_clock_mhz": np.where(self.busy, 1_980 - 15 * rng.integers(0, 3, many), 345),
            "throttle_bits": np.where(self.busy, 0, 1), "pcie_tx_bytes_per_s": pcie[0],
            "pcie_rx_bytes_per_s": pcie[1],
        }.items():
            rows[:, AT[key]] = values
        return rows


def measure(folder: Path, gpus: int, seconds: int) -> Iterator[FigureRow]:
    fleet, history = Fleet(gpus), EmbeddedHistory(folder / "history")
    history.open()
    history.append(fleet.greetings(), 1)
    log = HeadLog(folder / "headlog")
    log.open()
    take_s, keep_s = _take_cost(fleet, history, log, seconds)
    memory = _memory_bytes(history)
    lag_ms, seal_s = _seal_cost(history, START + seconds)
    keep_s += seal_s
    points = gpus * seconds * WIDTH / 1e6
    what = f"history, {gpus:,} GPUs"
    yield (f"{what}: CPU per million points, all in", (take_s + keep_s) / points, "s", 0.08)
    yield ("  of it to log and to take them", take_s / points, "s", None)
    yield ("  to seal, roll up and merge", keep_s / points, "s", None)
    raw = history.info().kinds["raw"]
    yield ("  bytes per point, default steps", raw["bytes"] / raw["rows"] / WIDTH, "B", 0.35)
    minutes = history.info().kinds["minutes"]
    yield ("  bytes per metric and minute (min, mean, max)",
                 minutes["bytes"] / minutes["rows"] / WIDTH, "B", 2.3)
    yield ("  memory of the open minutes, per GPU", memory / gpus / 1e3, "kB", 19.0)
    yield ("  another thread's lag while five minutes are sealed, p99", lag_ms, "ms", 10.0)
    yield from _questions(fleet, history, seconds)


def _memory_bytes(history: EmbeddedHistory) -> float:
    """Bytes of the largest open block, taken as full: what is not written to takes none."""
    blocks = history.store.feed.head.open.values()
    sizes = [sum(array.nbytes for array in (block.state, block.why, *block.units))
             for block in blocks]
    return float(max(sizes, default=0))


def _seal_cost(history: EmbeddedHistory, end: int) -> tuple[float, float]:
    """Measure sealing: the 99th percentile, in ms, of how late a thread wakes that asks for a
    millisecond's sleep, as the hub's loop does, and the CPU seconds that it took."""
    former = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    keeper = threading.Thread(target=history.store.maintain, args=(end + GRACE_S + 5,))
    began, lags_ms = time.process_time(), [0.0]
    keeper.start()
    while keeper.is_alive():
        before = time.perf_counter()
        time.sleep(0.001)
        lags_ms.append((time.perf_counter() - before) * 1e3 - 1)
    sys.setswitchinterval(former)
    return float(np.percentile(lags_ms, 99)), time.process_time() - began


def _take_cost(fleet: Fleet, history: EmbeddedHistory, log: HeadLog, seconds: int) -> tuple[float,
                                                                                            float]:
    take_s = keep_s = 0.0
    for t in range(START, START + seconds):
        messages = fleet.second(t)
        entries = [HeadLogEntry(row.node_id, row.stream, t - START + 1, row.received_at,
                                encode(row.message), row.second) for row in messages]
        began = time.process_time()
        log.append(entries)
        history.append(messages, 1)
        took = time.process_time()
        if t % 30 == 0:
            history.store.maintain(t)
            keep_s += time.process_time() - took
            log.rotate()
            log.drop_old()
        take_s += took - began
    return take_s, keep_s


def _questions(fleet: Fleet, history: EmbeddedHistory, seconds: int) -> Iterator[FigureRow]:
    """Ask each question several times, at random, while seconds go on coming in."""
    end = START + seconds
    stop = threading.Event()
    writer = threading.Thread(target=_go_on, args=(fleet, history, end, stop))
    writer.start()
    first = max(START, end - 3_600)
    chance = random.Random(4)

    def some_gpu() -> str:
        return chance.choice(fleet.uuids)

    def some_node() -> list[str]:
        at = chance.randrange(len(fleet.uuids) // PER_NODE) * PER_NODE
        return fleet.uuids[at : at + PER_NODE]

    questions: tuple[tuple[str, Callable[[], object], float | None], ...] = (
        ("q1: one GPU, one metric, the last hour of seconds",
         lambda: history.series([some_gpu()], ["power_w"], first, end, 1, ("mean",)), 15.0),
        ("q2: one metric of every GPU at a past second",
         lambda: history.instant("temp_c", chance.randint(START + 5, end - 400)), 25.0),
        ("q3: one node, all metrics, minutes",
         lambda: history.series(some_node(), KEYS, START, end, 60), None),
        ("q4: what each user held, by hour",
         lambda: history.usage("user", 3_600, START, end), None),
        ("the fleet's five minutes around a moment",
         lambda: history.instants("temp_c", _around(chance.randint(START, end - 400))), None),
    )
    try:
        for name, ask, goal in questions:
            times_ms = _times_ms(ask)
            yield (f"  {name}, p50", statistics.median(times_ms), "ms", goal)
            yield ("    slowest, with cold files", max(times_ms), "ms", None)
    finally:
        stop.set()
        writer.join()


def _around(t: int) -> range:
    """Return the moments that the time bar asks for around `t`."""
    return range(t - t % BLOCK_S, t - t % BLOCK_S + BLOCK_S, 5)


def _times_ms(ask: Callable[[], object]) -> list[float]:
    times_ms = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        ask()
        times_ms.append((time.perf_counter() - began) * 1e3)
    return times_ms


def _go_on(fleet: Fleet, history: EmbeddedHistory, t: int, stop: threading.Event) -> None:
    while not stop.wait(0.9):
        history.append(fleet.second(t), 1)
        t += 1
