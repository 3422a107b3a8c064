"""Leases of this node on disk, each change in one transaction with its audit record."""

from collections.abc import Collection
from typing import Any

import msgspec

from ..journal.store import ActionJournal
from .lock import NodeLease

NAME = "leases"


class _Stored(msgspec.Struct):
    boot_id: str
    leases: list[NodeLease]


class LeaseStore:
    """Raises JournalError: what cannot be recorded does not happen."""

    def __init__(self, journal: ActionJournal, boot_id: str) -> None:
        self._journal = journal
        self._boot_id = boot_id

    def read(self) -> tuple[list[NodeLease], list[NodeLease]]:
        """Those of this boot, and those that the machine's restart ended."""
        said = self._journal.fact(NAME)
        if said is None:
            return [], []
        stored = msgspec.json.decode(said, type=_Stored)
        return (stored.leases, []) if stored.boot_id == self._boot_id else ([], stored.leases)

    def write(self, leases: Collection[NodeLease], record: dict[str, Any]) -> None:
        stored = msgspec.json.encode(_Stored(self._boot_id, list(leases))).decode()
        self._journal.keep(NAME, stored if leases else None, record)
