"""Sending of history to a receiver, a minute at a time, in a separate thread.

History is the queue: what a receiver has not accepted is read from it again, for as long as seconds
are kept. Only samples that come after their minute was sent wait in separate files.
"""

import logging
import random
import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from gevent.threadpool import ThreadPool

from ..history.columns.arrays import lengths, runs
from ..history.columns.arrow_columns import Table, numbers
from ..history.columns.layout import KEYS
from ..history.files.row_index import encoded
from ..history.reads.copying import HistoryCopyReader, late_rows
from ..runtime.runner import Loop
from .formats import MirrorFormat
from .position import MirrorFolder
from .samples import GpuSeconds, MirrorBatch, SeriesPlace
from .transport import MirrorRefusedError, ReceiverAwayError

log = logging.getLogger("gpudeck.mirror")

EVERY_S = 5.0
MINUTE_S = 60
GRACE_S = 10  # samples that come later than this after their minute are late
GPUS_AT_ONCE = 256
ROWS_AT_ONCE = GPUS_AT_ONCE * MINUTE_S
MOST_PARTS = 24  # into which a refused request is split
CHECK_EVERY_S = 10.0
RETRY_MOST_S = 60.0


class SampleReceiver(Protocol):
    @property
    def format(self) -> MirrorFormat: ...

    def post(self, body: bytes) -> int:
        """Send a request; return how many of its samples were not accepted. Raises
        ReceiverAwayError or MirrorRefusedError."""

    def started(self) -> float | None: ...


class MirrorInfo(NamedTuple):
    behind_s: float
    counts: dict[str, int]  # samples sent and refused; seconds and late files that were lost
    error: str | None  # why the receiver accepts nothing now


@dataclass(slots=True)
class MirrorUnit:
    """A minute or a file of late samples, and the batches that have not been sent yet."""

    start: int
    end: int
    late: Path | None
    is_resend: bool
    batches: deque[tuple[int, int]]  # rows of the table
    table: Table
    places: list[SeriesPlace]
    place: "np.ndarray[tuple[int], np.dtype[np.intp]]"

    def batch(self) -> MirrorBatch:
        first, last = self.batches[0]
        part = self.table.slice(first, last - first)
        rows = GpuSeconds(self.place[first:last], numbers(part.column("t")).astype(np.int64),
                          {key: numbers(part.column(key).cast("float64"), np.nan)
                           for key in KEYS})
        return MirrorBatch(self.places, rows, self.start, self.end, self.late is None)


class MirrorService:
    def __init__(self, history: HistoryCopyReader, receiver: SampleReceiver, folder: MirrorFolder,
                 url: str, now: float) -> None:
        self._history = history
        self._receiver = receiver
        self._folder = folder
        self._position = folder.position(url, int(now) // MINUTE_S * MINUTE_S)
        self._history.begin(self._position.until)
        self._pool = ThreadPool(1)
        self._unit: MirrorUnit | None = None
        self._resend_until = 0
        self._checked_mono: float | None = None
        self._was_away = False
        self._failed = 0
        self._retry_mono = 0.0
        self._logged_reason = ""
        self._counts: Counter[str] = Counter()
        self._error: str | None = None
        self._now = now

    @property
    def loop(self) -> Loop:
        return Loop("mirror", lambda now, mono: self._pool.apply(self.step, (now, mono)), EVERY_S)

    def info(self) -> MirrorInfo:
        counts = {"sent": self._counts["sent"], "refused": self._counts["refused"],
                  "late_dropped": self._history.late_dropped}
        return MirrorInfo(max(0.0, self._now - self._position.until), counts
                          | {"lost_seconds": self._counts["lost_seconds"],
                             "late_files_dropped": self._folder.dropped}, self._error)

    # -- in the mirror's thread

    def step(self, now: float, mono: float) -> None:
        """Send what is due. It never raises: gevent would print an exception that leaves a native
        thread."""
        self._now = now
        try:
            self._folder.keep_late(self._history.keep_late)
            if mono >= self._retry_mono and self._has_work(now):
                self._check_receiver(mono)
                for unit in self._units(now):
                    self._send(unit)
                self._error, self._failed = None, 0
        except ReceiverAwayError as error:
            self._failed += 1
            self._was_away = True
            wait_s = random.uniform(0, min(RETRY_MOST_S, 2.0 ** self._failed))
            self._retry_mono = mono + (wait_s if error.retry_s is None else error.retry_s)
            if self._error is None:
                log.warning("mirror_waits why=%r", str(error))
            self._error = str(error)
        except Exception:
            self._unit = None  # will be read again
            self._retry_mono = mono + RETRY_MOST_S
            self._counts["failures"] += 1
            self._error = "it failed; the hub's log says why"
            log.exception("mirror_failed")

    def _has_work(self, now: float) -> bool:
        return (self._was_away or self._unit is not None
                or self._folder.next_late_file() is not None or self._is_due(now))

    def _is_due(self, now: float) -> bool:
        return self._position.until + MINUTE_S + GRACE_S <= now

    def _check_receiver(self, mono: float) -> None:
        """Rewind if the receiver has been restarted: it may have lost what it accepted just
        before."""
        is_due = self._checked_mono is None or mono - self._checked_mono >= CHECK_EVERY_S
        if not is_due and not self._was_away:
            return
        self._checked_mono = mono
        before, started = self._position.started, self._receiver.started()
        if started is None and before is not None:
            return  # it may be starting; checked again later
        is_another = started != before if before is not None else self._was_away
        self._position.started = started
        self._was_away = False
        if is_another and self._position.sent:
            self._resend_until = max(self._resend_until, self._position.until)
            self._position.rewind()
            self._folder.rewind_late()
            self._unit = None
            log.info("mirror_sends_again from=%d", self._position.until)
        self._folder.save(self._position)

    def _units(self, now: float) -> Iterator[MirrorUnit]:
        while True:
            if self._unit is None:
                self._unit = self._late_unit() or self._minute(now)
            if self._unit is None:
                return
            yield self._unit
            self._folder.keep_late(self._history.keep_late)

    def _late_unit(self) -> MirrorUnit | None:
        path = self._folder.next_late_file()
        return None if path is None else _unit(late_rows(path), 0, 0, path,
                                              self._folder.is_resend(path))

    def _minute(self, now: float) -> MirrorUnit | None:
        begins = -(-self._history.begins() // MINUTE_S) * MINUTE_S
        if self._position.until < begins:
            self._counts["lost_seconds"] += begins - self._position.until
            log.warning("mirror_lost_seconds count=%d: history no longer has them",
                        begins - self._position.until)
            self._position.until = begins
        if not self._is_due(now):
            return None
        start = self._position.until
        return _unit(self._history.seconds(start - 1, start + MINUTE_S), start, start + MINUTE_S,
                     None, start < self._resend_until)

    def _send(self, unit: MirrorUnit) -> None:
        while unit.batches:
            self._post(unit.batch(), unit.is_resend, [MOST_PARTS])
            unit.batches.popleft()
        if unit.late is not None:
            self._folder.record_late_sent(unit.late, time.time())
        else:
            self._position.record_sent(time.time(), unit.start, unit.end)
            self._folder.save(self._position)
        self._unit = None

    def _post(self, batch: MirrorBatch, is_resend: bool, parts_left: list[int]) -> None:
        """Send a batch, in parts if it is refused. `parts_left`: number of parts still allowed."""
        count = batch.sample_count
        if not count and not batch.ends:
            return
        try:
            rejected = self._receiver.post(self._receiver.format.body(batch))
        except MirrorRefusedError as error:
            parts = batch.halves() if error.is_divisible and not is_resend else None
            if parts is None or parts_left[0] < len(parts):
                if not is_resend:  # else the receiver has them already
                    self._refuse(count, str(error))
                return
            parts_left[0] -= len(parts)
            for part in parts:
                self._post(part, is_resend, parts_left)
            return
        self._counts["sent"] += count - rejected
        if rejected:
            self._refuse(rejected, "it did not take all samples of a request")

    def _refuse(self, count: int, words: str) -> None:
        self._counts["refused"] += count
        if words[:40] != self._logged_reason:
            self._logged_reason = words[:40]
            log.warning("mirror_refused samples=%d why=%r", count, words)


def _unit(table: Table, start: int, end: int, late: Path | None, is_resend: bool) -> MirrorUnit:
    columns = [encoded(table.column(name)) for name in SeriesPlace._fields]
    starts = runs(*(codes for codes, _ in columns))
    words_at = [[None if code < 0 else words[code] for code in codes[starts].tolist()]
                for codes, words in columns]
    places = [SeriesPlace(cluster, str(gpu), host, str(node))
              for cluster, gpu, host, node in zip(*words_at, strict=True)]
    place = np.repeat(np.arange(len(starts)), lengths(starts, table.num_rows))
    # A series in two requests would seem to end in the first; late samples have no end markers.
    cuts = starts[::GPUS_AT_ONCE] if late is None else np.arange(0, table.num_rows, ROWS_AT_ONCE)
    return MirrorUnit(start, end, late, is_resend,
                      deque(pairwise([*cuts.tolist(), table.num_rows])), table, places, place)

