"""Choice of the MPS daemon that enforces a user's share of a GPU. Pure.

Without one a share is unlimited, and nothing says so; and a daemon serves one user at a time,
unless it was started with -multiuser-server (NVIDIA's MPS documentation)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpudeck.contract.limits import MpsDaemon

from .lock import NodeLease

ROOT = 0
UNKNOWN = "whether MPS runs here has not been seen yet; try again in some seconds"
NO_DAEMON = ("a share of a GPU is enforced by MPS, and no MPS control daemon that serves you runs "
             "on this node; without one the share would be the whole GPU. Start one (`gpudeck mps "
             "start`), or ask for a whole GPU")


@dataclass(frozen=True, slots=True)
class MpsFacts:
    """MPS daemons on this node. `daemons` None: nobody has looked yet. `multiuser`: pipe
    directories of those that serve several users at a time."""

    daemons: Sequence[MpsDaemon] | None = None
    multiuser: frozenset[str] = frozenset()


NOT_SEEN = MpsFacts()


@dataclass(frozen=True, slots=True)
class ShareHolder:
    """Daemon that enforces a share, by its `pipes`, or `why` there is none."""

    pipes: str = ""
    why: str = ""


def holder_of(uid: int, mps: MpsFacts, leases: Iterable[NodeLease]) -> ShareHolder:
    """Return the daemon for a user: their own before root's; those of others serve nobody else.
    `leases`: those that hold GPUs now."""
    if mps.daemons is None:
        return ShareHolder(why=UNKNOWN)
    serving = [daemon for daemon in mps.daemons if daemon.is_alive and daemon.uid in (uid, ROOT)]
    owners = ""
    for daemon in sorted(serving, key=lambda daemon: daemon.uid != uid):
        users = {server.user or "another user" for server in daemon.servers
                 if server.clients and server.uid != uid}
        users |= {lease.claim.owner for lease in leases
                  if lease.mps_pipes == daemon.pipes and lease.uid != uid}
        if not users or daemon.pipes in mps.multiuser:
            return ShareHolder(daemon.pipes)
        owners = owners or ", ".join(sorted(users))
    return ShareHolder(why=NO_DAEMON if not owners else (
        f"MPS serves one user at a time, and here that is {owners} now; it serves several when its "
        "daemon is started with -multiuser-server"))
