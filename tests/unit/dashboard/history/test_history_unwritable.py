"""Rows that the files will not take, for a reason that no wait mends: given up, told of, and all
else goes on."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dashboard.history.columns.arrow_columns import Table
from dashboard.history.columns.layout import AT, STORED
from dashboard.history.columns.memory import BLOCK_S, SampleRows
from dashboard.history.columns.slot_names import SlotNames
from dashboard.history.files import block_writer
from dashboard.history.files import file_set as files
from dashboard.history.files import store as stores
from dashboard.history.files.give_up import MOST_TRIES
from dashboard.history.files.sealing import GRACE_S, LATE_S
from dashboard.history.files.store import HistoryRetention
from dashboard.history.reads.embedded import EmbeddedHistory
from dashboard.history.storage.archive import Archive
from tests.unit.dashboard.history.test_history_edges import opened
from tests.unit.histories import START, Source, differences

BAD = START + BLOCK_S  # begins the block that cannot be written
END = START + 3 * BLOCK_S
Maker = Callable[..., Table]


def refusing(name: str, is_bad: Callable[..., bool]) -> Maker:
    original: Maker = vars(block_writer)[name]

    def make(*args: Any) -> Table:
        if is_bad(*args):
            raise ValueError("this cannot be written")
        return original(*args)
    return make


def is_of_bad(rows: SampleRows, _: SlotNames) -> bool:
    return bool(((rows.t >= BAD) & (rows.t < BAD + BLOCK_S)).any())


def tended(history: EmbeddedHistory, now: float, times: int = MOST_TRIES) -> None:
    for at in range(times):
        history.store.maintain(now + 5.0 * at)


def outside(source: Source) -> list[tuple[int, int]]:
    return [(START, BAD), (BAD + BLOCK_S, END)]


def in_ram(history: EmbeddedHistory) -> bool:
    return history.info().open_seconds > 0


def set_aside(folder: Path) -> Iterator[tuple[str, int, float]]:
    """GPU, second and power of what lies in quarantine as arrays."""
    power = STORED[AT["power_w"]]
    for path in sorted((folder / "history" / "quarantine").glob("*.npz")):
        with np.load(path) as arrays:
            names = arrays["gpus"][arrays["slot"]].tolist()
            there = (arrays["missing"] >> (3 * AT[power.key])) & 7 == 0
            yield from ((gpu, t, watts) for gpu, t, watts, is_there in zip(
                names, arrays["t"].tolist(), arrays[power.key].tolist(), there.tolist(),
                strict=True) if is_there)


def test_seconds_that_cannot_be_written_are_set_aside_and_the_others_are_not(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(random.randrange(10**9))
    history = opened(tmp_path, source)
    history.append(source.span(START, END), 7)
    monkeypatch.setattr(block_writer, "raw_table", refusing("raw_table", is_of_bad))
    tended(history, END + GRACE_S, 1)
    assert in_ram(history)  # it may still be written
    assert differences(history, source, START, END) == []
    tended(history, END + GRACE_S + 5)
    assert not in_ram(history)
    assert history.store.first_segment() is None  # the log is not kept for it
    assert history.info().quarantined == [f"raw/raw-{BAD}"]
    assert history.info().counts["failures"] == MOST_TRIES - 1
    assert [wrong for first, last in outside(source)
            for wrong in differences(history, source, first, last)] == []
    samples = {(gpu, t, row["power_w"]) for (gpu, t), row in source.truth.items()
               if BAD <= t < BAD + BLOCK_S and isinstance(row["power_w"], float)}
    assert set(set_aside(tmp_path)) == samples
    reopened = EmbeddedHistory(tmp_path / "history")
    reopened.open()
    assert reopened.info().kinds.keys() >= {"raw", "minutes", "hours", "tasks", "usage"}


def test_owners_that_cannot_be_written_cost_no_seconds(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(random.randrange(10**9))
    history = opened(tmp_path, source)
    history.append(source.span(START, END), 7)
    monkeypatch.setattr(block_writer, "usages", refusing("usages", lambda *_: True))
    tended(history, END + GRACE_S)
    assert not in_ram(history)
    assert differences(history, source, START, END) == []
    assert history.info().quarantined == [
        f"usage/usage-{start}" for start in range(START, END, BLOCK_S)]
    assert len(history.tasks(START, END)) == len(source.tasks)


def test_late_seconds_that_cannot_be_written_do_not_stand_in_the_way(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(random.randrange(10**9))
    history = opened(tmp_path, source)
    late = [one for t in range(BAD, BAD + 20) for one in source.second(t, END + GRACE_S)]
    history.append(source.span(START, BAD), 1)
    history.append(source.span(BAD + BLOCK_S, END), 1)
    tended(history, END + GRACE_S, 1)
    history.append(late, 2)
    monkeypatch.setattr(block_writer, "raw_table", refusing("raw_table", is_of_bad))
    tended(history, END + GRACE_S + 5, 1)
    tended(history, END + GRACE_S + LATE_S + 6)
    assert not in_ram(history)
    assert history.info().quarantined == [f"raw/raw-{START}"]  # of the hour
    assert {(gpu, t) for gpu, t, _ in set_aside(tmp_path)} == {
        key for key, row in source.truth.items()
        if BAD <= key[1] < BAD + 20 and isinstance(row["power_w"], float)}


def test_a_merge_that_fails_does_not_keep_what_is_old(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(random.randrange(10**9))
    history = opened(tmp_path, source, HistoryRetention(raw_s=2 * 3_600))
    history.append(source.span(START, END), 1)
    tended(history, END + GRACE_S, 1)
    merged_kinds: list[str] = []

    def fails(kind: str, *_: Any) -> Iterator[Table]:
        merged_kinds.append(kind)
        raise ValueError("these do not fit together")

    monkeypatch.setattr(stores, "merged", fails)
    tended(history, END + 3_700, MOST_TRIES + 3)
    assert merged_kinds.count("raw") == merged_kinds.count("minutes") == MOST_TRIES
    assert differences(history, source, START, END) == []
    tended(history, END + 3 * 3_600, 1)
    assert "raw" not in history.info().kinds
    assert history.info().kinds["minutes"]["files"] == 3


def test_want_of_memory_waits_as_want_of_disk_does(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(random.randrange(10**9))
    history = opened(tmp_path, source)
    history.append(source.span(START, BAD), 1)

    def fails(*_: Any) -> Table:
        raise MemoryError

    monkeypatch.setattr(block_writer, "raw_table", fails)
    for at in range(2 * MOST_TRIES):
        history.store.maintain(END + 100.0 * at)
    assert history.info().error == "out of memory"
    assert differences(history, source, START, BAD) == []  # in memory
    monkeypatch.undo()
    history.store.maintain(END + 1_000)
    assert (history.info().error, history.info().quarantined, in_ram(history)) == (None, [], False)
    assert differences(history, source, START, BAD) == []


def test_what_was_written_before_a_failure_is_no_file_of_nobody(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader of the folder without the manifest would see its seconds twice."""
    source = Source(random.randrange(10**9))
    history = opened(tmp_path, source)
    history.append(source.span(START, BAD), 1)
    original = vars(files)["write"]

    def full(folder: Path, kind: str, *more: Any) -> Any:
        if kind == "hours":
            raise OSError(28, "No space left on device")
        return original(folder, kind, *more)

    monkeypatch.setattr(files, "write", full)
    tended(history, END, 1)
    assert list((tmp_path / "history").glob("*/*.parquet")) == []


@pytest.mark.parametrize("fails", ["hours", "manifest"])
@pytest.mark.parametrize("nodes", [(0, 2), (1,)])
def test_a_file_that_is_written_once_more_has_its_own_rows(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nodes: tuple[int, ...], fails: str
        ) -> None:
    """It has the name of the first attempt, and what came meanwhile beside."""
    source = Source(random.randrange(10**9), nodes=3)
    history = opened(tmp_path, source)
    history.append(source.span(START, BAD - 60), 1)
    tended(history, END, 1)
    names = [*source.uuids]

    def append(late: list[str]) -> None:
        history.append([one for t in range(BAD - 60, BAD) for node in late
                        for one in source.node_second(node, t, END)], 1)

    original = vars(files)["write"]
    written: list[str] = []

    def write(archive: Archive, kind: str, *more: Any) -> Any:
        if kind == fails:
            raise OSError(28, "No space left on device")
        file = original(archive, kind, *more)
        written.append(file.name)
        return file

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    append([names[at] for at in nodes])
    tended(history, END + 1, 1)
    with monkeypatch.context() as patch:
        patch.setattr(files, "write", write)
        if fails == "manifest":
            patch.setattr("dashboard.history.storage.manifest._append", full)
        tended(history, END + 1 + LATE_S, 1)
        assert history.info().error == "No space left on device"
        [removed] = [name for name in written if name.startswith("raw/")]
        assert not (tmp_path / "history" / removed).exists()
    append([name for at, name in enumerate(names) if at not in nodes])
    history.store.maintain(END + 100)
    assert (history.info().error, in_ram(history)) == (None, False)
    [late] = [file for file in history.store.manifest.of_kind("raw") if not file.span_s]
    assert (late.name, late.rows) == (removed, 3 * 2 * 60)  # else this shows nothing
    assert differences(history, source, START, BAD) == []
    reopened = EmbeddedHistory(tmp_path / "history")
    reopened.open()
    for t in (BAD - 60, BAD - 7):
        pd.testing.assert_frame_equal(history.instant("power_w", t), reopened.instant("power_w", t))
    assert history.store.files._places == {}


def test_what_no_line_of_the_manifest_names_is_no_file_either(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(random.randrange(10**9))
    history = opened(tmp_path, source)
    history.append(source.span(START, BAD), 1)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dashboard.history.storage.manifest._append", full)
    tended(history, END, 1)
    assert history.info().error == "No space left on device"
    assert list((tmp_path / "history").glob("*/*.parquet")) == []
    monkeypatch.undo()
    history.store.maintain(END + 100)
    assert differences(history, source, START, BAD) == []
    assert not in_ram(history)
