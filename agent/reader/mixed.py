"""Readings of a node with boards of several vendors: each vendor's driver is read by a process that
only it can hang, and what they read is put together here. Whatever a driver does, the boards of the
others are read on, and its own stay in the list, marked. Pure."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from msgspec import UNSET, structs

from gpudeck.contract.vendors import vendor_of
from gpudeck.contract.wire import MAX_GPUS, GpuFacts, GpuLink, GpuState, ReaderState
from gpudeck.measures.events import READER_TROUBLE
from gpudeck.measures.metrics import WIDTH, Absence

from ..backends import Backend
from ..readings import (
    BackendEvent,
    BoardNote,
    GpuReading,
    OnDemandReading,
    ProcessReading,
    Reading,
    note_words,
)
from .inbox import ReaderInbox

DETAIL_MOST = 1_024
StartOf = Callable[[int], int | None]  # of the process with this pid; None: it is not there
# The state of a node of which no part is read: the first of these that a part has.
_WORST: tuple[ReaderState, ...] = ("hung", "failed", "released", "starting", "no_driver",
                                   "no_library", "no_gpus")


@dataclass(slots=True, eq=False)
class ReaderPart:
    """Part of one vendor. `facts`: its boards as they were read last, also before a restart."""

    backend: Backend
    inbox: ReaderInbox
    counts_on: bool  # its boards have the indices after those of another part
    board_count: int = 0  # boards of its vendor in the machine, for while none was ever read
    reading: Reading | None = None  # not handed on yet
    states: dict[str, GpuState] = field(default_factory=dict)
    facts: tuple[GpuFacts, ...] = ()
    links: tuple[GpuLink, ...] = ()
    processes: tuple[ProcessReading, ...] = ()
    starts: dict[int, int | None] = field(default_factory=dict)  # of these, by pid
    driver_version: str | None = None
    notes: tuple[BoardNote, ...] = ()  # of single boards, by their index in this part
    was_read: bool = False
    event_state: ReaderState = "starting"  # that the last event was of
    note: str = ""

    @property
    def is_ok(self) -> bool:
        return self.inbox.state == "ok"

    @property
    def begins(self) -> bool:
        return self.inbox.state == "starting" and not self.was_read

    def trouble(self, first: int = 0) -> str:
        """Return what is wrong with it, for people; "": nothing. `first`: the node's index of its
        first board, by which people know it."""
        words = self.inbox.detail or ("" if self.is_ok else self.inbox.state)
        if self.begins:
            words = "the driver has not answered yet."
        elif self.is_ok and self.notes:
            words = note_words(self.notes, first)
        return " ".join(filter(None, (words and f"{self.backend.vendor}: {words}", self.note)))

    def take(self, reading: Reading, start_of: StartOf) -> None:
        """Take a reading, of which only boards of this vendor count: a driver that gives a board
        the UUID of another vendor's must not stand in for that."""
        vendor, own = self.backend.vendor, dict[str, int]()
        for place, facts in enumerate(reading.facts):
            if vendor_of(facts.uuid) == vendor:
                own.setdefault(facts.uuid, place)
        places, self.note = own.values(), ""
        if count := len(reading.facts) - len(places):
            self.note = (f"{vendor}: {count} board{'s' * (count != 1)} left out, whose UUIDs are "
                         "of another vendor or not unique.")
            reading = structs.replace(
                reading, gpus=tuple(reading.gpus[place] for place in places),
                facts=tuple(reading.facts[place] for place in places), links=())
        self.reading = reading
        self.states = {gpu.uuid: gpu.state for gpu in reading.gpus}
        self.facts, self.links, self.was_read = reading.facts, reading.links, True
        indices = {entry.index for entry in reading.facts}
        self.notes = tuple(note for note in reading.notes if note.index in indices)
        self.driver_version = reading.driver_version or self.driver_version
        if reading.processes is not None:
            self.processes = tuple(process for process in reading.processes
                                   if process.gpu_uuid in own)
            self.starts = {process.pid: start_of(process.pid) for process in self.processes}

    def listed(self, start_of: StartOf) -> tuple[ProcessReading, ...]:
        """Return the processes on its boards. Of an earlier list only those that are still the same
        ones: a driver that hangs reports no end, and somebody else may have the number since."""
        if self.reading is not None and self.reading.processes is not None:
            return self.processes
        return tuple(process for process in self.processes
                     if start_of(process.pid) == self.starts[process.pid])

    def gpus(self) -> tuple[GpuReading, ...]:
        """Return its boards: as they were just read, or without a number that could pass for
        one."""
        if self.reading is not None and self.is_ok:
            return self.reading.gpus
        absent = bytes([Absence.STALE]) * WIDTH
        return tuple(GpuReading(facts.uuid, self._unread_state(facts.uuid), (0.0,) * WIDTH, absent)
                     for facts in self.facts)

    def _unread_state(self, uuid: str) -> GpuState:
        """Return the state of a board. One whose reading is only late this time is well."""
        before = self.states.get(uuid, "ok")
        return "stale" if before == "ok" and not self.is_ok else before


class MixedInbox:
    """Puts the readings of the parts together, one for each second, into the node's own inbox."""

    def __init__(self, node: ReaderInbox, parts: Sequence[ReaderPart], start_of: StartOf,
                 begin_within_s: float = math.inf) -> None:
        """`begin_within_s`: seconds until the boards of others are shown without those of a driver
        that has not answered yet. An agent waits: to its hub they would be removed."""
        self._begin_within_s, self._began_at = begin_within_s, math.inf
        self._node = node
        self._parts = parts
        self._start_of = start_of

    def remember(self, facts: Iterable[GpuFacts]) -> None:
        """Remember the boards of an earlier start: one whose driver hangs now is still there."""
        every = tuple(facts)
        for part in self._parts:
            if part.was_read:
                continue
            own = [board for board in every if vendor_of(board.uuid) == part.backend.vendor]
            first = min((board.index for board in own), default=0) if part.counts_on else 0
            part.facts = tuple(structs.replace(board, index=board.index - first) for board in own)
            part.driver_version = next((board.driver for board in own), None)

    def collect(self, at: float, now: float) -> None:
        """Take what the parts have. `at`: wall time, for events."""
        for part in self._parts:
            if events := part.inbox.take_events():
                self._node.put_events(events)
        self._began_at = min(self._began_at, now)
        self._report_state(at, self._waits(now))
        for part in self._parts:
            if (reading := part.inbox.latest()) is None:
                continue
            if part.reading is not None:
                self._hand_on(now)  # another one is late, and is not waited for
            part.take(reading, self._start_of)
        due = [part for part in self._parts if part.is_ok]
        if due and all(part.reading is not None for part in due):
            self._hand_on(now)

    def on_demand(self, answers: Sequence[OnDemandReading | None]) -> OnDemandReading | None:
        """Return what the parts have listed. None: none has, or one has not begun: its boards are
        not known yet, and an empty list would mean that nothing runs on them."""
        pairs = list(zip(self._parts, answers, strict=True))
        if all(answer is None for answer in answers) or any(
                answer is None and part.begins for part, answer in pairs):
            return None
        processes, mem, energy = list[ProcessReading](), dict[str, float | None](), dict[
            str, float | None]()
        for part, answer in pairs:
            if answer is None:
                mem.update(dict.fromkeys((facts.uuid for facts in part.facts), None))
                continue
            vendor = part.backend.vendor
            processes += [entry for entry in answer.processes
                          if vendor_of(entry.gpu_uuid) == vendor]
            mem.update(_of_vendor(answer.mem_used_bytes, vendor))
            energy.update(_of_vendor(answer.energy_j, vendor))
        return OnDemandReading(tuple(processes), mem, energy, tuple(
            part.backend.vendor for part, answer in pairs if answer is None))

    def _waits(self, now: float) -> bool:
        return (now - self._began_at < self._begin_within_s
                and any(part.begins for part in self._parts))

    def _report_state(self, at: float, waits: bool) -> None:
        parts = self._parts
        if waits:
            state: ReaderState = "starting"
        elif any(part.is_ok for part in parts):
            state = "ok"
        else:
            states = {part.inbox.state for part in parts}
            state = next(worst for worst in _WORST if worst in states)
        for part in parts:
            if part.inbox.state == "starting":
                continue
            if state == "ok" and (events := [*_events(part, at)]):
                self._node.put_events(events)
            part.event_state = part.inbox.state
        self._node.set_state_once(state, _troubles(parts))

    def _hand_on(self, now: float) -> None:
        parts = self._parts
        readings = [part.reading for part in parts if part.reading is not None]
        if not readings or self._waits(now):
            return
        self._node.put(_join(parts, readings, self._start_of), now)
        self._node.has_news = True
        for part in parts:
            part.reading = None


def _join(parts: Sequence[ReaderPart], readings: Sequence[Reading], start_of: StartOf
          ) -> Reading:
    """Join the parts. The first one's boards keep the indices that their vendor's programs use, and
    the next one's count on from there."""
    gpus, facts, links = list[GpuReading](), list[GpuFacts](), list[GpuLink]()
    for part, index in _indexed(parts):
        place = len(gpus)
        gpus += part.gpus()
        facts += [structs.replace(
            entry, index=entry.index + index, driver_version=part.driver_version or UNSET)
            for entry in part.facts]
        links += [structs.replace(link, a=link.a + place, b=link.b + place) for link in part.links
                  if max(link.a, link.b) + place < MAX_GPUS]
    newest = max(readings, key=lambda reading: reading.taken_at)
    is_listed = any(reading.processes is not None for reading in readings)
    return structs.replace(
        newest, gpus=tuple(gpus[:MAX_GPUS]), facts=tuple(facts[:MAX_GPUS]), links=tuple(links),
        processes=None if not is_listed else tuple(
            entry for part in parts for entry in part.listed(start_of)),
        driver_version=parts[0].driver_version, happenings=(), detail=_troubles(parts), notes=(),
        took_s=max((reading.took_s or 0.0 for reading in readings), default=None),
        accounted=tuple(entry for reading in readings for entry in reading.accounted),
        cuda_version=next(filter(None, (reading.cuda_version for reading in readings)), None))


def _indexed(parts: Sequence[ReaderPart]) -> Iterator[tuple[ReaderPart, int]]:
    """Yield each part with the node's index of its first board."""
    first = 0
    for part in parts:
        yield part, first
        first += max((entry.index + 1 for entry in part.facts), default=part.board_count)


def _troubles(parts: Sequence[ReaderPart]) -> str:
    return " ".join(filter(None, (part.trouble(first) for part, first in _indexed(parts)))
                    )[:DETAIL_MOST]


def _events(part: ReaderPart, at: float) -> Iterator[BackendEvent]:
    """Yield the event of a part that is no longer read, or is again, while the node is."""
    trouble = READER_TROUBLE.get(part.inbox.state)
    before = READER_TROUBLE.get(part.event_state)
    if trouble == before:
        return
    if trouble is not None:
        yield BackendEvent(trouble, at, text=part.trouble())
    elif before is not None:
        yield BackendEvent("driver_back" if before == "driver_gone" else "reader_back", at,
                           text=f"{part.backend.vendor}: the driver answers again")


def _of_vendor(values: dict[str, float | None], vendor: str) -> dict[str, float | None]:
    return {uuid: value for uuid, value in values.items() if vendor_of(uuid) == vendor}
