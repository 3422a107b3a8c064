"""What the REST routes of enrolments and nodes are told, and what they answer."""

from typing import Annotated

from msgspec import Meta, Struct

from ..access.policy import DEFAULT_GROUP
from ..fleet.members import MAX_HOST

NodeGroup = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Host = Annotated[str, Meta(min_length=1, max_length=MAX_HOST)]


class NewEnrolment(Struct, forbid_unknown_fields=True):
    """`host`: only a node that calls itself so. `approve`: an admin must look at it first."""

    host: Host | None = None
    approve: bool = False
    group: NodeGroup = DEFAULT_GROUP


class EnrolmentView(Struct, omit_defaults=True):
    id: str
    host: str | None
    approve: bool
    group: str
    created_at: float
    created_by: str
    expires_at: float
    used_by: str | None  # the node's id
    token: str | None = None  # shown once
    command: str | None = None  # the line to paste on the node; it holds the token


class EnrolmentList(Struct):
    items: list[EnrolmentView]
    next: str | None = None


class NodeChange(Struct, forbid_unknown_fields=True):
    group: NodeGroup
