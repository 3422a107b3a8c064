"""Rules of tasks and jobs over the past, in pieces of a span."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dashboard.alerts.rehearsal import tasks
from dashboard.alerts.rehearsal.engine import RehearsalEngine
from tests.unit import fleets
from tests.unit.dashboard.alerts.test_owner_rehearsal import BEGIN, Past, ready


def test_many_short_tasks_are_read_in_pieces_of_a_bounded_size(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    past, minutes, most = Past(tmp_path), 150, 9_000
    for minute in range(minutes):
        past.write(fleets.tasks(*((f"t{minute}-{gpu}", gpu, "ann") for gpu in range(2))),
                   range(minute * 60, minute * 60 + 60, 15))
    monkeypatch.setattr(tasks, "MOST_CELLS", most)
    sizes: list[int] = []
    by_row = tasks._rows

    def measured(values: Any, *more: Any) -> Any:
        rows = by_row(values, *more)
        sizes.extend((values.size, rows.size))
        return rows

    monkeypatch.setattr(tasks, "_rows", measured)
    rule = ready("gpus", of="task", where=["mem_used_bytes > 0"])
    source = past.source(rule)
    rehearsal = RehearsalEngine(source.ready)
    ends = [BEGIN]
    for chunk in source.stretches(BEGIN, BEGIN + 60 * minutes):
        assert chunk.t0 == ends[-1], "one after another, without a gap"
        ends.append(chunk.t0 + chunk.width * 60)
        rehearsal.take(chunk)
    past.history.close()
    assert max(sizes) <= most
    assert ends[-1] == BEGIN + 60 * minutes
    assert rehearsal.targets == 2 * minutes


def test_a_quiet_past_is_read_a_day_at_once_soon(tmp_path: Path) -> None:
    past = Past(tmp_path)
    source, day = past.source(ready("gpus", of="task")), 86_400
    start = BEGIN - BEGIN % day
    widths = [chunk.width for chunk in source.stretches(start, start + 4 * day)]
    past.history.close()
    assert np.sum(widths) == 4 * 1_440
    assert widths[-3:] == [1_440] * 3
