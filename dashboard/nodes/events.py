"""Events of the membership of nodes, for the rest of the hub."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NodeRevoked:
    node_id: str


@dataclass(frozen=True, slots=True)
class GroupChanged:
    """A node changed its group, or has just been enrolled in it."""

    node_id: str
    group: str
