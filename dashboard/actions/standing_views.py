"""What the routes of hold, keep and addresses are told, and what they answer."""

from typing import Annotated

from msgspec import Meta, Struct

NodeId = Annotated[str, Meta(min_length=1, max_length=128)]
Line = Annotated[str, Meta(max_length=400)]


class NewHold(Struct, forbid_unknown_fields=True):
    """`node` null: the whole fleet; said in so many words."""

    node: NodeId | None
    reason: Line = ""


class HoldView(Struct):
    by: str
    reason: str
    since: float


class NodeHoldView(Struct):
    """`holds`: what the node itself says is in force there. `wanted`: by this hub."""

    node: str
    host: str | None
    holds: list[str]
    wanted: bool
    by: str | None
    reason: str | None
    since: float | None


class HoldStateView(Struct):
    fleet: HoldView | None
    nodes: list[NodeHoldView]


class NewKeep(Struct, forbid_unknown_fields=True):
    until: float
    because: Line = ""
