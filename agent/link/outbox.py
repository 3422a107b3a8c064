"""Messages of one node that the hub has not acked: their numbers in memory, the messages on disk.

Ages are measured by a steady clock that stands still while the agent does not run: no step of the
wall clock makes anything old.
"""

import secrets
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

from msgspec import UNSET, UnsetType

from gpudeck.contract.sequence_ranges import SequenceRanges
from gpudeck.contract.wire import (
    ArchivedSpans,
    Event,
    Inventory,
    JournalCopies,
    Sequenced,
    Span,
    encode,
)

from .journal_index import JournalIndex, StoredCopies
from .outbox_file import OutboxFile
from .outbox_rows import NodeRow, OutboxRows

# An episode of dropping is over when nothing was dropped for this long.
QUIET_S = 10.0
# The rate at which the journal grows is taken over as long as this, or not at all.
RATE_OVER_S = 60.0

Entry = tuple[int, bytes]  # seq, encoded message
DAY_S = 86_400.0
# 24 h of 8 GPUs at 1 Hz; more GPUs keep less history of an outage.
CAP_BYTES = 256 * 2**20


class SentMessages:
    """Messages that were sent on this connection, and that an earlier one may have delivered."""

    def __init__(self, opened_at: int) -> None:
        self.opened_at = opened_at  # the highest number when we began
        self.ranges = SequenceRanges()  # they may be acked any moment
        self.doubtful = SequenceRanges()  # sent and then dropped: the hub may have them
        self._high = 0
        self._is_connected = False

    @property
    def at_most(self) -> int:
        """The highest number that may have been sent: what was there when we began may have been,
        by an earlier run."""
        return max(self.opened_at, self._high)

    def add(self, first: int, last: int) -> None:
        self.ranges.add_all(first, last)
        self._high = max(self._high, last)

    def broke(self) -> None:
        self.ranges, self._is_connected = SequenceRanges(), False

    def connected(self) -> None:
        self.doubtful, self._is_connected = SequenceRanges(), True

    def dropped(self, first: int, last: int) -> None:
        if first <= self._high and not self._is_connected:
            self.doubtful.add_all(first, min(last, self._high))

    def begin_again(self, last_seq: int) -> None:
        self.ranges, self.doubtful, self._high = SequenceRanges(), SequenceRanges(), 0
        self.opened_at = last_seq


class DropCounter:
    """Messages that were dropped here before the hub could take them."""

    def __init__(self, total: int, reported: int) -> None:
        self.total, self.reported = total, reported
        self._reported_files = 0
        self._ranges = SequenceRanges()  # of this episode
        self._dropped_at = 0.0

    def add(self, first: int, last: int, count: int, at: float) -> None:
        self.total += count
        self._dropped_at = at
        self._ranges.add_all(first, last)

    def event(self, at: float, taken_at: float, seq: int, files: OutboxFile) -> Event | None:
        count = self.total - self.reported
        damaged = files.set_aside if files.files > self._reported_files else None
        if at - self._dropped_at < QUIET_S or (count <= 0 and damaged is None):
            return None
        numbers = {"dropped": float(count), "dropped_ever": float(self.total)}
        if self._ranges.first is not None:
            numbers |= {"first_seq": float(self._ranges.first),
                        "last_seq": float(self._ranges.last or 0)}
        self.reported, self._ranges = self.total, SequenceRanges()
        self._reported_files = files.files
        return Event(seq, taken_at, "outbox_dropped", text=_what_was_dropped(count, damaged),
                     numbers=numbers)


class PendingMessages:
    def __init__(self, rows: OutboxRows, node: NodeRow,
                 messages: Sequence[tuple[int, float, int]]) -> None:
        self.ranges = SequenceRanges()
        self.bytes = 0
        self.drops = DropCounter(node.dropped, node.reported)
        self._rows = rows
        self._has_archive = False  # the hub, of seconds: then copies stay until they are in it
        self._index = JournalIndex()
        self.copies = StoredCopies(rows, self._index)
        self._last_seq = 0
        self._aged_s: float | None = None  # to add to the clock that `age` is given
        for seq, at, size in messages:
            self.add(seq, at, size)
        self.sent_messages = SentMessages(self._last_seq)

    def age(self, now: float) -> float:
        if self._aged_s is None:
            self._aged_s = self._index.at(self._last_seq) - now
        return now + self._aged_s

    def add(self, seq: int, at: float, size: int) -> None:
        self._index.add(seq, at, size, self.oldest or seq)
        self.ranges.add(seq)
        self.bytes += size
        self._last_seq = seq

    @property
    def oldest(self) -> int | None:
        """The oldest in the journal, copies included."""
        return min(filter(None, (self.ranges.first, self.copies.oldest)), default=None)

    def store(self, first: int, last: int, is_copied: bool) -> None:
        """Note that the hub has stored them. `is_copied`: they stay here until it has archived
        them."""
        if not is_copied:
            self.remove(first, last)
            self.copies.remove(first, last)
            return
        for start, end in list(self.ranges.within(first, last)):
            self.bytes -= self._index.size(start, end)
            self.copies.add(start, end)
        self.ranges.discard_all(first, last)

    def note_acked(self, stored: Iterable[tuple[int, int]], archived: ArchivedSpans) -> None:
        """Note what the hub has. Of what is archived copies are removed, and nothing that the hub
        has not stored."""
        self._has_archive = archived is not UNSET
        for first, last in stored:
            self.store(first, last, is_copied=self._has_archive)
        for span in () if archived is UNSET else archived:
            self.copies.remove(span.first, span.last)

    def bring_back(self, stored: Iterable[tuple[int, int]]) -> None:
        """Send the copies of what the hub that answers has not stored."""
        for start, end in self.copies.take_missing(stored):
            self.ranges.add_all(start, end)
            self.bytes += self._index.size(start, end)

    def remove(self, first: int, last: int) -> None:
        for start, end in list(self.ranges.within(first, last)):
            self.bytes -= self._index.size(start, end)
            self._rows.delete(start, end)
        self.ranges.discard_all(first, last)

    def drop(self, first: int, last: int) -> None:
        self.drops.add(first, last, self.ranges.count_in(first, last),
                       self._index.at(self._last_seq))
        self.sent_messages.dropped(first, last)
        self.remove(first, last)

    def drop_excess(self, cap_bytes: int, oldest_at: float) -> None:
        """Drop what is too much or too old: copies first, of which the hub has the original."""
        copies = self.copies
        while (oldest := copies.oldest) is not None and (
                self.bytes + copies.bytes > cap_bytes or self._index.at(oldest) < oldest_at):
            copies.remove(oldest, oldest)
        while (self.bytes > cap_bytes and (oldest := self._oldest()) is not None
               and oldest != self._last_seq):
            self.drop(oldest, oldest)
        while (oldest := self._oldest()) and self._index.at(oldest) < oldest_at:
            self.drop(oldest, oldest)

    def drop_all_but(self, saved: Collection[int]) -> None:
        rest = SequenceRanges((seq, seq) for seq in sorted(saved))
        for before, after in pairwise([(0, 0), *rest, (self._last_seq + 1, 0)]):
            for first, last in list(self.ranges.within(before[1] + 1, after[0] - 1)):
                self.drop(first, last)

    def bound_memory(self) -> None:
        """Drop the oldest while the disk refuses and memory is full; none that is on its way."""
        self.copies.drop_unsaved()
        for seq in [seq for seq in sorted(self._rows.unsaved)
                    if seq not in self.sent_messages.ranges]:
            if not self._rows.is_memory_full():
                return
            self.drop(seq, seq)

    def journal_copies(self, cap_bytes: int, now: float, wall: float) -> JournalCopies | UnsetType:
        """Report the copies; `wall`: the wall clock at `now`."""
        if not self._has_archive:
            return UNSET
        oldest, age, first = self.copies.oldest, self.age(now), self.oldest or self._last_seq + 1
        if oldest is None:
            return JournalCopies(first, None, None)
        span_s = age - self._index.at(first)
        bytes_per_s = (self.bytes + self.copies.bytes) / max(span_s, 1.0)
        room_s = min(DAY_S, cap_bytes / bytes_per_s) if span_s >= RATE_OVER_S else None
        return JournalCopies(first, wall - (age - self._index.at(oldest)), room_s)

    def next_batch(self, after_seq: int, upto_seq: int, limit: int, max_bytes: int
                   ) -> SequenceRanges:
        """Return the next ones to send: at least one, if there is any."""
        batch, count, size = SequenceRanges(), 0, 0
        for first, last in self.ranges.within(after_seq + 1, upto_seq):
            for seq in range(first, last + 1):
                size += self._index.size(seq, seq)
                if count == limit or (count and size > max_bytes):
                    return batch
                batch.add(seq)
                count += 1
        return batch

    def _oldest(self) -> int | None:
        """Return the oldest that is not on its way: what is may be acked any moment, and is not
        lost then."""
        for first, last in self.ranges:
            at = first
            for start, end in self.sent_messages.ranges.within(first, last):
                if start > at:
                    break
                at = end + 1
            if at <= last:
                return at
        return None


def _what_was_dropped(count: int, damaged: Path | None) -> str:
    if damaged is not None:
        many = f"{count} messages in it" if count else "its unacknowledged messages"
        return (f"the outbox was damaged and was moved to {damaged.name}; {many} did not reach "
                "the hub; check this node's disk")
    return (f"{count} messages were dropped here before the hub could take them: history has a "
            "hole; the hub was away for long, or this node's disk is full")


class Outbox:
    """Outbox of the node of this name, made if it is new; "" is the machine itself. Used by one
    thread."""

    def __init__(self, store: OutboxFile, name: str = "", cap_bytes: int = CAP_BYTES) -> None:
        self._store = store
        self._cap_bytes = cap_bytes
        self._rows = OutboxRows(store, name)
        node, messages = self._rows.open(secrets.token_hex(8))
        self.stream, self.last_seq = node.stream, messages[-1][0] if messages else 0
        self.latest_inventory = inventory = self._rows.inventory
        self.generation = 0 if inventory is None else inventory.generation
        self._pending = PendingMessages(self._rows, node, messages)
        self._fresh: list[Entry] = []
        self.copies = partial(self._pending.journal_copies, cap_bytes)

    @property
    def pending(self) -> int:
        return self._pending.ranges.count

    @property
    def dropped(self) -> int:
        return self._pending.drops.total

    @property
    def first_seq(self) -> int:
        """The oldest that is pending: nothing below it will ever be sent."""
        return self._pending.ranges.first or self.last_seq + 1

    @property
    def trouble(self) -> str:
        return self._store.trouble

    def keep_inventory(self, inventory: Inventory) -> None:
        """Store it with the next `append`."""
        self._rows.keep_inventory(inventory)
        self.latest_inventory, self.generation = inventory, inventory.generation

    def state(self) -> bytes | None:
        """Return the state that was stored last; it stands for all messages up to then."""
        return self._rows.state

    def keep_state(self, body: bytes) -> None:
        """Store it with the next `append`, in one transaction."""
        self._rows.keep_state(body)

    def append(self, messages: Sequence[Sequenced], now: float) -> None:
        """Add messages, numbered from last_seq + 1 on already; on return they are on disk, or kept
        in memory while the disk refuses. `now` is any steady clock in seconds."""
        at = self._pending.age(now)
        self._fresh = []
        for message in messages:
            body = encode(message)
            self._rows.add(message.seq, at, getattr(message, "generation", None), body)
            self._fresh.append((message.seq, body))
            self._pending.add(message.seq, at, len(body))
            self.last_seq = message.seq
        self._pending.drop_excess(self._cap_bytes, at - DAY_S)
        self._save()

    def drop_event(self, now: float, taken_at: float) -> Event | None:
        """Return an Event once per episode of dropping, when it is over; to be appended at once."""
        return self._pending.drops.event(self._pending.age(now), taken_at, self.last_seq + 1,
                                         self._store)

    # what the hub has

    def mark_sent(self, first: int, last: int) -> None:
        """Mark them as on their way, on this connection."""
        self._pending.sent_messages.add(first, last)

    def broke(self) -> None:
        """Note the end of the connection: what was sent may have arrived or not."""
        self._pending.sent_messages.broke()

    def welcomed(self, seq: int, spans: Iterable[Span] = (), archived: ArchivedSpans = UNSET
                 ) -> None:
        """Remove what the hub has as a connection begins. A hub that has more than we ever gave out
        remembers what our disk forgot (power cut, or it was full): those numbers are not given out
        twice. If that has happened already, `stream` changes, and a new Hello is due."""
        sent_messages = self._pending.sent_messages
        stored = [(1, seq), *((span.first, span.last) for span in spans)]
        self._pending.bring_back(stored)
        high = max(last for _, last in stored)
        is_ours = high <= max(sent_messages.at_most, self.first_seq - 1)
        for first, last in stored:
            self._pending.drops.total -= sent_messages.doubtful.discard_all(first, last)
        at_most = high if is_ours else sent_messages.opened_at
        self._pending.note_acked([(first, min(last, at_most)) for first, last in stored], archived)
        sent_messages.connected()
        if not is_ours and self.pending:
            self._change_stream()
        elif not is_ours:
            self.last_seq = sent_messages.opened_at = max(self.last_seq, high)

    def ack(self, seq: int, spans: Iterable[Span] = (), archived: ArchivedSpans = UNSET) -> None:
        at_most = self._pending.sent_messages.at_most
        self._pending.note_acked([(1, min(seq, at_most)), *(
            (span.first, min(span.last, at_most)) for span in spans)], archived)

    # what to send

    def pending_in(self, first: int, last: int) -> int:
        return self._pending.ranges.count_in(first, last)

    def entries(self, after_seq: int, upto_seq: int, limit: int, max_bytes: int = 2**20
                ) -> list[Entry]:
        """Return the next pending ones, oldest first; at least one, if there is any."""
        oldest = self._pending.ranges.first
        if self._fresh and oldest is not None and self._fresh[0][0] <= max(after_seq + 1, oldest):
            fresh = [entry for entry in self._fresh if after_seq < entry[0] <= upto_seq
                     and entry[0] in self._pending.ranges]
            if sum(len(body) for _, body in fresh[:limit]) <= max_bytes:
                return fresh[:limit]
        entries: list[Entry] = []
        for first, last in self._pending.next_batch(after_seq, upto_seq, limit, max_bytes):
            bodies = self._rows.bodies(first, last)
            if bodies is None:
                self._check_file()
                return entries
            # Somebody else was at the file.
            missing = SequenceRanges((seq, seq) for seq in range(first, last + 1)
                                     if seq not in bodies)
            for start, end in missing:
                self._pending.drop(start, end)
            entries += sorted(bodies.items())
        return entries

    def inventories_after(self, generation: int) -> list[bytes]:
        """Return those that a pending Frame may refer to, encoded, oldest first."""
        return self._rows.inventories_after(generation)

    # what is on disk

    def _save(self) -> None:
        drops = self._pending.drops
        if self._rows.save(self.last_seq, NodeRow(self.stream, drops.total, drops.reported)):
            return
        self._check_file()
        self._pending.bound_memory()

    def _check_file(self) -> None:
        """Begin again if a damaged file has been set aside; what was only there is lost."""
        if not self._rows.is_file_replaced:
            return
        self._pending.copies.clear()
        self._rows.begin_again()
        self._pending.drop_all_but(self._rows.unsaved)
        self._rows.forget_deletions()
        self._change_stream()

    def _change_stream(self) -> None:
        self._pending.copies.clear()  # the hub knows them by their former stream
        self.stream = secrets.token_hex(8)
        self._pending.sent_messages.begin_again(self.last_seq)
        self._save()
