"""The embedded engine: numbers of GPUs straight out of files, lists and sums by owner by DuckDB
over them, and the newest seconds from memory.

Every tier covers all that is in files, and memory the rest, each second once: so the parts of an
answer are disjoint and only need adding up. Runs in native threads, never on the event loop.
"""

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...errors import ResultTooLargeError, UnknownMetricError
from ..columns.host_minutes import by_steps
from ..columns.instants import InstantMatrix, MomentSamples, instant_frame, instant_matrix, seen_in
from ..columns.layout import AT, KEYS, SLOW_KEYS
from ..columns.memory import BLOCK_S
from ..columns.rollup import Rollup
from ..columns.usage import OF_OLDER, USAGE_SUMS, USAGE_TOPS
from ..files.file_set import HistoryFilesSnapshot
from ..files.parquet import HOUR_S, MINUTE_S, plain_frame
from ..files.store import HistoryRetention, HistoryStore
from ..ingest.message_places import MessagePlaces
from ..storage.archive import Archive
from ..storage.folder import totals
from .database import HistoryDatabase, held_sql, hours_sql, on, source, sums_of, text, texts
from .frames import add_up, no_hours, sums_in, usage_by
from .memory_reads import LAST, MemoryReader
from .point_reads import HistoryPointReader
from .protocol import AGGS, BYS, Agg, By, HistoryInfo, Nodes
from .rule_reads import RuleHistoryReader

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger("gpudeck.history")

MAX_ROWS = 500_000
MAX_ROWS_TOGETHER = 2_000_000  # of which one row a step remains
DAY_S = 86_400
LOOK_BACK_S = 3  # an instant shows the newest sample, if it is no older
SLOW_LOOK_BACK_S = 90


class EmbeddedHistory:
    def __init__(self, folder: Path, keep: HistoryRetention | None = None,
                 archive: Archive | None = None, cluster: str | None = None,
                 places: MessagePlaces | None = None) -> None:
        """`archive`: where sealed files go; None: into the same folder. `cluster`: as its rows
        name it. `places`: of messages, where they are archived at the seal."""
        self.store = HistoryStore(folder, keep, archive, cluster, places)
        self.rules = RuleHistoryReader(self.store)
        # What only the store does is asked of it directly.
        self.open, self.append = self.store.open, self.store.append
        self.first_segment, self.save_places = self.store.first_segment, self.store.save_places
        self.unarchived = self.store.unarchived
        self.places = places
        self._db = HistoryDatabase()
        self.close = self._db.close
        self._memory = MemoryReader(self.store.feed)
        self._points = HistoryPointReader(self.store.files.cache)
        self._failures = 0

    def maintain(self, now: float, mono: float) -> None:
        try:
            self.store.maintain(now, mono)
        except Exception:
            self._failures += 1
            log.exception("history_not_maintained")

    # -- questions

    def series(self, gpus: Sequence[str], metrics: Sequence[str], t0: float, t1: float, step: int,
               aggs: Sequence[Agg] = AGGS, nodes: Nodes = None) -> "pd.DataFrame":
        _check_rows(len(gpus), t0, t1, max(1, step), MAX_ROWS)
        names = sorted(set(gpus))
        return add_up(self._parts(names, metrics, t0, t1, max(1, step), nodes), names, aggs,
                      max(1, step))

    def together(self, gpus: Sequence[str], metrics: Sequence[str], t0: float, t1: float,
                 step: int, aggs: Sequence[Agg] = AGGS, nodes: Nodes = None) -> "pd.DataFrame":
        _check_rows(len(gpus), t0, t1, step, MAX_ROWS_TOGETHER)
        parts = self._parts(sorted(set(gpus)), metrics, t0, t1, step, nodes)
        return add_up([replace(part, slot=np.zeros_like(part.slot)) for part in parts],
                      ["all"], aggs, step).drop(columns="gpu")

    def _parts(self, names: Sequence[str], metrics: Sequence[str], t0: float, t1: float, step: int,
               nodes: Nodes) -> list[Rollup]:
        checked = _check_metrics(metrics)
        span = int(t0 // step) * step, -int(-t1 // step) * step
        number = {gpu: at for at, gpu in enumerate(names)}
        with self.store.reading(lambda: self._memory.series(number, checked, span, nodes)) as (
                files, memory):
            return [*self._in_files(files, number, checked, span, step, nodes), *memory]

    def _in_files(self, files: HistoryFilesSnapshot, gpus: Mapping[str, int],
                  metrics: Sequence[str], span: tuple[int, int], step: int, nodes: Nodes
                  ) -> Iterator[Rollup]:
        live = [metric for metric in metrics if metric in AT]
        slow = [metric for metric in metrics if metric not in AT]
        for kind, (first, last) in [*(_tiers(files, span, step) if live else ()),
                                    *([("slow", span)] if slow else ())]:
            if kind != "slow":
                paths = files.find(kind, first, last) if first < last else []
                yield from self._points.some(kind, paths, gpus, metrics, (first, last), step, nodes)
                continue
            sums = ", ".join(map(sums_of, slow))
            frame = self._db.ask(files, kind, first, last,
                                 f"select gpu, t - t % {step} as t, {sums} from {{files}} "
                                 f"where gpu in ({texts([*gpus])}){on(nodes)} and t >= {first} "
                                 f"and t < {last} group by all")
            if frame is not None:
                yield sums_in(frame, gpus, metrics)

    def instant(self, metric: str, t: float, nodes: Nodes = None) -> "pd.DataFrame":
        return instant_frame(self._moment_samples(metric, [int(t)], nodes, _begin(self.store)))

    def instants(self, metric: str, moments: Sequence[int], nodes: Nodes = None) -> InstantMatrix:
        begin = _begin(self.store)
        parts = self._moment_samples(metric, moments, nodes, begin)
        is_rough = metric in AT and moments[0] < begin
        return instant_matrix(parts, len(moments), MINUTE_S if is_rough else 1)

    def _moment_samples(self, metric: str, moments: Sequence[int], nodes: Nodes, begin: int
              ) -> list[MomentSamples]:
        """Read five minutes at a time, or those minutes of a day, which lie in one file, and are
        the same in all their seconds; what changes seldom, one moment at a time."""
        _check_metrics([metric])
        stretches: dict[tuple[str, int], list[int]] = {}  # of a kind, the numbers of moments
        for at, t in enumerate(moments):
            if metric not in AT:
                keys = {("slow", t)}
            elif t < begin:
                keys = {("minutes", t - t % DAY_S)}
            else:
                before = t - LOOK_BACK_S + 1  # may lie in the five minutes before
                keys = {("raw", second - second % BLOCK_S) for second in (before, t)}
            for key in keys:
                stretches.setdefault(key, []).append(at)
        parts = []
        for (kind, start), ats in stretches.items():
            if kind == "slow":
                parts += [part.at([at]) for part in self._last_report(metric, start, nodes)
                          for at in ats]
                continue
            ts, span, back_s = [moments[at] for at in ats], (start, start + BLOCK_S), LOOK_BACK_S
            if kind == "minutes":
                ts = [t - t % MINUTE_S for t in ts]
                span, back_s = (ts[0], ts[-1] + 1), MINUTE_S
            memory = partial(self._memory.samples_at, metric, ts, back_s, nodes)
            with self.store.reading(memory) as (files, in_memory):
                for path in files.find(kind, *span):
                    part = self._points.samples_at(kind, path, metric, span, ts, back_s, nodes)
                    parts.append(part.at(ats))
            parts.append(in_memory.at(ats))
        return parts

    def _last_report(self, metric: str, t: int, nodes: Nodes) -> list[MomentSamples]:
        first = t - SLOW_LOOK_BACK_S + 1
        memory = partial(self._memory.samples_at, metric, [t], SLOW_LOOK_BACK_S, nodes)
        with self.store.reading(memory) as (files, in_memory):
            frame = self._db.ask(
                files, "slow", first, t + 1,
                f"select gpu, node, max(t) as t, arg_max_null({metric}, t) as value, "
                f"arg_max(coalesce(missing, ''), t) as missing from {{files}} "
                f"where t >= {first} and t <= {t}{on(nodes)} group by gpu, node")
        return [in_memory] if frame is None else [seen_in(frame, metric), in_memory]

    def usage(self, by: By, bucket: int, t0: float, t1: float, nodes: Nodes = None,
              of: str | None = None) -> "pd.DataFrame":
        is_fine = bucket % HOUR_S != 0
        if by not in BYS or (is_fine and (bucket % MINUTE_S or by != "user" or of is None)):
            raise UnknownMetricError(f"usage is by one of {', '.join(BYS)}, in buckets of whole "
                                     "hours; of one user, in whole minutes too")
        grain = MINUTE_S if is_fine else HOUR_S
        first, last = int(t0 // grain) * grain, -int(-t1 // grain) * grain
        where = f"t >= {first} and t < {last}{on(nodes)}"
        with self.store.reading(lambda: self._memory.usage(nodes, first, last, grain)) as (
                files, memory):
            if is_fine:
                minutes = files.find("minutes", first, last)
                frame = self._db.ask(files, "tasks", first, last, held_sql(
                    source("minutes", minutes), where, text(str(of)))) if minutes else None
            else:
                only = "" if of is None else f' and "{by}" = {text(of)}'
                at = f"t - t % {bucket}" if bucket else f"{first}::bigint"
                sums = ", ".join([*(f"coalesce(sum({_usage_sum(name)}), 0) as {name}"
                                    for name in USAGE_SUMS),
                                  *(f"max({name}) as {name}" for name in USAGE_TOPS)])
                frame = self._db.ask(files, "usage", first, last,
                                     f'select {at} as t, "{by}", {sums} from {{files}} '
                                     f"where {where}{only} group by all")
        if of is not None:
            memory = memory[memory[by] == of]
        whole = _concatenated([frame, memory[["t", by, *USAGE_SUMS, *USAGE_TOPS]]])
        whole["t"] = whole["t"] - whole["t"] % bucket if bucket else first
        return usage_by(whole, by)

    def held(self, by: Sequence[By], t0: float, t1: float) -> "pd.DataFrame":
        names, columns = [*by], ", ".join(f'"{name}"' for name in by)
        first, last = int(t0 // HOUR_S) * HOUR_S, -int(-t1 // HOUR_S) * HOUR_S
        with self.store.reading(lambda: self._memory.usage(None, first, last)) as (files, memory):
            frame = self._db.ask(files, "usage", first, last,
                                 f"select {columns}, sum(gpu_s) as gpu_s from {{files}} "
                                 f"where t >= {first} and t < {last} group by all")
        return _concatenated([frame, memory[[*names, "gpu_s"]]]).groupby(
            names, dropna=False, as_index=False, sort=False, observed=True).sum()

    def hours_seen(self, t0: float, t1: float, nodes: Nodes = None
                   ) -> tuple["pd.DataFrame", int]:
        first, last = int(t0 // HOUR_S) * HOUR_S, -int(-t1 // HOUR_S) * HOUR_S
        with self.store.reading(lambda: None) as (files, _):
            frame = self._db.ask(files, "hours", first, last, hours_sql(
                f"t >= {first} and t < {last}{on(nodes)}"))
            until = min(files.end("hours"), last)
        return _concatenated([frame, no_hours()]), until

    def since(self) -> int | None:
        with self.store.reading(lambda: self._memory.task_minutes(None, 0, LAST).t) as (
                files, memory):
            frame = self._db.ask(files, "usage", 0, LAST, "select min(t) as t from {files}")
        hours = [] if frame is None or frame["t"].isna().any() else [int(frame["t"][0])]
        hours += [int(memory.min()) // HOUR_S * HOUR_S] if len(memory) else []
        return min(hours, default=None)

    def tasks(self, t0: float, t1: float, gpus: Sequence[str] | None = None, nodes: Nodes = None,
              limit: int = 10_000, words: Sequence[str] | None = None) -> "pd.DataFrame":
        rows = self._rows("tasks", (int(t0), int(t1)), {"gpu": gpus}, nodes,
                          f"order by t, gpu, task limit {limit}", words)
        return rows.sort_values(["t", "gpu", "task"], ignore_index=True).head(limit)

    def events(self, t0: float, t1: float, nodes: Nodes = None, limit: int = 10_000,
               gpus: Sequence[str] | None = None, kinds: Sequence[str] | None = None
               ) -> "pd.DataFrame":
        rows = self._rows("events", (t0, t1), {"gpu": gpus, "kind": kinds}, nodes,
                          f"order by t desc limit {limit}")
        return rows.sort_values("t", ignore_index=True).tail(limit)

    def hosts(self, t0: float, t1: float, step: int, nodes: Nodes = None) -> "pd.DataFrame":
        first, last = int(t0 // step) * step, -int(-t1 // step) * step
        return by_steps(self._rows("hosts", (first, last), {}, nodes,
                                   f"order by t limit {MAX_ROWS}"), step)

    def _rows(self, kind: str, span: tuple[float, float],
              filters: Mapping[str, Sequence[str] | None], nodes: Nodes, order: str,
              columns: Sequence[str] | None = None) -> "pd.DataFrame":
        """Return rows whose columns have one of these words (None: any), and all of memory."""
        only = {name: list(words) for name, words in filters.items() if words is not None}
        selection = "*" if columns is None else ", ".join(f'"{name}"' for name in columns)
        with self.store.reading(lambda: self._memory.table(kind, span, nodes=nodes)) as (
                files, memory_table):
            frame = self._db.ask(files, kind, int(span[0]), int(span[1]) + 1,
                                 f"select {selection} from {{files}} where t >= {span[0]} and t < "
                                 f"{span[1]}{on(nodes)}"
                                 + "".join(f" and {name} in ({texts(words)})"
                                           for name, words in only.items()) + f" {order}")
        memory = plain_frame(memory_table())
        memory = memory[(memory["t"] >= span[0]) & (memory["t"] < span[1])]
        for name, words in only.items():
            memory = memory[memory[name].isin(words)]
        return _concatenated([frame, memory if columns is None else memory[[*columns]]])

    def finest(self, t: float) -> int:
        # Without the lock: the loop asks this, and must not wait for a writer.
        forgotten = self.store.manifest.forgotten
        for step, kinds in ((HOUR_S, ("minutes", "tasks")), (MINUTE_S, ("raw",))):
            if any(t < forgotten.get(kind, 0) for kind in kinds):
                return step
        return 1

    def info(self) -> HistoryInfo:
        with self.store.lock:
            manifest, feed = self.store.manifest, self.store.feed
            kinds = totals(manifest)
            blocks = (*feed.head.open.values(), *feed.head.closed.values())
            late = sum(len(rows) for parts in feed.head.late().values() for rows in parts)
            counts = {"frames": feed.counts.frames, "unreadable": feed.counts.unreadable,
                      "doubled": feed.head.doubled, "shed_seconds": feed.counts.shed_seconds,
                      "failures": self.store.failures + self._failures, "late_waiting": late,
                      "damaged_lines": manifest.damaged_lines,
                      **self.store.files.cache.counts()}
            return HistoryInfo(kinds, sum(kind["bytes"] for kind in kinds.values()),
                               sum(block.row_count for block in blocks) + late,
                               list(manifest.quarantined), counts, self.store.error)


def _begin(store: HistoryStore) -> int:
    """Return the first second that has not been given up."""
    return store.manifest.forgotten.get("raw", 0)


def _tiers(files: HistoryFilesSnapshot, span: tuple[int, int],
           step: int) -> list[tuple[str, tuple[int, int]]]:
    """Return the coarsest tier that is fine enough. Minutes stand in for seconds given up."""
    first, last = span
    if step % HOUR_S == 0:
        return [("hours", span)]
    if step % MINUTE_S == 0:
        return [("minutes", span)]
    begin = min(max(files.begin("raw"), first), last)
    return [("minutes", (first, begin)), ("raw", (begin, last))]


def _check_rows(gpus: int, t0: float, t1: float, step: int, most: int) -> None:
    if gpus * (math.ceil(t1 / step) - math.floor(t0 / step)) > most:
        raise ResultTooLargeError(f"that would be more than {most:,} rows; ask for fewer "
                                  "GPUs, a shorter time or a longer step")


def _concatenated(parts: Sequence["pd.DataFrame | None"]) -> "pd.DataFrame":
    """Concatenate those that have rows; if none has, return the last one."""
    import pandas as pd

    frames = [part for part in parts if part is not None]
    return pd.concat([frame for frame in frames if len(frame)] or frames[-1:], ignore_index=True)


def _check_metrics(metrics: Sequence[str]) -> Sequence[str]:
    for metric in metrics:
        if metric not in AT and metric not in SLOW_KEYS:
            raise UnknownMetricError(f"there is no metric {metric[:40]!r}; there are "
                                     f"{', '.join((*KEYS, *SLOW_KEYS))}")
    return metrics


def _usage_sum(name: str) -> str:
    """Return a sum of usage in SQL; files from before it was added have another in its place."""
    return f"coalesce({name}, {OF_OLDER[name]})" if name in OF_OLDER else name
