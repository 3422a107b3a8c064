"""Which daemon of MPS holds the share of a GPU for a user. Pure.

Without one a share is unlimited, and nothing says so; and a daemon serves one user at a time,
unless it was started with -multiuser-server (NVIDIA's MPS documentation).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpudeck.limits import MpsDaemon

from .lock import NodeLease

ROOT = 0
UNKNOWN = "whether MPS runs here has not been seen yet; try again in some seconds"
NO_DAEMON = ("a share of a GPU is enforced by MPS, and no MPS control daemon that serves you runs "
             "on this node; without one the share would be the whole GPU. Start one (`gpudeck mps "
             "start`), or ask for a whole GPU")


@dataclass(frozen=True, slots=True)
class MpsFacts:
    """`daemons` None: nobody has looked yet. `multiuser`: pipe directories of those that serve
    several users at a time."""

    daemons: Sequence[MpsDaemon] | None = None
    multiuser: frozenset[str] = frozenset()


NOT_SEEN = MpsFacts()


@dataclass(frozen=True, slots=True)
class ShareHolder:
    """`pipes` of the daemon that holds it, or `why` there is none."""

    pipes: str = ""
    why: str = ""


def holder_of(uid: int, mps: MpsFacts, leases: Iterable[NodeLease]) -> ShareHolder:
    """`leases`: that hold GPUs now. One's own daemon before root's; others' take nobody else."""
    if mps.daemons is None:
        return ShareHolder(why=UNKNOWN)
    serving = [each for each in mps.daemons if each.is_alive and each.uid in (uid, ROOT)]
    others = ""
    for daemon in sorted(serving, key=lambda each: each.uid != uid):
        users = {server.user or "another user" for server in daemon.servers
                 if server.clients and server.uid != uid}
        users |= {lease.claim.owner for lease in leases
                  if lease.mps_pipes == daemon.pipes and lease.uid != uid}
        if not users or daemon.pipes in mps.multiuser:
            return ShareHolder(daemon.pipes)
        others = others or ", ".join(sorted(users))
    return ShareHolder(why=NO_DAEMON if not others else (
        f"MPS serves one user at a time, and here that is {others} now; it serves several when its "
        "daemon is started with -multiuser-server"))
