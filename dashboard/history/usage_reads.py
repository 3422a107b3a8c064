"""Who held how much, in whole hours and, of one owner, in whole minutes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import UnknownMetricError
from .database import HistoryDatabase
from .files import HistoryFilesSnapshot
from .memory_reads import LAST, MemoryReader
from .parquet import HOUR_S, MINUTE_S
from .protocol import BYS, By, Nodes
from .sql import on, source, text
from .store import HistoryStore
from .usage import USAGE_SUMS
from .usage_sql import held_sql

if TYPE_CHECKING:
    import pandas as pd


class UsageReader:
    def __init__(self, store: HistoryStore, memory: MemoryReader, db: HistoryDatabase) -> None:
        self._store = store
        self._memory = memory
        self._db = db

    def usage(self, by: By, bucket: int, t0: float, t1: float, nodes: Nodes = None,
              of: str | None = None) -> "pd.DataFrame":
        import pandas as pd

        is_fine = bucket % HOUR_S != 0
        if by not in BYS or (is_fine and (bucket % MINUTE_S or by != "user" or of is None)):
            raise UnknownMetricError(f"usage is by one of {', '.join(BYS)}, in buckets of whole "
                                     "hours; of one user, in whole minutes too")
        grain = MINUTE_S if is_fine else HOUR_S
        first, last = int(t0 // grain) * grain, -int(-t1 // grain) * grain
        with self._store.reading() as files:
            with self._store.lock:
                files.look()
                memory = self._memory.usage(nodes, grain)
            where = f"t >= {first} and t < {last}{on(nodes)}"
            if is_fine:
                found = self._held(files, first, last, where, str(of))
            else:
                only = "" if of is None else f' and "{by}" = {text(of)}'
                at = f"t - t % {bucket}" if bucket else f"{first}::bigint"
                sums = ", ".join(f"sum({name}) as {name}" for name in USAGE_SUMS)
                found = self._db.ask(files, "usage", first, last,
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
        with self._store.reading() as files:
            with self._store.lock:
                files.look()
                memory = self._memory.usage(None).query(f"{first} <= t < {last}")
            found = self._db.ask(files, "usage", first, last,
                                 f"select {columns}, sum(gpu_s) as gpu_s from {{files}} "
                                 f"where t >= {first} and t < {last} group by all")
        parts = [part for part in (found, memory) if part is not None and len(part)] or [memory]
        return pd.concat([part[[*names, "gpu_s"]] for part in parts]).groupby(
            names, dropna=False, as_index=False, sort=False, observed=True).sum()

    def _held(self, files: HistoryFilesSnapshot, first: int, last: int, where: str, user: str
              ) -> "pd.DataFrame | None":
        """By the minute, as `usages` adds up what no file has yet."""
        minutes = files.find("minutes", first, last)
        if not minutes:
            return None
        return self._db.ask(files, "tasks", first, last,
                         held_sql(source("minutes", minutes), where, text(user)))

    def since(self) -> int | None:
        with self._store.reading() as files:
            with self._store.lock:
                files.look()
                memory = self._memory.task_minutes(None).t
            found = self._db.ask(files, "usage", 0, LAST, "select min(t) as t from {files}")
        hours = [] if found is None or found["t"].isna().any() else [int(found["t"][0])]
        hours += [int(memory.min()) // HOUR_S * HOUR_S] if len(memory) else []
        return min(hours, default=None)
