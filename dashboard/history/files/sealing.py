"""Sealing: what memory holds goes into files, closed blocks and what came late for them."""

import logging
from collections.abc import Iterable, Iterator
from functools import partial

import numpy as np

from ..columns.arrays import take_rows
from ..columns.memory import BLOCK_S, MemoryBlock, SampleRows, together
from ..ingest.messages import BlockExtras, HistoryIngester
from ..storage.manifest import HistoryFile
from .block_writer import BlockWriter
from .file_set import HistoryFiles
from .give_up import GiveUpCounter
from .parquet import HOUR_S, RAW_GROUP_GPUS

log = logging.getLogger("gpudeck.history")

GRACE_S = 20  # after its end, a block waits for stragglers
LATE_S = 20.0  # what came late waits this long for more
LATE_ROWS = 200_000
MAX_OPEN = 6


class BlockSealer:
    def __init__(self, files: HistoryFiles, feed: HistoryIngester, tries: GiveUpCounter) -> None:
        self._files = files
        self._feed = feed
        self._places = feed.places
        self._tries = tries
        self._writer = BlockWriter(files, feed)
        self._late_since: float | None = None

    def seal_due(self, now: float) -> None:
        with self._files.lock:
            head = self._feed.head
            due = [start for start in sorted(head.open) if start + BLOCK_S + GRACE_S <= now]
            most = sorted(head.open)[: max(0, len(head.open) - MAX_OPEN)]
            for start in sorted({*due, *most}):
                head.close(start)
                self._feed.close(start)
                if self._places is not None:
                    self._places.close(start)
            waiting = sorted(head.closed.items())
        for start, block in waiting:
            if not self._tries.run(("block", start), partial(self._seal, start, block, now)):
                self._drop(start, block)

    def _seal(self, start: int, block: MemoryBlock, now: float, is_last: bool) -> None:
        with self._files.lock:
            aside = self._feed.closed_asides.get(start) or BlockExtras()
            order = self._feed.order()

        def chunks() -> Iterator[SampleRows]:
            for at in range(0, len(order), RAW_GROUP_GPUS):
                yield block.rows(order[at : at + RAW_GROUP_GPUS])

        segments = self._writer.write(chunks, aside, (start, start + BLOCK_S, BLOCK_S), now,
                                      is_last)
        with self._files.lock:
            self._files.commit(segments)
            self._feed.head.mark_sealed(start)
            self._feed.mark_written(start)
            self._note_sealed(start, is_written=not is_last)

    def _note_sealed(self, start: int, is_written: bool) -> None:
        """Note whether a block is in files, whole: at the last try parts of it may be left out."""
        if self._places is not None:
            (self._places.mark_sealed if is_written else self._places.drop)(start)

    def write_late(self, now: float, segment: int) -> None:
        """`segment`: the one of the head log that holds what comes from now on."""
        with self._files.lock:
            late = self._late_due(now)
            if late is None:
                return
            for start in self._past_starts(late, now) - set(self._feed.closed_asides):
                self._feed.close(start)
            asides = {start: aside for start, aside in self._feed.closed_asides.items()
                      if start not in self._feed.head.closed}
            if self._places is not None:  # of others, a part waits for the next time
                self._places.close_late({*late, *asides} - {*self._feed.asides,
                                                            *self._feed.tally.blocks})

        def put(is_last: bool) -> None:
            segments = self._late_files(late, asides, now, is_last)
            with self._files.lock:
                self._files.commit(segments)
                finish(not is_last)

        def finish(is_written: bool) -> None:
            if self._places is not None:
                (self._places.mark_late_written if is_written else self._places.drop_late)()
            self._feed.head.mark_written(late, segment)
            for start in asides:
                self._feed.mark_written(start)
            self._late_since = None

        if not self._tries.run("late", put):
            with self._files.lock:
                self._feed.counts.shed_seconds += _count(late)
                finish(False)

    def _late_due(self, now: float) -> dict[int, list[SampleRows]] | None:
        late = self._feed.head.late()
        if not self._past_starts(late, now):
            self._late_since = None
            return None
        self._feed.tally.add_up()
        if self._late_since is None:
            self._late_since = now
        is_due = now - self._late_since >= LATE_S or _count(late) >= LATE_ROWS
        return late if is_due else None

    def _late_files(self, late: dict[int, list[SampleRows]], asides: dict[int, BlockExtras],
                    now: float, is_last: bool) -> list[HistoryFile]:
        rank = np.argsort(self._feed.order())
        segments: list[HistoryFile] = []
        for hour in sorted({start - start % HOUR_S for start in (*late, *asides)}):
            rows = together(part for start, parts in sorted(late.items())
                            if start - start % HOUR_S == hour for part in parts)
            rows = take_rows(rows, np.lexsort((rows.t, rank[rows.slot])))
            aside = BlockExtras()
            for start, extras in asides.items():
                if start - start % HOUR_S == hour:
                    aside.add(extras)
            try:
                segments += self._writer.write(partial(iter, [rows]), aside,
                                            (hour, hour + HOUR_S, 0), now, is_last)
            except BaseException:
                self._files.remove(segments)
                raise
        return segments

    def _past_starts(self, late: Iterable[int], now: float) -> set[int]:
        """Return the starts of blocks that are in files already, and have more."""
        feed = self._feed
        return {start for starts in (late, feed.asides, feed.tally.blocks, feed.closed_asides)
                for start in starts if self._is_past(start, now)}

    def _is_past(self, start: int, now: float) -> bool:
        head = self._feed.head
        if start in head.open or start in head.closed:
            return False
        return start in head.pasts or start + BLOCK_S + GRACE_S <= now

    def shed(self) -> None:
        """Shed closed blocks when the disk takes nothing: memory is bounded all the same."""
        with self._files.lock:
            closed = sorted(self._feed.head.closed.items())
        for start, block in closed[: max(0, len(closed) - MAX_OPEN)]:
            self._drop(start, block)

    def _drop(self, start: int, block: MemoryBlock) -> None:
        with self._files.lock:
            self._feed.head.mark_sealed(start)
            self._feed.mark_written(start)
            self._note_sealed(start, is_written=False)
            self._feed.counts.shed_seconds += block.row_count
        log.error("history was shed start=%d gpu_seconds=%d", start, block.row_count)


def _count(late: dict[int, list[SampleRows]]) -> int:
    return sum(len(part) for parts in late.values() for part in parts)
