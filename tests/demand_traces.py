"""The error of the forecast of held GPUs on public traces, beside the naive guesses:
`python -m tests.demand_traces [cluster_throughput.csv]`. The second trace, Venus of Helios (April
to September 2020), is in Lucid at 63685a3 and not for commercial use, so it is not shipped."""

import csv
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dashboard.insight.core import demand
from dashboard.insight.core.demand import OURS, DayForecast, Floats, forecast

OPENB = Path(__file__).parent / "captures" / "openb" / "hours.csv"
VENUS_HOURS = 4_008


def openb() -> Floats:
    return np.array([float(row["gpus_held"]) for row in _rows(OPENB)])


def venus(path: Path) -> Floats:
    """GPUs held in each hour, from those started minus those ended in every ten minutes."""
    held_gpus = np.cumsum([float(row["start_gpu_num"]) - float(row["end_gpu_num"])
                           for row in _rows(path)])
    hours: Floats = held_gpus[: len(held_gpus) // 6 * 6].reshape(-1, 6).mean(axis=1)[:VENUS_HOURS]
    return hours


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with path.open() as lines:
        yield from csv.DictReader(lines)


def row(name: str, hours: Floats) -> str:
    """Return a row of the page's table."""
    day = forecast(hours, 0.0)
    return f"| {name} | {len(hours):,} h, {_words(day)} |"


def _words(day: DayForecast) -> str:
    test = day.test
    if test is None:
        return day.why
    verdict = "shown" if not day.why else "not shown"
    inside = "" if test.covered is None else f"{test.covered:.0%}"
    return (f"{test.folds} days | {test.errors[OURS]:.1f} | "
            f"{test.errors[test.best_naive]:.1f} ({test.best_naive}) | {test.ratio:.2f} | "
            f"{inside} | {verdict}")


if __name__ == "__main__":
    print(row("openb", openb()))
    for name in sys.argv[1:]:
        print(row("Venus", venus(Path(name))))
    print(f"better: at most {demand.BETTER_BY:.2f}")
