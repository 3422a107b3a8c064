"""MPS as it is on this node, with owners: what pages and previews show. Asks the control program;
on a thread that may wait."""

import os
from collections.abc import Callable, Iterable

from gpudeck.contract.limits import (
    MAX_CLIENTS,
    MAX_DAEMONS,
    MAX_SERVERS,
    MpsClient,
    MpsDaemon,
    MpsLimit,
)
from gpudeck.contract.limits import MpsServer as ServerView

from ..tasks.processes import about, shown_command
from ..tasks.user_table import name_of
from .mps import (
    DEAD,
    FOUND_FOR_S,
    MODERN_DRIVER,
    LocalMpsDaemons,
    MpsDaemonHandle,
    believed,
    is_old,
    path_trouble,
)

# The share that a server gave a client when it began, if known: by (pipes, server, pid).
ShareOf = Callable[[str, int, int], float | None]


def daemons(mps: LocalMpsDaemons, ordinals: Iterable[int] = (), share_of: ShareOf = lambda *_: None,
            task_ids: Callable[[int], str | None] = lambda _: None, driver: str | None = None
            ) -> tuple[MpsDaemon, ...]:
    """Return the daemons that answer, those of which something is left, and the agent's own if it
    has answered. `driver`: its version."""
    if not mps.is_installed():
        return ()
    views = [view(daemon, ordinals, share_of, task_ids, driver)
             for daemon in mps.daemons(FOUND_FOR_S)[:MAX_DAEMONS]
             if not path_trouble(daemon.folder)]
    own = str(mps.own().folder)
    mps.has_answered |= any(daemon.is_alive for daemon in views if daemon.pipes == own)
    return tuple(daemon for daemon in views if daemon.is_alive or daemon.uid is not None
                 or (mps.has_answered and daemon.pipes == own))


def view(daemon: MpsDaemonHandle, ordinals: Iterable[int] = (), share_of: ShareOf = lambda *_: None,
         task_ids: Callable[[int], str | None] = lambda _: None, driver: str | None = None
         ) -> MpsDaemon:
    pipes, uid = str(daemon.folder), daemon.owner()
    user = None if uid is None else name_of(uid)
    servers = daemon.servers()
    if servers is None:
        words = DEAD.format(pipes=pipes)
        remains = "" if uid is None else ". Its remains there are stale"
        return MpsDaemon(pipes, uid, user, False, words + remains)
    numbers = tuple(ordinals)
    return MpsDaemon(
        pipes, uid, user, True, _too_open(daemon, driver), daemon.percent(), daemon.priority(),
        _memory(daemon, numbers),
        tuple(_server(daemon, server, numbers, share_of, task_ids)
              for server in servers[:MAX_SERVERS]))


def _server(daemon: MpsDaemonHandle, server: int, ordinals: tuple[int, ...], share_of: ShareOf,
            task_ids: Callable[[int], str | None]) -> ServerView:
    pct = daemon.percent(server)
    pids = believed(daemon, daemon.clients(server))[:MAX_CLIENTS]
    uid = daemon.uid_of(server)
    return ServerView(
        server, uid, None if uid is None else name_of(uid), daemon.status(server), pct,
        _memory(daemon, ordinals, server),
        tuple(_client(pid, _first(share_of(str(daemon.folder), server, pid), pct), task_ids)
              for pid in pids))


def _first(old: float | None, now: float | None) -> float | None:
    return now if old is None else old


def _client(pid: int, pct: float | None, task_ids: Callable[[int], str | None]) -> MpsClient:
    process = about(pid)
    command = shown_command(pid)
    return MpsClient(pid, None if process is None else process.uid,
                     None if process is None else name_of(process.uid), command and command[:512],
                     task_ids(pid), pct)


def _memory(daemon: MpsDaemonHandle, ordinals: tuple[int, ...], server: int | None = None
            ) -> tuple[MpsLimit, ...]:
    limits = ((ordinal, daemon.memory(ordinal, server)) for ordinal in ordinals)
    return tuple(MpsLimit(ordinal, limit) for ordinal, limit in limits if limit)


def _too_open(daemon: MpsDaemonHandle, driver: str | None) -> str:
    """Warn of a pipe directory open to everybody, with an old or unknown driver; "": no warning."""
    if is_old(driver) is False:
        return ""
    try:
        mode = os.stat(daemon.folder).st_mode
    except OSError:
        return ""
    if mode & 0o007:
        return (f"every user of this machine reaches {daemon.folder}: with a driver before "
                f"{MODERN_DRIVER} each can change its defaults. Give tenants their own folder "
                "with mode 0750.")
    return ""


def why_not(mps: LocalMpsDaemons) -> str:
    """Return why MPS cannot be set here; "": it can."""
    if not mps.program:
        return "a simulated node has no MPS"
    if not mps.is_installed():
        return (f"there is no {mps.program} where the agent runs; it comes with the driver's "
                "compute utilities")
    return ""
