"""How much one node may cause that the hub keeps: a stolen key must not be able to fill its memory
or its disk. Pure."""

from collections import deque
from collections.abc import Sequence

from gpudeck.wire import MAX_GPUS

HOUR_S, DAY_S = 3_600.0, 86_400.0
# (within, how many). GPUs, models and owners that were not known are kept for as long as the hub
# runs; boards that are split anew come with new instances, some dozens at once.
NEW_NAMES = ((HOUR_S, 4 * MAX_GPUS), (DAY_S, 16 * MAX_GPUS))


class NodeBudget:
    def __init__(self, bounds: Sequence[tuple[float, int]]) -> None:
        self._bounds = bounds
        self._longest_s = max(within_s for within_s, _ in bounds)
        self._spent: dict[str, deque[tuple[float, int]]] = {}  # by node: when, and how many

    def take(self, node_id: str, count: int, at: float) -> bool:
        """Whether so many more fit; then they count."""
        if count == 0:
            return True
        spent = self._spent.setdefault(node_id, deque())
        while spent and at - spent[0][0] > self._longest_s:
            spent.popleft()
        for within_s, most in self._bounds:
            if count + sum(many for when, many in spent if at - when <= within_s) > most:
                return False
        spent.append((at, count))
        return True
