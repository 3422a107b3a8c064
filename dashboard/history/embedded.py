"""The embedded engine: DuckDB over the files, and the newest seconds from memory.

Every tier tells of everything that is in files, and memory of the rest, each second once: so the
parts of an answer are disjoint and only need adding up. Runs in native threads, never on the event
loop.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ResultTooLargeError, UnknownMetricError
from .archive import Archive
from .columns import AT, KEYS, SLOW_KEYS
from .database import HistoryDatabase, found_in
from .files import HistoryFilesSnapshot
from .folder import totals
from .frames import (
    BucketSums,
    added_up,
    columns_of,
    in_memory,
    of_files,
    of_frame,
    side_by_side,
)
from .ingest import event_columns
from .instant_reads import InstantReader
from .instants import InstantMatrix
from .memory import BLOCK_S
from .memory_reads import MemoryReader
from .parquet import HOUR_S, MINUTE_S, plain_frame, tasks_table
from .point_reads import HistoryPointReader
from .protocol import AGGS, Agg, By, HistoryInfo, Nodes
from .rows import HistoryMessage
from .rule_reads import RuleHistoryReader
from .sql import on, sums_of, texts
from .store import HistoryRetention, HistoryStore
from .usage_reads import UsageReader

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger("gpudeck.history")

MAX_ROWS = 500_000
UNPACKS_MOST = 8_000_000  # numbers out of files for one series; from there on DuckDB wins


class EmbeddedHistory:
    def __init__(self, folder: Path, keep: HistoryRetention | None = None,
                 archive: Archive | None = None) -> None:
        """`archive`: where sealed files go; None: into the same folder."""
        self.store = HistoryStore(folder, keep, archive)
        self.rules = RuleHistoryReader(self.store)
        self.unpacks_most = UNPACKS_MOST
        self._db = HistoryDatabase()
        self._memory = MemoryReader(self.store.feed)
        self._usage = UsageReader(self.store, self._memory, self._db)
        self._points = HistoryPointReader()
        self._instants = InstantReader(self.store, self._memory, self._points, self._db)
        self._failures = 0

    def open(self) -> None:
        self.store.open()

    def close(self) -> None:
        self._db.close()

    def append(self, messages: Sequence[HistoryMessage], segment: int) -> None:
        self.store.append(messages, segment)

    def first_segment(self) -> int | None:
        return self.store.first_segment()

    def maintain(self, now: float, mono: float) -> None:
        try:
            self.store.maintain(now, mono)
        except Exception:
            self._failures += 1
            log.exception("history_not_maintained")

    # -- questions

    def series(self, gpus: Sequence[str], metrics: Sequence[str], t0: float, t1: float, step: int,
               aggs: Sequence[Agg] = AGGS, nodes: Nodes = None) -> "pd.DataFrame":
        known = _known(metrics)
        step = max(1, step)
        first, last = int(t0 // step) * step, -int(-t1 // step) * step
        if len(gpus) * ((last - first) // step) > MAX_ROWS:
            raise ResultTooLargeError(f"that would be more than {MAX_ROWS:,} rows; ask for fewer "
                                      "Gpus, a shorter time or a longer step")
        span = (first, last)
        with self.store.reading() as files:
            with self.store.lock:
                files.look()
                memory = self._memory.series(gpus, known, span, step, nodes)
            parts = self._files(files, gpus, known, span, step, nodes)
        return added_up([*parts, *memory], gpus, known, aggs, step)

    def _files(self, files: HistoryFilesSnapshot, gpus: Sequence[str], metrics: Sequence[str],
               span: tuple[int, int], step: int, nodes: Nodes) -> list[BucketSums]:
        live = [metric for metric in metrics if metric in AT]
        slow = [metric for metric in metrics if metric not in AT]
        where = f"gpu in ({texts(gpus)})" + on(nodes)
        found = [self._grouped(files, "slow", span, step, where, slow, gpus)] if slow else []
        for kind, part in _tiers(files, span, step) if live else ():
            paths = found_in(files, kind, *part) if part[0] < part[1] else []
            names = columns_of(kind, live)
            if self._points.unpacked(paths, gpus, len(names), part) > self.unpacks_most:
                found.append(self._grouped(files, kind, part, step, where, live, gpus))
            elif paths:
                some = self._points.some(kind, paths, gpus, names, part, nodes)
                found.append(of_files(kind, some, live))
        return [sums for sums in found if sums is not None]

    def _grouped(self, files: HistoryFilesSnapshot, kind: str, span: tuple[int, int], step: int,
                 where: str,
                 metrics: Sequence[str], gpus: Sequence[str]) -> BucketSums | None:
        first, last = span
        sums = ", ".join(sums_of(metric, kind) for metric in metrics)
        frame = self._db.ask(files, kind, first, last,
                          f"select gpu, t - t % {step} as t, {sums} from {{files}} "
                          f"where {where} and t >= {first} and t < {last} group by all")
        return None if frame is None else of_frame(frame, gpus)

    def instant(self, metric: str, t: float, nodes: Nodes = None) -> "pd.DataFrame":
        _known([metric])
        return self._instants.instant(metric, t, nodes)

    def instants(self, metric: str, moments: Sequence[int], nodes: Nodes = None) -> InstantMatrix:
        _known([metric])
        return self._instants.instants(metric, moments, nodes)

    def block(self, metric: str, t: float, nodes: Nodes = None) -> "pd.DataFrame":
        if metric not in AT:
            raise UnknownMetricError(f"a block is of one of {', '.join(KEYS)}")
        start = int(t) - int(t) % BLOCK_S
        with self.store.reading() as files:
            with self.store.lock:
                files.look()
                rows = self._memory.rows(metric, start, start + BLOCK_S, nodes)
            paths = files.find("raw", start, start + BLOCK_S)
            parts = [self._points.matrix(path, metric, start, nodes) for path in paths]
        if len(rows):
            parts.append(in_memory(rows, metric, self.store.feed.names.gpus, start))
        return side_by_side(parts, start)

    def usage(self, by: By, bucket: int, t0: float, t1: float, nodes: Nodes = None,
              of: str | None = None) -> "pd.DataFrame":
        return self._usage.usage(by, bucket, t0, t1, nodes, of)

    def held(self, by: Sequence[By], t0: float, t1: float) -> "pd.DataFrame":
        return self._usage.held(by, t0, t1)

    def tasks(self, t0: float, t1: float, gpus: Sequence[str] | None = None, nodes: Nodes = None,
              limit: int = 10_000, words: Sequence[str] | None = None) -> "pd.DataFrame":
        import pandas as pd

        columns = "*" if words is None else ", ".join(f'"{name}"' for name in words)
        where = "" if gpus is None else f" and gpu in ({texts(gpus)})"
        with self.store.reading() as files:
            with self.store.lock:
                files.look()
                names = self.store.feed.names
                memory = plain_frame(tasks_table(self._memory.task_minutes(nodes), names))
            found = self._db.ask(files, "tasks", int(t0), int(t1) + 1,
                              f"select {columns} from {{files}} where t >= {int(t0)} and t < "
                              f"{int(t1)}{where}{on(nodes)} order by t, gpu, task limit {limit}")
        memory = memory[(memory["t"] >= int(t0)) & (memory["t"] < int(t1))]
        if gpus is not None:
            memory = memory[memory["gpu"].isin(list(gpus))]
        memory = memory if words is None else memory[[*words]]
        parts = [part for part in (found, memory) if part is not None and len(part)]
        whole = pd.concat(parts, ignore_index=True) if parts else memory
        return whole.sort_values(["t", "gpu", "task"], ignore_index=True).head(limit)

    def events(self, t0: float, t1: float, nodes: Nodes = None, limit: int = 10_000,
               gpus: Sequence[str] | None = None, kinds: Sequence[str] | None = None
               ) -> "pd.DataFrame":
        import pandas as pd

        only = {name: list(words) for name, words in (
            ("node", None if nodes is None else sorted(nodes)), ("gpu", gpus), ("kind", kinds))
            if words is not None}

        with self.store.reading() as files:
            with self.store.lock:
                files.look()
                feed = self.store.feed
                parts = [event_columns(aside.events)
                         for asides in (feed.asides, feed.closed_asides)
                         for aside in asides.values() if aside.events]
            found = self._db.ask(files, "events", int(t0), int(t1) + 1,
                              f"select * from {{files}} where t >= {t0} and t < {t1}"
                              + "".join(f" and {name} in ({texts(words)})"
                                        for name, words in only.items())
                              + f" order by t desc limit {limit}")
        frames = [pd.DataFrame(part) for part in parts]
        frames = [frame[(frame["t"] >= t0) & (frame["t"] < t1)] for frame in frames]
        for name, words in only.items():
            frames = [frame[frame[name].isin(words)] for frame in frames]
        frames += [] if found is None else [found]
        frames = [frame for frame in frames if len(frame)]
        if not frames:
            return pd.DataFrame(event_columns({}))
        return pd.concat(frames, ignore_index=True).sort_values("t", ignore_index=True).tail(limit)

    def finest(self, t: float) -> int:
        # Without the lock: the loop asks this, and must not wait for who writes.
        forgotten = self.store.manifest.forgotten
        for step, kinds in ((HOUR_S, ("minutes", "tasks")), (MINUTE_S, ("raw",))):
            if any(t < forgotten.get(kind, 0) for kind in kinds):
                return step
        return 1

    def since(self) -> int | None:
        return self._usage.since()

    def info(self) -> HistoryInfo:
        with self.store.lock:
            manifest, feed = self.store.manifest, self.store.feed
            kinds = totals(manifest)
            blocks = (*feed.head.open.values(), *feed.head.closed.values())
            late = sum(len(rows) for parts in feed.head.late().values() for rows in parts)
            counts = {"frames": feed.counts.frames, "unreadable": feed.counts.unreadable,
                      "doubled": feed.head.doubled, "shed_seconds": feed.counts.shed_seconds,
                      "failures": self.store.failures + self._failures, "late_waiting": late,
                      "damaged_lines": manifest.damaged_lines}
            return HistoryInfo(kinds, sum(kind["bytes"] for kind in kinds.values()),
                               sum(block.row_count for block in blocks) + late,
                               list(manifest.quarantined), counts, self.store.error)





def _tiers(files: HistoryFilesSnapshot, span: tuple[int, int],
           step: int) -> list[tuple[str, tuple[int, int]]]:
    """The coarsest that is fine enough. Where seconds have been given up, minutes stand in."""
    first, last = span
    if step % HOUR_S == 0:
        return [("hours", span)]
    if step % MINUTE_S == 0:
        return [("minutes", span)]
    begin = min(max(files.begin("raw"), first), last)
    return [("minutes", (first, begin)), ("raw", (begin, last))]




def _known(metrics: Sequence[str]) -> Sequence[str]:
    for metric in metrics:
        if metric not in AT and metric not in SLOW_KEYS:
            raise UnknownMetricError(f"there is no metric {metric[:40]!r}; there are "
                                     f"{', '.join((*KEYS, *SLOW_KEYS))}")
    return metrics
