"""One node's messages that the hub has not acked: which there are in memory, themselves on disk.

Ages are measured by a steady clock that stands still while the agent does not run: no step of the
wall clock makes anything old.
"""

import secrets
from collections.abc import Iterable, Sequence

from gpudeck.sequence_ranges import SequenceRanges
from gpudeck.wire import Event, Inventory, Sequenced, Span, encode

from .outbox_rows import NodeRow, OutboxRows, OutboxStore
from .pending import Entry, PendingMessages

DAY_S = 86_400.0
# 24 h of 8 GPUs at 1 Hz; more GPUs keep less history of an outage.
CAP_BYTES = 256 * 2**20


class Outbox:
    """Used by one thread."""

    def __init__(self, store: OutboxStore, name: str, cap_bytes: int = CAP_BYTES) -> None:
        self._store = store
        self._cap_bytes = cap_bytes
        self._rows = OutboxRows(store, name)
        stored = self._rows.open(secrets.token_hex(8))
        self.stream, self.last_seq = stored.stream, stored.last_seq
        self.latest_inventory = stored.inventory
        self.generation = 0 if stored.inventory is None else stored.inventory.generation
        self._state = stored.state
        self._pending = PendingMessages(self._rows, stored)
        self._fresh: list[Entry] = []

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
        """With the next `append`."""
        self._rows.keep_inventory(inventory)
        self.latest_inventory, self.generation = inventory, inventory.generation

    def state(self) -> bytes | None:
        """What was kept last; it stands for all messages up to then."""
        return self._state

    def keep_state(self, body: bytes) -> None:
        """With the next `append`, in one transaction."""
        self._state = body
        self._rows.keep_state(body)

    def append(self, messages: Sequence[Sequenced], now: float) -> None:
        """They are numbered from last_seq + 1 on already; on return they are on disk, or kept in
        memory while the disk refuses. `now` is any steady clock in seconds."""
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
        """Once per episode of dropping, when it is over; to be appended at once."""
        return self._pending.drops.event(self._pending.age(now), taken_at, self.last_seq + 1,
                                         self._store)

    # what the hub has

    def said(self, first: int, last: int) -> None:
        """On its way, on this connection."""
        self._pending.sent.add(first, last)

    def broke(self) -> None:
        """The connection ended: what was said may have arrived or not."""
        self._pending.sent.broke()

    def welcomed(self, seq: int, spans: Iterable[Span] = ()) -> None:
        """What the hub has as a connection begins. A hub that has more than we ever gave out
        remembers what our disk forgot (power cut, or it was full): those numbers are not given out
        twice. If that has happened already, `stream` changes, and a new Hello is due."""
        sent = self._pending.sent
        acked = [(1, seq), *((span.first, span.last) for span in spans)]
        high = max(last for _, last in acked)
        is_ours = high <= max(sent.at_most, self.first_seq - 1)
        for first, last in acked:
            self._pending.drops.total -= sent.doubtful.discard_all(first, last)
            self._pending.remove(first, last if is_ours else min(last, sent.opened_at))
        sent.connected()
        if not is_ours and self.pending:
            self._change_stream()
        elif not is_ours:
            self.last_seq = sent.opened_at = max(self.last_seq, high)

    def ack(self, seq: int, spans: Iterable[Span] = ()) -> None:
        self._pending.remove(1, min(seq, self._pending.sent.at_most))
        for span in spans:
            self._pending.remove(span.first, min(span.last, self._pending.sent.at_most))

    # what to send

    def pending_in(self, first: int, last: int) -> int:
        return self._pending.ranges.count_in(first, last)

    def entries(self, after_seq: int, upto_seq: int, limit: int, max_bytes: int = 2**20
                ) -> list[Entry]:
        """The next pending ones, oldest first; at least one, if there is any."""
        oldest = self._pending.ranges.first
        if self._fresh and oldest is not None and self._fresh[0][0] <= max(after_seq + 1, oldest):
            found = [entry for entry in self._fresh if after_seq < entry[0] <= upto_seq
                     and entry[0] in self._pending.ranges]
            if sum(len(body) for _, body in found[:limit]) <= max_bytes:
                return found[:limit]
        entries: list[Entry] = []
        for first, last in self._pending.chosen(after_seq, upto_seq, limit, max_bytes):
            bodies = self._rows.bodies(first, last)
            if bodies is None:
                self._check_file()
                return entries
            # Somebody else was at the file.
            gone = SequenceRanges((seq, seq) for seq in range(first, last + 1)
                                  if seq not in bodies)
            for start, end in gone:
                self._pending.drop(start, end)
            entries += sorted(bodies.items())
        return entries

    def inventories_after(self, generation: int) -> list[bytes]:
        """Those that a pending Frame may refer to, encoded, oldest first."""
        return self._rows.inventories_after(generation, self.latest_inventory)

    # what is on disk

    def _save(self) -> None:
        drops = self._pending.drops
        if self._rows.save(self.last_seq, NodeRow(self.stream, drops.total, drops.reported)):
            return
        self._check_file()
        self._pending.bound_memory()

    def _check_file(self) -> None:
        """A file that was damaged has been set aside; what was only there is lost."""
        if not self._rows.is_file_replaced:
            return
        self._rows.begin_again()
        self._pending.drop_all_but(self._rows.unsaved)
        self._rows.forget_deletions()
        if self.latest_inventory is not None:
            self.keep_inventory(self.latest_inventory)
        if self._state is not None:
            self._rows.keep_state(self._state)
        self._change_stream()

    def _change_stream(self) -> None:
        self.stream = secrets.token_hex(8)
        self._pending.sent.begin_again(self.last_seq)
        self._save()
