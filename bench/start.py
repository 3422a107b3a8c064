"""Time from the demo's start to a live fleet, and its hub's memory."""

import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from bench.figure import Figure
from tests.demos import Demo

# Nodes, and at most so many seconds and MB.
WHOLE = ((1, 6.0, 220.0), (8, 6.0, 400.0), (125, 15.0, 400.0))
QUICK = WHOLE[:1]


def figures(sizes: Sequence[tuple[int, float, float]] = WHOLE) -> Iterator[Figure]:
    for nodes, seconds, megabytes in sizes:
        with tempfile.TemporaryDirectory() as folder:
            began = time.monotonic()
            with Demo(Path(folder), "--nodes", str(nodes), "--gpus", "8") as demo:
                took_s = time.monotonic() - began
                time.sleep(5.0)
                weighs = psutil.Process(demo.info()["hub_pid"]).memory_full_info().pss / 1e6
        gpus = nodes * 8
        yield Figure(f"gpudeck demo, {gpus} GPUs: start to all live", took_s, "s", seconds)
        yield Figure(f"  its hub's PSS with {gpus} GPUs", weighs, "MB", megabytes)
