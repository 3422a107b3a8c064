"""Rules of owners over the past: what they held in each minute of history."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from dashboard.alerts.core.rule import CompiledRule, check, read
from dashboard.alerts.core.rule_signal import How, SignalTerm
from dashboard.alerts.rehearsal.engine import RehearsalEngine
from dashboard.alerts.rehearsal.service import SOURCES
from dashboard.alerts.rehearsal.source import CannotRehearseError
from dashboard.alerts.rehearsal.tasks import TaskRehearsalSource
from dashboard.fleet.fleet import Fleet
from dashboard.history.columns.rows import HistoryMessage
from dashboard.history.reads.embedded import EmbeddedHistory
from gpudeck.contract.wire import Event, Inventory, Tasks
from tests.unit import fleets

BEGIN = 1_699_999_200
FAULT = 31.0  # an Xid of the program's making
BOARD = 79.0


def ready(signal: str, **change: Any) -> CompiledRule:
    return check(read({"id": "r", "title": "r", "scope": "*", "of": "owner", "signal": signal,
                       "fire": ">= 1", "clear": "< 1", "for": "5m"} | change))


class Past:
    """A history of one node with four GPUs."""

    def __init__(self, folder: Path) -> None:
        self.history, self.fleet, self.seq = EmbeddedHistory(folder / "history"), Fleet(1), 0
        self.history.open()
        node = fleets.add_node(self.fleet, "n1", 4)
        self.put(HistoryMessage("n1", "s1", 0.0, node.hello), HistoryMessage(
            "n1", "s1", 0.0, Inventory(1, tuple(fleets.facts("n1", gpu) for gpu in range(4)))))

    def put(self, *messages: HistoryMessage) -> None:
        self.history.append([*messages], 1)

    def write(self, tasks: Tasks, seconds: Sequence[int], is_late: bool = False) -> None:
        first, self.seq = self.seq + 1, self.seq + len(seconds)
        self.put(*(HistoryMessage("n1", "s1", BEGIN + at + 0.5, fleets.frame(
            [{"util_pct": 50.0}] * 4, seq, BEGIN + at + 0.2, tasks=tasks), BEGIN + at, is_late)
            for seq, at in enumerate(seconds, first)))

    def xid(self, gpu: int, at: float, code: float) -> None:
        self.seq += 1
        self.put(HistoryMessage("n1", "s1", BEGIN + at, Event(
            self.seq, BEGIN + at, "xid", f"GPU-n1-{gpu}", numbers={"xid": code, "count": 1.0})))

    def source(self, rule: CompiledRule) -> TaskRehearsalSource:
        return TaskRehearsalSource(self.history.rules, self.fleet, rule)

    def numbers(self, name: str, minutes: int, how: How = "last") -> dict[str, list[float]]:
        """Return a number of each owner, by the minute."""
        source = self.source(ready(name, clear=""))
        [chunk] = source.stretches(BEGIN, BEGIN + 60 * minutes)
        values = chunk.values(SignalTerm(how, name), slice(None))[:, :chunk.width]
        return {source.name(row).key: values[row].tolist() for row in range(chunk.size)}

    def rehearsed(self, rule: CompiledRule, minutes: int) -> RehearsalEngine:
        source = self.source(rule)
        rehearsal = RehearsalEngine(source.ready)
        for chunk in source.stretches(BEGIN, BEGIN + 60 * minutes):
            rehearsal.take(chunk)
        return rehearsal


@pytest.fixture(name="past")
def _past(tmp_path: Path) -> Iterator[Past]:
    past = Past(tmp_path)
    yield past
    past.history.close()


def test_owners_are_read_like_tasks_and_jobs() -> None:
    assert SOURCES["owner"] is SOURCES["task"] is SOURCES["job"] is TaskRehearsalSource


def test_each_owner_has_what_their_tasks_hold_together(past: Past) -> None:
    past.write(fleets.tasks(("a", 0, "ann"), ("b", 1, "ann"), ("c", 1, "bob"), ("d", 2, "bob")),
               range(540))
    assert past.numbers("gpus", 8) == {"ann": [2.0] * 8, "bob": [2.0] * 8}
    assert past.numbers("tasks", 8) == {"ann": [2.0] * 8, "bob": [2.0] * 8}
    assert past.numbers("mem_used_bytes", 8)["ann"] == [2e9] * 8
    assert past.numbers("util_pct", 8)["bob"] == [50.0] * 8


def test_whose_task_nobody_knows_is_in_nobodys_row(past: Past) -> None:
    past.write(fleets.tasks(("a", 0, "ann"), ("b", 1, None), ("c", 0, None)), range(900))
    assert past.numbers("gpus", 14) == {"ann": [1.0] * 14}
    assert past.numbers("tasks", 14) == {"ann": [1.0] * 14}


def test_what_came_late_is_as_if_it_had_come_in_time(past: Past) -> None:
    """Messages that a node brings after an outage lie in separate files at first."""
    tasks, late = fleets.tasks(("t", 0, "ann")), range(290, 490)
    past.write(tasks, [at for at in range(600) if at not in late])
    past.write(tasks, late, is_late=True)
    past.history.store.maintain(BEGIN + 1_000.0)
    assert past.numbers("mem_used_bytes", 9) == {"ann": [1e9] * 9}


def test_a_fault_of_a_task_counts_for_ten_minutes_and_one_of_a_board_does_not(past: Past) -> None:
    past.write(fleets.tasks(("a", 0, "ann"), ("b", 1, "ann"), ("c", 2, "bob"), ("d", 3, "cat")),
               range(20 * 60))
    past.xid(1, 121.0, FAULT)
    past.xid(2, 121.0, BOARD)
    past.xid(3, -1.0, FAULT)  # some of the ten minutes are over as the span begins
    numbers = past.numbers("gpus_faulty", 19)
    assert numbers["ann"] == [0.0] * 2 + [1.0] * 10 + [0.0] * 7
    assert numbers["bob"] == [0.0] * 19
    assert numbers["cat"] == [1.0] * 10 + [0.0] * 9


def test_an_owner_whose_tasks_fail_fires_and_is_off_by_a_minute(past: Past) -> None:
    """The rule is like that of the pack for owners: it holds for two minutes, and only notifies."""
    past.write(fleets.tasks(*((f"t{gpu}", gpu, "ann") for gpu in range(4))), range(20 * 60))
    past.xid(1, 240.0, FAULT)
    past.xid(2, 240.0, FAULT)
    rule = ready("gpus_faulty / gpus", fire=">= 25%", clear="< 5%",
                 where=["gpus >= 4", "gpus_faulty >= 2"], **{"for": "2m"})
    [alert] = past.rehearsed(rule, 19).alerts()
    assert past.source(rule).off_by_s == 60
    # Live it fires two minutes after the fault.
    assert alert.fired_at - BEGIN == pytest.approx(240 + 120, abs=60)
    assert alert.ended_at is not None
    assert alert.ended_at - BEGIN == pytest.approx(240 + 600, abs=60)


def test_an_owner_is_in_scope_while_all_they_use_is(past: Past) -> None:
    past.write(fleets.tasks(("a", 0, "ann"), ("b", 1, "bob")), range(540))
    for scope, targets in (("user:nobody", 0), ("user:ann", 1), ("*", 2)):
        rehearsal = past.rehearsed(ready("gpus", scope=scope), 8)
        assert (rehearsal.targets, len(rehearsal.alerts())) == (targets, targets)


def test_an_owner_who_leaves_the_scope_is_at_rest_from_that_minute_on(past: Past) -> None:
    past.write(fleets.tasks(("a", 0, "ann")), range(600))
    past.write(fleets.tasks(("a", 0, "ann"), ("b", 1, "ann")), range(600, 1_200))
    [alert] = past.rehearsed(ready("gpus", scope="gpu:0"), 19).alerts()
    assert alert.ended_at is not None
    assert alert.ended_at - BEGIN == pytest.approx(660, abs=60)


@pytest.mark.parametrize("of", ["job", "owner"])
def test_what_is_out_of_scope_for_a_minute_comes_back_in_the_same_alert(past: Past, of: str
                                                                      ) -> None:
    pair = fleets.tasks(("a", 0, "ann"), ("b", 1, "ann"))
    outside = structs.replace(pair, began=tuple(
        structs.replace(task, job_id="j") for task in pair.began))
    inside = structs.replace(outside, began=outside.began[:1], uses=outside.uses[:1])
    past.write(inside, range(600))
    past.write(outside, range(600, 660))
    past.write(inside, range(660, 1_200))
    [alert] = past.rehearsed(ready("gpus", of=of, scope="gpu:0", keep_firing_for="5m"), 19).alerts()
    assert (alert.comebacks, alert.ended_at) == (1, None)


@pytest.mark.parametrize("scope", ["*", "user:ann"])
def test_where_nobody_holds_anything_nothing_would_be(past: Past, scope: str) -> None:
    for name in ("gpus", "mem_used_bytes", "gpus_faulty"):
        rehearsal = past.rehearsed(ready(name, scope=scope), 8)
        assert (rehearsal.targets, rehearsal.alerts()) == (0, [])


@pytest.mark.parametrize("change", [
    {"for": "30s"}, {"for": "4m", "ladder": [{"do": "tell"}], "mode": "dry_run"}])
def test_what_history_does_not_keep_of_an_owner_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(CannotRehearseError, match="history keeps owners by the minute"):
        TaskRehearsalSource(None, Fleet(1), ready("gpus", **change))  # type: ignore[arg-type]


def test_tasks_that_follow_one_another_in_a_minute_are_not_held_together(past: Past) -> None:
    """Two GPUs until 50 seconds into a minute, then the other two; after that one GPU for half a
    minute each, with a task that begins where another ends."""
    first, other = (fleets.tasks(*((f"{name}{gpu}", gpu, "ann") for gpu in gpus))
                    for name, gpus in (("a", (0, 1)), ("b", (2, 3))))
    past.write(first, range(110))
    past.write(other, range(110, 180))
    for at in range(180, 360, 30):
        past.write(fleets.tasks((f"c{at}", at // 30 % 4, "ann")), range(at, at + 30))
    for name, column in (("gpus", [2.0] * 3 + [1.0] * 2), ("tasks", [2.0] * 3 + [1.0] * 2),
                         ("jobs", [2.0] * 3 + [1.0] * 2), ("util_pct", [50.0] * 5),
                         ("mem_used_bytes", [2e9] * 3 + [1e9] * 2)):
        assert past.numbers(name, 5)["ann"] == pytest.approx(column), name
        assert past.numbers(name, 5, how="max")["ann"] == pytest.approx(column), name


def test_an_owner_of_short_tasks_fires_in_a_rehearsal_too_and_not_by_what_they_never_held(
        past: Past) -> None:
    for at in range(0, 900, 30):
        past.write(fleets.tasks((f"t{at}", at // 30 % 4, "ann")), range(at, at + 30))
    assert len(past.rehearsed(ready("gpus"), 14).alerts()) == 1
    assert past.rehearsed(ready("gpus", fire=">= 2", clear="< 2"), 14).alerts() == []
    assert past.source(ready("gpus")).off_by_s == 60


def test_an_owner_who_comes_or_goes_within_a_minute_has_what_they_held_while_present(
        past: Past) -> None:
    past.write(fleets.tasks(), range(8))
    past.write(fleets.tasks(("a", 0, "ann")), range(8, 140))
    past.write(fleets.tasks(), range(140, 240))
    [*before, last] = past.numbers("gpus", 3)["ann"]
    assert before == [1.0, 1.0]
    assert np.isnan(last), "20 seconds are too few"


def test_a_silent_minute_has_no_number(past: Past) -> None:
    tasks = fleets.tasks(("a", 0, "ann"))
    past.write(tasks, [*range(180), *range(360, 540)])
    assert np.isnan(past.numbers("gpus", 8)["ann"]).tolist() == [False] * 3 + [True] * 3 + [
        False] * 2
