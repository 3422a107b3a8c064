"""Cost of insight to a hub of 10,000 GPUs with a task on each: rules for anomalies, leaks and
findings once a second, forecasts and advice now and then. CPU of this process; what they ask of
history is measured by the group `history`."""

from collections.abc import Iterator

from bench.figure import Figure
from tests.insight_load import OWNERS, PER_NODE, WARM_MINUTES, measure

# Nodes, and minutes before what is measured.
WHOLE, QUICK = (1_250, WARM_MINUTES), (OWNERS // PER_NODE, 2)


def figures(sizes: tuple[int, int] = WHOLE) -> Iterator[Figure]:
    for name, value, unit, goal in measure(*sizes):
        yield Figure(name, value, unit, goal)
