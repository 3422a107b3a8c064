"""Rare conditions in history: a machine without descriptors, a manifest that is
gone, what grows over months, threads that meet."""

import dataclasses
import errno
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dashboard.history.columns.memory import BLOCK_S
from dashboard.history.columns.rows import BACKFILL_MOST_S, HistoryMessage
from dashboard.history.columns.slot_names import SlotNames
from dashboard.history.files import block_writer
from dashboard.history.files.file_cache import KEPT_RUNS, RUNS_OF_NONE, FileCache
from dashboard.history.files.rebuild import rebuilt
from dashboard.history.files.row_index import SampleRuns
from dashboard.history.files.sealing import GRACE_S, LATE_S
from dashboard.history.files.store import HistoryRetention
from dashboard.history.ingest.headlog import HeadLog
from dashboard.history.ingest.messages import MOST_LISTINGS, HistoryIngester
from dashboard.history.reads.embedded import EmbeddedHistory
from dashboard.history.storage import manifest as manifests
from dashboard.history.storage.manifest import HistoryFile, Manifest
from gpudeck.contract.wire import Event, GpuFacts, Hello, Inventory, Task, Tasks, Use
from gpudeck.measures.metrics import Absence
from tests.unit.dashboard.history.test_headlog import entries
from tests.unit.fleets import frame
from tests.unit.histories import START, Source, differences

DAY_S = 86_400


def opened(folder: Path, source: Source, keep: HistoryRetention | None = None) -> EmbeddedHistory:
    history = EmbeddedHistory(folder / "history", keep)
    history.open()
    history.append(source.greetings(), 1)
    return history


def sealed(folder: Path, source: Source, blocks: int = 2) -> EmbeddedHistory:
    history = opened(folder, source)
    for start in range(START, START + blocks * BLOCK_S, BLOCK_S):
        history.append(source.span(start, start + BLOCK_S), 1)
        history.store.maintain(start + BLOCK_S + GRACE_S)
    return history


@pytest.mark.parametrize("why", [errno.EMFILE, errno.EACCES])
def test_a_file_that_cannot_be_opened_just_now_is_not_called_damaged(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: int) -> None:
    source = Source(random.randrange(10**9))
    sealed(tmp_path, source).close()

    def fail(_: Path) -> str:
        raise OSError(why, "not now")

    reopened = opened(tmp_path, source)
    monkeypatch.setattr(manifests, "digest", fail)
    with pytest.raises(OSError, match="not now"):
        reopened.series(source.all_uuids, ["power_w"], START, START + BLOCK_S, 1)
    monkeypatch.undo()
    assert reopened.info().quarantined == []
    assert differences(reopened, source, START, START + 2 * BLOCK_S) == []


def spoil_manifest(folder: Path, how: str) -> None:
    for name in manifests.COPIES:
        if how == "gone":
            (folder / name).unlink()
        elif how == "junk":
            (folder / name).write_bytes(random.randbytes(300))
        else:
            lines = (folder / name).read_bytes().splitlines(keepends=True)
            lines[-1 if how == "last line" else 0] = b"torn\n"
            (folder / name).write_bytes(b"".join(lines))


@pytest.mark.parametrize("how", ["gone", "junk", "first line", "last line"])
@pytest.mark.parametrize("is_merged", [False, True])
def test_a_manifest_whose_copies_are_both_damaged_is_rebuilt_from_the_files(
        tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str, is_merged: bool) -> None:
    source = Source(random.randrange(10**9))
    history = sealed(tmp_path, source, 3)
    folder = tmp_path / "history"
    if is_merged:  # and the parts are still there, as after a kill
        parts = {path: path.read_bytes() for path in folder.glob("*/*.parquet")}
        history.store.maintain(START + 2 * 3_600)
        for path, data in parts.items():
            path.write_bytes(data)
    segments, number = dict(history.store.manifest.segments), history.store.manifest.number
    history.close()
    spoil_manifest(folder, how)
    with caplog.at_level("ERROR"):
        reopened = opened(tmp_path, source)
    manifest = reopened.store.manifest
    assert "rebuilt from what the files say" in caplog.text
    assert manifest.segments.keys() == segments.keys()
    for name, file in manifest.segments.items():
        assert dataclasses.replace(file, made_at=segments[name].made_at) == segments[name]
    assert manifest.number >= number - (how == "gone" and is_merged)
    assert differences(reopened, source, START, START + 3 * BLOCK_S) == []
    reopened.store.maintain(START + 3 * 3_600)
    reopened.close()
    assert opened(tmp_path, source).store.manifest.segments == manifest.segments


def test_what_cannot_be_told_of_a_lost_line_is_put_aside(tmp_path: Path) -> None:
    source = Source(random.randrange(10**9))
    sealed(tmp_path, source, 2).close()
    folder = tmp_path / "history"
    [spoilt] = folder.glob(f"minutes/minutes-{START}-*.parquet")
    spoilt.write_bytes(spoilt.read_bytes()[:-9])
    half = folder / "raw" / f"raw-{START + 2 * BLOCK_S}-{BLOCK_S}-99.parquet"
    shutil.copyfile(next(folder.glob(f"raw/raw-{START}-*.parquet")), half)
    spoil_manifest(folder, "gone")
    reopened = opened(tmp_path, source)
    put_aside = {spoilt.name, half.name}
    assert {path.name for path in (folder / "quarantine").iterdir()} == put_aside
    assert {Path(name).name for name in reopened.info().quarantined} == put_aside
    assert differences(reopened, source, START, START + 2 * BLOCK_S) == []


def test_whoever_reads_a_folder_does_not_stumble_over_a_file_that_is_being_written(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(random.randrange(10**9))
    history = sealed(tmp_path, source)
    folder = tmp_path / "history" / "raw"
    before, read = len(pd.read_parquet(folder)), []
    original = vars(block_writer)["raw_table"]

    def spy_raw_table(*args: Any) -> Any:
        read.append((len(pd.read_parquet(folder)), len(list(folder.iterdir()))))
        return original(*args)

    monkeypatch.setattr(block_writer, "raw_table", spy_raw_table)
    history.append(source.span(START + 2 * BLOCK_S, START + 3 * BLOCK_S), 1)
    history.store.maintain(START + 3 * BLOCK_S + GRACE_S)
    assert read == [(before, 3)]  # of which one is a draft


@pytest.mark.parametrize("step", [1, 60, 3_600])
def test_slow_metrics_are_told_from_files_as_from_memory(tmp_path: Path, step: int) -> None:
    source = Source(random.randrange(10**9))
    history = opened(tmp_path, source)
    history.append(source.span(START, START + BLOCK_S), 1)
    query = (source.all_uuids, ["ecc_corrected", "power_w", "fan_pct"], START, START + 3_600, step)
    before = history.series(*query)
    assert before["ecc_corrected_mean"].notna().sum() >= 4
    history.store.maintain(START + BLOCK_S + GRACE_S)
    assert history.info().open_seconds == 0
    after = history.series(*query)
    assert list(after["t"]) == list(before["t"])
    for name in ("ecc_corrected_min", "ecc_corrected_mean", "ecc_corrected_max"):
        np.testing.assert_allclose(after[name], before[name])


@pytest.mark.parametrize("state", ["stale", "lost"])
def test_what_is_said_of_a_gpu_that_was_not_read_is_no_sample(tmp_path: Path, state: str) -> None:
    """Live it is none either."""
    agent, values = FakeAgent(tmp_path), [{"util_pct": 12.0, "fan_pct": Absence.UNSUPPORTED}]
    for t in range(START, START + 20):
        is_read = t < START + 10
        message = frame(values, t - START + 1, t + 0.2, ("ok" if is_read else state,),
                        slow=[{"ecc_corrected": float(t - START)}])
        agent.history.append([HistoryMessage("n", "s", t + 0.5, message, t)], 1)
    history = agent.history
    for _ in range(2):
        seconds = history.series(["GPU-a"], ["util_pct", "ecc_corrected"], START, START + 20, 1)
        there = seconds[seconds["util_pct_max"].notna()]
        assert list(there["t"]) == list(range(START, START + 10))
        assert seconds["ecc_corrected_max"].max() == 9
        [minute] = history.series(["GPU-a"], ["util_pct"], START, START + 60, 60,
                                  ("n",)).to_dict("records")
        assert minute["util_pct_n"] == 10
        for metric, why in (("util_pct", state), ("fan_pct", "unsupported")):
            [one] = history.instant(metric, START + 19).to_dict("records")
            assert (one["missing"], np.isnan(one["value"])) == (why, True)
        history.store.maintain(START + BLOCK_S + GRACE_S)


def test_what_is_known_of_files_goes_with_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                               ) -> None:
    source = Source(random.randrange(10**9))
    history = sealed(tmp_path, source, 4)
    manifest = history.store.manifest
    lines = (tmp_path / "history" / "manifest.jsonl").read_bytes().count(b"\n")
    assert lines > 3
    monkeypatch.setattr(manifests, "REWRITE_LINES", 3)
    history.store.maintain(START + 2 * 3_600)
    assert manifest._verified.keys() == manifest.segments.keys()
    for name in manifests.COPIES:
        assert (tmp_path / "history" / name).read_bytes().count(b"\n") == 1
    reloaded = Manifest(tmp_path / "history")
    reloaded.load(rebuilt)
    assert (reloaded.segments, reloaded.number) == (manifest.segments, manifest.number)
    assert differences(history, source, START, START + 4 * BLOCK_S) == []


def test_files_are_looked_for_while_one_is_condemned(tmp_path: Path) -> None:
    manifest = Manifest(tmp_path)
    manifest.segments = {name: HistoryFile(name, "raw", 0, 300, 300, 1, 1, "") for name in "abc"}
    original = HistoryFile.meets

    def meets(self: HistoryFile, t0: float, t1: float) -> bool:
        manifest.segments.pop("b", None)
        return original(self, t0, t1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HistoryFile, "meets", meets)
        assert [one.name for one in manifest.find("raw", 0, 10)] == ["a", "b", "c"]


def test_a_bound_of_size_holds_though_the_clock_is_not_believed(tmp_path: Path) -> None:
    source = Source(random.randrange(10**9))
    history = sealed(tmp_path, source, 3)
    end = START + 3 * BLOCK_S + GRACE_S
    history.store.maintain(end, 50.0)
    history.store.keep = HistoryRetention(size_bytes=1)
    history.store.maintain(end + 10 * DAY_S, 55.0)
    assert history.info().kinds == {}


def test_a_size_in_runs_counts_what_has_none() -> None:
    none, words = np.zeros(0, np.int32), np.zeros(0, object)
    cache = FileCache()
    for at in range(2 * KEPT_RUNS // RUNS_OF_NONE):
        cache._places.get((f"{at}", ()), lambda: SampleRuns(words, words, [], none, none,
                                                            none.astype(np.int64), none, none, 0))
    assert len(cache._places._entries) == KEPT_RUNS // RUNS_OF_NONE


def test_a_gpu_whose_node_is_not_named_yet_is_not_known_yet() -> None:
    """Another thread may be between the two."""
    names = SlotNames(["b"], ["n1"], {}, None)
    names.gpus.append("a")
    none = np.zeros(2, np.int64)
    gpu, node, *_ = names.columns(np.zeros(2, np.intp), none).values()
    assert (gpu.to_pylist(), node.to_pylist()) == (["b", "b"], ["n1", "n1"])
    assert names.order().tolist() == [0]
    names.nodes.append("n2")
    gpu, node, *_ = names.columns(np.array([1, 0]), none).values()
    assert (gpu.to_pylist(), node.to_pylist()) == (["a", "b"], ["n2", "n1"])
    assert names.order().tolist() == [1, 0]


# -- the log


def test_a_segment_is_there_with_its_beginning_or_not_at_all(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    log = HeadLog(tmp_path)
    log.open()
    batch = entries(4)
    log.append(batch[:1])
    monkeypatch.setattr("dashboard.history.ingest.headlog.os.fdatasync", full)
    with pytest.raises(OSError, match="No space"):
        log.rotate(batch[1:2])
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["head-00000001.log"]
    (tmp_path / "head-00000002.new").write_bytes(b"of one that was killed")
    log.append(batch[2:3])
    log.rotate(batch[3:])
    log.close()
    segments = [(number, list(content)) for number, content in HeadLog(tmp_path).segments()]
    assert segments == [(1, [batch[0], batch[2]]), (2, [batch[3]])]


# -- who held what


class FakeAgent:
    """A Node with one GPU that sends messages about its Tasks."""

    def __init__(self, folder: Path) -> None:
        self.history = EmbeddedHistory(folder / "history")
        self.history.open()
        self.seq = 0
        self.connect()

    def connect(self) -> None:
        hello_message = Hello((1,), bytes(32), bytes(64), "n", "n", "boot", "s", 0, "0", "test")
        self.history.append([HistoryMessage("n", "s", 0.0, hello_message),
                             HistoryMessage("n", "s", 0.0, Inventory(
            1, (GpuFacts("GPU-a", 0, "H100"),)))], 1)

    def send(self, t: int, pids: tuple[int, ...], is_backfill: bool = False) -> None:
        self.seq += 1
        tasks = Tasks(True, tuple(Task(f"b:{pid}:1", pid, 1, 1.0, "u", "x") for pid in pids),
                      tuple(Use(f"b:{pid}:1", 0, 1e9 * pid, 10.0) for pid in pids))
        message = frame([{"util_pct": 50.0}], self.seq, t + 0.2, tasks=tasks)
        self.history.append([HistoryMessage("n", "s", t + 0.5, message, t, is_backfill)], 1)

    def minutes(self) -> dict[tuple[str, int], tuple[float, float]]:
        rows = self.history.tasks(START, START + 3_600).to_dict("records")
        return {(row["task"], row["t"]): (row["seconds"], row["mem_max_bytes"]) for row in rows}


def test_tasks_that_come_and_go_take_no_more_places_each_time(tmp_path: Path) -> None:
    agent = FakeAgent(tmp_path)
    for t in range(START, START + 240):
        agent.send(t, (1,) if t % 2 else (1, 2, 3))
    numbers = agent.history.store.feed.tally._numbers
    assert numbers._end == 3
    for t in range(START + 240, START + 280):
        agent.connect()
        agent.send(t, (1, 2, 3, 4))
        agent.send(t + 20_000, (1, 2), True)
    assert numbers._end <= 12
    minutes = agent.minutes()
    assert minutes["b:2:1", START] == (30, 2e9)
    assert minutes["b:4:1", START + 240] == (40, 4e9)


def test_no_second_that_was_brought_later_is_lost_with_the_next_connection(tmp_path: Path) -> None:
    """A backfilled second still waits to be added up when the agent reconnects."""
    agent = FakeAgent(tmp_path)
    for begin in (START, START + 60, START + 120):
        agent.send(begin + 50, (1,))
        agent.connect()
        for t in range(begin, begin + 30):
            agent.send(t, (1,), True)
        agent.connect()
    assert agent.minutes() == {("b:1:1", t): (31, 1e9) for t in (START, START + 60, START + 120)}


def test_inventories_of_one_node_are_kept_up_to_a_bound() -> None:
    """A node may send as many as it likes; Frames refer to the newest."""
    feed = HistoryIngester(lambda _: None, lambda _: set(), None, None)
    for generation in range(3 * MOST_LISTINGS):
        feed.take([HistoryMessage("n1", "s", 0.0, Inventory(generation, (
            GpuFacts("GPU-1", 0, "H100"),)))], 1)
    assert len(feed._catalog["n1"]) == MOST_LISTINGS
    assert ("s", 3 * MOST_LISTINGS - 1) in feed._catalog["n1"]


@pytest.mark.parametrize(("before_s", "is_backfill", "then"), [
    (BACKFILL_MOST_S - 60, False, True), (BACKFILL_MOST_S + 60, False, False),
    (50 * 365 * DAY_S, False, False), (50 * 365 * DAY_S, True, True)])
def test_an_event_of_a_clock_that_is_wrong_by_weeks_stands_where_it_came(
        before_s: float, is_backfill: bool, then: bool) -> None:
    """A file for each hour of an old past is too many. A backfilled past keeps its own times."""
    feed = HistoryIngester(lambda _: None, lambda _: set(), None, None)
    now = START + random.uniform(0, DAY_S)
    feed.take([HistoryMessage("n1", "s", now, Event(1, now - before_s, "xid"), 0, is_backfill)], 1)
    [extras] = feed.extras()
    [(t, _)] = extras.events.values()
    assert t == (now - before_s if then else now)


def test_a_straggler_keeps_no_later_block_of_its_hour_out_of_memory(tmp_path: Path) -> None:
    """Late files are of a whole hour: until its end each second went the way of the late, live
    rules by the minute had no data, and files came every twenty seconds."""
    source = Source(random.randrange(10**9))
    history = opened(tmp_path, source)
    end = START + 2 * BLOCK_S
    held_back = source.second(START)
    history.append(source.span(START + 1, end), 1)
    history.store.maintain(end + GRACE_S)
    history.append(held_back, 1)
    for now in (end, end + LATE_S + 1):  # what is late waits once more
        history.store.maintain(now)
    assert history.info().kinds["raw"]["files"] == 3  # two blocks, and what came late
    history.append(source.span(end, end + 60), 1)
    assert [*history.store.feed.head.open] == [end]
    grid = history.rules.minute(end, {"power_w": frozenset(("mean",))})
    assert {gpu for gpu, _ in grid.rows} == {*source.all_uuids}
