"""Reads an Audit where it lies: in a hub's folder, in a node's, or in a copy. Writes nothing."""

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec

from gpudeck.audit_chain import AuditChainBreak, AuditChainLink, verify
from gpudeck.database_errors import database_errors
from gpudeck.errors import CommandError, ExitCode

HUB, NODE = "state.db", "acts.db"
LOCATION = "state.json"  # of a hub whose state is in a database
_decode = msgspec.json.Decoder(AuditChainLink).decode


class AuditFile:
    """`nodes`: whose chains are in it; a hub's has one, without a name."""

    def __init__(self, folder: Path) -> None:
        if folder.is_dir() and not os.access(folder, os.X_OK):
            raise CommandError(f"{folder} is closed to this user; run this as root",
                               ExitCode.CANNOT_START)
        found = [folder / name for name in (HUB, NODE) if (folder / name).exists()]
        if not found and (folder / LOCATION).exists():
            raise CommandError("the audit log of this hub is in a database; verify it on the "
                               "hub's Audit page, or in a copy that `gpudeck hub backup` makes",
                               ExitCode.CANNOT_START)
        if not found:
            raise CommandError(f"there is no audit log of a hub or agent in {folder}; name "
                               "the folder with --data", ExitCode.CANNOT_START)
        self.is_hub = found[0].name == HUB
        self._explained = partial(database_errors, found[0], "restore a copy of it")
        with self._explained():
            self._db = sqlite3.connect(f"{found[0].absolute().as_uri()}?mode=ro", uri=True,
                                       isolation_level=None)
            if self._db.execute("select 1 from sqlite_master where name = 'audit'").fetchone() is (
                    None):
                raise CommandError(f"{found[0]} has no audit log in it: it is empty, or of "
                                   "something else; restore a copy of it", ExitCode.CANNOT_START)
            self.nodes = [""] if self.is_hub else [row[0] for row in self._db.execute(
                "select distinct node from audit order by node")] or [""]

    def links(self, node: str = "", after: int = 0) -> Iterator[AuditChainLink]:
        """Oldest first, as they lie there."""
        whose, values = ("", [after]) if self.is_hub else (" and node = ?", [after, node])
        with self._explained(), contextlib.closing(self._db.execute(
                f"select seq, body, hash from audit where seq > ?{whose} order by seq", values)
                ) as rows:
            for row in rows:
                yield AuditChainLink(*row)

    def last_seq(self, node: str = "") -> int:
        whose, values = ("", []) if self.is_hub else (" where node = ?", [node])
        with self._explained():
            found = self._db.execute(f"select max(seq) from audit{whose}", values).fetchone()[0]
        return int(found or 0)

    def vouched(self) -> dict[int, str]:
        """Heads of a hub's chain that nodes have said they keep. Where they differ about one
        record, that which is not ours counts: it is what has to be looked at."""
        if not self.is_hub:
            return {}
        found: dict[int, str] = {}
        for seq, head in self._db.execute("select seq, head from vouched"):
            own = self._db.execute("select hash from audit where seq = ?", (seq,)).fetchone()
            if seq not in found or own != (head,):
                found[seq] = head
        return found

    def verify(self, node: str = "", copy: Path | None = None,
               anchors: dict[int, str] | None = None) -> tuple[int, str, AuditChainBreak | None]:
        """How many records there are, the head, and the first that does not hold. One pass."""
        head = ""

        def counted() -> Iterator[AuditChainLink]:
            nonlocal head
            for link in self.links(node):
                head = link.hash
                yield link

        with self._explained():
            self._db.execute("begin")
            try:
                broken = verify(counted(), self.vouched() | (anchors or {}),
                                copy=() if copy is None else links_in(copy))
                records = self.last_seq(node)
            finally:
                self._db.execute("rollback")
        return records, head, broken

    def close(self) -> None:
        self._db.close()


def links_in(path: Path) -> Iterator[AuditChainLink]:
    """Of a copy or an export, line by line. A line that a full disk or a crash has cut is no
    record."""
    try:
        with path.open("rb") as file:
            for line in file:
                with contextlib.suppress(msgspec.MsgspecError):
                    yield _decode(line)
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}", ExitCode.USAGE) from error
