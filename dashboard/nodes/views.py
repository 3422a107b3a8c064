"""Requests and answers of the REST routes of enrolments and nodes."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from ..fleet.members import NodeGroup


class EnrolmentView(Struct, omit_defaults=True):
    id: str
    host: str | None
    approve: bool
    group: str
    created_at: float
    created_by: str
    expires_at: float
    used_by: str | None  # id of the node that used it up
    uses: int
    used: int
    networks: str
    token: str | None = None  # shown once
    command: str | None = None  # the line to paste on the node; it holds the token


class EnrolmentList(Struct):
    items: list[EnrolmentView]
    next: str | None = None


class ApprovalRequest(Struct, forbid_unknown_fields=True):
    """Fingerprints as agents print them, blanks and case aside, whole."""

    fingerprints: Annotated[list[Annotated[str, Meta(max_length=100)]],
                            Meta(min_length=1, max_length=1_000)]


class ApprovalView(Struct):
    """`unknown`: no node with this fingerprint has come so far."""

    fingerprint: str
    host: str | None
    outcome: Literal["approved", "already", "revoked", "unknown"]


class ApprovalViewList(Struct):
    items: list[ApprovalView]
    next: str | None = None


class NodeChange(Struct, forbid_unknown_fields=True):
    group: NodeGroup
