"""What must not be lost, on disk until the hub has it. The agent's only SQL.

A `Journal` is one file; an `Outbox` is one node's view of it. Messages are numbered and committed
before they are sent: were one sent first and we killed, its number would be given out again, and
the hub would drop the second message as seen. WAL with synchronous=NORMAL keeps what was
committed across kill -9 at no fsync per second.

A simulator keeps 1,250 nodes in one file. So `commit` is a group commit: whoever comes first waits
`group_s` for the others and writes for all.
"""

import secrets
import sqlite3
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpudeck.errors import CommandError, ExitCode
from gpudeck.wire import Inventory, Sequenced, decode_from_agent, encode

DAY_S = 86_400.0
# 24 h of 8 Gpus at 1 Hz; more Gpus keep less history of an outage.
CAP_BYTES = 256 * 2**20
PRUNE_EVERY_S = 60.0
# While the disk refuses, this many messages of a node are kept in memory.
UNSAVED_MAX = 600

_SCHEMA = """
CREATE TABLE IF NOT EXISTS node (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE,
    stream TEXT NOT NULL, dropped INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS message (
    node INTEGER NOT NULL, seq INTEGER NOT NULL, at REAL NOT NULL, generation INTEGER,
    body BLOB NOT NULL, PRIMARY KEY (node, seq)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS inventory (
    node INTEGER NOT NULL, generation INTEGER NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (node, generation)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS state (node INTEGER PRIMARY KEY, body BLOB NOT NULL);
"""

Statement = tuple[str, tuple[Any, ...]]
Entry = tuple[int, bytes]  # seq, encoded message


class Journal:
    def __init__(self, path: Path, group_s: float = 0.0) -> None:
        """Raises CommandError when the folder cannot be written."""
        self.trouble = ""
        self._group_s = group_s
        self._lock = threading.RLock()
        self._group = _Group()
        self._queue: list[Statement] = []
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.executescript(_SCHEMA)
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute("COMMIT")
        except (OSError, sqlite3.Error) as error:
            raise CommandError(
                f"cannot write {path}: {error}; choose another folder with --data",
                ExitCode.CANNOT_START,
            ) from error

    def outbox(self, name: str = "", cap_bytes: int = CAP_BYTES) -> "Outbox":
        """The node of this name, made if it is new; "" is the machine itself."""
        with self._lock:
            self._db.execute(
                "INSERT OR IGNORE INTO node (name, stream) VALUES (?, ?)",
                (name, secrets.token_hex(8)),
            )
            return Outbox(self, name, cap_bytes)

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._db.execute(sql, values).fetchall()

    def write_later(self, *statements: Statement) -> None:
        """Part of the next commit."""
        with self._lock:
            self._queue += statements

    def commit(self) -> bool:
        """Everything queued before is on disk, or `trouble` says why not."""
        with self._lock:
            group, leads = self._group, self._group.join()
        if not leads:
            group.done.wait()
            return group.saved
        if self._group_s:
            time.sleep(self._group_s)
        with self._lock:
            self._group = _Group()
            group.saved = self._save()
        group.done.set()
        return group.saved

    def _save(self) -> bool:
        queue, self._queue = self._queue, []
        try:
            self._db.execute("BEGIN IMMEDIATE")
            for sql, values in queue:
                self._db.execute(sql, values)
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            # Messages come again from their outbox; what else was queued repeats itself.
            self.trouble = f"the outbox cannot be written ({error}); free space on its disk"
            return False
        self.trouble = ""
        return True

    def close(self) -> None:
        with self._lock:
            self._save()
            self._db.close()


class _Group:
    """One commit and those who wait for it."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.saved = False
        self._led = False

    def join(self) -> bool:
        """True for the first: it does the work."""
        first, self._led = not self._led, True
        return first


class Outbox:
    """One node's messages that the hub has not acked. Used by one thread."""

    def __init__(self, journal: Journal, name: str, cap_bytes: int = CAP_BYTES) -> None:
        self._journal = journal
        self._cap_bytes = cap_bytes
        [(self._node, self.stream, self.dropped)] = journal.rows(
            "SELECT id, stream, dropped FROM node WHERE name = ?", name
        )
        [(last, first)] = journal.rows(
            "SELECT max(seq), min(seq) FROM message WHERE node = ?", self._node
        )
        self.last_seq: int = last or 0
        self.acked_seq: int = (first or 1) - 1
        self._unsaved: list[tuple[int, float, int | None, bytes]] = []
        self._fresh: list[Entry] = []
        self._pruned_at: float | None = None
        self._grown_bytes = 0
        self._unsaved_inventories: dict[int, bytes] = {}
        self._unsaved_state: bytes | None = None
        inventory = self.latest_inventory()
        self.generation = 0 if inventory is None else inventory.generation

    @property
    def pending(self) -> int:
        return self.last_seq - self.acked_seq

    @property
    def trouble(self) -> str:
        return self._journal.trouble

    def latest_inventory(self) -> Inventory | None:
        rows = self._journal.rows(
            "SELECT body FROM inventory WHERE node = ? ORDER BY generation DESC LIMIT 1",
            self._node,
        )
        found = decode_from_agent(rows[0][0]) if rows else None
        return found if isinstance(found, Inventory) else None

    def keep_inventory(self, inventory: Inventory) -> None:
        """With the next `append`."""
        self._unsaved_inventories[inventory.generation] = encode(inventory)
        self.generation = inventory.generation

    def state(self) -> bytes | None:
        """What was kept last; it stands for all messages up to then."""
        rows = self._journal.rows("SELECT body FROM state WHERE node = ?", self._node)
        return rows[0][0] if rows else None

    def keep_state(self, body: bytes) -> None:
        """With the next `append`, in one transaction."""
        self._unsaved_state = body

    def append(self, messages: Sequence[Sequenced], now: float) -> None:
        """They are numbered from last_seq + 1 on already; on return they are on disk, or kept in
        memory while the disk refuses. `now` is wall-clock seconds."""
        for message in messages:
            body = encode(message)
            generation = getattr(message, "generation", None)
            self._unsaved.append((message.seq, now, generation, body))
            self._grown_bytes += len(body)
            self.last_seq = message.seq
        self._fresh = [(seq, body) for seq, _, _, body in self._unsaved]
        self._prune_if_due(now)
        self._save()

    def ack(self, seq: int) -> None:
        """The hub has everything up to here. The newest row stays, acked or not: it is what the
        numbering continues from after a restart."""
        if seq > self.last_seq:
            # The disk lost what we had sent (power cut): never give a number out twice.
            self.last_seq = seq
        if seq <= self.acked_seq:
            return
        self.acked_seq = seq
        self._fresh = [entry for entry in self._fresh if entry[0] > seq]
        self._journal.write_later((
            "DELETE FROM message WHERE node = ? AND seq <= ?",
            (self._node, min(seq, self.last_seq - 1)),
        ))

    def pending_from(self, after_seq: int, limit: int) -> list[Entry]:
        """The next messages to send, oldest first."""
        after_seq = max(after_seq, self.acked_seq)
        if after_seq >= self.last_seq:
            return []
        if self._fresh and self._fresh[0][0] <= after_seq + 1:
            return [entry for entry in self._fresh if entry[0] > after_seq][:limit]
        stored: list[Entry] = [(seq, body) for seq, body in self._journal.rows(
            "SELECT seq, body FROM message WHERE node = ? AND seq > ? ORDER BY seq LIMIT ?",
            self._node, after_seq, limit,
        )]
        last = stored[-1][0] if stored else after_seq
        rest = [(seq, body) for seq, _, _, body in self._unsaved if seq > last]
        return (stored + rest)[:limit]

    def inventories_after(self, generation: int) -> list[bytes]:
        """Those that a pending Frame may refer to, encoded, oldest first."""
        kept = dict(self._journal.rows(
            "SELECT generation, body FROM inventory WHERE node = ? AND generation > ?",
            self._node, generation,
        ))
        kept.update(self._unsaved_inventories)
        return [kept[generation] for generation in sorted(kept)]

    def _save(self) -> None:
        statements: list[Statement] = [
            ("INSERT OR REPLACE INTO message VALUES (?, ?, ?, ?, ?)",
             (self._node, seq, at, generation, body))
            for seq, at, generation, body in self._unsaved
        ]
        statements += (
            ("INSERT OR REPLACE INTO inventory VALUES (?, ?, ?)", (self._node, generation, body))
            for generation, body in self._unsaved_inventories.items()
        )
        if self._unsaved_inventories:
            statements.append(self._drop_old_inventories())
        if self._unsaved_state is not None:
            statements.append(("INSERT OR REPLACE INTO state VALUES (?, ?)",
                               (self._node, self._unsaved_state)))
        self._journal.write_later(*statements)
        if self._journal.commit():
            self._unsaved, self._unsaved_inventories, self._unsaved_state = [], {}, None
        elif len(self._unsaved) > UNSAVED_MAX:
            too_many = len(self._unsaved) - UNSAVED_MAX
            del self._unsaved[:too_many]
            self._fresh = self._fresh[-UNSAVED_MAX:]
            self.dropped += too_many

    def _prune_if_due(self, now: float) -> None:
        due = self._pruned_at is None or now - self._pruned_at >= PRUNE_EVERY_S
        if not due and self._grown_bytes < self._cap_bytes // 16:
            return
        self._pruned_at, self._grown_bytes = now, 0
        upto = max(self._older_than(now - DAY_S), self._beyond_cap())
        if upto <= self.acked_seq:
            return
        [(lost,)] = self._journal.rows(
            "SELECT count(*) FROM message WHERE node = ? AND seq > ? AND seq <= ?",
            self._node, self.acked_seq, upto,
        )
        self.dropped += lost
        self.acked_seq = upto
        self._journal.write_later(
            ("DELETE FROM message WHERE node = ? AND seq <= ?", (self._node, upto)),
            ("UPDATE node SET dropped = ? WHERE id = ?", (self.dropped, self._node)),
        )

    def _older_than(self, at: float) -> int:
        [(seq,)] = self._journal.rows(
            "SELECT max(seq) FROM message WHERE node = ? AND at < ?", self._node, at
        )
        return seq or 0

    def _beyond_cap(self) -> int:
        [(total,)] = self._journal.rows(
            "SELECT sum(length(body)) FROM message WHERE node = ?", self._node
        )
        excess, upto = (total or 0) - self._cap_bytes, 0
        if excess <= 0:
            return 0
        for seq, size in self._journal.rows(
            "SELECT seq, length(body) FROM message WHERE node = ? ORDER BY seq", self._node
        ):
            excess, upto = excess - size, seq
            if excess <= 0:
                break
        return upto

    def _drop_old_inventories(self) -> Statement:
        """Those that no kept Frame refers to. Run when a new one comes, which is rare."""
        return (
            "DELETE FROM inventory WHERE node = ? AND generation < (SELECT min(generation)"
            " FROM message WHERE node = ? AND generation IS NOT NULL)",
            (self._node, self._node),
        )
