"""The files of history: seals blocks, writes what came late, merges, forgets.

Everything here runs in native threads, never on the event loop. One change is one line of the
manifest: its files are whole, named and on disk before. A kill at any point leaves the former
picture, and the head log brings the rest again: what is in files already is known by its content,
(gpu, node, second), and is not taken twice.
"""

import logging
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from pathlib import Path

import numpy as np

from .give_up import MENDS_ITSELF, GiveUpCounter
from .ingest import BlockExtras, EventKey, HistoryIngester, event_columns
from .manifest import SCHEMA_VERSION, HistoryFile, Manifest
from .memory import BLOCK_S, Bools, MemoryBlock, SampleRows, Slots, joined
from .merge import FileMerge, merges
from .parquet import (
    GROUP_ROWS,
    HOUR_S,
    MINUTE_S,
    RAW_GROUP_GPUS,
    Table,
    raw_table,
    rollup_table,
    save_rows,
    slow_table,
    table_of,
    tasks_table,
    usage_table,
    write,
)
from .reading import event_keys, merged, seen_seconds
from .rollup import Rollup, coarser, rolled_up
from .rollup import joined as joined_rollups
from .rows import HistoryMessage
from .task_minutes import TaskMinuteRows, held_in
from .usage import usages

log = logging.getLogger("gpudeck.history")

GRACE_S = 20  # after its end, a block waits for stragglers
LATE_S = 20.0  # what came late waits this long for more
LATE_ROWS = 200_000
MAX_OPEN = 6
RETRY_S = 30.0
LEAP_S, REMEMBER_S = 3_600.0, 86_400.0


@dataclass(frozen=True, slots=True)
class HistoryRetention:
    """For how long. 0 bytes: as much as there is."""

    raw_s: int = 24 * 3_600
    minutes_s: int = 90 * 86_400
    hours_s: int = 730 * 86_400
    size_bytes: int = 0

    def of(self, kind: str) -> int:
        if kind == "raw":
            return self.raw_s
        return self.hours_s if kind in ("hours", "usage", "events") else self.minutes_s


class HistoryStore:
    def __init__(self, folder: Path, keep: HistoryRetention | None = None) -> None:
        self.folder = folder
        self.keep = keep or HistoryRetention()
        self.manifest = Manifest(folder)
        self.lock = threading.RLock()
        self.feed = HistoryIngester(self._seen_in_files, self._events_in_files)
        self.error: str | None = None
        self.failures = 0
        self._segment = 0
        self._now = 0.0
        self._steady: tuple[float, float] | None = None  # wall and monotonic clock, last time
        self._remember_until = -1.0  # by the monotonic clock
        self._late_since: float | None = None
        self._retry_at = 0.0
        self._tries = GiveUpCounter()
        self._unmerged: set[str] = set()  # given up, until the next start
        self._readers: dict[int, int] = {}  # token -> the manifest's number when it began
        self._tokens = 0
        self._retired: list[tuple[int, str]] = []

    def open(self) -> None:
        self.manifest.load()
        self._migrate()

    def _migrate(self) -> None:
        """What an older version wrote is written anew before anything is asked of it."""
        old = [one for one in self.manifest.segments.values() if one.schema < SCHEMA_VERSION]
        for one in old:
            paths = self.manifest.verified([one])
            made = write(self.folder, one.kind, (one.start, one.end, one.span_s),
                         (self.manifest.number + 1, one.made_at),
                         merged(one.kind, paths, one.start, one.end)) if paths else None
            if made is not None:
                self._commit([made], [one.name])
        self._delete_retired()
        if old:
            log.info("history files were brought to version %d files=%d", SCHEMA_VERSION, len(old))

    # -- in

    def append(self, messages: Sequence[HistoryMessage], segment: int) -> None:
        """They are in this segment of the head log, on disk."""
        with self.lock:
            self._segment = segment
            self.feed.take(messages, segment)

    def first_segment(self) -> int | None:
        """Segments of the head log before it are in files. None: all are."""
        with self.lock:
            return self.feed.first_segment()

    def _seen_in_files(self, start: int) -> Bools | None:
        found = self.manifest.find("raw", start, start + BLOCK_S)
        if not found:
            return None
        pairs: list[tuple[Slots, Slots]] = []
        for path in self.manifest.verified(found):
            gpus, nodes, at, t = seen_seconds(path, start, start + BLOCK_S)
            slots = np.array([self.feed.slot(*pair) for pair in zip(gpus, nodes, strict=True)],
                             np.intp)
            pairs.append((t - start, slots[at] if len(at) else at))
        seen = np.zeros((BLOCK_S, max(64, len(self.feed.names.gpus))), bool)
        for seconds, slots in pairs:
            seen[seconds, slots] = True
        return seen

    def _events_in_files(self, start: int) -> set[EventKey]:
        found = self.manifest.find("events", start, start + BLOCK_S)
        return set().union(*(event_keys(path) for path in self.manifest.verified(found)))

    # -- what time does

    def tend(self, now: float, mono: float | None = None) -> None:
        """Every few seconds, from one thread at a time. `mono`: the monotonic clock; None: time
        passes as `now` says."""
        if mono is not None:
            self._watch_clock(now, mono)
        if now < self._retry_at <= now + RETRY_S:
            return
        self._now = now
        try:
            self._seal_due(now)
            self._write_late(now)
            self._merge(now)
            self._forget(now, mono is None or mono >= self._remember_until)
            self._delete_retired()
            if self.manifest.is_long:
                self.manifest.rewrite()
            self.error = None
            self._retry_at = 0.0
        except MENDS_ITSELF as error:
            self.failures += 1
            self._retry_at = now + RETRY_S
            why = getattr(error, "strerror", None) or str(error) or "out of memory"
            if self.error is None:
                log.warning("history cannot be written, it waits in memory reason=%r", why)
            self.error = why
            self._shed()

    def _watch_clock(self, now: float, mono: float) -> None:
        """A clock that leaps ahead makes all of history old at once: then nothing is forgotten for
        its age for a day, so that somebody can set it right."""
        if self._steady is None:
            newest = max((one.end for one in self.manifest.segments.values()), default=now)
            self._steady = (newest, mono)
        was, was_mono = self._steady
        self._steady = (now, mono)
        if now - was - (mono - was_mono) > LEAP_S:
            self._remember_until = mono + REMEMBER_S
            log.warning("clock leapt ahead seconds=%d; history forgets nothing for a day",
                        now - was - (mono - was_mono))

    def _seal_due(self, now: float) -> None:
        with self.lock:
            head = self.feed.head
            due = [start for start in sorted(head.open) if start + BLOCK_S + GRACE_S <= now]
            most = sorted(head.open)[: max(0, len(head.open) - MAX_OPEN)]
            for start in sorted({*due, *most}):
                head.close(start)
                self.feed.close(start)
            waiting = sorted(head.closed.items())
        for start, block in waiting:
            if not self._tried(("block", start), partial(self._seal, start, block)):
                self._drop(start, block)

    def _seal(self, start: int, block: MemoryBlock, is_last: bool) -> None:
        with self.lock:
            aside = self.feed.closed_asides.get(start) or BlockExtras()
            order = self.feed.order()

        def chunks() -> Iterator[SampleRows]:
            for at in range(0, len(order), RAW_GROUP_GPUS):
                yield block.rows(order[at : at + RAW_GROUP_GPUS])

        segments = self._write_all(chunks, aside, (start, start + BLOCK_S, BLOCK_S), is_last)
        with self.lock:
            self._commit(segments)
            self.feed.head.sealed(start)
            self.feed.written(start)

    def _tried(self, key: Hashable, do: Callable[[bool], None]) -> bool:
        """False: it failed for the last time, and not for the disk's sake. What stands behind it
        goes on either way."""
        verdict = self._tries.run(key, do)
        self.failures += verdict != "done"
        return verdict != "given up"

    def _write_late(self, now: float) -> None:
        with self.lock:
            late = self._late_due(now)
            if late is None:
                return
            for start in self._gone(late, now) - set(self.feed.closed_asides):
                self.feed.close(start)
            asides = {start: aside for start, aside in self.feed.closed_asides.items()
                      if start not in self.feed.head.closed}
            segment = self._segment

        def put(is_last: bool) -> None:
            segments = self._late_files(late, asides, is_last)
            with self.lock:
                self._commit(segments)
                done()

        def done() -> None:
            self.feed.head.written(late, segment)
            for start in asides:
                self.feed.written(start)
            self._late_since = None

        if not self._tried("late", put):
            with self.lock:
                self.feed.counts.shed_seconds += _count(late)
                done()

    def _late_due(self, now: float) -> dict[int, list[SampleRows]] | None:
        late = self.feed.head.late()
        if not self._gone(late, now):
            self._late_since = None
            return None
        self.feed.tally.add_up()
        if self._late_since is None:
            self._late_since = now
        is_due = now - self._late_since >= LATE_S or _count(late) >= LATE_ROWS
        return late if is_due else None

    def _late_files(self, late: dict[int, list[SampleRows]], asides: dict[int, BlockExtras],
                    is_last: bool
                    ) -> list[HistoryFile]:
        rank = np.argsort(self.feed.order())
        segments: list[HistoryFile] = []
        for hour in sorted({start - start % HOUR_S for start in (*late, *asides)}):
            rows = joined([part for start, parts in sorted(late.items())
                           if start - start % HOUR_S == hour for part in parts])
            rows = rows.take(np.lexsort((rows.t, rank[rows.slot])))
            aside = _joined_asides([aside for start, aside in asides.items()
                                    if start - start % HOUR_S == hour])
            try:
                segments += self._write_all(partial(iter, [rows]), aside,
                                            (hour, hour + HOUR_S, 0), is_last)
            except BaseException:
                self._unwrite(segments)
                raise
        return segments

    def _gone(self, late: Iterable[int], now: float) -> set[int]:
        """Blocks that are in files already, and have more."""
        feed = self.feed
        return {start for starts in (late, feed.asides, feed.tally.blocks, feed.closed_asides)
                for start in starts if self._is_past(start, now)}

    def _is_past(self, start: int, now: float) -> bool:
        head = self.feed.head
        if start in head.open or start in head.closed:
            return False
        return start in head.pasts or start + BLOCK_S + GRACE_S <= now

    def _write_all(self, chunks: Callable[[], Iterator[SampleRows]], aside: BlockExtras,
                   stretch: tuple[int, int, int], is_last: bool) -> list[HistoryFile]:
        """One part of history in all its files, or in none. `is_last`: what cannot be written is
        set aside, so that the rest is."""
        written: list[HistoryFile] = []
        made = self.manifest.number + 1, self._now
        try:
            for kind, tables in self._tables(chunks, aside):
                try:
                    segment = write(self.folder, kind, stretch, made, tables())
                except Exception as error:
                    if not is_last or isinstance(error, MENDS_ITSELF):
                        raise
                    self._set_aside(kind, stretch[0], chunks)
                    continue
                written += [] if segment is None else [segment]
        except BaseException:
            self._unwrite(written)
            raise
        return written

    def _unwrite(self, segments: Iterable[HistoryFile]) -> None:
        """Else who reads the folder without the manifest would see their seconds twice."""
        for segment in segments:
            (self.folder / segment.name).unlink(missing_ok=True)

    def _tables(self, chunks: Callable[[], Iterator[SampleRows]], aside: BlockExtras
                ) -> Iterator[tuple[str, Callable[[], Iterator[Table]]]]:
        names, rank = self.feed.names, np.argsort(self.feed.order())
        rolled: list[Rollup] = []
        minutes = cache(lambda: joined_rollups(rolled))

        def raw() -> Iterator[Table]:
            for rows in chunks():
                rolled.append(rolled_up(rows, MINUTE_S))
                yield raw_table(rows, names)

        @cache
        def held() -> TaskMinuteRows:
            found = held_in(aside.minutes)
            return found.take(np.lexsort((found.t, rank[found.slot])))

        def used() -> Iterator[Table]:
            found = usages(held(), minutes())
            yield usage_table(found.take(np.lexsort((found.t, rank[found.slot]))), names)

        yield "raw", raw
        yield "minutes", lambda: _by_gpus("minutes", minutes(), self)
        yield "hours", lambda: _by_gpus("hours", coarser(minutes(), HOUR_S), self)
        if aside.slow:
            yield "slow", lambda: iter([slow_table(aside.slow, names)])
        if aside.minutes:
            yield "tasks", lambda: iter([tasks_table(held(), names)])
            yield "usage", used
        if aside.events:
            yield "events", lambda: iter([table_of("events", event_columns(aside.events))])

    def _set_aside(self, kind: str, start: int, chunks: Callable[[], Iterator[SampleRows]]) -> None:
        """Seconds are kept as plain arrays: what was wrong with them can still be found out."""
        log.exception("history cannot be written and was set aside kind=%s start=%d", kind, start)
        if kind == "raw":
            save_rows(self.manifest.aside(), start, chunks(), self.feed.names)
        self.manifest.quarantined.append(f"{kind}/{kind}-{start}")

    def _drop(self, start: int, block: MemoryBlock) -> None:
        with self.lock:
            self.feed.head.sealed(start)
            self.feed.written(start)
            self.feed.counts.shed_seconds += block.row_count
        log.error("history was shed start=%d gpu_seconds=%d", start, block.row_count)

    def _commit(self, add: list[HistoryFile], drop: Sequence[str] = (),
                forgot: dict[str, int] | None = None) -> None:
        if not add and not drop:
            return
        try:
            self.manifest.commit(add, drop, forgot)
        except OSError:  # nothing was said
            self._unwrite(add)
            raise
        for segment in add:
            self.manifest.trust(segment)
        self._retired += [(self.manifest.number, name) for name in drop]

    def _merge(self, now: float) -> None:
        with self.lock:
            todo = merges([one for one in self.manifest.segments.values()
                           if one.name not in self._unmerged], now)
        for one in todo:
            parts = one.parts
            paths = self.manifest.verified(parts)
            if len(paths) < len(parts):
                return  # one was put aside just now; what is left is looked at anew
            names = [part.name for part in parts]
            if not self._tried(("merge", *names), partial(self._merge_into, one, paths, now)):
                self._unmerged.update(names)
            self._delete_retired()

    def _merge_into(self, one: FileMerge, paths: list[Path], now: float, is_last: bool) -> None:
        made = write(self.folder, one.kind, (one.start, one.end, one.span_s),
                     (self.manifest.number + 1, now), merged(one.kind, paths, one.start, one.end))
        with self.lock:
            self._commit([] if made is None else [made], [part.name for part in one.parts])

    def _forget(self, now: float, is_clock_sound: bool) -> None:
        """A bound of size holds whatever the clock says."""
        with self.lock:
            segments = sorted(self.manifest.segments.values(), key=lambda one: one.end)
            old = [one for one in segments
                   if is_clock_sound and one.end < now - self.keep.of(one.kind)]
            if self.keep.size_bytes:
                left = [one for one in segments if one not in old]
                size = sum(one.size_bytes for one in left)
                # The finest first: it is the most, and the coarser files tell of the same time.
                for kinds in (("raw",), ("minutes", "tasks", "slow"), ("hours", "usage", "events")):
                    for one in left:
                        if size > self.keep.size_bytes and one.kind in kinds:
                            old.append(one)
                            size -= one.size_bytes
            if old:
                forgot: dict[str, int] = {}
                for one in old:
                    forgot[one.kind] = max(one.end, forgot.get(one.kind, 0))
                self._commit([], [one.name for one in old], forgot)

    def _shed(self) -> None:
        """The disk takes nothing: memory is bounded all the same."""
        with self.lock:
            closed = sorted(self.feed.head.closed.items())
        for start, block in closed[: max(0, len(closed) - MAX_OPEN)]:
            self._drop(start, block)

    # -- readers

    @contextmanager
    def reading(self) -> Iterator["HistoryFilesSnapshot"]:
        """No file that is history now is deleted until this ends."""
        with self.lock:
            self._tokens += 1
            token = self._tokens
            self._readers[token] = self.manifest.number
        try:
            yield HistoryFilesSnapshot(self)
        finally:
            with self.lock:
                del self._readers[token]

    def _delete_retired(self) -> None:
        with self.lock:
            oldest = min(self._readers.values(), default=self.manifest.number)
            gone = [(number, name) for number, name in self._retired if number <= oldest]
            self._retired = [one for one in self._retired if one not in gone]
        for _, name in gone:
            (self.folder / name).unlink(missing_ok=True)


class HistoryFilesSnapshot:
    """The files as they were at one moment: `look` is called under the lock, together with the
    look into memory, so that what is being sealed is in exactly one of both."""

    def __init__(self, store: HistoryStore) -> None:
        self._store = store
        self._segments: list[HistoryFile] = []

    def look(self) -> None:
        self._segments = list(self._store.manifest.segments.values())

    def begin(self, kind: str) -> int:
        """Before it, files of this kind have been given up for their age or size."""
        return self._store.manifest.forgotten.get(kind, 0)

    def rows(self, kind: str, t0: int, t1: int) -> int:
        """Of all files that meet this time, however little."""
        return sum(one.rows for one in self._segments if one.kind == kind and one.meets(t0, t1))

    def find(self, kind: str, t0: int, t1: int) -> list[Path]:
        return self._store.manifest.verified(
            one for one in self._segments if one.kind == kind and one.meets(t0, t1))


def _by_gpus(kind: str, made: Rollup, store: HistoryStore) -> Iterator[Table]:
    """In row groups of some Gpus, of much the same size."""
    ends = np.append(np.flatnonzero(np.diff(made.slot)) + 1, len(made))
    pieces = max(1, round(len(made) / GROUP_ROWS))
    cuts = ends[np.searchsorted(ends, np.linspace(0, len(made), pieces + 1)[1:])]
    for first, last in pairwise([0, *np.unique(cuts).tolist()]):
        yield rollup_table(kind, made.take(np.s_[first:last]), store.feed.names)


def _count(late: dict[int, list[SampleRows]]) -> int:
    return sum(len(part) for parts in late.values() for part in parts)


def _joined_asides(asides: Sequence[BlockExtras]) -> BlockExtras:
    found = BlockExtras()
    for aside in asides:
        found.slow = found.slow + aside.slow
        found.events = found.events | aside.events
        found.minutes = found.minutes + aside.minutes
    return found


