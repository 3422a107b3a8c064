"""Growth of memory, its end, and how right the forecast was: out of rows as history has them."""

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from dashboard.history.columns.grid import TaskRows
from dashboard.insight.core.outlook import (
    AHEAD_S,
    LEAST_FORECASTS,
    MINUTE_S,
    READS_S,
    MemoryScore,
    MemoryTrackRecord,
    MinuteMemory,
    growing,
    score,
)
from dashboard.insight.task_memory import TaskMemoryHistory
from dashboard.insight.views import memory_view

GIB = 2.0**30
MINUTES = READS_S // MINUTE_S
END = 1_700_000_000 // 480 * 480


def memory(*rows: list[float]) -> MinuteMemory:
    return MinuteMemory([(f"t{at}", f"G{at}", "n1") for at in range(len(rows))],
                        ["ann"] * len(rows), np.array(rows))


def leak(per_h: float, begin: float = 10 * GIB) -> list[float]:
    return [begin + per_h * minute / 60 for minute in range(MINUTES)]


def test_who_grows_and_how_fast_the_fastest_first() -> None:
    rests = [10 * GIB] * MINUTES
    holed = leak(GIB)
    holed[-60:-30] = [float("nan")] * 30
    tasks = growing(memory(leak(GIB), rests, leak(2 * GIB), holed))
    assert [task.task_id for task in tasks] == ["t2", "t0"]
    assert tasks[0].per_s * 3_600 == pytest.approx(2 * GIB)
    soonest, likely, latest = tasks[1].full_in_s(80 * GIB, 75 * GIB)
    assert soonest <= likely <= latest
    assert likely == pytest.approx(3_600, rel=0.01)


def test_a_forecast_is_scored_by_what_came() -> None:
    stops = leak(GIB)
    stops[48:] = [stops[47]] * (MINUTES - 48)
    right, wrong = score(memory(leak(GIB)), END), score(memory(stops), END)
    assert (right.forecasts, wrong.forecasts) == (1, 1)
    assert right.error == pytest.approx(0, abs=1e6)
    assert right.stays_error == pytest.approx(GIB * AHEAD_S / 3_600)
    assert wrong.error > wrong.stays_error
    ended_task = leak(GIB)
    ended_task[-20:] = [float("nan")] * 20
    assert score(memory(ended_task), END).forecasts == 0


@pytest.mark.parametrize(("many", "error", "stays", "says"), [
    (LEAST_FORECASTS - 1, 0.0, 10.0, "of the 20 forecasts"), (LEAST_FORECASTS, 1.0, 10.0, ""),
    (LEAST_FORECASTS, 9.5, 10.0, "95%")])
def test_no_time_is_shown_that_was_not_better_than_none(many: int, error: float, stays: float,
                                                        says: str) -> None:
    record = MemoryTrackRecord()
    record.add(MemoryScore(END, many, error, stays))
    assert says in record.why_not()
    assert says != "" or record.why_not() == ""
    view = memory_view(growing(memory(leak(GIB))), END, record, lambda *_: ("h", "0"),
                       lambda *_: (80 * GIB, 12 * GIB))
    assert (view.items[0].full_in_s is None) == (says != "")
    assert view.items[0].bytes_per_s.mid > 0


def test_of_a_node_that_somebody_does_not_see_nothing_is_said() -> None:
    items = growing(memory(leak(GIB)))
    assert memory_view(items, END, MemoryTrackRecord(), lambda *_: None, lambda *_: None
                       ).items == []


def test_old_scores_are_forgotten() -> None:
    record = MemoryTrackRecord()
    record.add(MemoryScore(END, 5, 1.0, 2.0))
    record.add(MemoryScore(END + 8 * 86_400, 3, 1.0, 2.0))
    assert record.forecasts == 3


class TaskRowsOnly:
    """A history that knows who held what, in two parts: one task on two GPUs, and another."""

    def held(self, t0: int, t1: int, columns: Sequence[str] = ()) -> Iterator[TaskRows]:
        for first, last in ((t0, t0 + 3_000), (t0 + 3_000, t1)):
            minutes = np.arange(first, last, MINUTE_S)
            for name, task, gib in ((0, 0, 1.0), (1, 0, 2.0), (1, 1, 4.0)):
                size = len(minutes)
                yield TaskRows(
                    [("G0", "n1"), ("G1", "n1")], np.full(size, name), minutes,
                    {"task": (np.full(size, task, np.int32), ["a", "b"]),
                     "user": (np.full(size, task - 1, np.int32), ["ann"])},
                    {"mem_byte_s": np.full(size, gib * GIB * 60), "mem_s": np.full(size, 60.0)})


def test_rows_of_parts_are_joined_by_task_and_gpu() -> None:
    memory_of_tasks = TaskMemoryHistory(TaskRowsOnly()).until(END)  # type: ignore[arg-type]
    assert memory_of_tasks.keys == [("a", "G0", "n1"), ("a", "G1", "n1"), ("b", "G1", "n1")]
    assert memory_of_tasks.users == [None, None, "ann"]
    assert memory_of_tasks.bytes.shape == (3, MINUTES)
    assert np.allclose(memory_of_tasks.bytes, np.array([1.0, 2.0, 4.0])[:, None] * GIB)
