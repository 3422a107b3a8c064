"""History beside VictoriaMetrics, where Debian's package is there: the same seconds in one run."""

import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.figure import Figure
from tests.history_peers import PROGRAM, measure, server

WHOLE = ((1_000, 1_920), (10_000, 240))  # GPUs, seconds
QUICK = ((64, 240),)


def figures(sizes: Sequence[tuple[int, int]] = WHOLE) -> Iterator[Figure]:
    if shutil.which(PROGRAM) is None:
        print(f"{PROGRAM} is not here: no figures beside it (apt-get install victoria-metrics)",
              file=sys.stderr)
        return
    for gpus, seconds in sizes:
        with tempfile.TemporaryDirectory() as folder, server(Path(folder) / "vm") as peer:
            for name, value, unit, goal in measure(Path(folder) / "ours", peer, gpus, seconds):
                yield Figure(name, value, unit, goal)
