"""Rows of an outbox on disk: its messages, inventories and state, and the row of its node."""

from collections.abc import Collection
from typing import Any, NamedTuple

from gpudeck.contract.sequence_ranges import SequenceRanges
from gpudeck.contract.wire import Inventory, decode_from_agent, encode

from .outbox_file import OutboxFile, Statement

# While the disk refuses, this much of a node is kept in memory.
UNSAVED_MAX = 600
UNSAVED_BYTES = 16 * 2**20

class NodeRow(NamedTuple):
    stream: str
    dropped: int  # ever
    reported: int  # of these, by an Event


class OutboxRows:
    """Rows that wait for the next `save`, and those that were saved."""

    def __init__(self, store: OutboxFile, name: str) -> None:
        self.inventory: Inventory | None = None  # the latest
        self.state: bytes | None = None  # that was stored last
        self._store = store
        self._name = name
        self._files = store.files
        self._node: int | None = None
        self._on_disk: NodeRow | None = None
        self._unsaved: dict[int, tuple[float, int | None, bytes]] = {}
        self._unsaved_bytes = 0
        self._unsaved_inventories: dict[int, bytes] = {}
        self._unsaved_state: bytes | None = None
        self._to_delete = SequenceRanges()

    @property
    def unsaved(self) -> Collection[int]:
        """Sequence numbers of messages that are in memory alone."""
        return self._unsaved.keys()

    @property
    def is_file_replaced(self) -> bool:
        return self._files != self._store.files

    def open(self, new_stream: str) -> tuple[NodeRow, list[tuple[int, float, int]]]:
        """Open it. Return what an earlier run left, and seq, age and size of its messages, in
        order."""
        self._node = self._register(NodeRow(new_stream, 0, 0))
        stream, dropped, reported = self._first(
            "SELECT stream, node.dropped, coalesce(told.dropped, 0) FROM node"
            " LEFT JOIN told ON told.node = node.id WHERE id = ?") or (new_stream, 0, 0)
        messages = self._store.read(
            "SELECT seq, at, length(body) FROM message WHERE node = ? ORDER BY seq", self._node)
        if inventory := self._first("SELECT body FROM inventory WHERE node = ?"
                                    " ORDER BY generation DESC LIMIT 1"):
            message = decode_from_agent(inventory[0])
            self.inventory = message if isinstance(message, Inventory) else None
        if state := self._first("SELECT body FROM state WHERE node = ?"):
            self.state = state[0]
        return NodeRow(stream, dropped, reported), messages or []

    def _first(self, sql: str) -> tuple[Any, ...] | None:
        rows = self._store.read(sql, self._node)
        return rows[-1] if rows else None

    def add(self, seq: int, at: float, generation: int | None, body: bytes) -> None:
        self._unsaved[seq] = (at, generation, body)
        self._unsaved_bytes += len(body)

    def delete(self, first: int, last: int) -> None:
        self._to_delete.add_all(first, last)
        if self._unsaved:
            for seq in [seq for seq in self._unsaved if first <= seq <= last]:
                self._unsaved_bytes -= len(self._unsaved.pop(seq)[2])

    def keep_inventory(self, inventory: Inventory) -> None:
        self.inventory = inventory
        self._unsaved_inventories[inventory.generation] = encode(inventory)

    def keep_state(self, body: bytes) -> None:
        self.state = self._unsaved_state = body

    def bodies(self, first: int, last: int) -> dict[int, bytes] | None:
        """Return the bodies by sequence number; None: the file cannot be read."""
        bodies: dict[int, bytes] = {}
        if not all(seq in self._unsaved for seq in range(first, last + 1)):
            rows = self._store.read(
                "SELECT seq, body FROM message WHERE node = ? AND seq BETWEEN ? AND ?",
                self._node, first, last)
            if rows is None:
                return None
            bodies.update(rows)
        return bodies | {seq: self._unsaved[seq][2] for seq in range(first, last + 1)
                         if seq in self._unsaved}

    def inventories_after(self, generation: int) -> list[bytes]:
        """Return those that a pending Frame may refer to, encoded, oldest first."""
        inventories: dict[int, bytes] = dict(self._store.read(
            "SELECT generation, body FROM inventory WHERE node = ? AND generation > ?",
            self._node, generation) or ())
        inventories.update(self._unsaved_inventories)
        if self.inventory is not None and self.inventory.generation > generation:
            inventories.setdefault(self.inventory.generation, encode(self.inventory))
        return [inventories[number] for number in sorted(inventories) if number > generation]

    def save(self, last_seq: int, node: NodeRow) -> bool:
        if self._node is None:
            self._node = self._register(node)
        if self._node is None:
            return False
        unsaved, inventories = list(self._unsaved), list(self._unsaved_inventories)
        self._store.write_later(*self._statements(self._node, last_seq, node))
        if not self._store.commit():
            return False
        for seq in unsaved:
            del self._unsaved[seq]
        self._unsaved_bytes, self._unsaved_state = 0, None
        self._on_disk = node
        for generation in inventories:
            del self._unsaved_inventories[generation]
        newest = last_seq in self._to_delete
        self._to_delete = SequenceRanges([(last_seq, last_seq)] if newest else [])
        return True

    def is_memory_full(self) -> bool:
        return len(self._unsaved) > UNSAVED_MAX or self._unsaved_bytes > UNSAVED_BYTES

    def begin_again(self) -> None:
        """Begin again in a new file."""
        self._files, self._node, self._on_disk = self._store.files, None, None
        self.forget_deletions()
        self._unsaved_state = self.state
        if self.inventory is not None:
            self.keep_inventory(self.inventory)

    def forget_deletions(self) -> None:
        self._to_delete = SequenceRanges()

    def _register(self, node: NodeRow) -> int | None:
        """Return the node's id; None: the disk refuses. It is asked again at each save. Reading
        comes first: a disk that is full can still say what is pending."""
        if rows := self._store.read("SELECT id FROM node WHERE name = ?", self._name):
            return int(rows[0][0])
        self._store.write_later(("INSERT OR IGNORE INTO node (name, stream, dropped)"
                                 " VALUES (?, ?, ?)", (self._name, node.stream, node.dropped)))
        if not self._store.commit():
            return None
        rows = self._store.read("SELECT id FROM node WHERE name = ?", self._name)
        return rows[0][0] if rows else None

    def _statements(self, node: int, last_seq: int, row: NodeRow) -> list[Statement]:
        statements: list[Statement] = [
            ("INSERT OR REPLACE INTO message VALUES (?, ?, ?, ?, ?)", (node, seq, *rest))
            for seq, rest in self._unsaved.items()]
        statements += (("INSERT OR REPLACE INTO inventory VALUES (?, ?, ?)", (node, *entry))
                       for entry in self._unsaved_inventories.items())
        # The newest row stays, acked or not: it is what the numbering goes on from.
        statements += (("DELETE FROM message WHERE node = ? AND seq BETWEEN ? AND ?",
                        (node, first, min(last, last_seq - 1)))
                       for first, last in self._to_delete)
        if self._unsaved_state is not None:
            statements.append(("INSERT OR REPLACE INTO state VALUES (?, ?)",
                               (node, self._unsaved_state)))
        if self._on_disk != row:
            statements += [("UPDATE node SET stream = ?, dropped = ? WHERE id = ?",
                            (row.stream, row.dropped, node)),
                           ("INSERT OR REPLACE INTO told VALUES (?, ?)", (node, row.reported))]
        if self._unsaved_inventories:  # rare; those that no kept Frame refers to
            statements.append(("DELETE FROM inventory WHERE node = ? AND generation < (SELECT"
                               " min(generation) FROM message WHERE node = ? AND generation IS NOT"
                               " NULL)", (node, node)))
        return statements
