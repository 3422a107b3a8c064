"""One node's messages that the hub has not acked: which there are in memory, themselves on disk.

What is told here of age is told by a steady clock that stands still while the agent does not run:
no step of the wall clock makes anything old.
"""

import secrets
from array import array
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

from gpudeck.sequence_ranges import SequenceRanges
from gpudeck.wire import Event, Inventory, Sequenced, Span, decode_from_agent, encode

DAY_S = 86_400.0
# 24 h of 8 Gpus at 1 Hz; more Gpus keep less history of an outage.
CAP_BYTES = 256 * 2**20
# While the disk refuses, this much of a node is kept in memory.
UNSAVED_MAX = 600
UNSAVED_BYTES = 16 * 2**20
# An episode of dropping is over when nothing was dropped for this long.
QUIET_S = 10.0
_TRIM = 4_096

Statement = tuple[str, tuple[Any, ...]]
Entry = tuple[int, bytes]  # seq, encoded message


class OutboxStore(Protocol):
    """The Journal, as far as an Outbox uses it."""

    @property
    def trouble(self) -> str: ...
    @property
    def files(self) -> int: ...
    @property
    def set_aside(self) -> Path | None: ...
    def read(self, sql: str, *values: Any) -> list[tuple[Any, ...]] | None: ...
    def write_later(self, *statements: Statement) -> None: ...
    def commit(self) -> bool: ...


class Outbox:
    """Used by one thread."""

    def __init__(self, store: OutboxStore, name: str, cap_bytes: int = CAP_BYTES) -> None:
        self._store = store
        self._name = name
        self._cap_bytes = cap_bytes
        self._files = store.files
        self.stream = secrets.token_hex(8)
        self.last_seq = 0
        self.dropped = self._told = self._told_files = 0
        self.bytes = 0
        self._pending = SequenceRanges()
        self._index = _PendingIndex()
        self._unsaved: dict[int, tuple[float, int | None, bytes]] = {}
        self._unsaved_bytes = 0
        self._unsaved_inventories: dict[int, bytes] = {}
        self._latest: Inventory | None = None
        self._state: bytes | None = None
        self._is_state_saved = True
        self._fresh: list[Entry] = []
        self._to_delete = SequenceRanges()
        self._said = SequenceRanges()  # on this connection: they may be acked any moment
        self._said_high = 0
        self._is_connected = False
        self._doubtful = SequenceRanges()  # said and then dropped: the hub may have them
        self._dropped_now = SequenceRanges()
        self._dropped_at = 0.0
        self._aged_s: float | None = None  # to add to the clock that `append` is given
        self._node = self._registered()
        self._on_disk: tuple[str, int, int] | None = None  # what there is to say of the node
        self._recall()
        self._opened_at = self.last_seq
        self.generation = 0 if self._latest is None else self._latest.generation

    @property
    def pending(self) -> int:
        return self._pending.count

    @property
    def first_seq(self) -> int:
        """The oldest that is pending: nothing below it will ever be sent."""
        return self._pending.first or self.last_seq + 1

    @property
    def trouble(self) -> str:
        return self._store.trouble

    def latest_inventory(self) -> Inventory | None:
        return self._latest

    def keep_inventory(self, inventory: Inventory) -> None:
        """With the next `append`."""
        self._unsaved_inventories[inventory.generation] = encode(inventory)
        self._latest, self.generation = inventory, inventory.generation

    def state(self) -> bytes | None:
        """What was kept last; it stands for all messages up to then."""
        return self._state

    def keep_state(self, body: bytes) -> None:
        """With the next `append`, in one transaction."""
        self._state, self._is_state_saved = body, False

    def append(self, messages: Sequence[Sequenced], now: float) -> None:
        """They are numbered from last_seq + 1 on already; on return they are on disk, or kept in
        memory while the disk refuses. `now` is any steady clock in seconds."""
        at = self._age(now)
        self._fresh = []
        for message in messages:
            body = encode(message)
            generation = getattr(message, "generation", None)
            self._unsaved[message.seq] = (at, generation, body)
            self._unsaved_bytes += len(body)
            self._fresh.append((message.seq, body))
            self._add(message.seq, at, len(body))
        self._drop_excess(at)
        self._save()

    def drop_event(self, now: float, taken_at: float) -> Event | None:
        """Once per episode of dropping, when it is over; to be appended at once."""
        count = self.dropped - self._told
        damaged = self._store.set_aside if self._store.files > self._told_files else None
        is_quiet = self._age(now) - self._dropped_at >= QUIET_S
        if not is_quiet or (count <= 0 and damaged is None):
            return None
        numbers = {"dropped": float(count), "dropped_ever": float(self.dropped)}
        if self._dropped_now.first is not None:
            numbers |= {"first_seq": float(self._dropped_now.first),
                        "last_seq": float(self._dropped_now.last or 0)}
        self._told, self._dropped_now = self.dropped, SequenceRanges()
        self._told_files = self._store.files
        return Event(self.last_seq + 1, taken_at, "outbox_dropped",
                     text=_what_was_dropped(count, damaged), numbers=numbers)

    # what the hub has

    def said(self, first: int, last: int) -> None:
        """On its way, on this connection."""
        self._said.add_all(first, last)
        self._said_high = max(self._said_high, last)

    def broke(self) -> None:
        """The connection ended: what was said may have arrived or not."""
        self._said, self._is_connected = SequenceRanges(), False

    def welcomed(self, seq: int, spans: Iterable[Span] = ()) -> None:
        """What the hub has as a connection begins. A hub that has more than we ever gave out
        remembers what our disk forgot (power cut, or it was full): those numbers are not given out
        twice. If that has happened already, `stream` changes, and a new Hello is due."""
        acked = [(1, seq), *((span.first, span.last) for span in spans)]
        high = max(last for _, last in acked)
        is_ours = high <= max(self._ever_said, self.first_seq - 1)
        for first, last in acked:
            self.dropped -= self._doubtful.discard_all(first, last)
            self._acked(first, last if is_ours else min(last, self._opened_at))
        self._doubtful, self._is_connected = SequenceRanges(), True
        if not is_ours and self._pending:
            self._change_stream()
        elif not is_ours:
            self.last_seq = self._opened_at = max(self.last_seq, high)

    def ack(self, seq: int, spans: Iterable[Span] = ()) -> None:
        self._acked(1, min(seq, self._ever_said))
        for span in spans:
            self._acked(span.first, min(span.last, self._ever_said))

    @property
    def _ever_said(self) -> int:
        """At most: what was there when we began may have been said by whoever ran before."""
        return max(self._opened_at, self._said_high)

    def _acked(self, first: int, last: int) -> None:
        for start, end in list(self._pending.within(first, last)):
            self._to_delete.add_all(start, end)
            self._forget(start, end)

    # what to send

    def pending_in(self, first: int, last: int) -> int:
        return self._pending.count_in(first, last)

    def entries(self, after_seq: int, upto_seq: int, limit: int, max_bytes: int = 2**20
                ) -> list[Entry]:
        """The next pending ones, oldest first; at least one, if there is any."""
        if self._fresh and self._pending.first is not None and self._fresh[0][0] <= max(
                after_seq + 1, self._pending.first):
            found = [entry for entry in self._fresh if after_seq < entry[0] <= upto_seq
                     and entry[0] in self._pending]
            if sum(len(body) for _, body in found[:limit]) <= max_bytes:
                return found[:limit]
        chosen = self._chosen(after_seq, upto_seq, limit, max_bytes)
        entries: list[Entry] = []
        for first, last in chosen:
            stored = self._stored(first, last)
            if stored is None:
                self._check_file()
                return entries
            entries += stored
        return entries

    def _chosen(self, after_seq: int, upto_seq: int, limit: int, max_bytes: int) -> SequenceRanges:
        chosen, count, size = SequenceRanges(), 0, 0
        for first, last in self._pending.within(after_seq + 1, upto_seq):
            for seq in range(first, last + 1):
                size += self._index.size(seq, seq)
                if count == limit or (count and size > max_bytes):
                    return chosen
                chosen.add(seq)
                count += 1
        return chosen

    def _stored(self, first: int, last: int) -> list[Entry] | None:
        bodies: dict[int, bytes] = {}
        if not all(seq in self._unsaved for seq in range(first, last + 1)):
            rows = self._store.read(
                "SELECT seq, body FROM message WHERE node = ? AND seq BETWEEN ? AND ?",
                self._node, first, last)
            if rows is None:
                return None
            bodies.update(rows)
        bodies |= {seq: self._unsaved[seq][2] for seq in range(first, last + 1)
                   if seq in self._unsaved}
        gone = SequenceRanges((seq, seq) for seq in range(first, last + 1) if seq not in bodies)
        for start, end in gone:  # somebody else was at the file
            self._drop(start, end)
        return sorted(bodies.items())

    def inventories_after(self, generation: int) -> list[bytes]:
        """Those that a pending Frame may refer to, encoded, oldest first."""
        kept: dict[int, bytes] = dict(self._store.read(
            "SELECT generation, body FROM inventory WHERE node = ? AND generation > ?",
            self._node, generation) or ())
        kept.update(self._unsaved_inventories)
        if self._latest is not None and self.generation > generation:
            kept.setdefault(self.generation, encode(self._latest))
        return [kept[each] for each in sorted(kept) if each > generation]

    # what is on disk

    def _registered(self) -> int | None:
        """None: the disk refuses. It is asked again at each save. Reading comes first: a disk that
        is full can still say what is pending."""
        if rows := self._store.read("SELECT id FROM node WHERE name = ?", self._name):
            return int(rows[0][0])
        self._store.write_later(("INSERT OR IGNORE INTO node (name, stream, dropped)"
                                 " VALUES (?, ?, ?)", (self._name, self.stream, self.dropped)))
        if not self._store.commit():
            return None
        rows = self._store.read("SELECT id FROM node WHERE name = ?", self._name)
        return rows[0][0] if rows else None

    def _recall(self) -> None:
        for stream, dropped, told in self._store.read(
                "SELECT stream, node.dropped, coalesce(told.dropped, 0) FROM node"
                " LEFT JOIN told ON told.node = node.id WHERE id = ?", self._node) or ():
            self.stream, self.dropped, self._told = stream, dropped, told
        for seq, at, size in self._store.read(
                "SELECT seq, at, length(body) FROM message WHERE node = ? ORDER BY seq",
                self._node) or ():
            self._add(seq, at, size)
        for (body,) in self._store.read(
                "SELECT body FROM inventory WHERE node = ? ORDER BY generation DESC LIMIT 1",
                self._node) or ():
            found = decode_from_agent(body)
            self._latest = found if isinstance(found, Inventory) else None
        for (body,) in self._store.read(
                "SELECT body FROM state WHERE node = ?", self._node) or ():
            self._state = body

    def _save(self) -> None:
        if self._node is None:
            self._node = self._registered()
        if self._node is not None:
            unsaved, inventories = list(self._unsaved), list(self._unsaved_inventories)
            self._store.write_later(*self._statements(self._node))
            if self._store.commit():
                self._saved(unsaved, inventories)
                return
        self._check_file()
        self._bound_memory()

    def _statements(self, node: int) -> list[Statement]:
        statements: list[Statement] = [
            ("INSERT OR REPLACE INTO message VALUES (?, ?, ?, ?, ?)", (node, seq, *rest))
            for seq, rest in self._unsaved.items()]
        statements += (("INSERT OR REPLACE INTO inventory VALUES (?, ?, ?)", (node, *each))
                       for each in self._unsaved_inventories.items())
        # The newest row stays, acked or not: it is what the numbering goes on from.
        statements += (("DELETE FROM message WHERE node = ? AND seq BETWEEN ? AND ?",
                        (node, first, min(last, self.last_seq - 1)))
                       for first, last in self._to_delete)
        if self._state is not None and not self._is_state_saved:
            statements.append(("INSERT OR REPLACE INTO state VALUES (?, ?)", (node, self._state)))
        if self._on_disk != (self.stream, self.dropped, self._told):
            statements += [("UPDATE node SET stream = ?, dropped = ? WHERE id = ?",
                            (self.stream, self.dropped, node)),
                           ("INSERT OR REPLACE INTO told VALUES (?, ?)", (node, self._told))]
        if self._unsaved_inventories:  # rare; those that no kept Frame refers to
            statements.append(("DELETE FROM inventory WHERE node = ? AND generation < (SELECT"
                               " min(generation) FROM message WHERE node = ? AND generation IS NOT"
                               " NULL)", (node, node)))
        return statements

    def _saved(self, unsaved: list[int], inventories: list[int]) -> None:
        for seq in unsaved:
            del self._unsaved[seq]
        self._unsaved_bytes, self._is_state_saved = 0, True
        self._on_disk = (self.stream, self.dropped, self._told)
        for generation in inventories:
            del self._unsaved_inventories[generation]
        newest = self.last_seq in self._to_delete
        self._to_delete = SequenceRanges([(self.last_seq, self.last_seq)] if newest else [])

    def _check_file(self) -> None:
        """A file that was damaged has been set aside; what was only there is lost."""
        if self._files == self._store.files:
            return
        self._files, self._node, self._on_disk = self._store.files, None, None
        self._to_delete = SequenceRanges()
        here = SequenceRanges((seq, seq) for seq in sorted(self._unsaved))
        for before, after in pairwise([(0, 0), *here, (self.last_seq + 1, 0)]):
            for first, last in list(self._pending.within(before[1] + 1, after[0] - 1)):
                self._drop(first, last)
        self._to_delete = SequenceRanges()
        if self._latest is not None:
            self.keep_inventory(self._latest)
        self._is_state_saved = False
        self._change_stream()

    def _change_stream(self) -> None:
        self.stream = secrets.token_hex(8)
        self._said, self._doubtful, self._said_high = SequenceRanges(), SequenceRanges(), 0
        self._opened_at = self.last_seq
        self._save()

    # caps

    def _drop_excess(self, at: float) -> None:
        while self.bytes > self._cap_bytes and self._drop_oldest():
            pass
        while (oldest := self._oldest()) and self._index.at(oldest) < at - DAY_S:
            self._drop(oldest, oldest)

    def _drop_oldest(self) -> bool:
        oldest = self._oldest()
        if oldest is None or oldest == self.last_seq:
            return False
        self._drop(oldest, oldest)
        return True

    def _oldest(self) -> int | None:
        """That is not on its way: what is may be acked any moment, and is not lost then."""
        for first, last in self._pending:
            at = first
            for start, end in self._said.within(first, last):
                if start > at:
                    break
                at = end + 1
            if at <= last:
                return at
        return None

    def _drop(self, first: int, last: int) -> None:
        count = self._pending.count_in(first, last)
        self.dropped += count
        self._dropped_at = self._index.at(self.last_seq)
        self._dropped_now.add_all(first, last)
        self._to_delete.add_all(first, last)
        if first <= self._said_high and not self._is_connected:
            self._doubtful.add_all(first, min(last, self._said_high))
        self._forget(first, last)

    def _bound_memory(self) -> None:
        """While the disk refuses. What is on its way goes last."""
        excess = [seq for seq in sorted(self._unsaved) if seq not in self._said]
        for seq in excess:
            if len(self._unsaved) <= UNSAVED_MAX and self._unsaved_bytes <= UNSAVED_BYTES:
                return
            self._drop(seq, seq)

    def _add(self, seq: int, at: float, size: int) -> None:
        self._index.add(seq, at, size, self._pending.first or seq)
        self._pending.add(seq)
        self.bytes += size
        self.last_seq = seq

    def _forget(self, first: int, last: int) -> None:
        for start, end in self._pending.within(first, last):
            self.bytes -= self._index.size(start, end)
        self._pending.discard_all(first, last)
        if self._unsaved:
            for seq in [seq for seq in self._unsaved if first <= seq <= last]:
                self._unsaved_bytes -= len(self._unsaved.pop(seq)[2])

    def _age(self, now: float) -> float:
        if self._aged_s is None:
            self._aged_s = self._index.at(self.last_seq) - now
        return now + self._aged_s


def _what_was_dropped(count: int, damaged: Path | None) -> str:
    if damaged is not None:
        many = f"{count} messages in it" if count else "what was in it and not acked yet"
        return (f"the outbox was damaged and is set aside as {damaged.name}; {many} did not reach "
                "the hub; check this node's disk")
    return (f"{count} messages were dropped here before the hub could take them: history has a "
            "hole; the hub was away for long, or this node's disk is full")


class _PendingIndex:
    """Size and age of each seq from the oldest pending one on: 12 bytes each."""

    def __init__(self) -> None:
        self._from = 0
        self._sizes = array("I")
        self._ats = array("d")

    def add(self, seq: int, at: float, size: int, oldest: int) -> None:
        if oldest == seq:
            self._from, self._sizes, self._ats = seq, array("I"), array("d")
        elif oldest - self._from > _TRIM:
            del self._sizes[: oldest - self._from], self._ats[: oldest - self._from]
            self._from = oldest
        skipped = seq - self._from - len(self._sizes)
        self._sizes.extend([0] * skipped + [size])
        self._ats.extend([at] * (skipped + 1))

    def size(self, first: int, last: int) -> int:
        return sum(self._sizes[first - self._from : last - self._from + 1])

    def at(self, seq: int) -> float:
        return self._ats[seq - self._from] if 0 <= seq - self._from < len(self._ats) else 0.0
