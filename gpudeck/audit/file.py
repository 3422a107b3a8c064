"""Reader of an Audit in place: in a hub's folder, in a node's, or in a copy. Writes nothing."""

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec

from gpudeck.audit.chain import AuditChainBreak, AuditChainLink, verify
from gpudeck.errors import CommandError, ExitCode
from gpudeck.system.database_errors import database_errors

HUB, NODE = "state.db", "acts.db"
LOCATION = "state.json"  # of a hub whose state is in a database
_decode = msgspec.json.Decoder(AuditChainLink).decode


class AuditFile:
    """An audit database. `nodes`: those whose chains are in it; a hub's has one chain, without a
    name."""

    def __init__(self, folder: Path) -> None:
        if folder.is_dir() and not os.access(folder, os.X_OK):
            raise CommandError(f"{folder} is closed to this user; run this as root",
                               ExitCode.CANNOT_START)
        databases = [folder / name for name in (HUB, NODE) if (folder / name).exists()]
        if not databases and (folder / LOCATION).exists():
            raise CommandError("the audit log of this hub is in a database; verify it on the "
                               "hub's Audit page, or in a copy that `gpudeck hub backup` makes",
                               ExitCode.CANNOT_START)
        if not databases:
            raise CommandError(f"there is no audit log of a hub or agent in {folder}; name "
                               "the folder with --data", ExitCode.CANNOT_START)
        self.is_hub = databases[0].name == HUB
        self._explained = partial(database_errors, databases[0], "restore a copy of it")
        with self._explained():
            self._db = sqlite3.connect(f"{databases[0].absolute().as_uri()}?mode=ro", uri=True,
                                       isolation_level=None)
            if self._db.execute("select 1 from sqlite_master where name = 'audit'").fetchone() is (
                    None):
                raise CommandError(f"{databases[0]} has no audit log in it: it is empty, or of "
                                   "something else; restore a copy of it", ExitCode.CANNOT_START)
            self.nodes = [""] if self.is_hub else [row[0] for row in self._db.execute(
                "select distinct node from audit order by node")] or [""]

    def links(self, node: str = "", after: int = 0) -> Iterator[AuditChainLink]:
        """Yield the links of a chain, oldest first, as stored."""
        whose, values = ("", [after]) if self.is_hub else (" and node = ?", [after, node])
        with self._explained(), contextlib.closing(self._db.execute(
                f"select seq, body, hash from audit where seq > ?{whose} order by seq", values)
                ) as rows:
            for row in rows:
                yield AuditChainLink(*row)

    def last_seq(self, node: str = "") -> int:
        whose, values = ("", []) if self.is_hub else (" where node = ?", [node])
        with self._explained():
            newest = self._db.execute(f"select max(seq) from audit{whose}", values).fetchone()[0]
        return int(newest or 0)

    def vouched(self) -> dict[int, str]:
        """Return heads of a hub's chain that nodes have confirmed they hold. Where they differ
        about one record, a head that is not ours counts: it is the one to look at."""
        if not self.is_hub:
            return {}
        heads: dict[int, str] = {}
        for seq, head in self._db.execute("select seq, head from vouched"):
            own = self._db.execute("select hash from audit where seq = ?", (seq,)).fetchone()
            if seq not in heads or own != (head,):
                heads[seq] = head
        return heads

    def verify(self, node: str = "", copy: Path | None = None,
               anchors: dict[int, str] | None = None) -> tuple[int, str, AuditChainBreak | None]:
        """Verify a chain in one pass; return the number of records, its head, and the first
        break."""
        head = ""

        def tracked_links() -> Iterator[AuditChainLink]:
            nonlocal head
            for link in self.links(node):
                head = link.hash
                yield link

        with self._explained():
            self._db.execute("begin")
            try:
                broken = verify(tracked_links(), self.vouched() | (anchors or {}),
                                copy=() if copy is None else links_in(copy))
                records = self.last_seq(node)
            finally:
                self._db.execute("rollback")
        return records, head, broken

    def close(self) -> None:
        self._db.close()


def links_in(path: Path) -> Iterator[AuditChainLink]:
    """Yield the links of a copy or an export, line by line. A line that a full disk or a crash has
    cut short is no record."""
    try:
        with path.open("rb") as file:
            for line in file:
                with contextlib.suppress(msgspec.MsgspecError):
                    yield _decode(line)
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}", ExitCode.USAGE) from error
