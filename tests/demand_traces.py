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
    """Started minus ended, every ten minutes."""
    held = np.cumsum([float(row["start_gpu_num"]) - float(row["end_gpu_num"])
                      for row in _rows(path)])
    found: Floats = held[: len(held) // 6 * 6].reshape(-1, 6).mean(axis=1)[:VENUS_HOURS]
    return found


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with path.open() as lines:
        yield from csv.DictReader(lines)


def row(name: str, hours: Floats) -> str:
    """Of the page."""
    found = forecast(hours, 0.0)
    return f"| {name} | {len(hours):,} h, {_words(found)} |"


def _words(found: DayForecast) -> str:
    test = found.test
    if test is None:
        return found.why
    shown = "shown" if not found.why else "not shown"
    inside = "" if test.covered is None else f"{test.covered:.0%}"
    return (f"{test.folds} days | {test.errors[OURS]:.1f} | "
            f"{test.errors[test.best_naive]:.1f} ({test.best_naive}) | {test.ratio:.2f} | "
            f"{inside} | {shown}")


if __name__ == "__main__":
    print(row("openb", openb()))
    for given in sys.argv[1:]:
        print(row("Venus", venus(Path(given))))
    print(f"better: at most {demand.BETTER_BY:.2f}")
