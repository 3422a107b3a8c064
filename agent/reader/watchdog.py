"""Reads the backend in a process of its own, because a driver can hang for ever.

The child (`main`) reads once a second, on whole wall-clock seconds plus its node's phase, and
writes length-prefixed msgpack Answers to its stdout. It leaves when its stdin closes, which is
what happens when the agent dies, however it dies; not PR_SET_PDEATHSIG, which fires when the
*thread* that started the child ends.

Each byte on its stdin asks for a Fresh list between two readings, whose cadence stays.

The parent (`ReaderProcess`) watches, on a thread of its own or on that of the node, which sleeps
in `wait` then: nothing here may block it. No answer for `Patience.answer_s` beyond its due time
means hung. A hung child is not killed at once: killing a process inside an NVML call has frozen
whole boards (reliability-security.md F12, row 19).
"""

import contextlib
import logging
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable

import msgspec

from gpudeck.wire import ReaderState

from ..backends import StaleReaderError, backend_named
from ..readings import BackendEvent, OnDemandReading, Reading
from ..tasks.redact import redact
from .child import ReaderChild, ReaderStartup, ReaderTimeouts, ask, close_stdin, reap
from .loop import ReaderRequests, hear_parent, serve
from .messages import ReaderMessage

log = logging.getLogger("gpudeck.agent.reader")

# How a child ends that only wants to be a fresh process: nothing is wrong with the driver.
RENEW = os.EX_TEMPFAIL
PIPE_BYTES = 65_536  # what a pipe holds
MAX_HAPPENINGS = 1_024  # that nobody has fetched
# While all goes well the next answer comes before a round is over.
ROUND_S, WELL_ROUND_S = 0.5, 1.25
LET_GO_ROUND_S = 0.2  # whoever takes the driver back waits for it
# From the end of its pipes to its end: the kernel closes them first.
DIES_WITHIN_S, DYING_ROUND_S = 1.0, 0.01
END_WITHIN_S = 2.0  # else a child is left to end by itself
LEAVE_WITHIN_S = 5.0  # a call into a driver that is well takes less


def phase_of(node_id: str) -> float:
    """0 to 100 ms: the nodes of a fleet arrive together, but not at once."""
    return zlib.crc32(node_id.encode()) % 1_000 / 10_000


# the child


def main(argv: list[str]) -> int:
    backend, phase_s, options = argv[0], float(argv[1]), argv[2]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Whatever a driver library prints must not land between two answers.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    orders = ReaderRequests()
    threading.Thread(target=hear_parent, args=(orders,), daemon=True).start()
    try:
        serve(lambda: backend_named(backend).open_reader(options), out, orders, phase_s)
    except BrokenPipeError:
        os._exit(0)  # the parent is gone; there is nobody to flush to
    except StaleReaderError:
        return RENEW
    return 0


# the parent


class ReaderProcess:
    """A source of Readings for `node.run_node`, with its watchdog."""

    def __init__(
        self,
        backend: str,
        options: str = "",
        phase_s: float = 0.0,
        patience: ReaderTimeouts | None = None,
        order: Callable[[], str] = lambda: "",
        has_thread: bool = True,
    ) -> None:
        """`order`: a sentence, while the driver is to be let go of. Without a thread all goes on
        only while somebody is in `wait`."""
        self.state: ReaderState = "starting"
        self.detail = ""
        self.read_s: float | None = None  # that the last Reading took
        self._command = [backend, repr(phase_s), options]
        self._patience = patience or ReaderTimeouts()
        self._order, self._ordered, self._ordered_at = order, "", 0.0
        self._on_news: Callable[[], None] = lambda: None
        self._has_news = self._is_rung = False
        self._unread: Reading | None = None
        self._happened: deque[BackendEvent] = deque(maxlen=MAX_HAPPENINGS)
        self._read_at: float | None = None
        self._fresh_came = threading.Condition()
        self._children: list[ReaderChild] = []
        self._unreaped: list[subprocess.Popen[bytes]] = []
        self._current: ReaderChild | None = None
        self._starting: ReaderStartup | None = None
        self._back_off_s = self._patience.back_off_s[0]
        self._next_start_at = 0.0
        self._closing = threading.Event()
        self._selector = selectors.DefaultSelector()
        bell_r, bell_w = os.pipe()
        # Files, not numbers: a late ring must not go into what has got the number since.
        self._bell_r, self._bell_w = os.fdopen(bell_r, "rb", 0), os.fdopen(bell_w, "wb", 0)
        self._selector.register(self._bell_r, selectors.EVENT_READ, None)
        self._watched_at = time.monotonic()
        self._thread: threading.Thread | None = None
        if has_thread:
            self._thread = threading.Thread(target=self._run, name="reader-watchdog", daemon=True)
            self._thread.start()
        else:
            self._watch()

    @property
    def age_s(self) -> float | None:
        """Seconds since the last Reading arrived; None: never."""
        return None if self._read_at is None else time.monotonic() - self._read_at

    def latest(self) -> Reading | None:
        """The newest Reading not handed out yet."""
        reading, self._unread = self._unread, None
        return reading

    def happenings(self) -> tuple[BackendEvent, ...]:
        """All that was told and not fetched yet, of Readings too that nobody fetched."""
        return tuple(self._happened.popleft() for _ in range(len(self._happened)))

    def on_news(self, call: Callable[[], None]) -> None:
        """`call` is called when there is a Reading or the state changed: from another thread, or
        at the end of `wait`."""
        self._on_news = call

    def fresh(self, timeout_s: float) -> OnDemandReading | None:
        """Read after this call began, beside the readings. None: the driver does not answer, or
        not for every Gpu."""
        child = self._current
        if child is None:
            return None
        with self._fresh_came:
            if not ask(child):
                return None
            child.asked += 1
            wanted = child.asked
            self._fresh_came.wait_for(
                lambda: child.fresh is not None and child.fresh.asked >= wanted, timeout_s)
            answer = child.fresh
        return answer.fresh if answer is not None and answer.asked >= wanted else None

    @property
    def pids(self) -> frozenset[int]:
        """Of the reading processes."""
        return frozenset(child.process.pid for child in tuple(self._children))

    def close(self) -> None:
        """Children leave by themselves when their stdin closes; one that hangs inside the driver
        is left behind rather than killed."""
        if self._closing.is_set():
            return
        self._closing.set()
        if self._thread is None:
            self._end_all()
        else:
            self.ring()
            self._thread.join()

    def ring(self) -> None:
        """Ends a `wait`, of now or the next one. From any thread."""
        if not self._is_rung:
            self._is_rung = True
            with contextlib.suppress(OSError, ValueError):  # closed already
                self._bell_w.write(b"x")

    def wait(self, seconds: float) -> None:
        """Until there is news, a ring, or for so long."""
        until = time.monotonic() + seconds
        self._round(0.0 if self._has_news or self._is_rung else seconds)
        while not (self._has_news or self._is_rung) and (left := until - time.monotonic()) > 0:
            self._round(left)
        self._is_rung = False
        self._tell_news()

    def _run(self) -> None:
        self._watch()
        while not self._closing.is_set():
            self._tell_news()
            self._is_rung = False
            self._round(WELL_ROUND_S)
        self._end_all()

    def _round(self, seconds: float) -> None:
        for key, _ in self._selector.select(min(seconds, self._round_s(time.monotonic()))):
            self._receive(key)
        self._watch()

    def _watch(self) -> None:
        now = time.monotonic()
        self._adopt(now)
        self._bury(now)
        self._obey(now)
        # Whoever was stopped or starved himself must not call others late.
        if now - self._watched_at < 2.0:
            self._judge(now)
            self._replace(now)
        self._watched_at = now

    def _tell_news(self) -> None:
        """Just before this thread lets go of the interpreter: who is woken before that has to wait
        for it, which is two more wakes."""
        if self._has_news:
            self._has_news = False
            self._on_news()

    def _round_s(self, now: float) -> float:
        if self._ordered:
            return LET_GO_ROUND_S
        if any(not child.open_pipes for child in self._children):
            return DYING_ROUND_S
        child = self._current
        if child is None or child.answered_at is None or len(self._children) > 1:
            return ROUND_S
        return min(max(child.due_at(self._patience) - now, 0.01), WELL_ROUND_S)

    def _obey(self, now: float) -> None:
        """An order is obeyed when no process of ours has the driver's files and library any more:
        only then can it be reloaded, and only then we say so."""
        was, self._ordered = self._ordered, self._order()
        if self._ordered and not was:
            log.info("driver_ordered why=%r", self._ordered)
            self._ordered_at, self._current, self._unread = now, None, None
            for child in self._children:
                close_stdin(child)
                child.leaves = True
        if self._ordered:
            self._say_let_go(now)
        elif was:
            self._next_start_at, self._back_off_s = now, self._patience.back_off_s[0]
            self._say("starting", "")

    def _say_let_go(self, now: float) -> None:
        # The kernel closes a pipe before it closes the driver's files, and may hang between.
        if self._starting is not None:
            return
        self._unreaped = [process for process in self._unreaped if process.poll() is None]
        left = [*(child.process for child in self._children), *self._unreaped]
        if not left:
            self._say_once("released", self._ordered)
        elif now - self._ordered_at > LEAVE_WITHIN_S:
            pids = ", ".join(str(process.pid) for process in left)
            self._say_once("hung", "the driver is to be let go of, and does not let go: reading "
                                   f"process {pids} still has it open; see `dmesg`.")

    def _receive(self, key: selectors.SelectorKey) -> None:
        if key.data is None:
            os.read(key.fd, 4_096)
            return
        child, is_stderr = key.data
        data = os.read(key.fd, PIPE_BYTES)
        if not data:
            self._forget(key)
            child.open_pipes -= 1
            child.silent_at = time.monotonic()
        elif is_stderr:
            self._hear(child, data)
        else:
            self._take(child, data)

    def _forget(self, key: selectors.SelectorKey) -> None:
        self._selector.unregister(key.fileobj)
        if key.data is not None:
            key.fileobj.close()  # type: ignore[union-attr]  # a pipe: we registered it

    def _hear(self, child: ReaderChild, data: bytes) -> None:
        for line in data.decode(errors="replace").splitlines():
            if line.strip():
                child.last_words = redact(line.strip())[:500]
                log.warning("reader_stderr pid=%d line=%r", child.process.pid, child.last_words)

    def _take(self, child: ReaderChild, data: bytes) -> None:
        try:
            for answer in child.answers.read(data):
                self._answered(child, answer, time.monotonic())
        except msgspec.MsgspecError as error:
            log.error("reader_garbled pid=%d error=%r", child.process.pid, str(error))
            child.last_words = "it wrote something that is not a reading"
            child.answers.clear()
            close_stdin(child)

    def _answered(self, child: ReaderChild, answer: ReaderMessage, now: float) -> None:
        if answer.asked:
            with self._fresh_came:
                child.fresh = answer
                self._fresh_came.notify_all()
            return
        if answer.happenings:
            self._happened.extend(answer.happenings)
            self._has_news = True
            return
        if child.leaves:
            return
        came_back = child.hung_at is not None
        child.answered_at, child.hung_at, child.told = now, None, answer.state
        if child is not self._current:
            if self._current is not None and self._current.told == "ok":
                close_stdin(child)  # it came back after it had been replaced
                return
            if self._current is not None:
                close_stdin(self._current)
            self._current = child
        if came_back:
            log.info("reader_back pid=%d", child.process.pid)
        if answer.reading is not None:
            self._happened.extend(answer.reading.happenings)
            self._unread, self._read_at = answer.reading, now
            self.read_s = answer.reading.took_s
        if now - child.started_at > self._patience.back_off_s[1]:
            self._back_off_s = self._patience.back_off_s[0]
        self._say(answer.state, answer.detail)

    def _judge(self, now: float) -> None:
        for child in self._children:
            if child.hung_at is None and now > child.due_at(self._patience):
                child.hung_at = now
                log.warning("reader_hung pid=%d", child.process.pid)
                if child is self._current:
                    self._current = None
                    self._say("hung", "the driver does not answer; see `dmesg` for Xid or NVRM "
                                      "messages. Values are stale, the rest goes on.")
            if (child.hung_at is not None and not child.killed
                    and now - child.hung_at > self._patience.stuck_s):
                child.killed = True
                child.process.kill()

    def _replace(self, now: float) -> None:
        if self._ordered or self._current is not None or now < self._next_start_at:
            return
        if self._starting is not None or len(self._children) >= self._patience.stuck_max:
            return
        command = [sys.executable, "-P", "-m", f"{__package__}.watchdog", *self._command]
        self._starting = ReaderStartup(command, self.ring)
        # A hung one may have to be replaced; one that died is replaced sooner, see _buried.
        self._next_start_at = now + self._patience.stuck_s

    def _adopt(self, now: float) -> None:
        if self._starting is None or not self._starting.done.is_set():
            return
        process, why = self._starting.process, self._starting.why
        self._starting = None
        if process is None:
            self._start_later(now, f"no reading process can be started ({why}); it is tried again.")
            return
        child = ReaderChild(process, now)
        self._children.append(child)
        if self._ordered:
            close_stdin(child)
            child.leaves = True
        else:
            self._current = child
        assert process.stdout is not None
        assert process.stderr is not None
        self._selector.register(process.stdout, selectors.EVENT_READ, (child, False))
        self._selector.register(process.stderr, selectors.EVENT_READ, (child, True))

    def _start_later(self, now: float, why: str) -> None:
        self._next_start_at = now + self._back_off_s
        self._back_off_s = min(self._back_off_s * 2, self._patience.back_off_s[1])
        if why:
            self._say("failed", why)

    def _bury(self, now: float) -> None:
        """Whose last words have been heard."""
        for child in [child for child in self._children if not child.open_pipes]:
            close_stdin(child)
            status = child.process.poll()
            if status is not None or now - child.silent_at > DIES_WITHIN_S:
                self._buried(child, status, now)

    def _buried(self, child: ReaderChild, status: int | None, now: float) -> None:
        self._children.remove(child)
        if status is None:
            self._unreaped.append(child.process)
        if child is not self._current:
            return
        self._current = None
        if status == RENEW and child.told == "ok":
            log.info("reader_renewed pid=%d", child.process.pid)
            self._next_start_at = now
            return
        why = ""
        if child.told in (None, "ok"):
            log.warning("reader_died pid=%d status=%s", child.process.pid, status)
            why = (f"the reading process ended ({child.last_words or f'exit status {status}'}); it "
                   "is started again.")
        self._start_later(now, why)

    def _say(self, state: ReaderState, detail: str) -> None:
        if state != self.state:
            log.info("reader_state state=%s detail=%r", state, detail)
        self.state, self.detail = state, detail
        self._has_news = True

    def _say_once(self, state: ReaderState, detail: str) -> None:
        if (state, detail) != (self.state, self.detail):
            self._say(state, detail)

    def _end_all(self) -> None:
        deadline = time.monotonic() + END_WITHIN_S
        if self._starting is not None:
            self._starting.done.wait(END_WITHIN_S)
            self._adopt(time.monotonic())
        for child in self._children:
            close_stdin(child)
        for child in self._children:
            if child.hung_at is None:
                reap(child, deadline - time.monotonic())
        for key in list(self._selector.get_map().values()):
            self._forget(key)
        self._selector.close()
        self._bell_r.close()
        self._bell_w.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
