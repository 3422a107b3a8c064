"""Sends history to a receiver, a minute at a time, in a separate thread.

History is the queue: what a receiver has not taken is read from it again, for as long as seconds
are kept. Only what came late for a minute that is sent already waits in files of its own.
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

from ..history.arrays import lengths, runs
from ..history.arrow_columns import Table, numbers
from ..history.columns import KEYS
from ..history.copying import HistoryCopyReader, late_rows
from ..history.row_index import encoded
from ..runtime.runner import Loop
from .formats import MirrorFormat
from .position import MirrorFolder
from .samples import GpuSeconds, MirrorBatch, SeriesPlace
from .transport import MirrorRefusedError, ReceiverAwayError

log = logging.getLogger("gpudeck.mirror")

EVERY_S = 5.0
MINUTE_S = 60
GRACE_S = 10  # what comes later than this after its minute goes apart
GPUS_AT_ONCE = 256
ROWS_AT_ONCE = GPUS_AT_ONCE * MINUTE_S
MOST_PARTS = 24  # of a request that was refused
LOOK_EVERY_S = 10.0
RETRY_MOST_S = 60.0


class SampleReceiver(Protocol):
    @property
    def format(self) -> MirrorFormat: ...

    def post(self, body: bytes) -> int:
        """How many samples were not taken. Raises ReceiverAwayError or MirrorRefusedError."""

    def started(self) -> float | None: ...


class MirrorInfo(NamedTuple):
    behind_s: float
    counts: dict[str, int]  # samples: sent, refused; seconds and late files that were lost
    error: str | None  # why nothing is taken now


@dataclass(slots=True)
class MirrorUnit:
    """A minute, or a file of late samples, and what of it has not been sent."""

    start: int
    end: int
    late: Path | None
    is_again: bool
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
        self._again_until = 0
        self._looked_mono: float | None = None
        self._was_away = False
        self._failed = 0
        self._retry_mono = 0.0
        self._said = ""
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

    # -- in its own thread

    def step(self, now: float, mono: float) -> None:
        """Never raises: what leaves a native thread would be printed."""
        self._now = now
        try:
            self._folder.keep_late(self._history.keep_late)
            if mono >= self._retry_mono and self._has_work(now):
                self._look(mono)
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
            self._unit = None  # it is read again
            self._retry_mono = mono + RETRY_MOST_S
            self._counts["failures"] += 1
            self._error = "it failed; the hub's log says why"
            log.exception("mirror_failed")

    def _has_work(self, now: float) -> bool:
        return (self._was_away or self._unit is not None or self._folder.late() is not None
                or self._is_due(now))

    def _is_due(self, now: float) -> bool:
        return self._position.until + MINUTE_S + GRACE_S <= now

    def _look(self, mono: float) -> None:
        """A receiver that was killed may have lost what it had taken just before."""
        is_due = self._looked_mono is None or mono - self._looked_mono >= LOOK_EVERY_S
        if not is_due and not self._was_away:
            return
        self._looked_mono = mono
        before, started = self._position.started, self._receiver.started()
        if started is None and before is not None:
            return  # asked again: it may be on its way up
        is_another = started != before if before is not None else self._was_away
        self._position.started = started
        self._was_away = False
        if is_another and self._position.sent:
            self._again_until = max(self._again_until, self._position.until)
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
        path = self._folder.late()
        return None if path is None else _unit(late_rows(path), 0, 0, path,
                                              self._folder.is_again(path))

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
                     None, start < self._again_until)

    def _send(self, unit: MirrorUnit) -> None:
        while unit.batches:
            self._post(unit.batch(), unit.is_again, [MOST_PARTS])
            unit.batches.popleft()
        if unit.late is not None:
            self._folder.took_late(unit.late, time.time())
        else:
            self._position.took(time.time(), unit.start, unit.end)
            self._folder.save(self._position)
        self._unit = None

    def _post(self, batch: MirrorBatch, is_again: bool, left: list[int]) -> None:
        """`left`: how many more parts of it may be tried."""
        count = batch.sample_count
        if not count and not batch.ends:
            return
        try:
            refused = self._receiver.post(self._receiver.format.body(batch))
        except MirrorRefusedError as error:
            parts = batch.halves() if error.is_divisible and not is_again else None
            if parts is None or left[0] < len(parts):
                if not is_again:  # else it has them already
                    self._refuse(count, str(error))
                return
            left[0] -= len(parts)
            for part in parts:
                self._post(part, is_again, left)
            return
        self._counts["sent"] += count - refused
        if refused:
            self._refuse(refused, "it did not take all samples of a request")

    def _refuse(self, count: int, words: str) -> None:
        self._counts["refused"] += count
        if words[:40] != self._said:
            self._said = words[:40]
            log.warning("mirror_refused samples=%d why=%r", count, words)


def _unit(table: Table, start: int, end: int, late: Path | None, is_again: bool) -> MirrorUnit:
    columns = [encoded(table.column(name)) for name in SeriesPlace._fields]
    starts = runs(*(codes for codes, _ in columns))
    words_at = [[None if code < 0 else words[code] for code in codes[starts].tolist()]
                for codes, words in columns]
    places = [SeriesPlace(cluster, str(gpu), host, str(node))
              for cluster, gpu, host, node in zip(*words_at, strict=True)]
    place = np.repeat(np.arange(len(starts)), lengths(starts, table.num_rows))
    # A series in two requests would seem to end in the first; of what came late, no end is said.
    cuts = starts[::GPUS_AT_ONCE] if late is None else np.arange(0, table.num_rows, ROWS_AT_ONCE)
    return MirrorUnit(start, end, late, is_again,
                      deque(pairwise([*cuts.tolist(), table.num_rows])), table, places, place)

