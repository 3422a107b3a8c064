"""MPS load of a Node, by the minute, out of history: for rehearsing a share. Pure."""

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    import pandas as pd

MINUTE_S = 60
ENOUGH_S = 30
OF_MPS = ("mps_server", "mps_client")
USES = ("t", "gpu", "task", "kind")


class GpuMpsUsageView(Struct):
    """`util_pct`: the mean of each minute; null: it did not say for half of it. `is_mps`: whether a
    server or client of MPS was on it; null: not known."""

    gpu: str
    util_pct: list[float | None]
    is_mps: list[bool | None]


class MpsUsageView(Struct):
    """Columns: the minutes that begin at `t`. `clients`: how many; null where the Node was not
    heard, and where history does not say of all tasks whether they were clients."""

    node: str
    start: int
    end: int
    step: int
    t: list[int]
    clients: list[int | None]
    gpus: list[GpuMpsUsageView]


def mps_past(node: str, gpus: list[str], uses: "pd.DataFrame", loads: "pd.DataFrame",
             span: tuple[int, int]) -> MpsUsageView:
    """`uses`: the columns USES of `tasks`. `loads`: gpu, t, util_pct_mean, util_pct_n by the
    minute."""
    clients: dict[int, set[str]] = {}
    boards: set[tuple[int, str]] = set()
    unsure: set[int] = set()
    for t, gpu, task, kind in zip(*(uses[name].tolist() for name in USES), strict=True):
        if not isinstance(kind, str):
            unsure.add(t)
        elif kind in OF_MPS:
            boards.add((t, gpu))
            if kind == "mps_client":
                clients.setdefault(t, set()).add(task)
    reported = {int(t) for t in loads["t"].tolist()} - unsure
    mean = {(int(t), gpu): value for gpu, t, value, n in zip(
        *(loads[name].tolist() for name in ("gpu", "t", "util_pct_mean", "util_pct_n")),
        strict=True) if n >= ENOUGH_S}
    grid = range(span[0], span[1], MINUTE_S)
    return MpsUsageView(
        node, *span, MINUTE_S, list(grid),
        [len(clients.get(t, ())) if t in reported else None for t in grid],
        [GpuMpsUsageView(gpu, [mean.get((t, gpu)) for t in grid],
                         [(t, gpu) in boards if t in reported else None for t in grid])
         for gpu in gpus])
