"""What history knows of idle GPUs: since when, also before this hub began, and how much today."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from gevent.event import Event

from ..history.protocol import History
from ..runtime.native_threads import in_thread
from .fleet import Fleet
from .wasted_gpus import is_idle_at, seconds_idle

if TYPE_CHECKING:
    import pandas as pd

IDLE_LOOK_S = 10.0
TODAY_EVERY_S = 60.0
BACK_S = 86_400  # further back it makes no difference to anybody
GPUS_AT_ONCE = 256
MINUTE_S = 60


class IdleHistory:
    """Asks history once for each GPU that has become idle."""

    def __init__(self, fleet: Fleet, history: History) -> None:
        self.wake = Event()
        self._fleet = fleet
        self._history = history
        self._asked: dict[int, float] = {}  # slot -> since when it was idle when it was asked for
        self._today_mono = -np.inf

    def look_again(self) -> None:
        """There is more history than there was."""
        self._asked.clear()
        self._today_mono = -np.inf
        self.wake.set()

    def told(self, since: Mapping[str, float], now: float, mono: float) -> None:
        """Of a past that is still being made, by UUID: read from the part of it that is there, the
        time would grow while one looks."""
        fleet = self._fleet
        for slot, uuid in enumerate(fleet.uuids):
            if uuid in since and not np.isnan(fleet.idle_mono[slot]):
                fleet.idle_mono[slot] = min(fleet.idle_mono[slot], mono - (now - since[uuid]))
                self._asked[slot] = float(fleet.idle_mono[slot])

    def step(self, now: float, mono: float) -> None:
        fleet = self._fleet
        idle = np.flatnonzero(~np.isnan(fleet.idle_mono[:len(fleet)])
                              & ~fleet.viewed[:len(fleet)]).tolist()
        self._asked = {slot: since for slot in idle if (since := self._asked.get(slot)) is not None
                       and since == fleet.idle_mono[slot]}
        if new := [slot for slot in idle if slot not in self._asked][:GPUS_AT_ONCE]:
            self._ask_since(new, now, mono)
        if fleet.uuids and mono - self._today_mono >= TODAY_EVERY_S:
            self._today_mono = mono
            self._ask_today(now)

    def _ask_since(self, slots: list[int], now: float, mono: float) -> None:
        fleet = self._fleet
        uuids = [fleet.uuids[slot] for slot in slots]
        nodes = frozenset(fleet.node_ids[fleet.node_at[slot]] for slot in slots)
        end = int(now) // MINUTE_S * MINUTE_S

        def ask() -> dict[str, int]:
            frame = self._history.series(
                uuids, ("util_pct", "util_max_pct", "mem_used_bytes"), end - BACK_S, end, MINUTE_S,
                ("max", "min"), nodes)
            return {str(gpu): idle_until(part, end) for gpu, part in frame.groupby("gpu")}

        found = in_thread(ask)
        for slot in slots:
            was_s = found.get(fleet.uuids[slot], 0)
            if was_s and not np.isnan(fleet.idle_mono[slot]):
                fleet.idle_mono[slot] = min(fleet.idle_mono[slot], mono - (now - end) - was_s)
            self._asked[slot] = float(fleet.idle_mono[slot])

    def _ask_today(self, now: float) -> None:
        day = time.localtime(now)
        start = now - (day.tm_hour * 3_600 + day.tm_min * 60 + day.tm_sec)
        frame = in_thread(lambda: self._history.usage("gpu", 0, start, now))
        idle_s = dict(zip(frame["gpu"], frame["idle_s"], strict=True))
        fleet = self._fleet
        for slot, uuid in enumerate(fleet.uuids):
            fleet.idle_today_s[slot] = idle_s.get(uuid, np.nan)


def idle_until(minutes: "pd.DataFrame", end: int) -> int:
    """How long it had been idle then, by one GPU's minutes. One that is not known ends it, unless
    it is the last: that one may not be told yet."""
    peak = minutes["util_max_pct_max"].fillna(minutes["util_pct_max"])
    is_idle = np.zeros(BACK_S // MINUTE_S, bool)
    at = (minutes["t"].to_numpy() - (end - BACK_S)) // MINUTE_S
    is_idle[at] = is_idle_at(peak.to_numpy(float), minutes["mem_used_bytes_min"].to_numpy(float))
    if len(at) and at[-1] == len(is_idle) - 2:
        is_idle[-1] = is_idle[-2]
    return seconds_idle(is_idle)
