"""Nodes that sent more than they may, and are refused for a while."""

from dataclasses import dataclass

QUARANTINE_S = 30.0
QUARANTINE_MOST_S = 600.0


@dataclass(frozen=True, slots=True)
class NodeRefusal:
    until: float
    until_mono: float
    why: str  # goes on "refused until ...: "


class NodeQuarantines:
    def __init__(self) -> None:
        self._of_node: dict[str, tuple[float, int]] = {}  # until when, and how often before

    def left_s(self, node_id: str, mono: float) -> float:
        """Return for how many seconds a node is still refused; 0: it may come."""
        return max(0.0, self._of_node.get(node_id, (mono, 0))[0] - mono)

    def add(self, node_id: str, mono: float) -> float:
        """Refuse a node; return for how many seconds, each time twice as many as before."""
        _, before = self._of_node.get(node_id, (mono, 0))
        wait_s: float = min(QUARANTINE_MOST_S, QUARANTINE_S * 2 ** min(before, 8))
        self._of_node[node_id] = (mono + wait_s, before + 1)
        return wait_s

    def restore(self, node_id: str, until_mono: float) -> None:
        """Restore a refusal from before the hub's restart."""
        former, before = self._of_node.get(node_id, (until_mono, 0))
        self._of_node[node_id] = (max(former, until_mono), before + 1)
