"""Writes performance.md from bench/results.json, on the machine that `make bench` ran on:
`python -m docs.make_performance`.

Not a part of `make docs`: the figures of one machine and day are kept, not made anew by everybody.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path

from bench.figure import RESULTS, Figure
from docs.make_reference import table

PAGE = Path(__file__).resolve().with_name("performance.md")
NOTE = "<!-- made by docs/make_performance.py from bench/results.json -->"
HEAD = ("figure", "measured", "goal, at most", "")
# Of goals that were missed when this was written: why, as far as it was measured, and what would.
WHY = (
    ("of one core",
     "The handler that only receives took half as much again as on the machine before, where the "
     "hub took 32.5 %: by the ratio it costs less than then. A share is of the core it is run on."),
    ("decode, validate, apply, store / receive-only",
     "It is measured at 40 agents and at 1,250. At 1,250, by a sampling "
     "profiler, 72 % of the hub's time is the handling of messages; the rest is history, the "
     "recorder and each second's looks, which the handler it is compared with has not. Fewer and "
     "larger batches of history would take some of it."),
    ("sample to pixel",
     "Five browsers, the hub and 1,250 senders share two cores, which are full. Cells leave the "
     "hub every 80 ms, so that half of 80 ms is waiting; every 60 ms would do, for 2 % of a core "
     "more."),
    ("CPU per million points",
     "Two thirds of it are taking: some 2 us to log a frame of 8 GPUs and 5 us to take it, mostly "
     "Python's work for each frame and each use of a GPU by a task; ticks of a small fleet pay "
     "for dozens of calls of numpy and for an fdatasync each. Of sealing, half is Parquet's own "
     "encoding, 0.011 s per million points alone. A decoder of frames into columns in C would."),
    ("gpudeck / VictoriaMetrics, CPU",
     "The reason of CPU per million points."),
    ("q1:",
     "An hour of raw seconds of 500 GPUs and more lies in twelve files. To read the GPU's seconds "
     "out of one takes 0.3 ms the first time; one row group is unpacked for it, of 128 GPUs. Fewer "
     "GPUs in each would, for more bytes."),
    ("q2:",
     "10 of 16 ms of CPU unpack one metric of 10,000 GPUs for five minutes, to take one second of "
     "it, the first time."),
    ("an owner's util_pct",
     "Suspected, not measured: who held which GPU in each minute is read and joined with the "
     "numbers of those GPUs, and all put together by owner."),
    ("rehearsal, 24 h x 10,000 GPUs, idle",
     "Of 1.3 s of CPU, 0.7 s read the minutes; the rest are a window and a machine "
     "over 10,000 rows, 1,440 times. What neither waits nor begins to costs next to nothing."),
)
CURVE = re.compile(r"growth, ([\d,]+) GPUs: (.+)")


def page(figures: Iterable[Figure], machine: str, day: date, note: str = "") -> str:
    figures = list(figures)
    curve = [figure for figure in figures if CURVE.fullmatch(figure.name)]
    figures = [figure for figure in figures if figure not in curve]
    goals = [figure for figure in figures if figure.goal is not None]
    missed = [figure.name.strip() for figure in goals if not figure.is_met]
    verdict = f"{len(goals) - len(missed)} of {len(goals)} goals are met."
    if missed:
        verdict += f" Not met: {'; '.join(_missed_names(figures))}."
    return "\n\n".join([
        "# What it costs", NOTE,
        "`make bench` prints these on your machine. Compare ratios, not times: all figures of a "
        "group were measured together in one run, the peers included. A figure without a "
        "goal is there for comparison; an indented one belongs to that above it.",
        f"Measured on {day.isoformat()}, on {machine}.{note and f' {note}'}",
        verdict,
        table(HEAD, [_row(figure) for figure in figures]),
        *_reasons(missed),
        *_growth(curve),
        "To make this page again: `make bench`, then `python -m docs.make_performance`.",
    ]) + "\n"


def _missed_names(figures: Iterable[Figure]) -> Iterator[str]:
    """Yield names that stand by themselves: an indented one follows that of its group."""
    group = ""
    for figure in figures:
        name = figure.name.strip()
        if not figure.name.startswith(" "):
            group = name
        if figure.is_met is False:
            yield name if name == group else f"{group}: {name}"


def _reasons(missed: list[str]) -> list[str]:
    reasons = [(begin, why) for begin, why in WHY if any(begin in name for name in missed)]
    if not reasons:
        return []
    return ["## Why not, and what would",
            table(("goal", "why"), [(begin.rstrip(":"), why) for begin, why in reasons])]


def _growth(curve: list[Figure]) -> list[str]:
    """A line for each size of the fleet."""
    if not curve:
        return []
    sizes: dict[str, dict[str, str]] = {}
    heads: dict[str, str] = {}
    for figure in curve:
        match = CURVE.fullmatch(figure.name)
        assert match is not None
        sizes.setdefault(match[1], {})[match[2]] = f"{figure.value:.3g}"
        heads[match[2]] = f"{match[2]}, {figure.unit}"
    lines = [(gpus, *(cells.get(what, "") for what in heads)) for gpus, cells in sizes.items()]
    return ["## From 8 to 10,000 GPUs",
            "One hub whose fleet grows; exponents of these curves are among the figures above.",
            table(("GPUs", *heads.values()), lines)]


def _row(figure: Figure) -> tuple[str, ...]:
    name = figure.name.strip()
    if figure.name.startswith(" "):
        name = f"· {name}"
    goal = "" if figure.goal is None else f"{figure.goal:.4g} {figure.unit}"
    verdict = {None: "", True: "met", False: "**not met**"}[figure.is_met]
    return name, f"{figure.value:.4g} {figure.unit}", goal, verdict


def read(path: Path = RESULTS) -> list[Figure]:
    rows = json.loads(path.read_text())
    return [Figure(row["name"], row["value"], row["unit"], row["goal"]) for row in rows]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--note", default="", help="a sentence on how this run went")
    note = parser.parse_args().note
    if not RESULTS.exists():
        print(f"{RESULTS.name} is not there: run `make bench` first", file=sys.stderr)
        return 1
    rows = json.loads(RESULTS.read_text())
    days = sorted({datetime.fromtimestamp(row["at"], UTC).date() for row in rows})
    if len(days) > 1:
        note = f"Some groups are older, the oldest of {days[0].isoformat()}. {note}".strip()
    PAGE.write_text(page(read(), max(rows, key=lambda row: row["at"])["machine"], days[-1],
                         note))
    return 0


if __name__ == "__main__":
    sys.exit(main())
