"""The SQL of commands: each as the hub knows it, on disk before anything of it is sent."""

import sqlite3
from collections.abc import Iterator

import msgspec

from ..runtime.sql_transaction import put
from ..runtime.state_store import SqlStore, StateUnavailableError
from .lifecycle import CommandRecord
from .standing_store import SCHEMA as STANDING

SCHEMA = """
create table commands (
  command_id text primary key, requested_at real not null, node_id text not null,
  task_id text, state text not null, record blob not null
) without rowid;
create index commands_by_time on commands (requested_at, command_id);
create index commands_pending on commands (state)
  where state in ('requested', 'queued', 'sent', 'accepted', 'acting', 'unknown');
"""
# By the version of the state that each leads to. A step is never edited later.
MIGRATIONS = {5: SCHEMA, 6: STANDING}

OPEN = "'requested', 'queued', 'sent', 'accepted', 'acting'"
AT_ONCE = 200

_encode = msgspec.json.encode
_decode = msgspec.json.Decoder(CommandRecord).decode
CANNOT_STORE = (sqlite3.Error, StateUnavailableError)


class CommandsStore(SqlStore):
    def put(self, record: CommandRecord) -> None:
        put(self._db, "commands", [(record.id, record.requested_at, record.node_id, record.task_id,
                                    record.state, _encode(record))])

    def pending(self, now: float) -> list[CommandRecord]:
        """Return commands about which the node may still report something."""
        rows = self._db.execute(f"select record from commands where state in ({OPEN}, 'unknown')")
        records = (_decode(row[0]) for row in rows)
        return [record for record in records if record.is_pending(now)]

    def find(self, command_id: str) -> CommandRecord | None:
        row = self._db.execute("select record from commands where command_id = ?",
                               (command_id,)).fetchone()
        return None if row is None else _decode(row[0])

    def counts(self) -> dict[str, float]:
        """Return the number of commands in each state."""
        rows = self._db.execute("select state, count(*) from commands group by state")
        return {str(state): float(count) for state, count in rows}

    def newest(self, before: tuple[float, str] | None = None, is_open: bool = False,
               task_id: str | None = None, node_id: str | None = None,
               since: float | None = None) -> Iterator[CommandRecord]:
        """Yield commands, newest first; `before`: after the last one of the previous page."""
        wheres, values = [f"state in ({OPEN})" if is_open else "true"], list[object]()
        for where, value in (("task_id = ?", task_id), ("node_id = ?", node_id),
                             ("requested_at >= ?", since)):
            if value is not None:
                wheres.append(where)
                values.append(value)
        while True:  # page by page: an engine may return all rows at once
            behind = [] if before is None else ["(requested_at, command_id) < (?, ?)"]
            rows = self._db.execute(
                "select record, requested_at, command_id from commands where "
                f"{' and '.join(wheres + behind)} order by requested_at desc, command_id desc "
                "limit ?", [*values, *(before or ()), AT_ONCE]).fetchall()
            yield from (_decode(row[0]) for row in rows)
            if len(rows) < AT_ONCE:
                return
            before = rows[-1][1], rows[-1][2]
