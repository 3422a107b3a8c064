"""Hosts in history: the mean and most of each minute, in memory, in files and merged; and the host
CPU of tasks beside their GPUs."""

import random
from pathlib import Path

import numpy as np
import pytest

from dashboard.history.reads.embedded import EmbeddedHistory
from tests.unit.histories import START, Source

HOUR_S = 3_600


def test_minutes_say_what_was_told(tmp_path: Path) -> None:
    history, source = EmbeddedHistory(tmp_path), Source(random.randrange(10**6))
    history.open()
    history.append([*source.greetings(), *source.span(START, START + 400)], 1)
    for now in (START + 10, START + 1_000, START + 2 * HOUR_S):  # memory, files, merged
        history.store.maintain(now)
        frame = history.hosts(START, START + 400, 60)
        rows = {(row["node"], row["t"]): row for row in frame.to_dict("records")}
        assert {*rows} == {*source.hosts}
        for key, values in source.hosts.items():
            assert rows[key]["cpu_pct_mean"] == pytest.approx(np.mean(values))
            assert rows[key]["cpu_pct_max"] == pytest.approx(max(values))
            assert rows[key]["samples"] == len(values)
            assert np.isnan(rows[key]["load_1m_mean"])  # out of its range is not a number
    whole = history.hosts(START, START + 400, HOUR_S, frozenset({"n1"}))
    every = [value for (node, _), values in source.hosts.items() if node == "n1"
             for value in values]
    assert whole["node"].tolist() == ["n1"]
    assert whole["cpu_pct_mean"][0] == pytest.approx(np.mean(every))
    assert len(history.store.manifest.of_kind("hosts")) == 1


def test_the_host_cpu_of_a_task_is_kept_by_the_second_it_was_so(tmp_path: Path) -> None:
    """Seconds with one value after the other, as frames told them; before the first nothing is
    known."""
    history, source = EmbeddedHistory(tmp_path), Source(random.randrange(10**6), nodes=1)
    history.open()
    cpu_pct: list[float | None] = []
    messages = source.greetings()
    for t in range(START + 3, START + 63):
        more = source.second(t, whole=True)
        frame = more[0].message
        tasks = getattr(frame.host, "tasks", ())  # type: ignore[union-attr]
        cpu_pct.append(tasks[0].cpu_pct if tasks else cpu_pct[-1] if cpu_pct else None)
        messages += more
    history.append(messages, 1)
    for now in (START + 100, START + 1_000):
        history.store.maintain(now)
        rows = history.tasks(START, START + 120).sort_values("t")
        minute = [value for value in cpu_pct[:57] if value is not None]
        assert rows["host_cpu_s"].tolist()[0] == len(minute)
        assert rows["host_cpu_pct_s"].tolist()[0] == pytest.approx(sum(minute))
        assert rows["host_cpu_max_pct"].tolist()[0] == pytest.approx(max(minute))
