"""History: what a point costs to take, seal and merge, what it takes on disk, and how long
questions last while more comes in."""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.figure import Figure
from tests.history_load import measure

WHOLE = ((1_000, 3_900), (10_000, 900))  # GPUs, seconds
QUICK = ((64, 700),)


def figures(sizes: Sequence[tuple[int, int]] = WHOLE) -> Iterator[Figure]:
    for gpus, seconds in sizes:
        with tempfile.TemporaryDirectory() as folder:
            for name, value, unit, goal in measure(Path(folder), gpus, seconds):
                yield Figure(name, value, unit, goal)
