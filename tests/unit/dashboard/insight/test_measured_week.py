"""Hours by GPU and owner from what history answers."""

import random
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dashboard.insight.core.week import WeekGpu
from dashboard.insight.measured_week import HOUR_S, METRICS, SPAN_H, measured_week

NOW = 1_700_000_000.0
END = int(NOW) // HOUR_S * HOUR_S
GPUS = [WeekGpu(f"GPU-{at}", "n1", "host", str(at), "H100", 80.0 * 2**30, None) for at in range(3)]


class SmallHistory:
    """Answers with these tables, as every engine does."""

    def __init__(self, hours: int, lot: random.Random) -> None:
        self.begin: int | None = END - hours * HOUR_S
        times = range(END - hours * HOUR_S, END, HOUR_S)
        self.use_rows = [(t, gpu, user, lot.uniform(100, 3_600), lot.random())
                         for t in times for gpu in ("GPU-0", "GPU-1", "GPU-gone")
                         for user in ("ana", "bob", None) if lot.random() < 0.4]
        self.values = [(gpu, t, *(lot.uniform(0, 100) for _ in range(2 * len(METRICS))))
                       for t in times for gpu in ("GPU-0", "GPU-1") if lot.random() < 0.8]

    def since(self) -> int | None:
        return self.begin

    def usage(self, by: str, bucket: int, t0: float, t1: float) -> pd.DataFrame:
        rows = pd.DataFrame([
            {"t": t, "gpu": gpu, "user": user, "gpu_s": seconds, "idle_s": seconds * idle}
            for t, gpu, user, seconds, idle in self.use_rows if t0 <= t < t1])
        return rows.groupby(["t", by], dropna=False)[["gpu_s", "idle_s"]].sum().reset_index()

    def held(self, by: Any, t0: float, t1: float) -> pd.DataFrame:
        rows = pd.DataFrame([{"gpu": gpu, "user": user, "gpu_s": seconds}
                             for _, gpu, user, seconds, _ in self.use_rows])
        return rows.groupby(["gpu", "user"], dropna=False)["gpu_s"].sum().reset_index()

    def series(self, gpus: Any, metrics: Any, t0: float, t1: float, step: int, aggs: Any
               ) -> pd.DataFrame:
        names = [f"{metric}_{agg}" for metric in METRICS for agg in ("mean", "max")]
        return pd.DataFrame([dict(zip(("gpu", "t", *names), row, strict=True))
                             for row in self.values if t0 <= float(row[1]) < t1])


def test_each_number_is_where_it_belongs() -> None:
    history: Any = SmallHistory(30, random.Random(random.randrange(10**6)))
    week = measured_week(history, GPUS, NOW)
    assert week.hours == 30
    for gpu in range(2):
        for hour in range(30):
            t = history.begin + hour * HOUR_S
            rows = [row for row in history.use_rows if row[:2] == (t, f"GPU-{gpu}")]
            assert week.held[hour, gpu] == pytest.approx(
                min(1.0, sum(row[3] for row in rows) / HOUR_S))
            there = [row for row in history.values if row[:2] == (f"GPU-{gpu}", t)]
            assert np.isnan(week.util[hour, gpu]) == (there == [])
            if there:
                assert week.util[hour, gpu] == there[0][2]
                peak = 2 + 2 * [*METRICS].index("mem_used_bytes") + 1
                assert week.memory[hour, gpu] == there[0][peak]
    assert week.held[:, 2].sum() == 0
    ana = week.owners.index("ana")
    assert week.owner_used[:, ana].sum() == pytest.approx(sum(
        row[3] * (1 - row[4]) for row in history.use_rows if row[2] == "ana") / HOUR_S)


def test_an_owner_is_who_held_it_nearly_alone() -> None:
    history: Any = SmallHistory(10, random.Random(1))
    history.use_rows = [(END - HOUR_S, gpu, user, seconds, 0.0) for gpu, user, seconds in (
        ("GPU-0", "ana", 960.0), ("GPU-0", None, 40.0), ("GPU-1", "ana", 900.0),
        ("GPU-1", "bob", 100.0))]
    assert [gpu.owner for gpu in measured_week(history, GPUS, NOW).gpus] == ["ana", None, None]


def test_eight_days_at_most_and_none_of_an_empty_history() -> None:
    long: Any = SmallHistory(SPAN_H + 50, random.Random(2))
    assert measured_week(long, GPUS, NOW).hours == SPAN_H
    empty: Any = SmallHistory(0, random.Random(3))
    empty.begin = None
    assert measured_week(empty, GPUS, NOW).hours == 0
