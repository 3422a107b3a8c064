"""Idle GPUs in history: since when, also before this hub began, and how much today."""

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from gevent.event import Event

from gpudeck.measures.waste import LOADS, is_idle

from ..history.reads.protocol import History, Nodes
from ..runtime.native_threads import in_thread
from .fleet import Fleet
from .metric_table import Mask
from .wasted_gpus import seconds_idle

if TYPE_CHECKING:
    import pandas as pd

IDLE_LOOK_S = 10.0
TODAY_EVERY_S = 60.0
BACK_S = 86_400  # further back it makes no difference to anybody
GPUS_AT_ONCE = 256
MINUTE_S = 60


class IdleHistory:
    """Asks history once for each GPU that has been idle since this hub began to watch it. For one
    that it has seen at work, it knows itself when that stopped."""

    def __init__(self, fleet: Fleet, history: History) -> None:
        self.wake = Event()
        self._fleet = fleet
        self._history = history
        self._queried: dict[int, float] = {}  # slot -> since when it was idle then
        self._today_mono = -np.inf

    def look_again(self) -> None:
        """Ask again, as there is more history than there was."""
        self._queried.clear()
        self._today_mono = -np.inf
        self.wake.set()

    def told(self, since: Mapping[str, float], now: float, mono: float) -> None:
        """Set since when GPUs are idle in a past that is still being made, by UUID: read from the
        part of it that is there, the time would grow while one looks."""
        fleet = self._fleet
        for slot, uuid in enumerate(fleet.uuids):
            if uuid in since and not np.isnan(fleet.idle_mono[slot]) and (
                    np.isnan(fleet.worked_mono[slot])):
                fleet.idle_mono[slot] = min(fleet.idle_mono[slot], mono - (now - since[uuid]))
                self._queried[slot] = float(fleet.idle_mono[slot])

    def step(self, now: float, mono: float) -> None:
        fleet = self._fleet
        idle = np.flatnonzero(~np.isnan(fleet.idle_mono[:len(fleet)])
                              & np.isnan(fleet.worked_mono[:len(fleet)])
                              & ~fleet.viewed[:len(fleet)]).tolist()
        self._queried = {slot: since for slot in idle
                         if (since := self._queried.get(slot)) is not None
                         and since == fleet.idle_mono[slot]}
        if new := [slot for slot in idle if slot not in self._queried][:GPUS_AT_ONCE]:
            self._ask_since(new, now, mono)
        if fleet.uuids and mono - self._today_mono >= TODAY_EVERY_S:
            self._today_mono = mono
            self._ask_today(now)

    def _ask_since(self, slots: list[int], now: float, mono: float) -> None:
        fleet = self._fleet
        uuids = [fleet.uuids[slot] for slot in slots]
        nodes = frozenset(fleet.node_ids[fleet.node_at[slot]] for slot in slots)
        since_by_uuid = in_thread(lambda: idle_since(self._history, uuids, nodes, int(now)))
        for slot in slots:
            since = since_by_uuid.get(fleet.uuids[slot], now)
            if not np.isnan(fleet.idle_mono[slot]) and np.isnan(fleet.worked_mono[slot]):
                fleet.idle_mono[slot] = min(fleet.idle_mono[slot], mono - (now - since))
            self._queried[slot] = float(fleet.idle_mono[slot])

    def _ask_today(self, now: float) -> None:
        # Not by its hours since then: the day on which clocks change has 23 or 25.
        start = time.mktime((*time.localtime(now)[:3], 0, 0, 0, 0, 0, -1))
        frame = in_thread(lambda: self._history.usage("gpu", 0, start, now))
        idle_s = dict(zip(frame["gpu"], frame["idle_s"], strict=True))
        fleet = self._fleet
        for slot, uuid in enumerate(fleet.uuids):
            fleet.idle_today_s[slot] = idle_s.get(uuid, np.nan)


def idle_since(history: History, uuids: Sequence[str], nodes: Nodes, at: int,
               back_s: int = BACK_S) -> dict[str, float]:
    """Return since when each of these GPUs had been idle at that moment. One of which nothing is
    known is left out."""
    end, names = at // MINUTE_S * MINUTE_S, (*LOADS, "mem_used_bytes")
    minutes = history.series(uuids, names, end - back_s, end, MINUTE_S, ("max", "min"), nodes)
    since = {str(gpu): end - idle_until(part, end) for gpu, part in minutes.groupby("gpu")}
    # The minute that runs is closed nowhere yet, nor may be the one before.
    seconds = history.series([*since], names, end - MINUTE_S, at + 1, 1, ("max", "min"), nodes)
    return since | {str(gpu): max(since[str(gpu)], worked_until(part))
                    for gpu, part in seconds.groupby("gpu")}


def idle_until(minutes: "pd.DataFrame", end: int) -> int:
    """Return for how many seconds a GPU had been idle at `end`, by its minutes. One that is not
    known ends it, unless it is the last: that one may not be there yet."""
    idle = np.zeros(BACK_S // MINUTE_S, bool)
    at = (minutes["t"].to_numpy() - (end - BACK_S)) // MINUTE_S
    idle[at] = _is_idle(minutes)
    if len(at) and at[-1] == len(idle) - 2:
        idle[-1] = idle[-2]
    return seconds_idle(idle)


def worked_until(seconds: "pd.DataFrame") -> float:
    """Return the end of the last second in which it is known to have worked; -inf: none."""
    is_known = _peak(seconds).notna() & seconds["mem_used_bytes_min"].notna()
    worked = seconds["t"][is_known & ~_is_idle(seconds)]
    return float(worked.max()) + 1 if len(worked) else -np.inf


def _peak(rows: "pd.DataFrame") -> "pd.Series[float]":
    peak = rows[f"{LOADS[0]}_max"]
    for name in LOADS[1:]:
        peak = peak.fillna(rows[f"{name}_max"])
    return peak


def _is_idle(rows: "pd.DataFrame") -> Mask:
    mask: Mask = is_idle(_peak(rows).to_numpy(float), rows["mem_used_bytes_min"].to_numpy(float))
    return mask
