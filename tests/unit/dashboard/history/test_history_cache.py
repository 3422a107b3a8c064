"""The cache of history's files: what comes out of it is what stands in them, while files come, are
merged and go; its size is bounded, and told."""

import random
import threading
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow
import pyarrow.parquet
import pytest

from dashboard.history.columns.arrow_columns import numbers
from dashboard.history.columns.grid import HistoryGrid
from dashboard.history.columns.memory import BLOCK_S
from dashboard.history.files import file_cache
from dashboard.history.files.file_cache import FileCache
from dashboard.history.files.row_index import OpenParquetFile, SampleRuns
from dashboard.history.files.sealing import GRACE_S, LATE_S
from dashboard.history.files.store import HistoryRetention
from dashboard.history.prometheus import history_families
from dashboard.history.reads.embedded import EmbeddedHistory
from tests.unit.histories import START, Source

SPAN_S = 1_000
END = START + SPAN_S
METRICS = ("power_w", "util_pct", "mem_used_bytes", "throttle_bits")


def played(folder: Path, source: Source) -> EmbeddedHistory:
    """Return a history with holes, late seconds in files beside, and the newest in memory."""
    history = EmbeddedHistory(folder, HistoryRetention(raw_s=10 * 86_400))
    history.open()
    history.append(source.greetings(), 1)
    late = []
    for t in range(START, END):
        messages = source.second(t)
        if START + 100 <= t < START + 420 and source.random.random() < 0.5:
            late += messages
            continue
        history.append(messages, 1)
        if t % 60 == 0:
            history.store.maintain(t)
    history.append(late, 2)
    history.store.maintain(END)
    history.store.maintain(END + LATE_S + 1)
    return history


def columns_of(runs: SampleRuns) -> dict[str, list[Any]]:
    words = np.array([*runs.words, None], object)
    return {"gpu": runs.gpus[runs.pair].tolist(), "node": runs.nodes[runs.pair].tolist(),
            "word": words[runs.word].tolist(), "t": runs.t.tolist(), "row": runs.row.tolist(),
            "length": runs.length.tolist(), "is_sorted": [runs.is_sorted]}


def test_a_writer_notes_what_a_reader_would_find(tmp_path: Path) -> None:
    source = Source(random.randrange(10**9), nodes=3)
    history = played(tmp_path, source)
    noted_places: set[int] = set()
    for now in (END + BLOCK_S + GRACE_S, START + 4 * 3_600):
        history.store.maintain(now)
        for file in history.store.manifest.of_kind("raw"):
            opened = OpenParquetFile(tmp_path / file.name)
            for group in range(opened.groups):
                [noticed] = history.store.files.cache._places.find([(opened.path.name, (group,))])
                assert noticed is not None
                assert columns_of(noticed) == columns_of(FileCache().places(opened, [group], 1))
                noted_places.add(file.span_s)
    assert noted_places == {0, BLOCK_S, 3_600}  # beside, five minutes, merged


def test_several_row_groups_are_told_apart_as_their_pairs_are_sorted(tmp_path: Path) -> None:
    for gpus, is_sorted in (("aabb", True), ("abab", False), ("bbaa", False), ("aaaa", False)):
        path = tmp_path / f"{gpus}.parquet"
        table = pyarrow.table({"gpu": [*gpus], "node": ["n"] * 4, "t": [1, 2, 1, 2]})
        pyarrow.parquet.write_table(table, path, row_group_size=2)
        file = OpenParquetFile(path)
        assert file.rows == [2, 2]
        places = FileCache().places(file, [0, 1], 1)
        assert (places.is_sorted, places.rows().tolist()) == (is_sorted, [0, 1, 2, 3])


EDGES = (0, 1, 255, 256, 65_535, 65_536, -1, 2**31 - 1, 2**31, -(2**31) - 1, 2**53)


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("holes", [False, True])
def test_numbers_are_the_same_however_narrow(tmp_path: Path, edge: int, holes: bool) -> None:
    whole: npt.NDArray[Any] = np.append(np.random.default_rng().integers(0, 200, 99), edge)
    mask = np.random.default_rng().random(100) < 0.2 if holes else np.zeros(100, bool)
    columns = {name: pyarrow.array(whole.astype(kind), mask=mask) for name, kind in (
        ("long", np.int64), ("real", np.float32), *(
            (("int", np.int32),) if abs(edge) < 2**31 else ()))}
    table = pyarrow.table(columns | {"none": pyarrow.nulls(100, pyarrow.int32())})
    pyarrow.parquet.write_table(table, tmp_path / "file.parquet", row_group_size=33)
    file = OpenParquetFile(tmp_path / "file.parquet")
    frame, cache = table.to_pandas(), FileCache()
    for _ in range(2):  # from the file, and from memory
        read = cache.columns(file, range(file.groups), file.order)
        for name in file.order:
            together = np.concatenate([read[group, name] for group in range(file.groups)])
            np.testing.assert_array_equal(together.astype(float), frame[name].astype(float))
    assert cache.counts()["cache_hits"] == cache.counts()["cache_misses"] == 4 * len(file.order)


def root_of(values: npt.NDArray[Any]) -> Any:
    """Return what holds the memory."""
    return values if values.base is None else root_of(values.base) if isinstance(
        values.base, np.ndarray) else values.base


@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize("kind", [np.float32, np.int64])
def test_what_is_counted_is_what_is_held(tmp_path: Path, kind: Any, holes: bool) -> None:
    rng = np.random.default_rng()
    mask = rng.random(20_000) < 0.2 if holes else np.zeros(20_000, bool)
    values = rng.integers(0, 2**40, 20_000).astype(kind)
    pyarrow.parquet.write_table(pyarrow.table({"one": pyarrow.array(values, mask=mask)}),
                                tmp_path / "file.parquet", row_group_size=500)
    file, cache = OpenParquetFile(tmp_path / "file.parquet"), FileCache()
    read = cache.columns(file, range(file.groups), ["one"])
    assert file.groups == 40
    roots = {id(root): root for root in map(root_of, read.values())}
    assert len(roots) == file.groups
    held = sum(root.nbytes if isinstance(root, np.ndarray) else root.size
               for root in roots.values())
    assert held == sum(column.nbytes for column in read.values())
    assert not any(column.flags.writeable for column in read.values())
    assert cache.counts()["cache_bytes"] == held + file.groups * file_cache.BYTES_OF_NONE


@pytest.mark.parametrize("kind", [np.int32, np.float32, np.float64])
def test_a_slice_of_a_column_is_read_where_it_lies(kind: Any) -> None:
    rng = np.random.default_rng()
    values, mask = rng.integers(0, 99, 100).astype(kind), rng.random(100) < 0.3
    column = pyarrow.chunked_array([pyarrow.array(values[:37], mask=mask[:37]),
                                    pyarrow.array(values[37:], mask=mask[37:])])
    for _ in range(200):
        first, last = sorted(rng.integers(0, 101, 2).tolist())
        expected = np.where(mask, -1, values)[first:last]
        np.testing.assert_array_equal(numbers(column.slice(first, last - first), -1), expected)


def ask(history: EmbeddedHistory, source: Source, lots: random.Random) -> list[Any]:
    gpus, step = lots.sample(source.all_uuids, 2), lots.choice((1, 7, 60))
    begin = lots.randrange(START, END)
    grid = HistoryGrid(START + lots.choice((0, BLOCK_S)), 1, BLOCK_S)
    history.rules.past({"power_w": frozenset(("max",))}, grid)
    return [history.series(gpus, METRICS, begin, END, step), history.instant("temp_c", begin),
            pd.DataFrame(grid.of("power_w", "max"), index=[gpu for gpu, _ in grid.rows]
                         ).sort_index()]


def test_a_small_cache_says_the_same_and_stays_small(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, seed = Source(random.randrange(10**9), nodes=3), random.randrange(10**9)
    large = played(tmp_path, source)
    large.store.maintain(END + BLOCK_S + GRACE_S)
    lots = random.Random(seed)
    answers = [ask(large, source, lots) for _ in range(12)]
    monkeypatch.setattr(file_cache, "KEPT_BYTES", 16_000)
    monkeypatch.setattr(file_cache, "KEPT_RUNS", 200)
    monkeypatch.setattr(file_cache, "KEPT_CHUNKS", 60)
    small = EmbeddedHistory(tmp_path)
    small.open()
    lots = random.Random(seed)
    for answer in answers:
        for one, other in zip(answer, ask(small, source, lots), strict=True):
            pd.testing.assert_frame_equal(one, other, check_dtype=False)
        columns = small.store.files.cache._columns
        sizes = [file_cache.BYTES_OF_NONE + column.nbytes for column in columns._entries.values()]
        assert 0 < sum(sizes) <= 16_000
        assert small.info().counts["cache_bytes"] == sum(sizes)
    text = "".join(history_families(small))
    counts = small.info().counts
    assert f"gpudeck_history_cache_bytes {counts['cache_bytes']}\n" in text
    for cached, name in (("yes", "cache_hits"), ("no", "cache_misses")):
        assert (f'gpudeck_history_cache_reads_total{{cached="{cached}"}} {counts[name]}\n' in text)
    assert counts["cache_misses"] > large.info().counts["cache_misses"]


def test_what_is_read_once_and_large_drives_nothing_out(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(random.randrange(10**9))
    history = played(tmp_path, source)
    history.series(source.all_uuids, ["power_w"], START, END, 1)
    before = list(history.store.files.cache._columns._entries)
    monkeypatch.setattr(file_cache, "KEPT_BYTES", 100)
    grid = HistoryGrid(START, 1, BLOCK_S)
    history.rules.past({"util_pct": frozenset(("max",))}, grid)
    assert grid.of("util_pct", "max") is not None
    assert before == list(history.store.files.cache._columns._entries) != []


def test_a_file_that_is_gone_is_a_hole_although_its_columns_are_in_memory(tmp_path: Path) -> None:
    source = Source(random.randrange(10**9))
    history = played(tmp_path, source)
    query = (source.all_uuids, ["power_w"], START, START + BLOCK_S, 1)
    assert len(history.series(*query))
    for file in history.store.manifest.find("raw", START, START + BLOCK_S):
        (tmp_path / file.name).unlink()
    assert len(history.series(*query)) == 0
    assert history.info().quarantined


def cached_names(cache: FileCache) -> set[str]:
    return {*cache._opened._entries, *(key[0] for key in cache._places._entries),
            *(key[0] for key in cache._columns._entries)}


def test_what_was_merged_or_given_up_leaves_the_cache(tmp_path: Path) -> None:
    source = Source(random.randrange(10**9))
    history = played(tmp_path, source)
    cache = history.store.files.cache
    for now in (END + BLOCK_S + GRACE_S, START + 4 * 3_600, START + 11 * 86_400):
        before = cached_names(cache)
        history.store.maintain(now)
        for step in (1, 60):
            history.series(source.all_uuids, METRICS, START, END, step)
        there = {Path(name).name for name in history.store.manifest.segments}
        assert cached_names(cache) <= there
        assert now < START + 4 * 3_600 or before - there
    for sized in (cache._opened, cache._places, cache._columns):
        assert sized.total == sum(map(sized._size, sized._entries.values()))  # type: ignore


def test_every_reader_says_the_same_while_files_are_merged(tmp_path: Path) -> None:
    source = Source(random.randrange(10**9), nodes=3)
    history = played(tmp_path, source)
    minute_counts, second_counts = set(), set()
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            frame = history.series(source.all_uuids, ["power_w"], START, END, 60, ("n",))
            minute_counts.add(int(frame["power_w_n"].sum()))
            grid = HistoryGrid(START, 1, SPAN_S)
            history.rules.past({"power_w": frozenset(("max",))}, grid)
            values = grid.of("power_w", "max")
            assert values is not None
            second_counts.add(int((~np.isnan(values)).sum()))

    reader = threading.Thread(target=read)
    reader.start()
    for now in (END + BLOCK_S + GRACE_S, END + 2 * BLOCK_S, START + 2 * 3_600, START + 30 * 3_600):
        history.store.maintain(now)
    stop.set()
    reader.join()
    expected = sum(isinstance(row["power_w"], float) for row in source.truth.values())
    assert (minute_counts, second_counts) == ({expected}, {expected})
