"""Sockets that listen at a port of this machine, and whose they are: nothing is ever sent to a port
that is not proven to be the one that is meant."""

import os
from collections.abc import Collection, Iterable
from pathlib import Path

from ..tasks import processes

LISTEN, ESTABLISHED = "0A", "01"
NOT_HERE = "it listens in another network namespace, which this agent cannot reach"
NOT_YET = "it does not listen at port {port} yet, or not at an address of this machine"


def trouble_of(pid: int, port: int, proc: Path) -> str:
    """Return why the port may not be asked for this process; "": its user listens there, in this
    agent's own network namespace, and nobody else does."""
    summary = processes.about(pid, proc)
    task_sockets = _listening_sockets(proc / str(pid) / "net", port)
    if summary is None or not any(uid == summary.uid for uid in task_sockets.values()):
        return NOT_YET.format(port=port)
    agent_sockets = _listening_sockets(proc / "self/net", port)
    user_sockets = {inode for inode, uid in task_sockets.items() if uid == summary.uid}
    # Whatever listens here at that port must be its own socket, and nothing else.
    return "" if agent_sockets and user_sockets >= set(agent_sockets) else NOT_HERE


def listens(pids: Iterable[int], port: int, proc: Path) -> bool | None:
    """Return whether one of these processes listens at the port, which others of its user may
    share; None: that cannot be read. The user alone proves little: the root of every container is
    the same user."""
    return _holds(pids, _listening_sockets(proc / "self/net", port), proc)


def answers(pids: Iterable[int], port: int, client_port: int, proc: Path) -> bool:
    """Return whether one of these processes has accepted the connection from `client_port`."""
    return _holds(pids, _sockets(proc / "self/net", ESTABLISHED, port, client_port), proc) is True


def _holds(pids: Iterable[int], inodes: Collection[str], proc: Path) -> bool | None:
    links, is_readable = {f"socket:[{inode}]" for inode in inodes}, True
    for pid in pids if links else ():
        try:
            entries = [*(proc / str(pid) / "fd").iterdir()]
        except OSError as error:
            is_readable &= not isinstance(error, PermissionError)
            continue
        for entry in entries:
            try:
                if os.readlink(entry) in links:
                    return True
            except OSError:  # closed meanwhile
                continue
    return False if is_readable else None


def _listening_sockets(folder: Path, port: int) -> dict[str, int]:
    """Return the sockets that listen at this port, with the user of each."""
    return _sockets(folder, LISTEN, port, 0)


def _sockets(folder: Path, state: str, port: int, remote_port: int) -> dict[str, int]:
    sockets = {}
    for name in ("tcp", "tcp6"):
        try:
            lines = (folder / name).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split()
            if len(words) > 9 and words[3] == state and (
                    _port(words[1]), _port(words[2])) == (port, remote_port):
                sockets[words[9]] = int(words[7])
    return sockets


def _port(address: str) -> int:
    return int(address.rpartition(":")[2], 16)
