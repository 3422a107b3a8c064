"""Cost to the hub of a scrape of /metrics, of a fleet in which every GPU reports every metric."""

from collections.abc import Iterator, Sequence

from bench.figure import Figure
from tests.metrics_load import scrape_costs

WHOLE = (1_000, 10_000)
QUICK = (64,)
GOAL_S = 3.0


def figures(sizes: Sequence[int] = WHOLE) -> Iterator[Figure]:
    for gpus in sizes:
        cost = scrape_costs(gpus)
        goal = GOAL_S if gpus == WHOLE[-1] else None
        yield Figure(f"scrape of {gpus:,} GPUs with every metric, CPU", cost.whole_s, "s", goal)
        yield Figure("  of it on the hub's loop", cost.loop_s * 1e3, "ms", 50.0)
        yield Figure("  sent, packed", cost.body_bytes / 1e6, "MB")
