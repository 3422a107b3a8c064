"""Maintenance of history: seals blocks, writes what came late, merges, forgets.

Everything here runs in native threads, never on the event loop. A kill at any point leaves the
former picture, and the head log brings the rest again: what is in files already is known by its
content, (gpu, node, second), and is not taken twice.
"""

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from gpudeck.contract.sequence_ranges import SequenceRanges

from ...errors import ArchiveAwayError
from ..columns.arrays import Bools, Ints, Slots
from ..columns.arrow_columns import numbers
from ..columns.memory import BLOCK_S
from ..columns.rows import HistoryMessage
from ..ingest.message_places import MessagePlaces, StreamKey
from ..ingest.messages import EventKey, HistoryIngester
from ..storage.archive import Archive
from ..storage.archive_mark import write_places
from ..storage.manifest import HistoryFile
from .file_set import HistoryFiles
from .give_up import MENDS_ITSELF, GiveUpCounter
from .merge import FileMerge, merges
from .reading import PLACE, event_keys, merged, pairs_in, tables_in, within
from .sealing import BlockSealer

log = logging.getLogger("gpudeck.history")

RETRY_S = 30.0
LEAP_S, REMEMBER_S = 3_600.0, 86_400.0


@dataclass(frozen=True, slots=True)
class HistoryRetention:
    """Retention of each kind of file. `size_bytes` 0: no limit."""

    raw_s: int = 24 * 3_600
    minutes_s: int = 90 * 86_400
    hours_s: int = 730 * 86_400
    size_bytes: int = 0

    def of(self, kind: str) -> int:
        if kind == "raw":
            return self.raw_s
        return self.hours_s if kind in ("hours", "usage", "events") else self.minutes_s


class HistoryStore:
    def __init__(self, folder: Path, keep: HistoryRetention | None, archive: Archive | None,
                 cluster: str | None, places: MessagePlaces | None) -> None:
        self.keep = keep or HistoryRetention()
        self.files = HistoryFiles(folder, archive)
        self.manifest, self.lock = self.files.manifest, self.files.lock
        self.reading = self.files.reading
        self.feed = HistoryIngester(self._seen_in_files, self._events_in_files, cluster,
                                    places)
        self._saving = threading.Lock()
        self.error: str | None = None
        self._disk_failures = 0
        self._segment = 0
        self._steady: tuple[float, float] | None = None  # wall and monotonic clock, last time
        self._remember_until = -1.0  # by the monotonic clock
        self._retry_at = 0.0
        self._tries = GiveUpCounter()
        self._sealer = BlockSealer(self.files, self.feed, self._tries)
        self._unmerged: set[str] = set()  # given up, until the next start

    @property
    def failures(self) -> int:
        return self._disk_failures + self._tries.failures

    def open(self) -> None:
        self.files.open()

    # -- in

    def append(self, messages: Sequence[HistoryMessage], segment: int) -> None:
        """Take messages that are on disk, in this segment of the head log."""
        with self.lock:
            self._segment = segment
            self.feed.take(messages, segment)

    def first_segment(self) -> int | None:
        """Return the segment of the head log before which all are in files. None: all are."""
        with self.lock:
            return self.feed.first_segment()

    def save_places(self, has_checkpoints: bool = False) -> None:
        """Save which messages are in files, before the head log forgets them. `has_checkpoints`:
        the state has since learned what a restored hub begins with."""
        if (places := self.feed.places) is None:
            return
        with self._saving:
            with self.lock:
                places.is_restored = places.is_restored and (
                    places.is_waiting or not has_checkpoints)
                record = places.record()
            write_places(self.manifest.folder, record)

    def unarchived(self) -> list[tuple[StreamKey, int, SequenceRanges]]:
        """Return stream, first second and ranges, by block, of messages that are not archived."""
        if (places := self.feed.places) is None:
            return []
        with self.lock:
            return [(key, first, SequenceRanges(ranges))
                    for key, first, ranges in places.unarchived()]

    def _seen_in_files(self, start: int) -> Bools | None:
        files = self.manifest.find("raw", start, start + BLOCK_S)
        if not files:
            return None
        pairs: list[tuple[Ints, Slots]] = []
        span = start, start + BLOCK_S
        for table in (within(part, span) for path in self._here(files)
                      for part in tables_in(path, PLACE, span)):
            names, at = pairs_in(table)
            slots = np.array([self.feed.slot(*name) for name in names], np.intp)
            pairs.append((numbers(table.column("t")) - start, slots[at]))
        if not any(len(seconds) for seconds, _ in pairs):
            return None  # a file of what came late is of a whole hour
        filled = np.zeros((BLOCK_S, max(64, len(self.feed.names.gpus))), bool)
        for seconds, slots in pairs:
            filled[seconds, slots] = True
        return filled

    def _events_in_files(self, start: int) -> set[EventKey]:
        files = self.manifest.find("events", start, start + BLOCK_S)
        return set().union(*(event_keys(path) for path in self._here(files)))

    def _here(self, files: list[HistoryFile]) -> list[Path]:
        """Return local files. What the head log may bring again was written lately, so that it is
        here; the hub's live path waits for no archive."""
        return self.manifest.verified(
            file for file in files if self.files.archive.is_here(file.name))

    # -- what time does

    def maintain(self, now: float, mono: float | None = None) -> None:
        """Maintain every few seconds, from one thread at a time. `mono`: the monotonic clock; None:
        time passes as `now` says."""
        if mono is not None:
            self._watch_clock(now, mono)
        if now < self._retry_at <= now + RETRY_S:
            return
        try:
            self._sealer.seal_due(now)
            self._sealer.write_late(now, self._segment)
            self._merge(now)
            self._forget(now, mono is None or mono >= self._remember_until)
            self.files.delete_retired()
            if self.manifest.is_long:
                self.manifest.rewrite()
            self.error = None
            self._retry_at = 0.0
        except MENDS_ITSELF as error:
            self._disk_failures += 1
            self._retry_at = now + RETRY_S
            why = getattr(error, "strerror", None) or str(error) or "out of memory"
            if self.error is None:
                log.warning("history cannot be written, it waits in memory reason=%r", why)
            self.error = why
            self._sealer.shed()

    def _watch_clock(self, now: float, mono: float) -> None:
        """Watch for leaps. A clock that leaps ahead makes all of history old at once: then nothing
        is forgotten for its age for a day, so that somebody can set it right."""
        if self._steady is None:
            newest = max((segment.end for segment in self.manifest.segments.values()), default=now)
            self._steady = (newest, mono)
        was, was_mono = self._steady
        self._steady = (now, mono)
        if now - was - (mono - was_mono) > LEAP_S:
            self._remember_until = mono + REMEMBER_S
            log.warning("clock leapt ahead seconds=%d; history forgets nothing for a day",
                        now - was - (mono - was_mono))

    def _merge(self, now: float) -> None:
        with self.lock:
            todo = merges([segment for segment in self.manifest.segments.values()
                           if segment.name not in self._unmerged], now)
        for merge in todo:
            parts = merge.parts
            try:
                paths = self.manifest.verified(parts)
            except ArchiveAwayError:
                continue  # what came late is read beside it until then
            if len(paths) < len(parts):
                return  # one was put aside just now; what is left is looked at again
            names = [part.name for part in parts]
            if not self._tries.run(("merge", *names), partial(self._merge_into, merge, paths, now)):
                self._unmerged.update(names)
            self.files.delete_retired()

    def _merge_into(self, merge: FileMerge, paths: list[Path], now: float, is_last: bool) -> None:
        merged_file = self.files.write(
            merge.kind, (merge.start, merge.end, merge.span_s), now,
            merged(merge.kind, paths, merge.start, merge.end))
        with self.lock:
            self.files.commit([] if merged_file is None else [merged_file],
                              [part.name for part in merge.parts])

    def _forget(self, now: float, is_clock_sound: bool) -> None:
        """Give up old files. A bound of size holds whatever the clock says."""
        with self.lock:
            segments = sorted(self.manifest.segments.values(), key=lambda segment: segment.end)
            old = [segment for segment in segments
                   if is_clock_sound and segment.end < now - self.keep.of(segment.kind)]
            if self.keep.size_bytes:
                remaining = [segment for segment in segments if segment not in old]
                size = sum(segment.size_bytes for segment in remaining)
                # The finest first: it is the most, and the coarser files tell of the same time.
                for kinds in (("raw",), ("minutes", "tasks", "slow", "hosts"),
                              ("hours", "usage", "events")):
                    for segment in remaining:
                        if size > self.keep.size_bytes and segment.kind in kinds:
                            old.append(segment)
                            size -= segment.size_bytes
            if old:
                forgot: dict[str, int] = {}
                for segment in old:
                    forgot[segment.kind] = max(segment.end, forgot.get(segment.kind, 0))
                self.files.commit([], [segment.name for segment in old], forgot)
