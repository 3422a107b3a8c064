"""Cluster and host: in every row of every kind of file, from what Nodes say of themselves."""

import random
import shutil
import socket
from dataclasses import replace
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow.parquet as pq
import pytest

from dashboard.history.columns.rows import HistoryMessage
from dashboard.history.files.parquet import LAYOUTS, NAMES
from dashboard.history.reads.embedded import EmbeddedHistory
from dashboard.history.storage.manifest import digest
from dashboard.settings import hub_settings
from gpudeck.contract.wire import Hello
from gpudeck.errors import CommandError
from tests.unit.histories import START, Source, differences

FORMAT_1 = Path(__file__).parents[3] / "captures" / "history-format-1" / "history"
HOUR_S = 3_600
RENAMED_AT = START + 150  # within five minutes, and within a minute


def opened(folder: Path) -> EmbeddedHistory:
    history = EmbeddedHistory(folder, cluster="north")
    history.open()
    return history


def hello(node: str, host: str, t: float) -> HistoryMessage:
    return HistoryMessage(node, "s", t, Hello((1,), bytes(32), bytes(64), node, host, "boot", "s",
                                              0, "0", "test"))


def rows_of(folder: Path, kind: str) -> pd.DataFrame:
    """Read the rows as a program does that knows nothing of the hub."""
    return duckdb.execute(f"select * from read_parquet('{folder}/{kind}/*.parquet', "
                          "union_by_name = true)").df()


@pytest.fixture(name="renamed")
def _renamed(tmp_path: Path) -> tuple[EmbeddedHistory, Source]:
    source, history = Source(random.randrange(10**6)), opened(tmp_path)
    history.append(source.greetings(), 1)
    history.append(source.span(START, RENAMED_AT), 1)
    history.append([hello("n1", "moved", RENAMED_AT + 0.3)], 1)
    history.append(source.span(RENAMED_AT, START + 400), 1)
    return history, source


def test_every_row_of_every_kind_names_cluster_and_host(
        renamed: tuple[EmbeddedHistory, Source], tmp_path: Path) -> None:
    history, source = renamed
    for now in (START + 1_000, START + 2 * HOUR_S):  # of five minutes, then merged
        history.store.maintain(now)
        for kind in LAYOUTS:
            rows = rows_of(tmp_path, kind)
            assert set(rows["cluster"]) == {"north"}, kind
            assert set(rows[rows["node"] == "n0"]["host"]) <= {"n0"}, kind
            moved = rows[rows["node"] == "n1"]
            assert (moved["host"] == "moved").tolist() == (moved["t"] >= RENAMED_AT).tolist(), kind
    assert len({one.name for one in history.store.manifest.of_kind("raw")}) == 1
    assert differences(history, source, START, START + 400) == []


def test_memory_names_them_as_files_will(renamed: tuple[EmbeddedHistory, Source]) -> None:
    history, _ = renamed
    tasks, events = history.tasks(START, START + 400), history.events(START, START + 400)
    for rows in (tasks, events):
        moved = rows[rows["node"] == "n1"]
        assert set(rows["cluster"]) <= {"north"}
        assert (moved["host"] == "moved").tolist() == (moved["t"] >= RENAMED_AT).tolist()
    history.store.maintain(START + 1_000)
    order = ["t", "node", "gpu"]
    later = history.tasks(START, START + 400).sort_values(order, ignore_index=True)
    names = [*NAMES, "t"]
    pd.testing.assert_frame_equal(tasks.sort_values(order, ignore_index=True)[names], later[names])


def test_what_is_stored_keeps_the_host_of_its_time(tmp_path: Path) -> None:
    source, history = Source(random.randrange(10**6)), opened(tmp_path)
    history.append(source.greetings(), 1)
    history.append(source.span(START, START + 60), 1)
    history.store.maintain(START + 400)
    history.close()
    history = opened(tmp_path)  # which hears of it under the new name only
    messages = [one for one in source.greetings() if not isinstance(one.message, Hello)]
    history.append([*(hello(node, "moved", START + 500) for node in source.uuids), *messages], 2)
    history.append(source.span(START + 600, START + 660), 2)
    for now in (START + 1_000, START + 2 * HOUR_S):
        history.store.maintain(now)
        for kind in ("raw", "minutes", "slow", "tasks"):
            rows = rows_of(tmp_path, kind)
            assert ((rows["host"] == "moved") == (rows["t"] >= START + 600)).all(), kind
            assert rows["host"].notna().all(), kind


def test_files_of_format_1_name_none_and_are_merged_with_those_that_do(tmp_path: Path) -> None:
    shutil.copytree(FORMAT_1, tmp_path / "history")
    folder = tmp_path / "history"
    history = opened(folder)
    tasks = history.tasks(START, START + HOUR_S)
    assert len(tasks)
    assert tasks[["cluster", "host"]].isna().all(axis=None)
    old = {kind: len(rows_of(folder, kind)) for kind in LAYOUTS
           if kind != "hosts"}  # which that format has none of
    source = Source(8)  # whose GPUs are others
    history.append(source.greetings(), 1)
    history.append(source.span(START + 600, START + 700), 1)
    history.store.maintain(START + 1_100)
    versions = {one.schema for one in history.store.manifest.segments.values()}
    assert versions == {1, 2}  # side by side: nothing is written anew for this alone
    history.store.maintain(START + 2 * HOUR_S)
    assert {one.schema for one in history.store.manifest.segments.values()
            if one.kind in ("raw", "minutes", "hours", "tasks", "usage")} == {2}
    for kind in ("raw", "minutes", "slow", "tasks", "usage"):
        rows = rows_of(folder, kind)
        nameless = rows["cluster"].isna()
        assert nameless.sum() == old[kind], kind
        assert (rows["host"].isna() == nameless).all(), kind
        assert set(rows[~nameless]["host"]) == {"n0", "n1"}, kind
    assert history.info().quarantined == []
    assert differences(history, source, START + 600, START + 700) == []


def test_rows_of_one_minute_in_both_formats_become_one_that_is_named(tmp_path: Path) -> None:
    """Rows that came late for a minute which format 1 has."""
    source, history = Source(random.randrange(10**6)), opened(tmp_path)
    history.append(source.greetings(), 1)
    messages = source.span(START, START + 60)
    history.append(messages[::2], 1)
    history.store.maintain(START + 400)
    _as_format_1(history, tmp_path)
    history.append(messages[1::2], 1)
    for now in (START + 500, START + 600, START + 2 * HOUR_S):
        history.store.maintain(now)
    for kind in ("minutes", "hours", "tasks", "usage"):
        rows = rows_of(tmp_path, kind)
        assert len(rows) == len(rows[["gpu", "node", "t"]].drop_duplicates()), kind
        assert rows["host"].notna().any(), kind


def _as_format_1(history: EmbeddedHistory, folder: Path) -> None:
    manifest = history.store.manifest
    for name, one in list(manifest.segments.items()):
        path = folder / name
        table = pq.read_table(path).drop_columns(["cluster", "host"])
        pq.write_table(table.replace_schema_metadata(
            {"gpudeck": f'{{"version": 1, "kind": "{one.kind}"}}'}), path)
        manifest.segments[name] = replace(one, size_bytes=path.stat().st_size,
                                          sha256=digest(path), schema=1)
    manifest.rewrite()


def test_the_columns_need_no_quotes_in_sql(renamed: tuple[EmbeddedHistory, Source],
                                           tmp_path: Path) -> None:
    history, _ = renamed
    history.store.maintain(START + 1_000)
    [row] = duckdb.execute(f"select cluster, host, count(*) from '{tmp_path}/raw/*.parquet' "
                           "where host = 'moved' group by cluster, host").fetchall()
    assert row[:2] == ("north", "moved")


def test_a_cluster_has_a_plain_name() -> None:
    assert hub_settings([], {}).cluster == socket.gethostname()[:64]
    assert hub_settings([], {"GPUDECK_CLUSTER": "eu-north_1.b"}).cluster == "eu-north_1.b"
    for bad in ("", "a b", "-a", "ä", "a/b", "a" * 65, "=1+1"):
        with pytest.raises(CommandError, match="a name of letters"):
            hub_settings([], {"GPUDECK_CLUSTER": bad})
