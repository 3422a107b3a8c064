"""Leases of this node on disk, each change in one transaction with its audit record."""

from collections.abc import Collection
from typing import Any

import msgspec

from ..journal.leases import NAME
from ..journal.store import ActionJournal
from .lock import NodeLease

_FORMER_NAME = "leases"  # timed limits have it too


class _StoredLeases(msgspec.Struct):
    boot_id: str
    leases: list[NodeLease]


class LeaseStore:
    """Raises JournalError: what cannot be recorded does not happen."""

    def __init__(self, journal: ActionJournal, boot_id: str) -> None:
        self._journal = journal
        self._boot_id = boot_id

    def read(self) -> tuple[list[NodeLease], list[NodeLease]]:
        """Those of this boot, and those that the machine's restart ended."""
        self._move()
        said = self._journal.fact(NAME)
        if said is None:
            return [], []
        stored = msgspec.json.decode(said, type=_StoredLeases)
        return (stored.leases, []) if stored.boot_id == self._boot_id else ([], stored.leases)

    def write(self, leases: Collection[NodeLease], record: dict[str, Any]) -> None:
        stored = msgspec.json.encode(_StoredLeases(self._boot_id, list(leases))).decode()
        self._journal.keep(NAME, stored if leases else None, record)

    def record(self, record: dict[str, Any]) -> None:
        self._journal.audit.record(record)

    def _move(self) -> None:
        """Earlier agents kept leases and timed limits under one name, and each took the other's for
        its own. Limits are a list, leases are not."""
        former = self._journal.fact(_FORMER_NAME)
        if former is None or not former.startswith("{"):
            return
        if self._journal.fact(NAME) is None:
            self._journal.keep(NAME, former)
        self._journal.keep(_FORMER_NAME, None)
