"""Rows that all of history shares."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from gpudeck.contract.wire import Event, Frame, Hello, Inventory
from gpudeck.measures.metrics import SLOW_WIDTH

from .arrays import Floats, Ints, Slots, concat_rows
from .layout import SLOW_KEYS

# Agents keep a day of what they ran. A machine that was off for two weeks still brings it; older
# ones are from nobody who means well.
BACKFILL_MOST_S = 15 * 86_400.0


class HistoryMessage(Struct, frozen=True, gc=False):
    """A message that is in the log now. `second`: in which second of the hub's clock a Frame was
    taken; 0: as its agent says."""

    node_id: str
    stream: str
    received_at: float
    message: Hello | Inventory | Frame | Event
    second: int = 0
    is_backfill: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class HistorySlots:
    """The GPUs of an Inventory."""

    slots: list[int]
    array: Slots
    raw: bytes  # of the array: bytes of many Nodes are joined faster than arrays


def listing_of(slots: list[int]) -> HistorySlots:
    array = np.array(slots, np.intp)
    return HistorySlots(slots, array, array.tobytes())


@dataclass(frozen=True, slots=True)
class SlowMetricRows:
    """Slow metrics: a row per second in which a slot reported them; numbers: rows x SLOW_KEYS."""

    slot: Slots
    t: Ints
    numbers: npt.NDArray[np.float64]
    absent: npt.NDArray[np.uint8]

    def why(self, key: str) -> Ints:
        """Return per row why it is missing."""
        return self.absent[:, SLOW_KEYS.index(key)].astype(np.int64)

    def values(self, key: str) -> Floats:
        """Return its values; NaN: not there."""
        return np.where(self.why(key) != 0, np.nan, self.numbers[:, SLOW_KEYS.index(key)])


def slow_rows(parts: Iterable[SlowMetricRows]) -> SlowMetricRows:
    none = np.zeros((0, SLOW_WIDTH))
    return concat_rows([SlowMetricRows(np.zeros(0, np.intp), np.zeros(0, np.int64), none,
                                       none.astype(np.uint8)), *parts])
