"""Answers that every engine of history gives: the least of it, each question once."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from dashboard.history.columns.grid import HistoryGrid, Wanted
from dashboard.history.columns.rows import HistoryMessage
from dashboard.history.reads.embedded import EmbeddedHistory
from dashboard.history.reads.protocol import History
from gpudeck.contract.wire import Event
from tests.unit.histories import START, Source, differences

Open = Callable[[], History]
MINUTES = 10
END = START + 60 * MINUTES
SETTLED = float(END + 1_000)  # all is in files, or wherever the engine keeps what is old
XID_AT = START + 30
MEAN_POWER: Wanted = {"power_w": frozenset(("mean",))}


def embedded(folder: Path) -> Open:
    def opened() -> History:
        history = EmbeddedHistory(folder)
        history.open()
        return history
    return opened


class FilledHistory:
    def __init__(self, opened: Open) -> None:
        self.source = Source(random.randrange(10**9), nodes=2, gpus=2)
        self.opened = opened
        self.history = opened()
        self.history.append(self.source.greetings(), 1)
        self.history.append(self.source.span(START, END), 2)
        self.node = next(iter(self.source.uuids))
        self.gpu = self.source.uuids[self.node][0]
        self.history.append([HistoryMessage(self.node, "s", float(XID_AT), Event(
            1_000_000, float(XID_AT), "xid", self.gpu, None, "", {"xid": 79.0}))], 2)


@pytest.fixture(name="filled", params=[embedded])
def _filled(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FilledHistory]:
    filled = FilledHistory(request.param(tmp_path / "history"))
    yield filled
    filled.history.close()


def in_memory(_: FilledHistory) -> None:
    """Leave history as it came."""


def settled(filled: FilledHistory) -> None:
    filled.history.maintain(SETTLED, SETTLED)


def reopened(filled: FilledHistory) -> None:
    settled(filled)
    assert filled.history.first_segment() is None
    filled.history.close()
    filled.history = filled.opened()


@pytest.fixture(name="past", params=[in_memory, settled, reopened])
def _past(request: pytest.FixtureRequest, filled: FilledHistory) -> FilledHistory:
    request.param(filled)
    return filled


def test_every_second_is_as_it_came(past: FilledHistory) -> None:
    assert differences(past.history, past.source, START, END) == []


def test_a_moment_is_told_by_each_of_its_questions(past: FilledHistory) -> None:
    history, source, at = past.history, past.source, END - 1
    instant = history.instant("power_w", at).set_index("gpu")["value"].sort_index()
    matrix = history.instants("power_w", [at])
    assert set(instant.index) == set(source.all_uuids)
    assert len(matrix.pairs) == len(source.all_uuids)
    of_one = [(gpu, at) for gpu in source.all_uuids if (gpu, at) in source.truth]
    for gpu, second in of_one:
        watts = source.truth[gpu, second]["power_w"]
        assert (np.isnan(instant[gpu]) if isinstance(watts, str) else instant[gpu] == watts)


def test_who_held_what(past: FilledHistory) -> None:
    history, seconds = past.history, sum(past.source.tasks.values())
    usage = history.usage("user", 0, START, END)
    assert usage["gpu_s"].sum() <= seconds
    assert set(usage["user"]) == {"user-n0", "user-n1"}
    assert history.held(("user",), START, END)["gpu_s"].sum() == usage["gpu_s"].sum()
    assert history.tasks(START, END)["seconds"].sum() == usage["gpu_s"].sum()
    rows = [row for part in history.rules.held(START, END) for row in part.numbers["seconds"]]
    assert sum(rows) == usage["gpu_s"].sum()
    assert history.since() == START


def test_events_are_there_once(past: FilledHistory) -> None:
    events = past.history.events(START, END)
    assert sorted(zip(events["node"], events["seq"], strict=True)) == sorted(
        [*past.source.events, (past.node, 1_000_000)])
    assert past.history.rules.xids(START, END) == [
        (float(XID_AT), past.node, past.gpu, {"xid": 79.0})]


def test_rules_read_minutes_of_the_past(past: FilledHistory) -> None:
    rules = past.history.rules
    assert rules.begins(60) == START
    grid = HistoryGrid(START, 60, MINUTES)
    rules.past(MEAN_POWER, grid)
    assert {gpu for gpu, _ in grid.rows} == set(past.source.all_uuids)


def test_a_rule_reads_the_minute_that_ended(filled: FilledHistory) -> None:
    grid = filled.history.rules.minute(END - 60, MEAN_POWER)
    assert {gpu for gpu, _ in grid.rows} == set(filled.source.all_uuids)


def test_how_it_fares(past: FilledHistory) -> None:
    info = past.history.info()
    assert (info.error, info.quarantined, info.counts["unreadable"]) == (None, [], 0)
    assert past.history.finest(START) == 1
