"""Sending of files that are old enough into the archive, and eviction of what is no longer used
here. In its own thread; reads go on whatever it meets."""

import logging
import random
import time
from collections.abc import Callable
from typing import NamedTuple

from gevent.event import Event
from gevent.threadpool import ThreadPool

from gpudeck.rate import RateLimiter

from ...runtime.runner import Loop
from ...runtime.state_store import StateUnavailableError
from ..ingest.message_places import HistoryJoined, StreamsArchived
from ..storage.archive_index import ArchivedFile
from ..storage.archive_owner import NotOwnerError
from ..storage.manifest import HistoryFile
from ..storage.s3 import S3Error, S3WrongError
from ..storage.tiered_archive import TieredArchive
from .archive_joiner import ArchiveJoiner
from .archive_marker import ArchiveMarker
from .file_set import HistoryFiles
from .parquet import LAYOUTS
from .store import HistoryRetention

log = logging.getLogger("gpudeck.history")

EVERY_S = 10.0
STEP_S = 20.0
RETRY_MOST_S = 300.0
# What was written lately stays here: the head log may bring its rows again.
STAYS_S = 2 * 86_400.0
# A backup names files that were merged into others since: they are there for so long.
KEEPS_S = 7 * 86_400.0


class ArchiveInfo(NamedTuple):
    files: int
    bytes: int
    waiting_files: int
    failures: int
    error: str | None  # why nothing is archived now
    oldest: int | None = None  # second that is not archived, where it is to be at once
    is_joining: bool = False  # what is there of before this hub took over is not in history yet
    failed_since: float | None = None  # UTC

    def behind_s(self, now: float) -> float:
        """Return the age of the oldest second that is not archived."""
        return 0.0 if self.oldest is None else max(0.0, now - self.oldest)


def is_due(file: HistoryFile, now: float, after_s: float, keep_s: float) -> bool:
    """Return whether it is old, will hardly be merged, and is not to be given up soon."""
    longest_s = LAYOUTS[file.kind].spans[-1]
    if keep_s <= after_s + longest_s:
        return False
    end = file.start - file.start % longest_s + longest_s
    return max(end, file.end, file.made_at) + after_s <= now


class ArchiveMover:
    def __init__(self, archive: TieredArchive, files: HistoryFiles, keep: HistoryRetention,
                 after_s: float, cache_bytes: int, marker: ArchiveMarker | None,
                 joiner: ArchiveJoiner | None,
                 publish: Callable[[StreamsArchived | HistoryJoined], None]) -> None:
        """`marker`: every file moves as soon as it is written, and marks say what is safe.
        `joiner`: of a hub that shares the archive; before it has joined what is there, nothing
        moves. `publish`: called with what is safe or joined, on the event loop."""
        self._archive = archive
        self._index = archive.index
        self._files = files
        self._keep = keep
        self._after_s = after_s
        self._cache_bytes = cache_bytes
        self._marker = marker
        self._joiner = joiner
        self._wake = Event()
        if self.is_joining:
            self._wake.set()
        self._publish = publish
        self._pool = ThreadPool(1)
        self._pacer = RateLimiter()
        self._failed = 0
        self._failures = 0
        self._retry_mono = 0.0
        self._waiting = 0
        self._error: str | None = None
        self._failed_since: float | None = None

    @property
    def is_at_seal(self) -> bool:
        return self._marker is not None

    @property
    def is_joining(self) -> bool:
        """True until history has what the archive has of before this hub took over."""
        return self._joiner is not None and self._joiner.is_waiting

    @property
    def loop(self) -> Loop:
        return Loop("archive", self._step_beside, EVERY_S, self._wake)

    def _step_beside(self, now: float, mono: float) -> None:
        self._pool.apply(self.step, (now, mono))
        if self.is_joining and self._error is None:
            self._wake.set()  # more of it is to be fetched
        join = None if self._joiner is None else self._joiner.take_news()
        if join is not None:
            self._publish(join)
        news = None if self._marker is None else self._marker.take_news()
        if news is not None:
            self._publish(StreamsArchived(news))

    def info(self) -> ArchiveInfo:
        there = self._index.files("there")
        return ArchiveInfo(len(there), sum(file.size_bytes for file in there), self._waiting,
                           self._failures, self._error,
                           None if self._marker is None else self._marker.oldest,
                           self.is_joining, self._failed_since)

    def step(self, now: float, mono: float) -> None:
        """Never raises: what leaves a native thread would be printed."""
        if mono < self._retry_mono:
            return
        try:
            self._work(now, mono)
            self._error, self._failed_since, self._failed = None, None, 0
        except (S3Error, OSError, StateUnavailableError) as error:
            self._fail(now, mono, str(error))
        except Exception:
            log.exception("archive_failed")
            self._fail(now, mono, "it failed; the hub's log says why")

    def _fail(self, now: float, mono: float, why: str) -> None:
        self._failed += 1
        self._failures += 1
        self._retry_mono = mono + random.uniform(1, min(RETRY_MOST_S, 2.0 ** self._failed + 1))
        if self._error != why or self._pacer.due(why, mono) is not None:
            log.warning("archive_waits why=%r", why)
        self._error = why
        if self._failed_since is None:
            self._failed_since = now

    def _work(self, now: float, mono: float) -> None:
        until_mono = time.monotonic() + STEP_S
        if self._joiner is not None and self._joiner.is_waiting and not self._joiner.join(
                now, until_mono):
            return
        moment = None if self._marker is None else self._marker.moment()
        listed = {segment.name: segment for segment in (
            [*self._files.manifest.segments.values()] if moment is None else moment.files)}
        for orphan in self._index.files("sending"):
            if orphan.name not in listed:  # the hub was killed while it was removed
                self._archive.remove(orphan.name)
        due = sorted((file for file in listed.values() if (moment is not None or is_due(
                          file, now, self._after_s, self._keep.of(file.kind)))
                      and self._index.there(file.name) is None), key=lambda file: file.start)
        self._waiting = len(due)
        leaving = [file for file in self._index.files("leaving") if file.at + KEEPS_S <= now
                   and (self._marker is None or self._marker.covers(file.at))]
        is_mark_due = self._marker is not None and moment is not None and self._marker.is_due(
            moment, mono)
        if not due and not leaving and not self._over() and not is_mark_due:
            return
        self._check_owner()
        wrong: S3WrongError | None = None
        for segment in due:
            if time.monotonic() > until_mono:
                break
            try:
                self._send(segment, now)
            except FileNotFoundError:
                continue  # it was merged into another one meanwhile
            except S3WrongError as error:
                wrong = error
                continue
            self._waiting -= 1
        for unused in leaving:
            self._archive.owner.check_term()
            self._archive.store.delete(unused.key)
            self._index.set_state(unused, "deleted", now)
        self._evict(self._over(), listed, now)
        if self._marker is not None and moment is not None:
            self._marker.put(moment, now, mono)
        if wrong is not None:
            raise wrong

    def _check_owner(self) -> None:
        """Check ownership. Of hubs that share the prefix, one that was here before may have put its
        entry there after the one whose turn it is."""
        owner = self._archive.owner
        try:
            owner.check(not self._index.files("sending", "there", "leaving"))
        except NotOwnerError:
            if self._joiner is None or owner.read_owner() is None:
                raise
            self._joiner.claim()

    def _send(self, segment: HistoryFile, now: float) -> None:
        if not self._files.manifest.verified([segment]):
            return  # it was damaged here, and put aside
        file = self._index.of(segment.name)
        if file is None:
            file = self._index.set_state(ArchivedFile.of(segment), "sending", now)
        if file.state == "sending":
            self._archive.send(file)

    def _over(self) -> int:
        """Return by how many bytes the archive's files here exceed what they may take."""
        return max(0, sum(self._archive.local_bytes(file.name)
                          for file in self._index.files("there")) - self._cache_bytes)

    def _evict(self, over: int, listed: dict[str, HistoryFile], now: float) -> None:
        for file in sorted(self._index.files("there"),
                           key=lambda file: self._archive.last_use_mono(file.name)):
            entry = listed.get(file.name)
            if over <= 0 or entry is None or entry.made_at + STAYS_S > now:
                continue
            size = self._archive.local_bytes(file.name)
            if size and self._archive.evict(file.name):
                over -= size
