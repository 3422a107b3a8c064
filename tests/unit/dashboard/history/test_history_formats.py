"""Files of before are read by the code of now: as they were written, without metrics that came
later, and after a step of the format."""

import json
import random
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dashboard.history.columns.grid import HistoryGrid
from dashboard.history.columns.layout import KEYS
from dashboard.history.files import block_writer, parquet, reading, sealing
from dashboard.history.files import file_set as files
from dashboard.history.reads.embedded import EmbeddedHistory
from dashboard.history.storage.manifest import Manifest, digest
from tests.unit.histories import START, Source, Truth, differences

FORMAT_1 = Path(__file__).parents[3] / "captures" / "history-format-1"
LATER = "power_w"  # in these tests, the metric that came later
HOUR_S = 3_600


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Path:
    shutil.copytree(FORMAT_1 / "history", tmp_path / "history")
    return tmp_path / "history"


def opened(folder: Path) -> EmbeddedHistory:
    history = EmbeddedHistory(folder)
    history.open()
    return history


def truth() -> Truth:
    return {(gpu, t): row for gpu, t, row in json.loads((FORMAT_1 / "truth.json").read_text())}


def stored_values(history: EmbeddedHistory, metrics: tuple[str, ...] = KEYS) -> Truth:
    gpus = sorted({gpu for gpu, _ in truth()})
    frame = history.series(gpus, metrics, START, START + HOUR_S, 1, ("max",))
    return {(row["gpu"], int(row["t"])): {
        key: row[f"{key}_max"] for key in metrics} for row in frame.to_dict("records")}


def are_same(actual: Truth, correct: Truth) -> bool:
    return actual.keys() == correct.keys() and all(
        np.isnan(value) if isinstance(correct[key][metric], str) else value == correct[key][metric]
        for key, row in actual.items() for metric, value in row.items())


def test_what_format_1_says_is_what_was_said(folder: Path) -> None:
    history = opened(folder)
    assert are_same(stored_values(history), truth())
    t = max(t for _, t in truth())
    for row in history.instant("temp_c", t).to_dict("records"):
        true_value = truth()[row["gpu"], int(row["t"])]["temp_c"]
        assert (row["missing"] if isinstance(true_value, str) else row["value"]) == true_value
    assert history.tasks(START, START + HOUR_S)["user"].notna().all()
    assert len(history.usage("user", HOUR_S, START, START + HOUR_S)) == 2
    assert set(history.events(0, START * 2)["kind"]) == {"gpu_lost"}
    hours = history.series([gpu for gpu, _ in truth()][:1], ["temp_c"], START, START + 60, HOUR_S,
                           ("n",))
    assert int(hours["temp_c_n"].iloc[0]) > 0
    assert history.info().quarantined == []


def without_later(folder: Path) -> None:
    """Rewrite the files as a version wrote them that did not know the metric yet."""
    manifest = Manifest(folder)
    manifest.read()
    for name, one in list(manifest.segments.items()):
        table = pq.read_table(folder / name)
        lacks = [column for column in table.column_names if column.startswith(LATER)]
        if lacks:
            pq.write_table(table.drop_columns(lacks), folder / name)
            manifest.segments[name] = replace(one, size_bytes=(folder / name).stat().st_size,
                                              sha256=digest(folder / name))
    manifest.rewrite()


def test_a_metric_that_older_files_lack_is_missing_there_and_told_from_then_on(
        folder: Path) -> None:
    without_later(folder)
    lacking = {key: row | {LATER: "unknown"} for key, row in truth().items()}
    history = opened(folder)
    assert are_same(stored_values(history), lacking)
    assert set(history.instant(LATER, START + 30)["missing"]) <= {"unknown", "unsupported", "stale",
                                                                  "denied"}
    grid = HistoryGrid(START, 1, 300)
    history.rules.past({LATER: frozenset(("max",))}, grid)
    seconds = grid.of(LATER, "max")
    assert seconds is None or np.isnan(seconds).all()
    source = Source(8)
    history.append(source.greetings(), 1)
    later = START + 2_400
    for t in range(later, later + 40):
        history.append(source.second(t), 1)
    for now in (later + 400, START + 2 * HOUR_S):  # sealed beside the old, then one with it
        history.store.maintain(now)
        assert differences(history, source, later, later + 40) == []
        assert are_same({key: row for key, row in stored_values(history).items()
                         if key[1] < later}, lacking)
        for step in (60, HOUR_S):
            gpu = source.all_uuids[0]
            samples = sum(isinstance(row[LATER], float) for key, row in source.truth.items()
                          if key[0] == gpu)
            old = sorted({gpu for gpu, _ in truth()})[0]
            frame = history.series([gpu, old], [LATER, "temp_c"], START, START + HOUR_S, step,
                                   ("max", "n"))
            n = frame.groupby("gpu")[[f"{LATER}_n", "temp_c_n"]].sum()
            assert (n.loc[gpu, f"{LATER}_n"], n.loc[old, f"{LATER}_n"]) == (samples, 0)
            assert n.loc[old, "temp_c_n"] > 0


def test_a_step_of_the_format_is_taken_before_anything_is_asked(
        folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Say, version 3 counts temperature from another point."""
    def step(table: Any) -> Any:
        if "temp_c" not in table.column_names:
            return table
        at = table.column_names.index("temp_c")
        raised = pa.array((value.as_py() + 1 if value.is_valid else None
                           for value in table.column(at)), table.schema.field(at).type)
        return table.set_column(at, table.schema.field(at), raised)

    for module in (files, parquet, reading):
        monkeypatch.setattr(module, "SCHEMA_VERSION", 3)
    monkeypatch.setitem(reading.MIGRATIONS, 2, step)
    warmer = {key: row | ({"temp_c": row["temp_c"] + 1} if isinstance(row["temp_c"], float) else {})
              for key, row in truth().items()}
    for _ in range(2):  # once is enough
        history = opened(folder)
        assert are_same(stored_values(history), warmer)
        assert {one.schema for one in history.store.manifest.segments.values()} == {3}


def test_files_cut_elsewhere_are_merged_row_by_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                                   ) -> None:
    """Row groups of what is merged begin and end at other GPUs than those of what comes of it."""
    source = Source(random.randrange(10**6), nodes=3, gpus=3)
    history = EmbeddedHistory(tmp_path)
    history.open()
    history.append(source.greetings(), 1)
    for start, rows in zip(range(START, START + 900, 300), (14, 40, 9), strict=True):
        monkeypatch.setattr(block_writer, "GROUP_ROWS", rows)
        history.append(source.span(start, start + 300), 1)
        history.store.maintain(start + 300 + sealing.GRACE_S)
    before = history.series(source.all_uuids, KEYS, START, START + 900, 60,
                            ("n", "mean", "min", "max"))
    monkeypatch.setattr(reading, "GROUP_ROWS", 1)
    monkeypatch.setattr(reading, "GROUP_GPUS", 2)
    history.store.maintain(START + 3_600 + 1_000)
    assert history.info().kinds["minutes"]["files"] == 1
    after = history.series(source.all_uuids, KEYS, START, START + 900, 60,
                            ("n", "mean", "min", "max"))
    order = ["gpu", "t"]
    pd.testing.assert_frame_equal(before.sort_values(order, ignore_index=True),
                                  after.sort_values(order, ignore_index=True))
    history.close()


WITHOUT_PANDAS = """
import sys
from pathlib import Path
from dashboard.history.reads.embedded import EmbeddedHistory
from tests.unit.histories import START, Source
source, history = Source(1), EmbeddedHistory(Path(sys.argv[1]))
history.open()
history.append(source.greetings(), 1)
history.append(source.span(START, START + 400), 1)
history.store.maintain(START + 4_000)
history.store.maintain(START + 8_000)
assert history.info().kinds["minutes"]["files"] == 1, history.info()
assert "pandas" not in sys.modules
"""


def test_who_only_writes_loads_no_pandas(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", WITHOUT_PANDAS, str(tmp_path)], check=True, timeout=60)
