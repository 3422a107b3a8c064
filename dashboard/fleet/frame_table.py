"""Numbers of Frames, one row per GPU: applied together when somebody reads them. Pure."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from gpudeck.contract.wire import Frame, Slow
from gpudeck.measures.metrics import COLUMNS, SLOW, SLOW_COLUMN

from .metric_table import Codes, Floats, MetricTable, SlowTable

MOST_WAITING = 256  # of Frames whose numbers nobody has read yet
SLOW_LASTS_S = 180.0  # agents repeat it every 60 s; two may be lost on the way
ROOM = 64

A = TypeVar("A", bound=npt.NDArray[Any])


class FrameNumbers(Struct, gc=False):
    """Numbers of a node's Frame. `at`, `at_mono`: when they were taken, by both clocks."""

    slots: npt.NDArray[np.intp]
    frame: Frame
    at: float
    at_mono: float
    note_lies: Callable[[int], None]  # how many of them were out of range


class SettledColumn(Generic[A]):
    """A column of Frames' numbers: each read finds all Frames applied."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, table: "FrameTable", owner: type) -> A:
        table.settle()
        column: A = table.__dict__[self._name]
        return column

    def __set__(self, table: "FrameTable", column: A) -> None:
        table.__dict__[self._name] = column


class FrameTable(MetricTable):
    """Live metrics of GPUs, and those that change seldom. Numbers of Frames wait until somebody
    reads a column of them: numpy takes as long for one node as for a hundred."""

    values = SettledColumn[Floats]()
    absent = SettledColumn[Codes]()
    sampled_at = SettledColumn[Floats]()
    sampled_mono = SettledColumn[Floats]()
    reported = SettledColumn[Codes]()

    def __init__(self) -> None:
        self._waiting: dict[int, FrameNumbers] = {}  # by node, each once
        self.owners_version = 0  # of what is shown of owners: a split board has none
        super().__init__(COLUMNS, np.inf, ROOM)
        self.slow = SlowTable(SLOW, SLOW_LASTS_S, ROOM)

    def _allocate(self, room: int) -> None:
        super()._allocate(room)
        self.reported = np.zeros(room, np.uint8)

    def grow(self, room: int) -> None:
        self.settle()
        super().grow(room)

    def put_numbers(self, node_at: int, numbers: FrameNumbers) -> None:
        """Let a Frame's numbers wait; those of one node are applied in the order of its Frames."""
        if numbers.frame.slow is not None:
            numbers.note_lies(self._take_slow(numbers, numbers.frame.slow))
        if node_at in self._waiting or len(self._waiting) >= MOST_WAITING:
            self.settle()
        self._waiting[node_at] = numbers

    def _take_slow(self, numbers: FrameNumbers, slow: Slow) -> int:
        rows = numbers.slots, SLOW_COLUMN["mig_on"]
        was_split = self.slow.values[rows]
        lies = self.slow.take(numbers.slots, slow.values, slow.absent,
                              np.frombuffer(numbers.frame.states, np.uint8) == 0, numbers.at,
                              numbers.at_mono)
        if not np.array_equal(was_split, self.slow.values[rows], equal_nan=True):
            self.owners_version += 1
        return int(lies.sum())

    def settle(self) -> None:
        """Apply the numbers that wait."""
        if not self._waiting:
            return
        batch, self._waiting = [*self._waiting.values()], {}
        frames = [numbers.frame for numbers in batch]
        slots = np.concatenate([numbers.slots for numbers in batch])
        states = np.frombuffer(b"".join([frame.states for frame in frames]), np.uint8)
        of_frame = np.repeat(np.arange(len(batch)), [len(frame.states) for frame in frames])
        at, at_mono = np.array([(numbers.at, numbers.at_mono) for numbers in batch]).T
        self.reported[slots] = states
        lies = self.take(
            slots, b"".join([frame.values for frame in frames]),
            b"".join([frame.absent for frame in frames]), states == 0, at[of_frame],
            at_mono[of_frame])
        if lies.any():
            for numbers, count in zip(batch, np.bincount(of_frame, lies), strict=False):
                numbers.note_lies(int(count))
