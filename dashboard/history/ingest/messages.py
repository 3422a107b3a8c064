"""Agents' messages from the head log into memory: seconds, slow metrics, Tasks, events."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec
import numpy as np
import numpy.typing as npt

from gpudeck.contract.hosts import HostSample
from gpudeck.contract.wire import GPU_STATES, Event, Frame, Hello, Inventory
from gpudeck.measures.metrics import Absence

from ..columns.arrays import Bools, Ints, Slots
from ..columns.host_minutes import MINUTE_S, HostMinute, HostMinutes, join_hosts
from ..columns.late_rows import LateRows
from ..columns.layout import quantise, slow_values
from ..columns.memory import BLOCK_S, HistoryMemory, SampleBatch
from ..columns.rows import (
    BACKFILL_MOST_S,
    HistoryMessage,
    HistorySlots,
    SlowMetricRows,
    listing_of,
)
from ..columns.slot_names import SlotNames
from ..columns.task_minutes import TaskMinuteAccumulator, TaskMinutes
from .headlog import CARRIED
from .message_places import MessagePlaces

EventKey = tuple[str, str, int]  # node, stream, seq
OK = GPU_STATES.index("ok")
MOST_LISTINGS = 64  # inventories of one node
WHY_UNREAD = np.array([{"ok": Absence.PRESENT, "stale": Absence.STALE, "lost": Absence.LOST,
                        "error": Absence.UNKNOWN}[state] for state in GPU_STATES], np.uint8)


@dataclass(slots=True)
class BlockExtras:
    """Parts of a block that are not a number of each second."""

    slow: list[SlowMetricRows] = field(default_factory=list)
    events: dict[EventKey, tuple[float, Event]] = field(default_factory=dict)
    minutes: list[TaskMinutes] = field(default_factory=list)
    hosts: HostMinutes = field(default_factory=dict)
    first_segment: int | None = None

    def add(self, more: "BlockExtras") -> None:
        self.slow += more.slow
        self.events |= more.events
        self.minutes += more.minutes
        self.hosts = join_hosts((self.hosts, more.hosts))
        if self.first_segment is None:
            self.first_segment = more.first_segment


@dataclass(slots=True)
class ReceivedFrames:
    """Frames that wait to be placed together, side by side: what came, and whose GPUs it is of."""

    entries: list[HistoryMessage]
    frames: list[Frame]
    listings: list[HistorySlots]

    def clear(self) -> None:
        self.entries, self.frames, self.listings = [], [], []


@dataclass(slots=True)
class IngestCounts:
    frames: int = 0
    unreadable: int = 0  # of an inventory that never came
    shed_seconds: int = 0


class HistoryIngester:
    """Called from one native thread at a time, under the store's lock."""

    def __init__(self, seen_in_files: Callable[[int], Bools | None],
                 events_in_files: Callable[[int], set[EventKey]], cluster: str | None,
                 places: MessagePlaces | None) -> None:
        """`places`: notes where each message is; None: nobody asks."""
        self.names = SlotNames([], [], {}, cluster)
        self.head = HistoryMemory(seen_in_files, self.order)
        self.tally = TaskMinuteAccumulator(BLOCK_S)
        self.asides: dict[int, BlockExtras] = {}
        self.closed_asides: dict[int, BlockExtras] = {}
        self.counts = IngestCounts()
        self.late = LateRows()
        self.places = places
        self._events_in_files = events_in_files
        self._known_events: dict[int, set[EventKey]] = {}
        self._slot_of: dict[tuple[str, str], int] = {}
        self._slots_of: dict[str, list[int]] = {}
        self._catalog: dict[str, dict[tuple[str, int], HistorySlots]] = {}  # by node
        self._order: Slots = np.zeros(0, np.intp)

    def slot(self, gpu: str, node_id: str) -> int:
        key = (gpu, node_id)
        slot = self._slot_of.get(key)
        if slot is None:
            slot = self._slot_of[key] = len(self.names.gpus)
            self._slots_of.setdefault(gpu, []).append(slot)
            self.names.gpus.append(gpu)
            self.names.nodes.append(node_id)
        return slot

    def slots_of(self, gpus: Iterable[str] | None, nodes: frozenset[str] | None) -> Slots:
        """Return the slots of these GPUs on these Nodes; None: of all."""
        if gpus is None and nodes is None:
            return np.arange(len(self.names.nodes))
        if gpus is None:
            gpus = self._slots_of
        return np.array([slot for gpu in dict.fromkeys(gpus)
                         for slot in self._slots_of.get(gpu, ())
                         if nodes is None or self.names.nodes[slot] in nodes], np.intp)

    def order(self) -> Slots:
        """Return the slots as files are sorted."""
        if len(self._order) != len(self.names.gpus):
            self._order = self.names.order()
        return self._order

    # -- in

    def take(self, messages: Sequence[HistoryMessage], segment: int) -> None:
        """Take messages, in the order in which they came. Nearly all are Frames: what is asked of
        each is asked of all of them at once, which costs less."""
        waiting = ReceivedFrames([], [], [])
        first = 0
        for at in [at for at, entry in enumerate(messages)
                   if type(entry.message) is not Frame or entry.second == CARRIED]:
            self._list(messages[first:at], waiting)
            self._other(messages[at], waiting, segment)
            first = at + 1
        self._list(messages[first:], waiting)
        self._place(waiting, segment)

    def _other(self, entry: HistoryMessage, waiting: ReceivedFrames, segment: int) -> None:
        message = entry.message
        if type(message) is Frame:
            alone = ReceivedFrames([], [], [])
            self._list([entry], alone)
            self._place(waiting, segment)
            for listing in alone.listings:
                self.tally.carried(entry.node_id, listing.slots, message.tasks)
        elif type(message) is Hello:
            self._place(waiting, segment)
            self.names.set_host(entry.node_id, message.host, entry.received_at)
            if entry.second != CARRIED:
                self.tally.hello(entry.node_id)
        elif type(message) is Inventory:
            self._inventory(entry, message)
        elif type(message) is Event:
            self._event(entry, message, segment)

    def _list(self, entries: Sequence[HistoryMessage], waiting: ReceivedFrames) -> None:
        """Let Frames wait, each with the GPUs that its Node had listed when it came."""
        frames = cast("list[Frame]", [entry.message for entry in entries])
        catalog, nothing = self._catalog, dict[tuple[str, int], HistorySlots]()
        listings = [catalog.get(entry.node_id, nothing).get((entry.stream, frame.generation))
                    for entry, frame in zip(entries, frames, strict=True)]
        many = [listing and len(listing.slots) for listing in listings]
        if many == [len(frame.states) for frame in frames]:
            waiting.entries += entries
            waiting.frames += frames
            waiting.listings += cast("list[HistorySlots]", listings)
            return
        for entry, frame, listing in zip(entries, frames, listings, strict=True):
            if listing is None or len(listing.slots) != len(frame.states):
                self.counts.unreadable += 1
                continue
            waiting.entries.append(entry)
            waiting.frames.append(frame)
            waiting.listings.append(listing)

    def _inventory(self, entry: HistoryMessage, inventory: Inventory) -> None:
        slots = [self.slot(facts.uuid, entry.node_id) for facts in inventory.gpus]
        listings = self._catalog.setdefault(entry.node_id, {})
        key = entry.stream, inventory.generation
        listing = listings.pop(key, None)
        if listing is None or listing.slots != slots:
            listing = listing_of(slots)
        listings[key] = listing  # last: the newest
        while len(listings) > MOST_LISTINGS:
            del listings[next(iter(listings))]

    def _place(self, waiting: ReceivedFrames, segment: int) -> None:
        """Place the Frames that came so far, together."""
        if not waiting.entries:
            return
        entries, frames, listings = waiting.entries, waiting.frames, waiting.listings
        seconds = [entry.second for entry in entries]
        if 0 in seconds:
            seconds = [entry.second or int(min(frame.taken_at, entry.received_at))
                       for entry, frame in zip(entries, frames, strict=True)]
        now = int(min([entry.received_at for entry in entries]))
        batch = _batch(frames, listings, seconds)
        is_new = self.head.place(batch, now, segment)
        self.late.take(batch, is_new)
        new = _any_of_each(is_new, listings)
        self.counts.frames += sum(new)
        if self.places is not None:
            for entry, frame, second, is_frame_new in zip(entries, frames, seconds, new,
                                                          strict=True):
                self.places.note((entry.node_id, entry.stream), frame.seq, second, is_frame_new)
                self.places.ticks[entry.node_id] = (frame.taken_at, second)
        self.tally.take(entries, frames, listings, seconds, new)
        for at in [at for at, frame in enumerate(frames) if frame.slow is not None and new[at]]:
            self._slow(frames[at], listings[at], seconds[at], segment)
        hosts = [frame.host for frame in frames]
        for at, host in enumerate(hosts if any(hosts) else ()):
            if host and new[at]:
                self._host(entries[at].node_id, host, seconds[at], segment)
        waiting.clear()

    def _host(self, node_id: str, sample: HostSample, second: int, segment: int) -> None:
        minutes, minute = self._aside(second, segment).hosts, second - second % MINUTE_S
        minutes.setdefault((node_id, minute), HostMinute()).add(sample)

    def _slow(self, frame: Frame, listed: HistorySlots, second: int, segment: int) -> None:
        were_read = np.frombuffer(frame.states, np.uint8) == OK
        if frame.slow is not None and were_read.any():
            values, absent = slow_values(frame.slow.values, frame.slow.absent)
            slots = listed.array[were_read]
            self._aside(second, segment).slow.append(SlowMetricRows(
                slots, np.full(len(slots), second), values[were_read], absent[were_read]))

    def _aside(self, second: int, segment: int) -> BlockExtras:
        start = second - second % BLOCK_S
        extras = self.asides.get(start)
        if extras is None:
            extras = self.asides[start] = BlockExtras()
        if extras.first_segment is None:
            extras.first_segment = segment
        return extras

    def _event(self, entry: HistoryMessage, event: Event, segment: int) -> None:
        t = min(event.taken_at, entry.received_at)
        if not entry.is_backfill and entry.received_at - t > BACKFILL_MOST_S:
            t = entry.received_at  # its clock is wrong; and each old hour would be a file
        start = int(t) - int(t) % BLOCK_S
        key = (entry.node_id, entry.stream, event.seq)
        if start not in self._known_events:
            self._known_events = dict(list(self._known_events.items())[-64:])
            self._known_events[start] = self._events_in_files(start)
        is_new = key not in self._known_events[start]
        if self.places is not None:
            self.places.note((entry.node_id, entry.stream), event.seq, int(t), is_new)
        if not is_new:
            return
        self._known_events[start].add(key)
        self._aside(int(t), segment).events[key] = (t, event)

    def forget_files(self) -> None:
        """Forget what was read of files: there are others now."""
        self.head.forget_files()
        self._known_events.clear()

    # -- out

    def extras(self) -> list[BlockExtras]:
        return [*self.asides.values(), *self.closed_asides.values()]

    def close(self, start: int) -> None:
        """Close the extras of a block that is being closed."""
        aside = self.asides.pop(start, None) or BlockExtras()
        minutes = self.tally.pop(start)
        aside.minutes = [] if minutes is None else [minutes]
        self.closed_asides.setdefault(start, BlockExtras()).add(aside)

    def mark_written(self, start: int) -> None:
        self.closed_asides.pop(start, None)

    def first_segment(self) -> int | None:
        segments = [self.head.first_segment(), *(aside.first_segment for aside in self.extras())]
        return min((segment for segment in segments if segment is not None), default=None)


def _any_of_each(new: Bools, listings: Sequence[HistorySlots]) -> list[bool]:
    """Return for each Frame whether one of its rows was new."""
    if new.all() and b"" not in [listing.raw for listing in listings]:
        return [True] * len(listings)
    ends = np.cumsum([len(listing.slots) for listing in listings])
    count = np.concatenate([[0], np.cumsum(new)])
    starts = np.concatenate([[0], ends[:-1]])
    has_new: list[bool] = (count[ends] > count[starts]).tolist()
    return has_new


def _batch(frames: Sequence[Frame], listings: Sequence[HistorySlots],
           seconds: Sequence[int]) -> SampleBatch:
    states = np.frombuffer(b"".join([frame.states for frame in frames]), np.uint8)
    absent = b"".join([frame.absent for frame in frames])
    if states.any():
        absent = _unread(states, absent)
    steps, missing = quantise(b"".join([frame.values for frame in frames]), absent)
    t: Ints = np.repeat(np.array(seconds, np.int64), [len(frame.states) for frame in frames])
    slot = np.frombuffer(b"".join([listing.raw for listing in listings]), np.intp)
    return SampleBatch(slot, t, states + np.uint8(1), missing, steps)


def _unread(states: npt.NDArray[np.uint8], absent: bytes) -> bytes:
    """Mark as absent what a Frame says of a GPU that it calls stale or lost: it is no sample, as in
    the live picture."""
    codes = np.frombuffer(absent, np.uint8).reshape(len(states), -1)
    return np.where(codes == Absence.PRESENT, WHY_UNREAD[states][:, None], codes).tobytes()


def event_columns(events: dict[EventKey, tuple[float, Event]], names: SlotNames
                  ) -> dict[str, list[Any]]:
    rows = sorted(events.items(), key=lambda row: (row[1][0], row[0]))
    return {
        "t": [t for _, (t, _) in rows], "node": [key[0] for key, _ in rows],
        "cluster": [names.cluster] * len(rows),
        "host": [names.host(key[0], t) for key, (t, _) in rows],
        "kind": [event.kind for _, (_, event) in rows],
        "gpu": [event.gpu_uuid for _, (_, event) in rows],
        "task": [event.task_id for _, (_, event) in rows],
        "text": [event.text for _, (_, event) in rows],
        "numbers": [msgspec.json.encode(event.numbers).decode() for _, (_, event) in rows],
        "stream": [key[1] for key, _ in rows], "seq": [key[2] for key, _ in rows],
    }
