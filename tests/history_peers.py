"""The load behind `bench/history_peers.py`: history beside VictoriaMetrics (Debian's package), to
which the same seconds go in the same run.

It gets them by its cheapest way in, /api/v1/import with 60 seconds of a series at once, and after
the same rounding, on which its size on disk depends. What is counted is CPU: of our engine in this
process, of its server and of what encodes for it here. Queries run while both take in more.
"""

import contextlib
import json
import math
import statistics
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil
import pyarrow
import pyarrow.parquet

from dashboard.history.columns.grid import HistoryGrid
from dashboard.history.columns.layout import KEYS, STORED, quantise
from dashboard.history.columns.memory import BLOCK_S
from dashboard.history.columns.rows import HistoryMessage
from dashboard.history.reads.embedded import EmbeddedHistory
from gpudeck.contract.wire import Frame
from gpudeck.measures.metrics import WIDTH
from tests.history_load import PER_NODE, START, FigureRow, Fleet
from tests.integration.hubs import wait_for
from tests.ports import free_port

PROGRAM = "victoria-metrics"
BATCH_S = 60
ROUNDS = 7
HOT_C, HOT_S = 79.0, 60
IDLE_S, IDLE_PCT = 1_800, 5.0
MOST_TIMES = {"q1": 1.5, "q2": 1.0, "q3": 1.5, "q4": 1.0, "q5": 1.5}  # times the peer's

Floats = npt.NDArray[np.float64]


@dataclass
class Peer:
    url: str
    process: psutil.Process
    folder: Path
    client_s: float = 0.0
    waiting: list[Floats] = field(default_factory=list)  # seconds: GPUs x metrics, NaN: not there

    def cpu_s(self) -> float:
        times = self.process.cpu_times()
        return times.user + times.system

    def add(self, t: int, rows: Floats) -> None:
        self.waiting.append(rows)
        if len(self.waiting) == BATCH_S:
            began = time.process_time()
            lines = self.lines(t)
            self.client_s += time.process_time() - began
            self.send(lines)

    def lines(self, last: int) -> list[bytes]:
        """Return the import lines of all seconds that wait, and forget those."""
        values = np.stack(self.waiting)
        self.waiting = []
        times = np.arange(last - len(values) + 1, last + 1) * 1_000
        whole = json.dumps(times.tolist()).encode()
        lines = []
        for gpu in range(values.shape[1]):
            there = ~np.isnan(values[:, gpu, 0])
            stamps = whole if there.all() else json.dumps(times[there].tolist()).encode()
            names = f'"node":"n{gpu // PER_NODE}","gpu":"{gpu % PER_NODE}"}}'
            columns = values[there, gpu, :].T.tolist()
            for key, column in zip(KEYS, columns, strict=True):
                if column and math.isnan(column[0]):
                    continue  # this board has none
                lines.append(b'{"metric":{"__name__":"%s",%s,"values":%s,"timestamps":%s}' % (
                    key.encode(), names.encode(), json.dumps(column).encode(), stamps))
            owner = (f'{{"metric":{{"__name__":"gpu_owner","user":"user{gpu // PER_NODE % 50}",'
                     f'{names},"values":[1],"timestamps":[{last * 1_000}]}}')
            lines.append(owner.encode())
        return lines

    def send(self, lines: list[bytes]) -> None:
        for at in range(0, len(lines), 20_000):
            self.post("/api/v1/import", b"\n".join(lines[at : at + 20_000]))

    def post(self, path: str, body: bytes = b"") -> None:
        with urllib.request.urlopen(self.url + path, body, timeout=120) as answer:
            answer.read()

    def ask(self, path: str, **words: str) -> list[Any]:
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(words)}",
                                    timeout=120) as answer:
            series: list[Any] = json.load(answer)["data"]["result"]
            return series

    def bytes(self) -> int:
        return sum(file.stat().st_size for file in self.folder.rglob("*") if file.is_file())


@contextlib.contextmanager
def server(folder: Path) -> Iterator[Peer]:
    port = free_port()
    with (folder.parent / "log").open("wb") as log:
        process = subprocess.Popen(
            [PROGRAM, f"-storageDataPath={folder}", f"-httpListenAddr=127.0.0.1:{port}",
             "-retentionPeriod=100y", "-search.latencyOffset=0s", "-search.disableCache"],
            stdout=log, stderr=log)
    peer = Peer(f"http://127.0.0.1:{port}", psutil.Process(process.pid), folder)
    try:
        wait_for(lambda: _answers(peer), why="VictoriaMetrics")
        yield peer
    finally:
        process.terminate()
        process.wait(60)


def _answers(peer: Peer) -> bool:
    try:
        peer.post("/health")
    except OSError:
        return False
    return True


@dataclass
class BareParquet:
    """Floor of a history: the same seconds as they lie in memory, written with zstd and read by
    nobody. It has no log, no minutes, no tasks and no merged files."""

    folder: Path
    waiting: list[Floats] = field(default_factory=list)
    spent_s: float = 0.0
    point_count: int = 0

    def add(self, t: int, rows: Floats) -> None:
        self.waiting.append(rows)
        if len(self.waiting) == BATCH_S:
            began = time.process_time()
            self._write(t)
            self.spent_s += time.process_time() - began
            self.point_count += BATCH_S * rows.size
            self.waiting = []

    def _write(self, last: int) -> None:
        values = np.stack(self.waiting, axis=1)  # by GPU, then by second
        gpus, seconds, _ = values.shape
        columns = {key: values[:, :, at].reshape(-1).astype(np.float32)
                   for at, key in enumerate(KEYS)}
        table = pyarrow.table({
            "t": np.tile(np.arange(last - seconds + 1, last + 1), gpus),
            "gpu": np.repeat(np.arange(gpus, dtype=np.int32), seconds), **columns})
        pyarrow.parquet.write_table(table, self.folder / f"{last}.parquet", compression="zstd")

    def figures(self, engine_s: float) -> Iterator[FigureRow]:
        """Return its cost, and that of an engine, both per million points."""
        if self.point_count:
            floor_s = self.spent_s / self.point_count * 1e6
            yield ("  bare Parquet, a minute at a time", floor_s, "s", None)
            yield ("  gpudeck / bare Parquet, CPU", engine_s / floor_s, "x", 1.5)
            size = sum(file.stat().st_size for file in self.folder.iterdir())
            yield ("    bytes per point, bare Parquet", size / self.point_count, "B", None)


def _rows(messages: list[HistoryMessage], gpus: int) -> Floats:
    """Values of a second as our engine stores them: GPUs x metrics, NaN: not there."""
    rows = np.full((gpus, WIDTH), np.nan)
    steps = np.array([column.step for column in STORED])
    for entry in messages:
        if isinstance(entry.message, Frame):
            at = int(entry.node_id, 16) * PER_NODE
            quanta, _ = quantise(entry.message.values, entry.message.absent)
            absent = np.frombuffer(entry.message.absent, np.uint8).reshape(quanta.shape)
            rows[at : at + PER_NODE] = np.where(absent == 0, quanta * steps, np.nan)
    return rows


def measure(folder: Path, peer: Peer, gpus: int, seconds: int) -> Iterator[FigureRow]:
    fleet, history = Fleet(gpus), EmbeddedHistory(folder)
    history.open()
    history.append(fleet.greetings(), 1)
    bare = BareParquet(folder.parent / "bare")
    bare.folder.mkdir()
    engine_s = 0.0
    for t in range(START, START + seconds):
        messages = fleet.second(t)
        began = time.process_time()
        history.append(messages, 1)
        if t % 30 == 0:
            history.store.maintain(t)
        engine_s += time.process_time() - began
        rows = _rows(messages, gpus)
        peer.add(t, rows)
        bare.add(t, rows)
    end = START + seconds
    began = time.process_time()
    history.store.maintain(end + 600)
    engine_s += time.process_time() - began
    peer.post("/internal/force_flush")
    server_s = peer.cpu_s()
    points, what = gpus * seconds * WIDTH / 1e6, f"history beside VictoriaMetrics, {gpus:,} GPUs"
    yield (f"{what}: CPU per million points, gpudeck, all in", engine_s / points, "s", None)
    peer_s = (server_s + peer.client_s) / points
    yield ("  VictoriaMetrics: server and encoding for it", peer_s, "s", None)
    yield ("    its server alone", server_s / points, "s", None)
    yield ("  gpudeck / VictoriaMetrics, CPU", engine_s / points / peer_s, "x", 0.1)
    yield from bare.figures(engine_s / points)
    yield from _sizes(history, peer, points)
    yield from _questions(fleet, history, peer, end)
    history.close()


def _sizes(history: EmbeddedHistory, peer: Peer, points: float) -> Iterator[FigureRow]:
    peer.post("/internal/force_merge")
    before = -1.0
    while peer.cpu_s() - before > 0.02:  # until it is done
        before = peer.cpu_s()
        time.sleep(0.5)
    raw = history.info().kinds["raw"]
    engine_bytes, peer_bytes = raw["bytes"] / raw["rows"] / WIDTH, peer.bytes() / points / 1e6
    yield ("  bytes per point on disk, gpudeck", engine_bytes, "B", 0.35)
    yield ("    VictoriaMetrics, merged, with its index", peer_bytes, "B", None)
    yield ("    gpudeck / VictoriaMetrics, bytes", engine_bytes / peer_bytes, "x", 0.8)


def _questions(fleet: Fleet, history: EmbeddedHistory, peer: Peer, end: int) -> Iterator[FigureRow]:
    _agree(history, peer, end - 100)
    sys.setswitchinterval(0.001)  # as the hub has it
    stop = threading.Event()
    more = threading.Thread(target=_go_on, args=(fleet, history, peer, end, stop))
    more.start()
    try:
        for name, ask_engine, ask_peer in _queries(fleet, history, peer, end):
            p50_ms = [_p50_ms(ask) for ask in (ask_engine, ask_peer)]
            yield (f"  {name}, p50, gpudeck", p50_ms[0], "ms", None)
            yield ("    VictoriaMetrics", p50_ms[1], "ms", None)
            query = name[:2]
            yield (f"    {query}, gpudeck / VictoriaMetrics", p50_ms[0] / p50_ms[1], "x",
                   MOST_TIMES[query])
    finally:
        stop.set()
        more.join()


def _agree(history: EmbeddedHistory, peer: Peer, second: int) -> None:
    """Check that both answer alike: otherwise their figures would say nothing."""
    frame = history.instant("temp_c", second)
    frame = frame[frame["t"] == second]
    series = peer.ask("query", query="last_over_time(temp_c[1s])", time=str(second))
    assert len(frame) == len(series), (len(frame), len(series))
    assert frame["value"].sum() == sum(float(row["value"][1]) for row in series)


Query = tuple[str, Callable[[], object], Callable[[], object]]


def _queries(fleet: Fleet, history: EmbeddedHistory, peer: Peer, end: int) -> Iterator[Query]:
    gpus, first = len(fleet.uuids), max(START, end - 3_600)
    chance = np.random.default_rng(5)

    def gpu() -> int:
        return int(chance.integers(gpus))

    def labels(gpu: int) -> str:
        return f'{{node="n{gpu // PER_NODE}",gpu="{gpu % PER_NODE}"}}'

    def past_second() -> int:
        return int(chance.integers(START + 5, end - 5))

    yield ("q1: one GPU, one metric, every second",
           lambda: history.series([fleet.uuids[gpu()]], ["power_w"], first, end, 1, ("mean",)),
           lambda: peer.ask("query", query=f"power_w{labels(gpu())}[{end - first}s]",
                            time=str(end)))
    yield ("q2: one metric of every GPU at a past second",
           lambda: history.instant("temp_c", past_second()),
           lambda: peer.ask("query", query="last_over_time(temp_c[1s])", time=str(past_second())))
    yield ("q3: one node, all metrics, minutes (VictoriaMetrics: mean only)",
           lambda: _series_of_node(fleet, history, gpu(), end),
           lambda: peer.ask(
               "query_range", query=f'avg_over_time({{node="n{gpu() // PER_NODE}",gpu!="",user=""}}'
               "[1m]) keep_metric_names", start=str(START), end=str(end), step="60"))
    yield ("q4: what each user held and used",
           lambda: history.usage("user", 3_600, START, end),
           lambda: peer.ask(
               "query", query="sum by (user) (sum_over_time(util_pct[1h]) * on (node, gpu) "
               "group_left (user) last_over_time(gpu_owner[1h]))", time=str(end)))
    yield (f"q5: {HOT_C:.0f} °C or more for {HOT_S} s, every GPU (VictoriaMetrics: steps of 15 s)",
           lambda: hot(history, START, end),
           lambda: peer.ask("query_range", query=f"min_over_time(temp_c[{HOT_S}s]) >= {HOT_C}",
                            start=str(START), end=str(end), step="15"))
    if end - START >= IDLE_S:
        yield ("q5: idle for 30 min with memory held, every GPU",
               lambda: idle(history, fleet.uuids, end - IDLE_S, end),
               lambda: peer.ask(
                   "query", query=f"max_over_time(util_pct[{IDLE_S}s]) <= {IDLE_PCT} and "
                   f"min_over_time(mem_used_bytes[{IDLE_S}s]) > 0", time=str(end)))


def _series_of_node(fleet: Fleet, history: EmbeddedHistory, gpu: int, end: int) -> object:
    at = gpu - gpu % PER_NODE
    return history.series(fleet.uuids[at : at + PER_NODE], KEYS, START, end, 60)


def hot(history: EmbeddedHistory, first: int, end: int) -> list[tuple[str, int]]:
    """GPUs, each with the second at which it had been hot for HOT_S."""
    pairs: list[tuple[str, int]] = []
    row_of: dict[str, int] = {}  # of the five minutes before, and their last minute
    last_minute = np.zeros((0, HOT_S), bool)
    for start in range(first - first % BLOCK_S, end, BLOCK_S):
        grid = HistoryGrid(start, 1, BLOCK_S)
        history.rules.past({"temp_c": frozenset(("max",))}, grid)
        values = grid.of("temp_c", "max")
        assert values is not None
        names = [gpu for gpu, _ in grid.rows]
        before = np.append(last_minute, np.zeros((1, HOT_S), bool), axis=0)[
            [row_of.get(name, -1) for name in names]]
        is_hot = np.concatenate([before, values >= HOT_C], axis=1)
        for gpu, second in np.argwhere(_begins(is_hot)).tolist():
            pairs.append((names[gpu], start + second))
        row_of = {name: row for row, name in enumerate(names)}
        last_minute = is_hot[:, -HOT_S:]
    return pairs


def _begins(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return where the mask has been set for HOT_S columns and not for one more; of all but the
    first HOT_S columns."""
    lasts, width = mask, 1  # whether this many columns are all set, the last of them here
    while width < HOT_S:
        more = min(width, HOT_S - width)
        lasts, width = lasts[:, more:] & lasts[:, :-more], width + more
    begins: npt.NDArray[np.bool_] = lasts[:, 1:] & ~lasts[:, :-1]
    return begins


def idle(history: EmbeddedHistory, gpus: list[str], first: int, end: int) -> list[str]:
    frame = history.series(gpus, ["util_pct", "mem_used_bytes"], first, end, 60, ("min", "max"))
    by = frame.groupby("gpu", sort=False)
    is_idle = (by["util_pct_max"].max() <= IDLE_PCT) & (by["mem_used_bytes_min"].min() > 0)
    return [str(gpu) for gpu in is_idle.index[is_idle]]


def _p50_ms(ask: Callable[[], object]) -> float:
    ask()
    times_ms = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        ask()
        times_ms.append((time.perf_counter() - began) * 1e3)
    return statistics.median(times_ms)


def _go_on(fleet: Fleet, history: EmbeddedHistory, peer: Peer, t: int,
           stop: threading.Event) -> None:
    """Send as many points a second to each as the fleet gives; to the peer, a sixtieth of the
    series with a minute each."""
    seconds = [_rows(fleet.second(t + at), len(fleet.uuids)) for at in range(BATCH_S)]
    peer.waiting = seconds
    lines = peer.lines(t + BATCH_S - 1)
    part = -(-len(lines) // BATCH_S)
    offset = 0
    while not stop.wait(0.9):
        history.append(fleet.second(t), 1)
        peer.send(lines[offset : offset + part])
        offset = (offset + part) % len(lines)
        t += 1
