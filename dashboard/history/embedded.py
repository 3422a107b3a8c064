"""The embedded engine: DuckDB over the files, and the newest seconds from memory.

Every tier tells of everything that is in files, and memory of the rest, each second once: so the
parts of an answer are disjoint and only need adding up. Runs in native threads, never on the event
loop.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ResultTooLargeError, UnknownMetricError
from .columns import AT, KEYS, SLOW_KEYS, STORED, in_runs, missing_at, missing_words
from .folder import totals
from .frames import (
    BucketSums,
    added_up,
    columns_of,
    in_memory,
    newest_in,
    newest_of,
    of_files,
    of_frame,
    of_memory,
    of_slow,
    side_by_side,
    slow_reason,
)
from .ingest import event_columns
from .instants import (
    InstantMatrix,
    MomentSamples,
    of_instant,
    planned,
    seen_in_memory,
    seen_together,
)
from .memory import BLOCK_S, Slots, joined
from .parquet import (
    HOUR_S,
    LAYOUTS,
    MINUTE_S,
    plain_frame,
    schema,
    tasks_table,
    usage_table,
    with_words,
)
from .point_reads import HistoryPointReader, NewestSamples, Words
from .protocol import AGGS, BYS, Agg, By, HistoryInfo, Nodes
from .rollup import rolled_up
from .rows import HistoryMessage
from .sql import on, source, sums_of, text, texts
from .store import HistoryFilesSnapshot, HistoryRetention, HistoryStore
from .task_minutes import TaskMinuteRows, held_in
from .usage import NEEDED, USAGE_SUMS, usages
from .usage_sql import held_sql

if TYPE_CHECKING:
    import pandas as pd

MAX_ROWS = 500_000
UNPACKS_MOST = 8_000_000  # numbers out of files for one series; from there on DuckDB wins
LOOK_BACK_S = 3  # an instant shows the newest sample, if it is no older
SLOW_LOOK_BACK_S = 90
MEMORY = "400MB"
LAST = 2**40


class EmbeddedHistory:
    def __init__(self, folder: Path, keep: HistoryRetention | None = None) -> None:
        self.store = HistoryStore(folder, keep)
        self._db: Any = None
        self._db_lock = threading.Lock()
        self._moments = HistoryPointReader()
        self.unpacks_most = UNPACKS_MOST

    def open(self) -> None:
        self.store.open()

    def close(self) -> None:
        """Else DuckDB's binding tells stderr what it was left with."""
        with self._db_lock:
            if self._db is not None:
                self._db.close()
                self._db = None

    def append(self, messages: Sequence[HistoryMessage], segment: int) -> None:
        self.store.append(messages, segment)

    # -- questions

    def series(self, gpus: Sequence[str], metrics: Sequence[str], t0: float, t1: float, step: int,
               aggs: Sequence[Agg] = AGGS, nodes: Nodes = None) -> "pd.DataFrame":
        known = _known(metrics)
        step = max(1, step)
        first, last = int(t0 // step) * step, -int(-t1 // step) * step
        if len(gpus) * ((last - first) // step) > MAX_ROWS:
            raise ResultTooLargeError(f"that would be more than {MAX_ROWS:,} rows; ask for fewer "
                                      "Gpus, a "
                                      "shorter time or a longer step")
        span = (first, last)
        with self.store.reading() as files:
            with self.store.lock:
                files.look()
                memory = self._memory(gpus, known, span, step, nodes)
            parts = self._files(files, gpus, known, span, step, nodes)
        return added_up([*parts, *memory], gpus, known, aggs, step)

    def _files(self, files: HistoryFilesSnapshot, gpus: Sequence[str], metrics: Sequence[str],
               span: tuple[int, int], step: int, nodes: Nodes) -> list[BucketSums]:
        live = [metric for metric in metrics if metric in AT]
        slow = [metric for metric in metrics if metric not in AT]
        where = f"gpu in ({texts(gpus)})" + on(nodes)
        found = [self._grouped(files, "slow", span, step, where, slow, gpus)] if slow else []
        for kind, part in _tiers(files, span, step) if live else ():
            paths = _found(files, kind, *part) if part[0] < part[1] else []
            names = columns_of(kind, live)
            if self._moments.unpacked(paths, gpus, len(names), part) > self.unpacks_most:
                found.append(self._grouped(files, kind, part, step, where, live, gpus))
            elif paths:
                some = self._moments.some(kind, paths, gpus, names, part, nodes)
                found.append(of_files(kind, some, live))
        return [sums for sums in found if sums is not None]

    def _grouped(self, files: HistoryFilesSnapshot, kind: str, span: tuple[int, int], step: int,
                 where: str,
                 metrics: Sequence[str], gpus: Sequence[str]) -> BucketSums | None:
        first, last = span
        sums = ", ".join(sums_of(metric, kind) for metric in metrics)
        frame = self._ask(files, kind, first, last,
                          f"select gpu, t - t % {step} as t, {sums} from {{files}} "
                          f"where {where} and t >= {first} and t < {last} group by all")
        return None if frame is None else of_frame(frame, gpus)

    def _memory(self, gpus: Sequence[str], metrics: Sequence[str], span: tuple[int, int], step: int,
                nodes: Nodes) -> list[BucketSums]:
        feed = self.store.feed
        slots = feed.slots_of(gpus, nodes)
        number = {gpu: at for at, gpu in enumerate(gpus)}
        of_slot = {slot: number[feed.names.gpus[slot]] for slot in slots.tolist()}
        columns = {AT[metric] for metric in metrics if metric in AT}
        rows = joined(list(feed.head.rows(slots, *span, columns)))
        rows = rows.take(np.lexsort((rows.t, rows.slot)))
        slow = [part for asides in (feed.asides, feed.closed_asides)
                for aside in asides.values() for part in aside.slow
                if span[0] <= part.t < span[1]]
        return [of_memory(rolled_up(rows, step, columns), of_slot, metrics),
                *(of_slow(part, of_slot, metrics) for part in slow)]

    def instant(self, metric: str, t: float, nodes: Nodes = None) -> "pd.DataFrame":
        _known([metric])
        second = int(t)
        with self.store.reading() as files:
            with self.store.lock:
                files.look()
                kind = "slow" if metric not in AT else (
                    "minutes" if second < files.begin("raw") else "raw")
                back_s = {"raw": LOOK_BACK_S, "slow": SLOW_LOOK_BACK_S, "minutes": MINUTE_S}[kind]
                memory = self._newest(metric, second - back_s + 1, second + 1, nodes)
            found = self._last_in_files(files, kind, metric, (second - back_s + 1, second), nodes)
        return newest_of([*found, *memory], metric)

    def instants(self, metric: str, moments: Sequence[int], nodes: Nodes = None) -> InstantMatrix:
        _known([metric])
        with self.store.reading() as files:
            begin = files.begin("raw") if metric in AT else None
        parts: list[MomentSamples] = []
        blocks, singles = planned(moments, begin, LOOK_BACK_S)
        for t, ats in singles.items():
            frame = self.instant(metric, t, nodes)
            parts += [of_instant(frame, at) for at in ats]
        for first, ts in blocks:
            parts += self._seen(metric, ts, first, nodes)
        is_rough = begin is not None and moments[0] < begin
        return seen_together(parts, len(moments), MINUTE_S if is_rough else 1)

    def _seen(self, metric: str, moments: Sequence[int], begin: int,
              nodes: Nodes) -> list[MomentSamples]:
        """`begin`: the number of the first of these moments."""
        first, last = moments[0] - LOOK_BACK_S + 1, moments[-1] + 1
        with self.store.reading() as files:
            with self.store.lock:
                files.look()
                feed = self.store.feed
                rows = joined(list(feed.head.rows(feed.slots_of(None, nodes), first, last,
                                                  {AT[metric]})))
            found = [self._moments.seen(path, metric, moments, LOOK_BACK_S, nodes)
                     for path in files.find("raw", first, last)]
        if len(rows):
            found.append(seen_in_memory(rows, metric, moments, LOOK_BACK_S, feed.names.gpus,
                                        feed.names.nodes))
        for one in found:
            one.moment = one.moment + begin
        return found

    def _last_in_files(self, files: HistoryFilesSnapshot, kind: str, metric: str,
                       span: tuple[int, int],
                       nodes: Nodes) -> list[NewestSamples]:
        first, last = span
        if kind == "raw":
            paths = files.find("raw", first, last + 1)
            return self._moments.newest(paths, metric, first, last, nodes)
        value = f"{metric}_mean" if kind == "minutes" else metric
        words = "null" if kind == "minutes" else "missing"
        found = self._ask(
            files, kind, first, last + 1,
            f"select gpu, node, max(t) as t, arg_max_null({value}, t) as value, "
            f"arg_max(coalesce({words}, ''), t) as missing from {{files}} "
            f"where t >= {first} and t <= {last}{on(nodes)} group by gpu, node")
        return [] if found is None else [newest_in(found)]

    def _newest(self, metric: str, first: int, last: int, nodes: Nodes) -> list[NewestSamples]:
        feed = self.store.feed
        slots = (np.arange(len(feed.names.gpus)) if nodes is None
                 else feed.slots_of(None, nodes))
        if metric not in AT:
            return [self._newest_slow(metric, first, last, set(slots.tolist()))]
        rows = joined(list(feed.head.rows(slots, first, last, {AT[metric]})))
        if not len(rows):
            return []
        rows = rows.take(np.lexsort((rows.t, rows.slot)))
        rows = rows.take(np.append(np.flatnonzero(np.diff(rows.slot)), len(rows) - 1))
        at = AT[metric]
        values = rows.units[at] * STORED[at].step
        codes, of_row = in_runs(rows.missing)
        words = np.array([missing_words(code) for code in codes.tolist()], object)
        return [NewestSamples(*self._names(rows.slot), rows.t,
                              np.where(missing_at(rows.missing, at) != 0, np.nan, values),
                              words[of_row], False)]

    def _names(self, slots: Slots) -> tuple[Words, Words]:
        names = self.store.feed.names
        return (np.array([names.gpus[slot] for slot in slots.tolist()], object),
                np.array([names.nodes[slot] for slot in slots.tolist()], object))

    def _newest_slow(self, metric: str, first: int, last: int, slots: set[int]) -> NewestSamples:
        feed, at = self.store.feed, SLOW_KEYS.index(metric)
        newest: dict[int, tuple[int, float, str]] = {}
        for asides in (feed.asides, feed.closed_asides):
            for part in (part for aside in asides.values() for part in aside.slow
                         if first <= part.t < last):
                for row, slot in enumerate(part.slot.tolist()):
                    if slot in slots and part.t >= newest.get(slot, (0, 0.0, ""))[0]:
                        why = int(part.absent[row, at])
                        value = np.nan if why else float(part.values[row, at])
                        newest[slot] = (part.t, value, slow_reason(metric, why))
        return NewestSamples(*self._names(np.array(list(newest), np.intp)),
                             np.array([t for t, _, _ in newest.values()], np.int64),
                             np.array([value for _, value, _ in newest.values()], np.float64),
                             np.array([words for _, _, words in newest.values()], object), False)

    def block(self, metric: str, t: float, nodes: Nodes = None) -> "pd.DataFrame":
        if metric not in AT:
            raise UnknownMetricError(f"a block is of one of {', '.join(KEYS)}")
        start = int(t) - int(t) % BLOCK_S
        with self.store.reading() as files:
            with self.store.lock:
                files.look()
                feed = self.store.feed
                slots = feed.slots_of(None, nodes)
                rows = joined(list(feed.head.rows(slots, start, start + BLOCK_S, {AT[metric]})))
            paths = files.find("raw", start, start + BLOCK_S)
            parts = [self._moments.matrix(path, metric, start, nodes) for path in paths]
        if len(rows):
            parts.append(in_memory(rows, metric, feed.names.gpus, start))
        return side_by_side(parts, start)

    def usage(self, by: By, bucket: int, t0: float, t1: float, nodes: Nodes = None,
              of: str | None = None) -> "pd.DataFrame":
        import pandas as pd

        is_fine = bucket % HOUR_S != 0
        if by not in BYS or (is_fine and (bucket % MINUTE_S or by != "user" or of is None)):
            raise UnknownMetricError(f"usage is by one of {', '.join(BYS)}, in buckets of whole "
                                     "hours; "
                                     "of one user, in whole minutes too")
        grain = MINUTE_S if is_fine else HOUR_S
        first, last = int(t0 // grain) * grain, -int(-t1 // grain) * grain
        with self.store.reading() as files:
            with self.store.lock:
                files.look()
                memory = self._open_usage(nodes, grain)
            where = f"t >= {first} and t < {last}{on(nodes)}"
            if is_fine:
                found = self._held(files, first, last, where, str(of))
            else:
                only = "" if of is None else f' and "{by}" = {text(of)}'
                at = f"t - t % {bucket}" if bucket else f"{first}::bigint"
                sums = ", ".join(f"sum({name}) as {name}" for name in USAGE_SUMS)
                found = self._ask(files, "usage", first, last,
                                  f'select {at} as t, "{by}", {sums} from {{files}} '
                                  f"where {where}{only} group by all")
        memory = memory[(memory["t"] >= first) & (memory["t"] < last)]
        if of is not None:
            memory = memory[memory[by] == of]
        parts = [part[["t", by, *USAGE_SUMS]] for part in (found, memory)
                 if part is not None and len(part)]
        if not parts:
            return pd.DataFrame(columns=["t", by, *USAGE_SUMS])
        whole = pd.concat(parts, ignore_index=True)
        whole["t"] = whole["t"] - whole["t"] % bucket if bucket else first
        return whole.groupby(["t", by], dropna=False, as_index=False, sort=True).sum()

    def held(self, by: Sequence[By], t0: float, t1: float) -> "pd.DataFrame":
        import pandas as pd

        names, columns = [*by], ", ".join(f'"{name}"' for name in by)
        first, last = int(t0 // HOUR_S) * HOUR_S, -int(-t1 // HOUR_S) * HOUR_S
        with self.store.reading() as files:
            with self.store.lock:
                files.look()
                memory = self._open_usage(None).query(f"{first} <= t < {last}")
            found = self._ask(files, "usage", first, last, f"select {columns}, sum(gpu_s) as gpu_s "
                              f"from {{files}} where t >= {first} and t < {last} group by all")
        parts = [part for part in (found, memory) if part is not None and len(part)] or [memory]
        return pd.concat([part[[*names, "gpu_s"]] for part in parts]).groupby(
            names, dropna=False, as_index=False, sort=False, observed=True).sum()

    def _held(self, files: HistoryFilesSnapshot, first: int, last: int, where: str, user: str
              ) -> "pd.DataFrame | None":
        """By the minute, as `usages` adds up what no file has yet."""
        minutes = files.find("minutes", first, last)
        if not minutes:
            return None
        return self._ask(files, "tasks", first, last,
                         held_sql(source("minutes", minutes), where, text(user)))

    def _open_usage(self, nodes: Nodes, grain: int = HOUR_S) -> "pd.DataFrame":
        """What no file has yet."""
        feed = self.store.feed
        held = self._open_minutes(nodes)
        rows = joined(list(feed.head.rows(np.unique(held.slot), 0, LAST, NEEDED)))
        rows = rows.take(np.lexsort((rows.t, rows.slot)))
        did = rolled_up(rows, MINUTE_S, NEEDED)
        return plain_frame(usage_table(usages(held, did, grain), feed.names))

    def _open_minutes(self, nodes: Nodes) -> TaskMinuteRows:
        feed = self.store.feed
        feed.tally.add_up()
        held = held_in([*feed.tally.blocks.values(), *(
            part for aside in feed.closed_asides.values() for part in aside.minutes)])
        if nodes is None:
            return held
        return held.take(np.flatnonzero(np.isin(held.slot, feed.slots_of(None, nodes))))

    def tasks(self, t0: float, t1: float, gpus: Sequence[str] | None = None, nodes: Nodes = None,
              limit: int = 10_000, words: Sequence[str] | None = None) -> "pd.DataFrame":
        import pandas as pd

        columns = "*" if words is None else ", ".join(f'"{name}"' for name in words)
        where = "" if gpus is None else f" and gpu in ({texts(gpus)})"
        with self.store.reading() as files:
            with self.store.lock:
                files.look()
                names = self.store.feed.names
                memory = plain_frame(tasks_table(self._open_minutes(nodes), names))
            found = self._ask(files, "tasks", int(t0), int(t1) + 1,
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
            found = self._ask(files, "events", int(t0), int(t1) + 1,
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
        with self.store.reading() as files:
            with self.store.lock:
                files.look()
                memory = self._open_minutes(None).t
            found = self._ask(files, "usage", 0, LAST, "select min(t) as t from {files}")
        hours = [] if found is None or found["t"].isna().any() else [int(found["t"][0])]
        hours += [int(memory.min()) // HOUR_S * HOUR_S] if len(memory) else []
        return min(hours, default=None)

    def info(self) -> HistoryInfo:
        with self.store.lock:
            manifest, feed = self.store.manifest, self.store.feed
            kinds = totals(manifest)
            blocks = (*feed.head.open.values(), *feed.head.closed.values())
            late = sum(len(rows) for parts in feed.head.late().values() for rows in parts)
            counts = {"frames": feed.counts.frames, "unreadable": feed.counts.unreadable,
                      "doubled": feed.head.doubled, "shed_seconds": feed.counts.shed_seconds,
                      "failures": self.store.failures, "late_waiting": late,
                      "damaged_lines": manifest.damaged_lines}
            return HistoryInfo(kinds, sum(kind["bytes"] for kind in kinds.values()),
                               sum(block.row_count for block in blocks) + late,
                               list(manifest.quarantined), counts, self.store.error)

    # -- DuckDB

    def _ask(self, files: HistoryFilesSnapshot, kind: str, first: int, last: int, sql: str
             ) -> "pd.DataFrame | None":
        """`{files}` in it are those of this kind and time; None: there are none."""
        paths = _found(files, kind, first, last)
        if not paths:
            return None
        with self._connected() as db:
            found: pd.DataFrame = db.execute(sql.replace("{files}", source(kind, paths))).df()
        # Whole numbers with holes come as a type of their own, with which numpy cannot count.
        odd = [name for name, dtype in found.dtypes.items()
               if not isinstance(dtype, np.dtype) and dtype.kind in "iuf"]
        return found.astype(dict.fromkeys(odd, "float64")) if odd else found

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        with self._db_lock:
            if self._db is None:
                self._db = _database()
            cursor = self._db.cursor()
        try:
            yield cursor
        finally:
            cursor.close()


def _database() -> Any:
    """Imported with the first question, not with the hub."""
    import duckdb

    made = duckdb.connect(":memory:", config={
        "threads": 2, "memory_limit": MEMORY, "autoinstall_known_extensions": False,
        "autoload_known_extensions": False, "preserve_insertion_order": False})
    made.execute("set parquet_metadata_cache = true")  # a file never changes under its name
    for kind in LAYOUTS:
        made.register("shape", with_words(schema(kind).empty_table()))
        made.execute(f"create table {kind}_now as select * from shape")
        made.unregister("shape")
    return made


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


def _found(files: HistoryFilesSnapshot, kind: str, first: int, last: int) -> list[Path]:
    if kind in ("hours", "usage"):  # rows of an hour lie in files of its parts
        first, last = first - first % HOUR_S, -(-last // HOUR_S) * HOUR_S
    return files.find(kind, first, last)


def _known(metrics: Sequence[str]) -> Sequence[str]:
    for metric in metrics:
        if metric not in AT and metric not in SLOW_KEYS:
            raise UnknownMetricError(f"there is no metric {metric[:40]!r}; there are "
                                     f"{', '.join((*KEYS, *SLOW_KEYS))}")
    return metrics
