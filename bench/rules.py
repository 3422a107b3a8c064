"""Rules: what it costs to look at all of them once a second, and how long a rehearsal of one over
a day of a large fleet takes. CPU of this process, not the clock's time."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.figure import Figure
from tests.rules_load import measure

WHOLE, QUICK = 10_000, 1_000  # GPUs


def figures(gpus: int = WHOLE) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        for name, value, unit, goal in measure(Path(folder), gpus):
            yield Figure(name, value, unit, goal)
