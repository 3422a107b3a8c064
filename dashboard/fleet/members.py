"""Members of a hub: the nodes it knows by their keys, and the places it has for new ones."""

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec

from ..access.policy import DEFAULT_GROUP, GROUP
from ..trusted_networks import networks
from .host_lists import host_names

MAX_HOSTS_TEXT = 4_096
MAX_USES = 10_000
LASTS_S = 3_600.0
LASTS_MOST_S = 90 * 86_400.0
# When a node that is turned away recurs: soon, while somebody is about to let it in.
WAITING_RETRY_S = 5.0
UNKNOWN_RETRY_S = 60.0
REVOKED_RETRY_S = 600.0
REVOKED = ("this node's key was revoked; to bring the node back, delete agent.key in its data "
           "folder and enrol it again")

Access = Literal["approved", "waiting", "revoked"]
NodeGroup = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Hosts = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_HOSTS_TEXT)]


@dataclass(frozen=True, slots=True)
class Enrolment:
    """Permission for `uses` nodes to enrol. `key` is the token's public half: it opens no door."""

    id: str
    key: bytes
    host: str | None  # a name, or a list of names; None: any
    approve: bool  # an admin must look at the fingerprint first
    group: str
    created_at: float
    created_by: str
    expires_at: float
    used_by: str | None = None  # the node that used it up
    uses: int = 1
    used: int = 0
    networks: str = ""  # from which nodes may come, comma-separated; "": any


@dataclass(frozen=True, slots=True)
class EnrolledNode:
    """A node's key, and the hub's decision about it."""

    node_id: str
    key: bytes
    host: str  # as it called itself when it came
    group: str
    access: Access
    enrolled_at: float
    enrolment: str
    decided_by: str | None = None  # who approved or revoked it


class TakeoversView(msgspec.Struct):
    """Count of connections with the node's key that ended another one which was still open: now and
    then it is a broken line, again and again it is two agents with one key."""

    count: int
    last_at: float | None


class NewEnrolment(msgspec.Struct, forbid_unknown_fields=True):
    """`host`: only nodes with this host name, or one of a list such as `gpu[01-40]`. `uses`: for
    how many nodes; by default 1, or the length of the list. `networks`: only from these.
    `approve`: an admin must compare fingerprints first."""

    host: Hosts | None = None
    approve: bool = False
    group: NodeGroup = DEFAULT_GROUP
    uses: Annotated[int, msgspec.Meta(ge=1, le=MAX_USES)] | None = None
    networks: Annotated[str, msgspec.Meta(max_length=4_096)] = ""
    lasts_s: Annotated[float, msgspec.Meta(ge=60, le=LASTS_MOST_S)] = LASTS_S

    def flaw(self) -> str | None:
        try:
            if self.host is not None:
                host_names(self.host)
            networks(self.networks)
        except ValueError as error:
            return str(error)
        return group_flaw(self.group)

    @property
    def places(self) -> int:
        if self.uses is not None:
            return self.uses
        return 1 if self.host is None else len(host_names(self.host))


def group_flaw(group: str) -> str | None:
    """Return what is wrong with it. A node is in one group; `*`, all groups, is for viewers."""
    if group != "*" and GROUP.fullmatch(group):
        return None
    return f"{group[:80]!r} is not a group of nodes: 1 to 64 of A-Z a-z 0-9 . _ -"
