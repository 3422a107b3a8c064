"""What the membership of nodes tells the rest of the hub."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NodeRevoked:
    node_id: str


@dataclass(frozen=True, slots=True)
class GroupChanged:
    """Also of a node that has just been enrolled."""

    node_id: str
    group: str
