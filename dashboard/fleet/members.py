"""Who belongs to a hub: the nodes it knows by their keys, and the places it has for new ones."""

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec

from ..access.policy import DEFAULT_GROUP, GROUP

MAX_HOST = 128
# When a node that is turned away recurs: soon, while somebody is about to let it in.
WAITING_RETRY_S = 5.0
UNKNOWN_RETRY_S = 60.0
REVOKED_RETRY_S = 600.0
REVOKED = ("this node's key was revoked; to bring the node back, delete agent.key in its data "
           "folder and enrol it again")

Access = Literal["approved", "waiting", "revoked"]
NodeGroup = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Host = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_HOST)]


@dataclass(frozen=True, slots=True)
class Enrolment:
    """One place for one node. `key` is the token's public half: nothing here opens a door."""

    id: str
    key: bytes
    host: str | None  # None: any
    approve: bool  # an admin must look at the fingerprint first
    group: str
    created_at: float
    created_by: str
    expires_at: float
    used_by: str | None = None


@dataclass(frozen=True, slots=True)
class EnrolledNode:
    """A node's key, and what the hub thinks of it."""

    node_id: str
    key: bytes
    host: str  # as it called itself when it came
    group: str
    access: Access
    enrolled_at: float
    enrolment: str
    decided_by: str | None = None  # who approved or revoked it


class TakeoversView(msgspec.Struct):
    """How often a connection with the node's key ended another one that was still open: now and
    then it is a broken line, again and again it is two agents with one key."""

    count: int
    last_at: float | None


class NewEnrolment(msgspec.Struct, forbid_unknown_fields=True):
    """`host`: only a node that calls itself so. `approve`: an admin must look at it first."""

    host: Host | None = None
    approve: bool = False
    group: NodeGroup = DEFAULT_GROUP

    def flaw(self) -> str | None:
        return group_flaw(self.group) or (None if self.host is None else host_flaw(self.host))


def host_flaw(host: str) -> str | None:
    if 1 <= len(host) <= MAX_HOST and host.isprintable() and host == host.strip():
        return None
    return f"a host name has 1 to {MAX_HOST} printable characters"


def group_flaw(group: str) -> str | None:
    """A node is in one group; `*`, all of them, is for those who look."""
    if group != "*" and GROUP.fullmatch(group):
        return None
    return f"{group[:80]!r} is no group of nodes: 1 to 64 of A-Z a-z 0-9 . _ -"
