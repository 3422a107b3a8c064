"""Messages between `gpudeck run` and the agent while its command runs."""

import contextlib
import os
import select
import signal
import threading
from collections.abc import Callable

from gpudeck.contract.pool_messages import (
    ClaimRefused,
    FromPool,
    GiveBack,
    Leased,
    LeaseEnded,
    LeaseNotice,
)
from gpudeck.errors import CommandError, ExitCode
from gpudeck.pool.connection import PoolConnection, bind_process
from gpudeck.pool.core.host_resources import only_counted
from gpudeck.pool.process_limits import limits_of

from .run_child import WAKES
from .run_scope import enter_scope

AGAIN_EVERY_S = 1.0
OVER_AGAIN_S = 0.1  # once the command has ended, whose caller waits
ANSWERS_WITHIN_S = 5.0
BOUND_WITHIN_S = 30.0
HOW = {"term": signal.SIGTERM, "kill": signal.SIGKILL}
GIVEN_BACK = ("released", "draining")


class RunLease:
    """Lease of a running command. Losing the agent ends nothing: the lease lasts while the command
    runs, and a restarted agent gets it again."""

    def __init__(self, pool: PoolConnection, lease: Leased, say: Callable[[str], None]) -> None:
        self._pool = pool
        self._lease_id = lease.lease_id
        self._lease = lease
        self._say = say
        self._pidfd = -1
        self._listener: threading.Thread | None = None  # once it is bound
        self._is_over = threading.Event()  # the command has ended
        self._has_ended = threading.Event()
        self._end: LeaseEnded | None = None
        self._status = 0  # of the command, once it is over
        self._ending: signal.Signals | None = None

    def bind(self, pid: int, pidfd: int) -> None:
        """Bind the lease to the command. Raises CommandError."""
        self._pidfd = pidfd
        lease = self._lease
        if lease.cores:
            with contextlib.suppress(OSError):  # none of them may be used from here
                os.sched_setaffinity(pid, lease.cores)
        ram_bytes = None if lease.ram_bytes is None else int(lease.ram_bytes)
        enter_scope(pid, lease.lease_id, ram_bytes, os.environ)
        self._bind_to(self._pool)
        if words := only_counted(lease, limits_of(pid, lease.cores, ram_bytes)):
            self._say(words)
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def ending(self) -> signal.Signals | None:
        """Return the signal that shall end the command: its GPUs are taken back. None: it runs
        on."""
        return self._ending

    def give_back(self, status: int) -> LeaseEnded | None:
        """Give the lease back; return how it has ended. None: the agent is away, and ends it when
        it is back."""
        self._status = status
        self._is_over.set()
        if not self._has_ended.is_set():
            self._send_back(self._pool)
            if self._listener is not None:
                self._has_ended.wait(ANSWERS_WITHIN_S)
        self._pool.close()
        if self._listener is not None and self._has_ended.is_set():  # else it is in use still
            os.close(self._pidfd)
        return self._end

    def _send_back(self, pool: PoolConnection) -> None:
        with contextlib.suppress(CommandError):
            pool.send(GiveBack(self._lease_id, self._status))

    def _bind_to(self, pool: PoolConnection) -> None:
        # Signals wait meanwhile, Ctrl-C too.
        bind_process(pool, self._lease_id, self._pidfd, BOUND_WITHIN_S)

    def _listen(self) -> None:
        is_back = False
        while not self._has_ended.is_set():
            try:
                self._handle(self._pool.receive())
            except CommandError:
                is_over = self._is_over.wait(AGAIN_EVERY_S)
                if is_back:  # and has hung up again
                    self._has_ended.wait(OVER_AGAIN_S)
                is_back = self._reconnect()
                if not is_back and is_over:
                    self._has_ended.set()  # the agent is away

    def _handle(self, message: FromPool) -> None:
        match message:
            case LeaseNotice(text, end):
                self._say(text)
                if end is not None:
                    self._ending = HOW.get(end)
                    os.kill(os.getpid(), WAKES)
            case LeaseEnded():
                if not (self._is_over.is_set() and message.state in GIVEN_BACK):
                    self._say(f"the lease has ended: {message.why}")
                self._end = message
                self._has_ended.set()
            case ClaimRefused():  # to give back what has ended already
                self._has_ended.set()

    def _reconnect(self) -> bool:
        """Return whether the agent is back. The command may end meanwhile: then its lease is given
        back over the new connection."""
        try:
            pool = PoolConnection(os.environ)
            try:
                self._bind_to(pool)
            except CommandError as why:
                if why.code == ExitCode.UNREACHABLE or not _has_ended(self._pidfd):
                    pool.close()
                    raise
        except CommandError as why:
            if why.code != ExitCode.UNREACHABLE:
                self._say(f"the lease has ended: {why}")
                self._has_ended.set()
            return False
        self._pool = pool
        if self._is_over.is_set():  # it may have been given back over the lost one
            self._send_back(pool)
        return True


def _has_ended(pidfd: int) -> bool:
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(0))
