"""What each GPU said at a moment, or at some."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .columns import AT
from .database import HistoryDatabase
from .files import HistoryFilesSnapshot
from .frames import newest_in, newest_of
from .instants import (
    InstantMatrix,
    MomentSamples,
    of_instant,
    planned,
    seen_in_memory,
    seen_together,
)
from .memory_reads import MemoryReader
from .parquet import MINUTE_S
from .point_reads import HistoryPointReader, NewestSamples
from .protocol import Nodes
from .sql import on
from .store import HistoryStore

if TYPE_CHECKING:
    import pandas as pd

LOOK_BACK_S = 3  # an instant shows the newest sample, if it is no older
SLOW_LOOK_BACK_S = 90


class InstantReader:
    def __init__(self, store: HistoryStore, memory: MemoryReader, points: HistoryPointReader,
                 db: HistoryDatabase) -> None:
        self._store = store
        self._memory = memory
        self._points = points
        self._db = db

    def instant(self, metric: str, t: float, nodes: Nodes = None) -> "pd.DataFrame":
        second = int(t)
        with self._store.reading() as files:
            with self._store.lock:
                files.look()
                kind = "slow" if metric not in AT else (
                    "minutes" if second < files.begin("raw") else "raw")
                back_s = {"raw": LOOK_BACK_S, "slow": SLOW_LOOK_BACK_S, "minutes": MINUTE_S}[kind]
                memory = self._memory.newest(metric, second - back_s + 1, second + 1, nodes)
            found = self._last_in_files(files, kind, metric, (second - back_s + 1, second), nodes)
        return newest_of([*found, *memory], metric)

    def instants(self, metric: str, moments: Sequence[int], nodes: Nodes = None) -> InstantMatrix:
        with self._store.reading() as files:
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
        with self._store.reading() as files:
            with self._store.lock:
                files.look()
                rows = self._memory.rows(metric, first, last, nodes)
            found = [self._points.seen(path, metric, moments, LOOK_BACK_S, nodes)
                     for path in files.find("raw", first, last)]
        if len(rows):
            names = self._store.feed.names
            found.append(seen_in_memory(rows, metric, moments, LOOK_BACK_S, names.gpus,
                                        names.nodes))
        for one in found:
            one.moment = one.moment + begin
        return found

    def _last_in_files(self, files: HistoryFilesSnapshot, kind: str, metric: str,
                       span: tuple[int, int],
                       nodes: Nodes) -> list[NewestSamples]:
        first, last = span
        if kind == "raw":
            paths = files.find("raw", first, last + 1)
            return self._points.newest(paths, metric, first, last, nodes)
        value = f"{metric}_mean" if kind == "minutes" else metric
        words = "null" if kind == "minutes" else "missing"
        found = self._db.ask(
            files, kind, first, last + 1,
            f"select gpu, node, max(t) as t, arg_max_null({value}, t) as value, "
            f"arg_max(coalesce({words}, ''), t) as missing from {{files}} "
            f"where t >= {first} and t <= {last}{on(nodes)} group by gpu, node")
        return [] if found is None else [newest_in(found)]
