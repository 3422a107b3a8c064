"""Supervisor that starts, watches and replaces the reading processes of one node.

No answer for `ReaderTimeouts.answer_s` beyond its due time means hung. A hung child is not killed
at once: killing a process inside an NVML call has frozen whole boards.
"""

import logging
import math
import os
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, cast

import msgspec

from gpudeck.contract.wire import ReaderState
from gpudeck.system.child_processes import importable, without_tokens

from ..readings import OnDemandReading
from .inbox import ReaderInbox
from .messages import ReaderMessage, ReaderMessageDecoder
from .wake_selector import WakeSelector

PERIOD_S = 1.0


@dataclass(frozen=True, slots=True)
class ReaderTimeouts:
    start_s: float = 30.0  # a first nvmlInit without persistence mode takes seconds per board
    answer_s: float = 5.0  # beyond the due time
    stuck_s: float = 60.0  # before a hung child may be killed, and between two replacements
    stuck_max: int = 3
    back_off_s: tuple[float, float] = (1.0, 30.0)
    # A driver that was read a moment ago is being reloaded: look more often than `driver-gone`
    # takes to fire, so that a reload raises nothing. A machine without a driver costs little.
    soon_s: float = 5.0
    soon_for_s: float = 60.0

    def longest_back_off(self, unread_s: float) -> float:
        """`unread_s`: seconds since the driver was read last."""
        longest = self.back_off_s[1]
        return min(self.soon_s, longest) if unread_s < self.soon_for_s else longest


@dataclass(slots=True, eq=False)
class ReaderChild:
    process: "subprocess.Popen[bytes]"
    started_at: float
    answered_at: float | None = None
    hung_at: float | None = None
    killed: bool = False
    is_leaving: bool = False  # it was told to release the driver
    open_pipes: int = 2  # stdout and stderr
    silent_at: float = 0.0  # when one of them was closed
    reported: ReaderState | None = None  # the last state that it reported itself
    requests: int = 0  # for on-demand lists
    fresh: ReaderMessage | None = None  # the newest
    decoder: ReaderMessageDecoder = field(default_factory=ReaderMessageDecoder)
    last_words: str = ""

    def due_at(self, patience: ReaderTimeouts) -> float:
        if self.answered_at is None:
            return self.started_at + patience.start_s
        return self.answered_at + PERIOD_S + patience.answer_s

    def request_fresh(self) -> bool:
        """Request an on-demand list. False: it could not be requested."""
        try:
            is_sent = self.stdin.write(b"f") == 1
        except (OSError, ValueError):  # it has just ended
            return False
        self.requests += is_sent
        return is_sent

    def close_stdin(self) -> None:
        """Make it exit by itself, which it does once its stdin is closed."""
        self.stdin.close()

    def release_driver(self) -> None:
        """Make it release the driver; its output no longer counts."""
        self.is_leaving = True
        self.close_stdin()

    @property
    def stdin(self) -> IO[bytes]:
        return cast(IO[bytes], self.process.stdin)


@dataclass(frozen=True, slots=True)
class FreshRequest:
    """Request for an on-demand list, by the number of those that this child had before it."""

    child: ReaderChild
    number: int


class ReaderStartup:
    """Start of a process, on a thread: it waits until the program is read, and that disk may
    hang."""

    def __init__(self, command: Sequence[str], on_done: Callable[[], None]) -> None:
        """`on_done` is called when the process has started, or has failed to."""
        self.process: subprocess.Popen[bytes] | None = None
        self.why = ""
        self.finished = threading.Event()
        self._command, self._on_done = command, on_done
        threading.Thread(target=self._start, name="reader-start", daemon=True).start()

    def _start(self) -> None:
        try:
            self.process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, env=child_environment(os.environ), start_new_session=True,
                bufsize=0)
            assert self.process.stdin is not None
            # A child that hangs must not block the one who writes.
            os.set_blocking(self.process.stdin.fileno(), False)
        except OSError as error:
            self.why = error.strerror or str(error)
        self.finished.set()
        self._on_done()


def child_environment(env: "os._Environ[str]") -> dict[str, str]:
    return importable(__package__, without_tokens(env))


log = logging.getLogger("gpudeck.agent.reader")

# Exit status of a child that only wants to be restarted: nothing is wrong with the driver.
RENEW = os.EX_TEMPFAIL
PIPE_BYTES = 65_536  # what a pipe holds
# While all goes well the next answer comes before a round is over.
ROUND_S, WELL_ROUND_S = 0.5, 1.25
RELEASE_ROUND_S = 0.2  # somebody waits for the driver
# From the end of its pipes to its end: the kernel closes them first.
DIES_WITHIN_S, DYING_ROUND_S = 1.0, 0.01
END_WITHIN_S = 2.0  # else a child is left to end by itself
LEAVE_WITHIN_S = 5.0  # a call into a driver that is well takes less


class ReaderSupervisor:
    """Supervisor of a node's reading processes. Not thread-safe but for `fresh` and `pids`."""

    def __init__(self, command: Sequence[str], patience: ReaderTimeouts,
                 release_order: Callable[[], str], inbox: ReaderInbox, selector: WakeSelector
                 ) -> None:
        """`release_order`: a sentence, while the driver must be released."""
        self._command = command
        self._patience = patience
        self._release_order, self._order, self._order_at = release_order, "", 0.0
        self._inbox = inbox
        self._selector = selector
        self._fresh_came = threading.Condition()
        self._children: list[ReaderChild] = []
        self._unreaped: list[subprocess.Popen[bytes]] = []
        self._current: ReaderChild | None = None
        self._starting: ReaderStartup | None = None
        self._back_off_s = patience.back_off_s[0]
        self._read_at = -math.inf
        self._next_start_at = 0.0
        self._watched_at = time.monotonic()

    def request_fresh(self) -> FreshRequest | None:
        """Request a reading outside the cadence. None: the driver does not answer."""
        child = self._current
        if child is None:
            return None
        with self._fresh_came:
            is_requested = child.request_fresh()
            return FreshRequest(child, child.requests) if is_requested else None

    def answer(self, request: FreshRequest | None, timeout_s: float) -> OnDemandReading | None:
        """Return the reading that was requested. None: the driver does not answer, or not for every
        GPU."""
        if request is None:
            return None
        child = request.child
        with self._fresh_came:
            self._fresh_came.wait_for(
                lambda: child.fresh is not None and child.fresh.asked >= request.number,
                timeout_s)
            answer = child.fresh
        return answer.fresh if answer is not None and answer.asked >= request.number else None

    def has(self, child: ReaderChild) -> bool:
        return child in self._children

    @property
    def pids(self) -> frozenset[int]:
        """Pids of the reading processes."""
        return frozenset(child.process.pid for child in tuple(self._children))

    def watch(self) -> None:
        now = time.monotonic()
        self._adopt(now)
        self._remove_dead(now)
        self._follow_order(now)
        # Having been stopped or starved itself, it must not call its children late.
        if now - self._watched_at < 2.0:
            self._judge(now)
            self._replace(now)
        self._watched_at = now

    def round_s(self, now: float) -> float:
        if self._order:
            return RELEASE_ROUND_S
        if any(not child.open_pipes for child in self._children):
            return DYING_ROUND_S
        child = self._current
        if child is None or child.answered_at is None or len(self._children) > 1:
            return ROUND_S
        return min(max(child.due_at(self._patience) - now, 0.01), WELL_ROUND_S)

    def _follow_order(self, now: float) -> None:
        """Follow a release order. It counts as done only when no process of ours has the driver's
        files and library any more: only then can the driver be reloaded."""
        previous, self._order = self._order, self._release_order()
        if self._order and not previous:
            log.info("driver_ordered why=%r", self._order)
            self._order_at, self._current = now, None
            self._inbox.drop_reading()
            for child in self._children:
                child.release_driver()
        if self._order:
            self._report_release(now)
        elif previous:
            self._next_start_at, self._back_off_s = now, self._patience.back_off_s[0]
            self._inbox.set_state("starting", "")

    def _report_release(self, now: float) -> None:
        # The kernel closes a pipe before it closes the driver's files, and may hang between.
        if self._starting is not None:
            return
        self._unreaped = [process for process in self._unreaped if process.poll() is None]
        remaining = [*(child.process for child in self._children), *self._unreaped]
        if not remaining:
            self._inbox.set_state_once("released", self._order)
        elif now - self._order_at > LEAVE_WITHIN_S:
            pids = ", ".join(str(process.pid) for process in remaining)
            self._inbox.set_state_once(
                "hung", f"the driver should be released, but reader process {pids} still has it "
                        "open; see `dmesg`.")

    def receive(self, key: selectors.SelectorKey) -> None:
        child, is_stderr = key.data
        data = os.read(key.fd, PIPE_BYTES)
        if not data:
            self._selector.forget(key)
            child.open_pipes -= 1
            child.silent_at = time.monotonic()
        elif is_stderr:
            self._read_stderr(child, data)
        else:
            self._read_messages(child, data)

    def _read_stderr(self, child: ReaderChild, data: bytes) -> None:
        from ..tasks.redact import redact  # its patterns take long to load, and most say nothing

        for line in data.decode(errors="replace").splitlines():
            if line.strip():
                child.last_words = redact(line.strip())[:500]
                log.warning("reader_stderr pid=%d line=%r", child.process.pid, child.last_words)

    def _read_messages(self, child: ReaderChild, data: bytes) -> None:
        try:
            for answer in child.decoder.read(data):
                self._receive_message(child, answer, time.monotonic())
        except msgspec.MsgspecError as error:
            log.error("reader_garbled pid=%d error=%r", child.process.pid, str(error))
            child.last_words = "it wrote something that is not a reading"
            child.decoder.clear()
            child.close_stdin()

    def _receive_message(self, child: ReaderChild, answer: ReaderMessage, now: float) -> None:
        if answer.asked:
            with self._fresh_came:
                child.fresh = answer
                self._fresh_came.notify_all()
            return
        if answer.happenings:
            self._inbox.put_events(answer.happenings)
            return
        if child.is_leaving:
            return
        came_back = child.hung_at is not None
        child.answered_at, child.hung_at, child.reported = now, None, answer.state
        if child is not self._current:
            if self._current is not None and self._current.reported == "ok":
                child.close_stdin()  # it came back after it had been replaced
                return
            if self._current is not None:
                self._current.close_stdin()
            self._current = child
        if came_back:
            log.info("reader_back pid=%d", child.process.pid)
        if answer.reading is not None:
            self._read_at = now
            self._inbox.put(answer.reading, now)
        if now - child.started_at > self._patience.back_off_s[1]:
            self._back_off_s = self._patience.back_off_s[0]
        self._inbox.set_state(answer.state, answer.detail)

    def _judge(self, now: float) -> None:
        for child in self._children:
            if child.hung_at is None and now > child.due_at(self._patience):
                child.hung_at = now
                log.warning("reader_hung pid=%d", child.process.pid)
                if child is self._current:
                    self._current = None
                    self._inbox.set_state(
                        "hung", "the driver does not answer; see `dmesg`. Values are stale; "
                                "everything else continues.")
            if (child.hung_at is not None and not child.killed
                    and now - child.hung_at > self._patience.stuck_s):
                child.killed = True
                child.process.kill()

    def _replace(self, now: float) -> None:
        if self._order or self._current is not None or now < self._next_start_at:
            return
        if self._starting is not None or len(self._children) >= self._patience.stuck_max:
            return
        command = [sys.executable, "-P", "-m", f"{__package__}.watchdog", *self._command]
        self._starting = ReaderStartup(command, self._selector.ring)
        # A hung one may have to be replaced; one that died is replaced sooner, see _remove.
        self._next_start_at = now + self._patience.stuck_s

    def _adopt(self, now: float) -> None:
        if self._starting is None or not self._starting.finished.is_set():
            return
        process, why = self._starting.process, self._starting.why
        self._starting = None
        if process is None:
            self._start_later(now, f"no reader process can be started ({why}); trying again.")
            return
        child = ReaderChild(process, now)
        self._children.append(child)
        if self._order:
            child.release_driver()
        else:
            self._current = child
        assert process.stdout is not None
        assert process.stderr is not None
        self._selector.watch(process.stdout, (child, False))
        self._selector.watch(process.stderr, (child, True))

    def _start_later(self, now: float, why: str) -> None:
        longest = self._patience.longest_back_off(now - self._read_at)
        self._next_start_at = now + min(self._back_off_s, longest)
        self._back_off_s = min(self._back_off_s * 2, longest)
        if why:
            self._inbox.set_state("failed", why)

    def _remove_dead(self, now: float) -> None:
        """Remove children that are dead and whose last output has been read."""
        for child in [child for child in self._children if not child.open_pipes]:
            child.close_stdin()
            status = child.process.poll()
            if status is not None or now - child.silent_at > DIES_WITHIN_S:
                self._remove(child, status, now)

    def _remove(self, child: ReaderChild, status: int | None, now: float) -> None:
        self._children.remove(child)
        if status is None:
            self._unreaped.append(child.process)
        if child is not self._current:
            return
        self._current = None
        if status == RENEW and child.reported == "ok":
            log.info("reader_renewed pid=%d", child.process.pid)
            self._next_start_at = now
            return
        why = ""
        if child.reported in (None, "ok"):
            log.warning("reader_died pid=%d status=%s", child.process.pid, status)
            why = (f"the reading process ended ({child.last_words or f'exit status {status}'}); it "
                   "is being restarted.")
        self._start_later(now, why)

    def end_all(self) -> None:
        deadline = time.monotonic() + END_WITHIN_S
        if self._starting is not None:
            self._starting.finished.wait(END_WITHIN_S)
            self._adopt(time.monotonic())
        for child in self._children:
            child.close_stdin()
        for child in self._children:
            if child.hung_at is None:
                with suppress(subprocess.TimeoutExpired):
                    child.process.wait(max(deadline - time.monotonic(), 0.01))
