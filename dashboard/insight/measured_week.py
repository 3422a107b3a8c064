"""The hours of a fleet out of history, as advice reads them. Runs in a native thread."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..history.reads.protocol import History
from .core.week import Floats, Ints, MeasuredWeek, WeekGpu

if TYPE_CHECKING:
    import pandas as pd

HOUR_S = 3_600
SPAN_H = 8 * 24  # daily peaks of eight days, as of a Vertical Pod Autoscaler
GPUS_AT_ONCE = 512
SOLE_SHARE = 0.95  # of a GPU's GPU-seconds, to count as its owner
METRICS = {"util_pct": ("util", "mean"), "sm_active_pct": ("sm", "mean"),
           "mem_util_pct": ("bandwidth", "mean"), "mem_used_bytes": ("memory", "max"),
           "power_w": ("power", "mean"), "sm_clock_mhz": ("clock", "mean")}


def measured_week(history: History, gpus: Sequence[WeekGpu], now: float) -> MeasuredWeek:
    """Read the last whole hours, at most eight days. `gpus` come without an owner."""
    end = int(now) // HOUR_S * HOUR_S
    since = history.since()
    start = end if since is None else max(since, end - SPAN_H * HOUR_S)
    hours = max(0, (end - start) // HOUR_S)
    at = {gpu.uuid: number for number, gpu in enumerate(gpus)}
    values = {name: np.full((hours, len(gpus)), np.nan) for name, _ in METRICS.values()}
    held, used = (np.zeros((hours, len(gpus))) for _ in range(2))
    if not hours:
        return MeasuredWeek((), (), held, used, values["util"], values["sm"], values["bandwidth"],
                            values["memory"], values["power"], values["clock"], held, used)
    _put(history.usage("gpu", HOUR_S, start, end), "gpu", at, start, held, used)
    for frame in _series(history, [*at], start, end):
        rows_here = frame[[name in at for name in frame["gpu"]]]
        rows, columns = _places(rows_here, "gpu", at, start)
        for metric, (name, agg) in METRICS.items():
            values[name][rows, columns] = rows_here[f"{metric}_{agg}"].to_numpy(float)
    of_users = history.usage("user", HOUR_S, start, end)
    owners = sorted({str(user) for user in of_users["user"] if isinstance(user, str)})
    owner_held, owner_used = (np.zeros((hours, len(owners))) for _ in range(2))
    _put(of_users, "user", {name: number for number, name in enumerate(owners)}, start, owner_held,
         owner_used)
    sole = _owners(history.held(("gpu", "user"), start, end))
    return MeasuredWeek(
        tuple(replace(gpu, owner=sole.get(gpu.uuid)) for gpu in gpus),
        tuple(owners), np.minimum(held, 1.0), np.minimum(used, 1.0), values["util"], values["sm"],
        values["bandwidth"], values["memory"], values["power"], values["clock"], owner_held,
        owner_used)


def _series(history: History, uuids: Sequence[str], start: int, end: int
            ) -> "Iterator[pd.DataFrame]":
    for first in range(0, len(uuids), GPUS_AT_ONCE):
        yield history.series(uuids[first:first + GPUS_AT_ONCE], tuple(METRICS), start, end, HOUR_S,
                             ("mean", "max"))


def _places(frame: "pd.DataFrame", by: str, at: dict[str, int], start: int
            ) -> tuple[Ints, Ints]:
    """Return the rows and the columns."""
    hours = (frame["t"].to_numpy(np.int64) - start) // HOUR_S
    return hours, np.array([at[name] for name in frame[by]], np.int64)


def _put(frame: "pd.DataFrame", by: str, at: dict[str, int], start: int, held: Floats,
         used: Floats) -> None:
    """Add held and used hours. Time that was not measured counts as used."""
    measured = frame[[isinstance(name, str) and name in at for name in frame[by]]]
    rows, columns = _places(measured, by, at, start)
    seconds = measured["gpu_s"].to_numpy(float)
    np.add.at(held, (rows, columns), seconds / HOUR_S)
    np.add.at(used, (rows, columns), (seconds - measured["idle_s"].to_numpy(float)) / HOUR_S)


def _owners(frame: "pd.DataFrame") -> dict[str, str]:
    total: dict[str, float] = {}
    most: dict[str, tuple[float, str]] = {}
    for gpu, user, seconds in zip(frame["gpu"], frame["user"], frame["gpu_s"], strict=True):
        total[gpu] = total.get(gpu, 0.0) + seconds
        if isinstance(user, str):
            most[gpu] = max(most.get(gpu, (0.0, "")), (seconds, user))
    return {gpu: user for gpu, (seconds, user) in most.items()
            if seconds >= SOLE_SHARE * total[gpu]}
