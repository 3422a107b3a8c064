"""Reader of boards that the kernel's own driver shows. Each file is guarded: one bad field is an
Absence, one bad board a state."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from ..readings import (
    BackendEvent,
    BoardNote,
    OnDemandReading,
    ProcessReading,
    Reading,
    note_words,
)
from .sysfs_board import SysfsBoard

PROCESSES_EVERY_S = 2.0
SLOW_EVERY_S = 15.0


class SysfsProcessList(Protocol):
    def read(self, now: float, is_whole: bool) -> tuple[ProcessReading, ...]: ...


class SysfsReader:
    def __init__(self, boards: Sequence[SysfsBoard], processes: SysfsProcessList,
                 driver_version: Callable[[], str | None], clock: Callable[[], float],
                 processes_every_s: float = PROCESSES_EVERY_S) -> None:
        self._boards, self._processes = boards, processes
        self._driver_version, self._clock = driver_version, clock
        self._processes_every_s = processes_every_s
        self._read_at: float | None = None
        self._slow_at: float | None = None
        self._listed_at: float | None = None

    def read(self) -> Reading:
        now = self._clock()
        interval_s = 1.0 if self._read_at is None else now - self._read_at
        self._read_at = now
        is_slow = self._slow_at is None or now - self._slow_at >= SLOW_EVERY_S - 0.5
        if is_slow:
            self._slow_at = now
        processes = self._list(now)  # the first: a board's use may be the sum of theirs
        gpus = tuple(board.read(is_slow, now) for board in self._boards)
        notes = tuple(self._notes())
        return Reading(
            taken_at=time.time(), interval_s=interval_s, gpus=gpus,
            facts=tuple(board.facts for board in self._boards), processes=processes,
            driver_version=self._driver_version(), detail=note_words(notes), notes=notes)

    def fresh(self) -> OnDemandReading:
        return OnDemandReading(
            self._processes.read(self._clock(), is_whole=True),
            {board.facts.uuid: board.mem_used_now() for board in self._boards},
            {board.facts.uuid: board.energy_now() for board in self._boards})

    def watch(self, tell: Callable[[BackendEvent], None]) -> None:
        """Report nothing: the driver has no events but its log."""

    def close(self) -> None:
        """Close nothing: no file stays open."""

    def _list(self, now: float) -> tuple[ProcessReading, ...] | None:
        if self._listed_at is not None and now - self._listed_at < self._processes_every_s - 0.5:
            return None
        self._listed_at = now
        return self._processes.read(now, is_whole=False)

    def _notes(self) -> Iterator[BoardNote]:
        yield from (BoardNote(board.facts.index, note) for board in self._boards
                    if (note := board.note()))
