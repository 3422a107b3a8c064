"""Rows that the whole of history shares."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpudeck.wire import Event, Frame, Hello, Inventory

from .memory import Slots


@dataclass(frozen=True, slots=True)
class HistoryMessage:
    """One message that is in the log now. `second`: in which second of the hub's clock a Frame was
    taken; 0: as its agent says."""

    node_id: str
    stream: str
    received_at: float
    message: Hello | Inventory | Frame | Event
    second: int = 0
    is_backfill: bool = False


@dataclass(frozen=True, slots=True)
class HistorySlots:
    """The GPUs of an Inventory."""

    slots: list[int]
    array: Slots


@dataclass(frozen=True, slots=True)
class SlowMetricRows:
    slot: Slots
    t: int
    values: npt.NDArray[np.float64]
    absent: npt.NDArray[np.uint8]
