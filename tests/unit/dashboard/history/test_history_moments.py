"""History read straight out of files, compared with the truth and with DuckDB's answer."""

import random
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dashboard.history.columns.grid import HistoryGrid
from dashboard.history.columns.instants import NO_SAMPLE, MomentSamples
from dashboard.history.columns.layout import KEYS
from dashboard.history.columns.memory import BLOCK_S
from dashboard.history.files import file_cache
from dashboard.history.files.file_cache import FileCache, SizedLruCache
from dashboard.history.files.sealing import GRACE_S, LATE_S
from dashboard.history.reads import point_reads
from dashboard.history.reads.embedded import EmbeddedHistory
from dashboard.history.reads.point_reads import HistoryPointReader
from dashboard.history.reads.protocol import Agg
from gpudeck.measures.metrics import SLOW, Absence
from tests.unit.dashboard.history import by_sql
from tests.unit.histories import START, Source

SPAN_S = 1_000
END = START + SPAN_S


@pytest.fixture(name="past", scope="module")
def _past(tmp_path_factory: pytest.TempPathFactory) -> tuple[EmbeddedHistory, Source]:
    """Files of five minutes with holes, late ones beside them, and the newest in memory."""
    source = Source(random.randrange(10**9), nodes=3, gpus=3)
    history = EmbeddedHistory(tmp_path_factory.mktemp("past") / "history")
    history.open()
    history.append(source.greetings(), 1)
    late = []
    for t in range(START, END):
        messages = source.second(t)
        if START + 100 <= t < START + 420:
            late += [one for one in messages if one.node_id == "n1"]
            messages = [one for one in messages if one.node_id != "n1"]
        history.append(messages, 1)
        if t % 60 == 0:
            history.store.maintain(t)
    history.append(late, 2)
    history.store.maintain(END)
    history.store.maintain(END + LATE_S + 1)
    assert history.info().kinds["raw"]["files"] > 3
    assert history.info().open_seconds > 0
    return history, source


@pytest.mark.parametrize("portion", [point_reads.PORTION, 1_000])
@pytest.mark.parametrize("step", [1, 7, 60, 3_600])
def test_it_is_what_duckdb_says(past: tuple[EmbeddedHistory, Source], step: int, portion: int,
                                monkeypatch: pytest.MonkeyPatch) -> None:
    history, source = past
    monkeypatch.setattr(point_reads, "PORTION", portion)
    for nodes in (None, frozenset({"n0", "n1"}), frozenset({"none"})):
        gpus = random.sample([*source.all_uuids, "GPU-none"], 5)
        aggs: tuple[Agg, ...] = ("min", "mean", "max", "n")
        straight, other = (ask(gpus, KEYS, START + 37, END - 11, step, aggs, nodes)
                           for ask in (history.series, partial(by_sql.series, history)))
        pd.testing.assert_frame_equal(straight, other, rtol=1e-9)
        assert (len(straight) > 0) == (nodes is None or "n0" in nodes)
        assert list(straight["gpu"]) == sorted(straight["gpu"])


def test_bits_are_joined_as_bits_wherever_they_lie(past: tuple[EmbeddedHistory, Source]) -> None:
    """Half of the hour is in files, half in memory: neither number is the lowest or highest."""
    history, source = past
    for gpu in source.all_uuids:
        bits = [int(value) for (uuid, _), row in source.truth.items()
                if uuid == gpu and isinstance(value := row["throttle_bits"], float)]
        row = history.series([gpu], ["throttle_bits"], START, END, 3_600).iloc[0]
        assert int(row["throttle_bits_min"]) == np.bitwise_and.reduce(bits)
        assert int(row["throttle_bits_max"]) == np.bitwise_or.reduce(bits)


def block(history: EmbeddedHistory, metric: str, start: int, nodes: frozenset[str] | None
          ) -> pd.DataFrame:
    """Return a block by second and GPU, as a query for many moments in a row reads it."""
    grid = HistoryGrid(start, 1, BLOCK_S)
    history.rules.past({metric: frozenset(("max",))}, grid)
    values = grid.of(metric, "max")
    assert values is not None
    return pd.DataFrame({gpu: values[row] for (gpu, node), row in grid.rows.items()
                         if nodes is None or node in nodes},
                        index=range(start, start + BLOCK_S), dtype=float)


def test_a_block_is_every_second_of_it(past: tuple[EmbeddedHistory, Source]) -> None:
    history, source = past
    for start in range(START, END, BLOCK_S):
        for nodes in (None, frozenset({"n1"})):
            frame = block(history, "temp_c", start, nodes)
            truth = pd.DataFrame({gpu: [
                value if isinstance(value := source.truth.get((gpu, t), {}).get("temp_c"), float)
                else np.nan for t in range(start, start + BLOCK_S)]
                for gpu in (source.all_uuids if nodes is None else source.uuids["n1"])},
                index=range(start, start + BLOCK_S))
            pd.testing.assert_frame_equal(frame[list(truth)], truth)


def test_an_instant_is_the_newest_of_three_seconds(past: tuple[EmbeddedHistory, Source]) -> None:
    history, source = past
    for t in random.sample(range(START, END), 40):
        frame = history.instant("power_w", t)
        rows = {row["gpu"]: row for row in frame.to_dict("records")}
        newest = {gpu: second for second in range(t - 2, t + 1) for gpu in source.all_uuids
                  if (gpu, second) in source.truth}
        assert rows.keys() == newest.keys()
        assert list(frame["gpu"]) == sorted(rows)
        for gpu, at in newest.items():
            value = source.truth[gpu, at]["power_w"]
            assert rows[gpu]["t"] == at
            assert (rows[gpu]["missing"] if isinstance(value, str) else rows[gpu]["value"]) == value


def test_seconds_that_are_all_kept_are_not_looked_for_among_minutes(
        past: tuple[EmbeddedHistory, Source], monkeypatch: pytest.MonkeyPatch) -> None:
    """A look into an empty stretch of them took as long as all the rest."""
    history, source = past

    def refuse(*_: object) -> None:
        raise AssertionError("DuckDB was asked")

    monkeypatch.setattr(history._db, "ask", refuse)
    assert len(history.series(source.all_uuids[:2], ["power_w"], START + 301, END, 1))


def test_what_is_kept_is_bounded_and_the_newest_stays() -> None:
    cache: SizedLruCache[int, str] = SizedLruCache(len, 10)
    made_keys: list[int] = []

    def get(key: int, size: int) -> str:
        def make() -> str:
            made_keys.append(key)
            return "x" * size
        return cache.get(key, make)

    get(1, 4), get(2, 4), get(1, 4)
    assert made_keys == [1, 2]
    get(3, 4)  # 2 was asked for longest ago
    get(1, 4), get(2, 4)
    assert made_keys == [1, 2, 3, 2]
    assert len(get(4, 99)) == 99
    get(4, 99)
    assert made_keys == [1, 2, 3, 2, 4]
    get(1, 4)
    assert made_keys[-1] == 1


@pytest.mark.parametrize("metric", ["power_w", "pcie_tx_bytes_per_s", SLOW[0].key])
def test_many_instants_at_once_are_the_instants_one_by_one(
        past: tuple[EmbeddedHistory, Source], metric: str) -> None:
    """Cover files, late files and memory, the edges of blocks, all Nodes and a single one."""
    history, _ = past
    for step, nodes in ((1, None), (7, frozenset({"n1"})), (47, None)):
        first = random.randrange(START - 20, END - 20 * step)
        moments = list(range(first, first + 20 * step, step))
        instants = history.instants(metric, moments, nodes)
        assert instants.grain_s == 1
        samples = 0
        for at, t in enumerate(moments):
            rows = history.instant(metric, t, nodes).to_dict("records")
            one_by_one = {(row["gpu"], row["node"]): row["missing"] if np.isnan(row["value"])
                          else row["value"] for row in rows}
            at_once = {pair: Absence(why).word if why else value for pair, value, why in zip(
                instants.pairs, instants.value[at].tolist(), instants.why[at].tolist(), strict=True)
                if why != NO_SAMPLE}
            assert at_once == one_by_one, t
            samples += len(one_by_one)
        assert samples or first + 20 * step < START + 40, first


def test_seconds_that_were_given_up_are_shown_by_their_minutes(
        past: tuple[EmbeddedHistory, Source], monkeypatch: pytest.MonkeyPatch) -> None:
    history, _ = past
    cut = START + 600
    with history.store.lock:
        monkeypatch.setitem(history.store.manifest.forgotten, "raw", cut)
    moments = list(range(cut - 130, cut + 131, 20))
    instants = history.instants("power_w", moments)
    assert instants.grain_s == 60
    for at, t in enumerate(moments):
        if t < cut:
            pd.testing.assert_frame_equal(history.instant("power_w", t).drop(columns="t"),
                                          by_sql.minute(history, "power_w", t).drop(columns="t"),
                                          check_dtype=False)
        one_by_one = history.instant("power_w", t).set_index(["gpu", "node"])["value"]
        for pair, value in zip(instants.pairs, instants.value[at].tolist(), strict=True):
            watts = one_by_one.get(pair, np.nan)
            assert value == watts or (np.isnan(value) and np.isnan(watts)), (t, pair)


def given_up_minutes(history: EmbeddedHistory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(history.store.manifest.forgotten, "raw", END)


@pytest.mark.parametrize("late_s", [10, 50])
def test_a_minute_in_two_files_is_that_of_most_of_its_seconds(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late_s: int) -> None:
    source = Source(random.randrange(10**9))
    history = EmbeddedHistory(tmp_path / "history")
    history.open()
    history.append(source.greetings(), 1)
    cut = START + 60 - late_s
    history.append([one for t in range(START, cut) for one in source.second(t, whole=True)], 1)
    history.store.maintain(START + BLOCK_S + GRACE_S)
    history.append([one for t in range(cut, START + 60)
                    for one in source.second(t, START + BLOCK_S + GRACE_S, whole=True)], 2)
    for wait_s in (0, LATE_S + 1):
        history.store.maintain(START + BLOCK_S + GRACE_S + wait_s)
    assert [file.span_s for file in history.store.manifest.of_kind("minutes")] == [BLOCK_S, 0]
    given_up_minutes(history, monkeypatch)
    span = (START, cut) if late_s < 30 else (cut, START + 60)
    instants = history.instants("power_w", [START + 7])
    picture = dict(zip(instants.pairs, instants.value[0].tolist(), strict=True))
    for row in history.instant("power_w", START + 7).to_dict("records"):
        watts = [value for t in range(*span)
                 if isinstance(value := source.truth[row["gpu"], t]["power_w"], float)]
        assert abs(row["value"] - np.mean(watts)) < 1, len(watts)
        assert picture[row["gpu"], row["node"]] == row["value"]
    assert len(picture) == len(source.all_uuids)


@pytest.mark.parametrize("is_minutes", [False, True])
def test_a_moment_that_takes_much_drives_nothing_out(
        past: tuple[EmbeddedHistory, Source], monkeypatch: pytest.MonkeyPatch, is_minutes: bool
        ) -> None:
    history, source = past
    monkeypatch.setattr(history.store.files.cache, "_columns", FileCache()._columns)
    history.series(source.all_uuids, ["temp_c"], START, END, 1)
    cached = history.store.files.cache._columns._entries
    before = list(cached)
    if is_minutes:
        given_up_minutes(history, monkeypatch)
    monkeypatch.setattr(file_cache, "KEPT_BYTES", 100)
    assert len(history.instant("sm_clock_mhz", START + 200))
    assert list(cached) == before != []


def test_all_minutes_of_a_file_are_read_at_once(
        past: tuple[EmbeddedHistory, Source], monkeypatch: pytest.MonkeyPatch) -> None:
    history, _ = past
    given_up_minutes(history, monkeypatch)
    read: list[str] = []
    original = HistoryPointReader.samples_at

    def samples_at(self: HistoryPointReader, kind: str, path: Path, *more: Any) -> MomentSamples:
        read.append(path.name)
        return original(self, kind, path, *more)

    monkeypatch.setattr(HistoryPointReader, "samples_at", samples_at)
    history.instants("power_w", range(START, START + SPAN_S, 20))
    assert len(read) == len(set(read)) > 2
