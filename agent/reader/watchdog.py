"""Read the backend in a child process, because a driver can hang for ever.

The child (`main`) reads once a second, on whole wall-clock seconds plus its node's phase, and
writes length-prefixed msgpack ReaderMessages to its stdout. It exits when its stdin closes, which
is what happens when the agent dies, however it dies; not PR_SET_PDEATHSIG, which fires when the
*thread* that started the child ends.

Each byte on its stdin requests an OnDemandReading between two readings, whose cadence stays.

The parent (`ReaderProcess`) watches it on the node's thread, which sleeps in `wait`: nothing here
may block it. `ThreadedReaderProcess` watches on a separate thread.
"""

import math
import os
import signal
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from gpudeck.contract.vendors import PCI, vendor_of
from gpudeck.contract.wire import GpuFacts

from ..backends import BACKENDS, Backend, StaleReaderError, backend_named
from ..readings import OnDemandReading
from .inbox import ReaderInbox
from .loop import ReaderRequests, receive_requests, serve
from .supervisor import RENEW, WELL_ROUND_S, ReaderChild, ReaderSupervisor, ReaderTimeouts
from .wake_selector import WakeSelector

if TYPE_CHECKING:
    from .mixed import MixedInbox


def phase_of(node_id: str) -> float:
    """Return a phase of 0 to 0.1 s: the nodes of a fleet report together, but not at once."""
    return zlib.crc32(node_id.encode()) % 1_000 / 10_000

ReleaseOrder = Callable[[str], str]  # by vendor; "": of a backend of none


# the child


def main(argv: list[str]) -> int:
    backend, phase_s, options = argv[0], float(argv[1]), argv[2]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Whatever a driver library prints must not land between two answers.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    orders = ReaderRequests()
    threading.Thread(target=receive_requests, args=(orders,), daemon=True).start()
    try:
        serve(lambda: backend_named(backend).open_reader(options), out, orders, phase_s)
    except BrokenPipeError:
        os._exit(0)  # the parent is gone; there is nobody to flush to
    except StaleReaderError:
        return RENEW
    return 0


# the parent


class ReaderProcess(ReaderInbox):
    """Source of Readings for `node.run_node`. It works only while somebody is in `wait`. Boards of
    several vendors are read by a process for each vendor."""

    def __init__(
        self, backend: str, options: str, release_order: ReleaseOrder, phase_s: float = 0.0,
        patience: ReaderTimeouts | None = None, begin_within_s: float = math.inf,
    ) -> None:
        """`release_order`: a sentence, while a vendor's driver must be released. `begin_within_s`:
        see MixedInbox."""
        super().__init__()
        self._selector = WakeSelector()
        row = BACKENDS.get(backend)
        readers = [(backend, "")] if row is None else [
            (part.name, part.vendor) for part in row.readers]
        inboxes = [self if len(readers) == 1 else ReaderInbox() for _ in readers]
        self._supervisors = [
            ReaderSupervisor([name, repr(phase_s), options], patience or ReaderTimeouts(),
                             partial(release_order, vendor), inbox, self._selector)
            for (name, vendor), inbox in zip(readers, inboxes, strict=True)]
        self._vendors = tuple(vendor for _, vendor in readers)
        self._mixed = None if row is None or not row.parts else _mixed(
            self, row, inboxes, begin_within_s)
        self._is_closed = False
        for supervisor in self._supervisors:
            supervisor.watch()

    def remember(self, facts: Iterable[GpuFacts]) -> None:
        """Remember boards that were read before this process: where one of several drivers hangs
        from the start, its boards are still there."""
        if self._mixed is not None:
            self._mixed.remember(facts)

    def fresh(self, timeout_s: float) -> OnDemandReading | None:
        until = time.monotonic() + timeout_s
        requests = [supervisor.request_fresh() for supervisor in self._supervisors]
        answers = [supervisor.answer(request, max(until - time.monotonic(), 0.0))
                   for supervisor, request in zip(self._supervisors, requests, strict=True)]
        return answers[0] if self._mixed is None else self._mixed.on_demand(answers)

    @property
    def pids(self) -> frozenset[int]:
        return frozenset().union(*(supervisor.pids for supervisor in self._supervisors))

    def readers_of(self, uuid: str) -> frozenset[int]:
        vendor = vendor_of(uuid)
        supervisors = zip(self._supervisors, self._vendors, strict=True)
        return frozenset().union(*(supervisor.pids for supervisor, own in supervisors
                                   if own in ("", vendor) or not vendor))

    def close(self) -> None:
        """Children leave by themselves when their stdin closes; one that hangs inside the driver
        is left behind rather than killed."""
        if not self._is_closed:
            self._is_closed = True
            for supervisor in self._supervisors:
                supervisor.end_all()
            self._selector.close()

    def ring(self) -> None:
        """End a `wait`, the current or the next one. From any thread."""
        self._selector.ring()

    def wait(self, seconds: float) -> None:
        """Wait until there is news or a ring, at most for `seconds`."""
        until = time.monotonic() + seconds
        self._round(0.0 if self._is_awake() else seconds)
        while not self._is_awake() and (left_s := until - time.monotonic()) > 0:
            self._round(left_s)
        self.has_news = self._selector.is_rung = False

    def _is_awake(self) -> bool:
        return self.has_news or self._selector.is_rung

    def _round(self, seconds: float) -> None:
        now = time.monotonic()
        for key in self._selector.select(
                min(seconds, *(supervisor.round_s(now) for supervisor in self._supervisors))):
            self._of_child(key.data[0]).receive(key)
        for supervisor in self._supervisors:
            supervisor.watch()
        if self._mixed is not None:
            self._mixed.collect(time.time(), time.monotonic())

    def _of_child(self, child: ReaderChild) -> ReaderSupervisor:
        return next(supervisor for supervisor in self._supervisors if supervisor.has(child))


def _mixed(node: ReaderInbox, row: Backend, inboxes: Sequence[ReaderInbox], begin_within_s: float
           ) -> "MixedInbox":
    from ..backends.check import pci_boards
    from ..tasks.processes import row_of  # few nodes need it, and the reading processes never
    from .mixed import MixedInbox, ReaderPart

    def start_of(pid: int) -> int | None:
        process = row_of(pid)
        return None if process is None else process.start_ticks

    return MixedInbox(node, [
        ReaderPart(part, inbox, place > 0, pci_boards(PCI[part.vendor]))
        for place, (part, inbox) in enumerate(zip(row.parts, inboxes, strict=True))], start_of,
        begin_within_s)


class ThreadedReaderProcess(ReaderProcess):
    """Same as ReaderProcess, but watched by a separate thread instead of by `wait`."""

    def __init__(
        self, backend: str, options: str, release_order: ReleaseOrder,
        on_news: Callable[[], None], phase_s: float = 0.0, patience: ReaderTimeouts | None = None,
        begin_within_s: float = math.inf,
    ) -> None:
        """`on_news` is called on that thread when there is a Reading or the state changed."""
        super().__init__(backend, options, release_order, phase_s, patience, begin_within_s)
        self._on_news = on_news
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reader-watchdog", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self.ring()
        self._thread.join()
        super().close()

    def _run(self) -> None:
        while not self._closing.is_set():
            # Just before this thread releases the interpreter: a thread woken earlier would have to
            # wait for it, which is two more wakes.
            if self.has_news:
                self.has_news = False
                self._on_news()
            self._selector.is_rung = False
            self._round(WELL_ROUND_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
