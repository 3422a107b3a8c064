"""Turns of hubs at one archive: which hub had it last, by the state that they share."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import msgspec
from msgspec import Struct

from ...runtime.sql_transaction import put, together
from ...runtime.state_store import SqlStore

META_KEY = "archive"


class ArchiveTurn(Struct, frozen=True):
    """`hubs`: tokens of all that have had a turn, the last one at the end; `marks`: keys of marks,
    newest first."""

    url: str
    hubs: tuple[str, ...]
    marks: tuple[str, ...] = ()

    @property
    def hub(self) -> str:
        return self.hubs[-1]

    def of_hub(self, token: str) -> "ArchiveTurn":
        return ArchiveTurn(self.url, (*(hub for hub in self.hubs if hub != token), token),
                           self.marks)

    def with_marks(self, marks: tuple[str, ...]) -> "ArchiveTurn":
        return ArchiveTurn(self.url, self.hubs, marks)


class ArchiveTurnStore(SqlStore):
    def last(self, url: str) -> ArchiveTurn | None:
        """Return the last turn at this archive; None: no hub of this state had it last."""
        row = self._db.execute("select value from meta where key = ?", (META_KEY,)).fetchone()
        turn = None if row is None else msgspec.json.decode(row[0], type=ArchiveTurn)
        return turn if turn is not None and turn.url == url else None

    def put(self, turn: ArchiveTurn) -> None:
        with together(self._db):
            put(self._db, "meta", [(META_KEY, msgspec.json.encode(turn).decode())])


# Opens the store over a separate connection, for a native thread. A change by it fails when
# another hub has had its turn since.
OpenTurns = Callable[[], AbstractContextManager[ArchiveTurnStore]]
