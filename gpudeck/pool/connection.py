"""Connection of a user's program to the pool of its node."""

import contextlib
import os
import socket
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gpudeck.contract import pool_messages as messages
from gpudeck.contract.pool_messages import (
    SOCKET_ENV,
    SYSTEM_SOCKET,
    AskClaim,
    Bind,
    Bound,
    ClaimRefused,
    ClaimWaits,
    FromPool,
    FromUser,
    Leased,
    LeaseEnded,
    PoolSocketError,
    Reserved,
    UseLease,
)
from gpudeck.errors import CommandError, ExitCode
from gpudeck.settings import state_folder

ROOT = 0
OWN_SOCKET = "gpudeck/pool.sock"
BACK_WITHIN_S = 300.0  # an agent that is restarted, or brought up to date
AGAIN_EVERY_S = 1.0
UNKNOWN_FIELD = "unknown field"


class ClaimWaitsError(CommandError):
    """Lease lost to others, since nothing was bound to it in time. Its claim keeps its place, and
    is asked for again on the same connection."""


class PoolConnection:
    """Connection to the agent of this machine. Raises CommandError."""

    def __init__(self, env: Mapping[str, str]) -> None:
        failures = []
        for path in _socket_paths(env):
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                self.socket.connect(str(path))
            except OSError as error:
                self.socket.close()
                failures.append(f"{path} ({error.strerror})")
            else:
                return
        raise CommandError(
            f"no agent answers at {' or '.join(failures)}: start one with `gpudeck agent --alone` "
            f"or `--pool-socket PATH`, or name its socket in {SOCKET_ENV}", ExitCode.UNREACHABLE)

    def send(self, message: FromUser, *fds: int) -> None:
        try:
            messages.send(self.socket, message, *fds)
        except PoolSocketError as error:
            if not self._has_answer():  # else it is received next, with the reason
                raise _lost_agent(error) from error

    def _has_answer(self) -> bool:
        """Return whether the agent has said something, for example before it hung up."""
        with contextlib.suppress(OSError):
            return bool(self.socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        return False

    def close(self) -> None:
        self.socket.close()

    def receive(self, within_s: float | None = None) -> FromPool:
        """Receive a message. `within_s`: for it to begin; None: as long as the agent is there."""
        try:
            self.socket.settimeout(within_s)
            message = messages.from_pool(self.socket)
        except (PoolSocketError, OSError) as error:
            raise _lost_agent(error) from error
        if message is None:
            raise _lost_agent("it hung up")
        return message


def reconnect(env: Mapping[str, str]) -> PoolConnection:
    """Connect again to an agent that was lost. Raises CommandError if it does not come back."""
    until = time.monotonic() + BACK_WITHIN_S
    while True:
        time.sleep(AGAIN_EVERY_S)
        try:
            return PoolConnection(env)
        except CommandError:
            if time.monotonic() > until:
                raise


def _lost_agent(why: object) -> CommandError:
    return CommandError(f"lost the agent ({why}); try again", ExitCode.UNREACHABLE)


def _socket_paths(env: Mapping[str, str]) -> Sequence[Path]:
    """Return where an agent may listen: for everybody, then for this user alone. An agent that was
    killed leaves its socket behind."""
    if configured := env.get(SOCKET_ENV):
        return (Path(configured),)
    paths = (Path(SYSTEM_SOCKET), own_socket(env))
    return [path for path in paths if _is_socket(path)] or paths[:1]


def own_socket(env: Mapping[str, str]) -> Path:
    """Return where an agent listens that a user started for themselves: in a private folder."""
    runtime = Path(env.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}")
    return runtime / OWN_SOCKET if runtime.is_dir() else state_folder("pool.sock", env)


def new_socket(env: Mapping[str, str]) -> Path:
    """Return where an agent is to listen: as root for everybody, unless a socket is named. Raises
    CommandError where another agent leases the GPUs of this machine already."""
    configured = env.get(SOCKET_ENV)
    new = Path(configured or (SYSTEM_SOCKET if os.geteuid() == ROOT else own_socket(env)))
    for path in (new,) if configured else dict.fromkeys((Path(SYSTEM_SOCKET), new)):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            if _is_socket(path) and probe.connect_ex(str(path)) == 0:
                raise CommandError(f"the agent at {path} leases this machine's GPUs already; use "
                                   "`gpudeck run`", ExitCode.CANNOT_START)
    return new


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.stat().st_mode)
    except OSError:
        return False


def _refusal(why: str) -> CommandError:
    if UNKNOWN_FIELD in why:  # an agent's decoder, of what only a newer one knows
        why = (f"the agent is older than this command and does not know what is asked for ({why}); "
               "restart it with the new version, or leave that out")
    return CommandError(why, ExitCode.REFUSED)


def wait_for(pool: PoolConnection, claim: AskClaim, tell: Callable[[ClaimWaits], None]) -> Leased:
    """Wait for a lease. `tell`: called when its place or the reason changes. Raises
    CommandError."""
    pool.send(claim)
    while True:
        match pool.receive():
            case Leased() as lease:
                return lease
            case ClaimRefused(why):
                raise _refusal(why)
            case ClaimWaits() as waits:
                tell(waits)


def bind_process(pool: PoolConnection, lease_id: str, pidfd: int, within_s: float | None = None
                 ) -> None:
    """Bind a process to a lease. Raises CommandError."""
    pool.send(Bind(lease_id), pidfd)
    while True:
        match pool.receive(within_s):
            case Bound():
                return
            case ClaimRefused(why, is_full=True):
                raise CommandError(why, ExitCode.UNREACHABLE)
            case ClaimRefused(why, waits):
                raise (ClaimWaitsError if waits else CommandError)(why, ExitCode.REFUSED)
            case LeaseEnded(why):
                raise CommandError(why, ExitCode.REFUSED)
            case _:  # an earlier message
                pass


def use_lease(pool: PoolConnection, lease_id: str, is_run: bool) -> Leased:
    """Use a lease that is held already. Raises CommandError."""
    pool.send(UseLease(lease_id, is_run))
    answer = pool.receive()
    if isinstance(answer, Leased):
        return answer
    raise CommandError(getattr(answer, "why", "the agent does not understand this request"),
                       ExitCode.REFUSED)


def reserve(pool: PoolConnection, claim: AskClaim, tell: Callable[[ClaimWaits], None]
            ) -> Reserved:
    """Reserve GPUs. `tell`: called where that is not decided at once. Raises CommandError."""
    pool.send(claim)
    while True:
        match pool.receive():
            case Reserved() as reserved:
                return reserved
            case ClaimRefused(why):
                raise _refusal(why)
            case ClaimWaits() as waits:
                tell(waits)
