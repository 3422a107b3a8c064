"""Nodes that sent more than they may, and are refused for a while."""

from dataclasses import dataclass

QUARANTINE_S = 30.0
QUARANTINE_MOST_S = 600.0


@dataclass(slots=True)
class NodeQuarantine:
    until_mono: float
    times: int


class NodeQuarantines:
    def __init__(self) -> None:
        self._of_node: dict[str, NodeQuarantine] = {}

    def left_s(self, node_id: str, mono: float) -> float:
        """0: it may come."""
        found = self._of_node.get(node_id)
        return 0.0 if found is None else max(0.0, found.until_mono - mono)

    def add(self, node_id: str, mono: float) -> float:
        """For how long; each time twice as long as before."""
        former = self._of_node.get(node_id)
        times = 1 if former is None else former.times + 1
        wait_s: float = min(QUARANTINE_MOST_S, QUARANTINE_S * 2 ** min(times - 1, 8))
        self._of_node[node_id] = NodeQuarantine(mono + wait_s, times)
        return wait_s
