"""Journal of what was ordered, begun and done on this node, on disk before it counts. The only SQL
for actions.

An INTENT is on disk before anything is touched, its RESULT after, each in one transaction with
its record of the Audit. An INTENT without a RESULT whose process has ended is UNKNOWN, and never
run again. synchronous=FULL: here a commit is an fsync, unlike in the outbox.

Two processes may use it at once (the agent, and `gpudeck end` on the node): whatever reads and
then writes does so within BEGIN IMMEDIATE, so that the chain never forks.
"""

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from gpudeck.audit.chain import START, AuditChainLink, link
from gpudeck.contract.actions import FINAL, ActionVerification, Command, Refusal, Reply

from ..tasks.boot_id import boot_id
from ..tasks.processes import row_of
from .facts import Fact

KEPT_S = 7 * 86_400.0  # at least 24 h
KEPT_COMMANDS = 100_000  # at least 10,000; the Audit is kept whole
BUSY_S = 5.0
REPAIRED = ("an earlier agent kept the pool's leases where timed limits belong, and they are apart "
            "now; a power cap or clock lock that was set before those leases may be without its "
            "end: compare `gpudeck gpu show` with the limits of the boards")

log = logging.getLogger("gpudeck.agent.journal")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS command (
    node TEXT NOT NULL, id TEXT NOT NULL, digest TEXT NOT NULL, nonce TEXT NOT NULL,
    action TEXT NOT NULL, at REAL NOT NULL, worker TEXT NOT NULL, asked_here INTEGER NOT NULL,
    intent_at REAL, is_spent INTEGER NOT NULL DEFAULT 0,
    reply BLOB NOT NULL, noted INTEGER NOT NULL DEFAULT 0, final INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (node, id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS command_at ON command (node, at);
CREATE INDEX IF NOT EXISTS command_nonce ON command (node, nonce);
CREATE INDEX IF NOT EXISTS command_spent ON command (node, intent_at) WHERE is_spent;
CREATE TABLE IF NOT EXISTS audit (
    node TEXT NOT NULL, seq INTEGER NOT NULL, body TEXT NOT NULL, hash TEXT NOT NULL,
    PRIMARY KEY (node, seq)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS fact (
    node TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (node, name)
) WITHOUT ROWID;
"""

_replies = msgspec.msgpack.Decoder(Reply)


FileMark = tuple[tuple[str, int, int, int], ...]
UNSURE_NS = 1_000_000_000


class JournalError(Exception):
    """An action that cannot be recorded, and so does not happen. The sentence is for people."""


@dataclass(frozen=True, slots=True)
class RecordedCommand:
    """A command that was seen before."""

    digest: str
    reply: Reply


class ActionStore:
    """The file `acts.db`; opened when it is first needed."""

    def __init__(self, path: Path, durable: bool = True) -> None:
        """`durable` False: for a simulator, whose nodes have no process that could be hit."""
        self._path = path
        self._durable = durable
        self._lock = threading.RLock()
        self._db: sqlite3.Connection | None = None

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        try:
            with self._lock:
                return self._open().execute(sql, values).fetchall()
        except (OSError, sqlite3.Error) as error:
            raise self._refuses(error) from error

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                db = self._open()
                db.execute("BEGIN IMMEDIATE")
                try:
                    yield db
                    db.execute("COMMIT")
                except BaseException:
                    if db.in_transaction:
                        db.execute("ROLLBACK")
                    raise
            except (OSError, sqlite3.Error) as error:
                raise self._refuses(error) from error

    def mark(self) -> FileMark | None:
        """Return a mark that changes with every write to the file, by any process; None if it
        was written just now: file times are no finer than the kernel's tick, so the next write
        could leave the same mark. It reads no content and is cheap to call often."""
        marks = []
        for end in ("", "-wal"):
            try:
                stat = os.stat(f"{self._path}{end}")
            except FileNotFoundError:
                continue
            except OSError:
                return None
            marks.append((end, stat.st_ino, stat.st_size, stat.st_mtime_ns))
        is_old = all(time.time_ns() - written_ns > UNSURE_NS for *_, written_ns in marks)
        return tuple(marks) if marks and is_old else None

    def close(self) -> None:
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None

    def _open(self) -> sqlite3.Connection:
        if self._db is None:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o600))
            db = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None,
                                 timeout=BUSY_S)
            _use_wal(db)
            db.execute(f"PRAGMA synchronous = {'FULL' if self._durable else 'OFF'}")
            db.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
            self._db = db
            try:
                self._separate_leases()
            except BaseException:  # what is mixed up is not used: a lease would be overlooked
                self.close()
                raise
        return self._db

    def _separate_leases(self) -> None:
        """Earlier agents kept the pool's leases under the name of the timed limits, and each store
        wrote over the other's. Limits are a list, leases are not."""
        mixed = "FROM fact WHERE name = ? AND value LIKE '{%'"
        if not self.rows(f"SELECT 1 {mixed}", Fact.TIMED_LIMITS.value):
            return
        with self.transaction() as db:
            nodes = db.execute(f"SELECT node {mixed}", (Fact.TIMED_LIMITS.value,)).fetchall()
            db.execute(f"INSERT OR IGNORE INTO fact SELECT node, ?, value {mixed}",
                       (Fact.POOL_LEASES.value, Fact.TIMED_LIMITS.value))
            db.execute(f"DELETE {mixed}", (Fact.TIMED_LIMITS.value,))
            for (node,) in nodes:
                NodeAudit(self, node).append(db, {"kind": "repaired", "why": REPAIRED})
        log.warning("journal_repaired why=%r", REPAIRED)

    def _refuses(self, error: Exception) -> JournalError:
        cure = ("run this as root, or as the agent's user" if isinstance(error, PermissionError)
                else "free some space on its disk")
        return JournalError(f"the action journal {self._path.name} cannot be used ({error}); "
                            f"{cure}. Actions that cannot be recorded are refused.")


def _use_wal(db: sqlite3.Connection) -> None:
    """Two processes that make a new file at once: SQLite then says "locked" without waiting, as
    its busy handler could only deadlock here (sqlite.org/c3ref/busy_handler.html)."""
    until = time.monotonic() + BUSY_S
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                raise
            time.sleep(0.01)


def fact_on_disk(path: Path, fact: Fact) -> str | None:
    """Read a fact of a node's only journal for a command that only looks: nothing is made, written
    or waited for. None: there is none, or the file is closed to us."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True,
                                     timeout=0.1)) as db:
            rows = db.execute("SELECT value FROM fact WHERE node = '' AND name = ?",
                              (fact.value,)).fetchall()
    except sqlite3.Error:
        return None
    return rows[0][0] if rows else None


class NodeAudit:
    """Audit of one node: a hash chain, in one transaction with what it records. Any thread."""

    def __init__(self, store: ActionStore, node: str) -> None:
        self._store = store
        self._node = node
        self.head: tuple[int, str] = (0, START)  # as of our last look
        self._appended = self.head
        self._lock = threading.RLock()

    def open(self) -> None:
        """Raises JournalError."""
        rows = self._store.rows("SELECT seq, hash FROM audit WHERE node = ? ORDER BY seq DESC"
                                " LIMIT 1", self._node)
        self.head = (rows[0][0], rows[0][1]) if rows else (0, START)

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """The head reported to others is always one that is on disk."""
        with self._lock:
            self._appended = self.head
            with self._store.transaction() as db:
                yield db
            self.head = self._appended

    def append(self, db: sqlite3.Connection, record: dict[str, Any]) -> AuditChainLink:
        rows = db.execute("SELECT seq, hash FROM audit WHERE node = ? ORDER BY seq DESC LIMIT 1",
                          (self._node,)).fetchall()
        seq, previous = rows[0] if rows else (0, START)
        entry = link(seq + 1, previous, {"at": time.time(), **record})
        db.execute("INSERT INTO audit VALUES (?, ?, ?, ?)",
                   (self._node, entry.seq, entry.body, entry.hash))
        self._appended = (entry.seq, entry.hash)
        return entry

    def record(self, record: dict[str, Any]) -> None:
        with self.writing() as db:
            self.append(db, record)

    def links(self, after_seq: int = 0, step: int = 1_000) -> Iterator[AuditChainLink]:
        while rows := self._store.rows("SELECT seq, body, hash FROM audit WHERE node = ? AND"
                                       " seq > ? ORDER BY seq LIMIT ?", self._node, after_seq,
                                       step):
            for seq, body, digest in rows:
                yield AuditChainLink(seq, body, digest)
                after_seq = seq


class ActionJournal:
    """Journal of one node in the store. Any thread."""

    def __init__(self, store: ActionStore, node: str = "") -> None:
        self._store = store
        self._node = node
        self._worker = worker_name()
        self.audit = NodeAudit(store, node)
        self.mark = store.mark

    # commands

    def find_command(self, command_id: str) -> RecordedCommand | None:
        rows = self._rows("SELECT digest, reply FROM command WHERE node = ? AND id = ?",
                          command_id)
        return RecordedCommand(rows[0][0], _replies.decode(rows[0][1])) if rows else None

    def is_spent(self, nonce: str) -> bool:
        """Return whether a command has used this preview: it is for one."""
        return bool(self._rows("SELECT 1 FROM command WHERE node = ? AND nonce = ? LIMIT 1",
                               nonce))

    def record_first(self, command: Command, digest: str, reply: Reply) -> Reply:
        """Record the first answer to a command: accepted, or why not. Raises JournalError, also
        where another process was faster."""
        with self.audit.writing() as db:
            self._forget_old(db)
            reply = self._record(db, reply, command_record(command))
            try:
                db.execute(
                    "INSERT INTO command (node, id, digest, nonce, action, at, worker, asked_here,"
                    " reply, final) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (self._node, command.command_id, digest, command.nonce.hex(), command.action,
                     time.time(), self._worker, _is_asked_here(command),
                     msgspec.msgpack.encode(reply), is_final(reply)))
            except sqlite3.IntegrityError as error:
                raise JournalError("this command was accepted already") from error
        return reply

    def record_intent(self, command: Command, reply: Reply) -> Reply:
        """Record the INTENT: from here on the command is never run again."""
        return self._update(reply, {**command_record(command), "intent": True}, intent=True)

    def record_step(self, reply: Reply) -> Reply:
        """Store a step on the way; the Audit gets no record of it."""
        return self._update(reply, None)

    def record_result(self, reply: Reply, record: dict[str, Any]) -> Reply:
        return self._update(reply, record)

    def record_never_came(self, reply: Reply) -> Reply:
        """Store the answer for a command that never came: if it still comes, it finds this."""
        with self.audit.writing() as db:
            reply = self._record(db, reply, {"inquired": True})
            db.execute("INSERT OR IGNORE INTO command (node, id, digest, nonce, action, at, worker,"
                       " asked_here, reply, final) VALUES (?, ?, '', ?, '', ?, ?, 0, ?, 1)",
                       (self._node, reply.command_id, reply.command_id, time.time(), self._worker,
                        msgspec.msgpack.encode(reply)))
        return reply

    def unsettled(self) -> list[Reply]:
        """Newest Reply to each of the hub's commands that it has not noted, oldest first."""
        rows = self._rows("SELECT reply FROM command WHERE node = ? AND noted = 0"
                          " AND asked_here = 0 ORDER BY at LIMIT 1000")
        return [_replies.decode(row[0]) for row in rows]

    def note(self, command_id: str, number: int) -> None:
        """The hub has this Reply; it stays noted until there is a newer one."""
        with self.audit.writing() as db:
            rows = db.execute("SELECT reply FROM command WHERE node = ? AND id = ?",
                              (self._node, command_id)).fetchall()
            if rows and _replies.decode(rows[0][0]).number <= number:
                db.execute("UPDATE command SET noted = 1 WHERE node = ? AND id = ?",
                           (self._node, command_id))

    def begun_since(self, actions: Collection[str], at: float) -> int:
        """Count these actions begun since then. One from the future counts too: the clock was set
        back."""
        return int(self._rows("SELECT count(*) FROM command WHERE node = ? AND action IN"
                              f" ({', '.join('?' * len(actions))}) AND is_spent AND intent_at > ?",
                              *actions, at)[0][0])

    def begun_at_most(self, actions: Collection[str], at: float) -> int:
        """Count them likewise; what is not known counts as more than any budget."""
        try:
            return self.begun_since(actions, at)
        except JournalError:
            return 2**31

    def recover(self) -> list[Reply]:
        """Settle at start what a process left open that has ended. INTENT and no RESULT is UNKNOWN;
        what was only accepted was never touched."""
        rows = self._rows("SELECT reply, intent_at, worker FROM command WHERE node = ? AND"
                          " final = 0")
        now = time.time()
        replies = []
        for body, intent_at, worker in rows:
            if is_alive(worker):
                continue
            reply = _replies.decode(body)
            replies.append(self.record_result(
                _unknown(reply, now) if intent_at is not None else _never_begun(reply, now),
                {"recovered": True}))
        return replies

    # facts by name

    def fact(self, fact: Fact, hub: str = "") -> str | None:
        """Read a fact; `hub`: of which hub, for facts that are kept once for each."""
        rows = self._rows("SELECT value FROM fact WHERE node = ? AND name = ?", _name(fact, hub))
        return rows[0][0] if rows else None

    def keep(self, fact: Fact, value: str | None, record: dict[str, Any] | None = None,
             hub: str = "") -> None:
        self.change(fact, lambda _: value, record, hub)

    def change(self, fact: Fact, turn: Callable[[str | None], str | None],
               record: dict[str, Any] | None = None, hub: str = "") -> None:
        """Read and write a fact in one transaction: two processes may be at it."""
        name = _name(fact, hub)
        with self.audit.writing() as db:
            rows = db.execute("SELECT value FROM fact WHERE node = ? AND name = ?",
                              (self._node, name)).fetchall()
            before = rows[0][0] if rows else None
            after = turn(before)
            if after is None:
                db.execute("DELETE FROM fact WHERE node = ? AND name = ?", (self._node, name))
            elif after != before:
                db.execute("INSERT OR REPLACE INTO fact VALUES (?, ?, ?)",
                           (self._node, name, after))
            if record is not None:
                self.audit.append(db, record)

    # inside

    def _update(self, reply: Reply, record: dict[str, Any] | None, intent: bool = False) -> Reply:
        with self.audit.writing() as db:
            if record is not None:
                reply = self._record(db, reply, record)
            # What was refused after its INTENT was not done, and costs no budget.
            changed = db.execute(
                "UPDATE command SET reply = ?, noted = 0, final = ?,"
                " intent_at = CASE WHEN ? THEN ? ELSE intent_at END,"
                " is_spent = (is_spent OR ?) AND ?"
                " WHERE node = ? AND id = ? AND final = 0 AND (NOT ? OR intent_at IS NULL)",
                (msgspec.msgpack.encode(reply), is_final(reply), intent, time.time(),
                 intent, reply.state != "refused", self._node, reply.command_id, intent)).rowcount
            if changed != 1:
                raise JournalError("this command was begun or settled already")
        return reply

    def _record(self, db: sqlite3.Connection, reply: Reply, record: dict[str, Any]) -> Reply:
        entry = self.audit.append(db, {**record, **_outcome(reply)})
        return msgspec.structs.replace(reply, audit_seq=entry.seq, audit_head=entry.hash)

    def _forget_old(self, db: sqlite3.Connection) -> None:
        db.execute("DELETE FROM command WHERE node = ? AND final = 1 AND at < ? AND id NOT IN"
                   " (SELECT id FROM command WHERE node = ? ORDER BY at DESC LIMIT ?)",
                   (self._node, time.time() - KEPT_S, self._node, KEPT_COMMANDS))

    def _rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._store.rows(sql, self._node, *values)


def _name(fact: Fact, hub: str) -> str:
    return f"{fact} {hub}" if hub else fact.value


def _is_asked_here(command: Command) -> bool:
    """Return whether this node decided it by itself; no hub has the epoch 0."""
    return command.asker.kind == "terminal" or command.epoch == 0


def command_record(command: Command) -> dict[str, Any]:
    """Return the Audit's record of a command: who wanted what, and exactly against whom."""
    record: dict[str, Any] = {
        "command_id": command.command_id, "action": command.action,
        "asker": msgspec.to_builtins(command.asker), "reason": command.reason,
        "epoch": command.epoch, "issued_at": command.issued_at, "expires_at": command.expires_at,
    }
    if command.preview is not None:
        preview = command.preview
        record |= {
            "task_id": preview.task_id, "job_id": preview.job_id, "owner": preview.owner,
            "params": msgspec.to_builtins(preview.params),
            "changes": [msgspec.to_builtins(change) for change in preview.changes],
            "victims": [msgspec.to_builtins(victim.process) for victim in preview.victims],
            "bystanders": [bystander.task_id for bystander in preview.bystanders],
        }
    return record


def is_final(reply: Reply) -> bool:
    """Return whether no Reply follows; none follows `unknown` either, as nothing is tried again."""
    return reply.state in FINAL


def worker_name() -> str:
    """Return a name of this process that no other process has."""
    row = row_of(os.getpid())
    return f"{boot_id()} {os.getpid()} {0 if row is None else row.start_ticks}"


def is_alive(worker: str) -> bool:
    boot, pid, ticks = worker.split(" ")
    row = row_of(int(pid))
    return boot == boot_id() and row is not None and row.start_ticks == int(ticks) and (
        row.state not in "ZX")


def _outcome(reply: Reply) -> dict[str, Any]:
    record: dict[str, Any] = {"command_id": reply.command_id, "state": reply.state,
                              "step": reply.step}
    if reply.refusal is not None:
        record["refusal"] = msgspec.to_builtins(reply.refusal)
    if reply.verified is not None:
        record["verified"] = msgspec.to_builtins(reply.verified)
    return record


def _unknown(reply: Reply, now: float) -> Reply:
    return msgspec.structs.replace(
        reply, number=reply.number + 1, state="unknown", at=now, verified=ActionVerification(),
        step="the agent stopped between beginning this and recording its outcome; it is not "
             "retried. Check whether the task is still there.")


def _never_begun(reply: Reply, now: float) -> Reply:
    sentence = "the agent stopped before it began this; nothing was touched"
    return msgspec.structs.replace(
        reply, number=reply.number + 1, state="expired", at=now, step=sentence,
        refusal=Refusal("expired", sentence))
