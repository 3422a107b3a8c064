"""Leases of this node on disk, each change in one transaction with its audit record."""

import logging
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from ..journal.facts import Fact
from ..journal.store import ActionJournal
from .lock import NodeLease

log = logging.getLogger("gpudeck.agent.pool")

UNREAD = "unread"  # the name of those leases in `gpudeck claim --give-back`
_LONGEST = 2_000  # characters of what is not understood, in the audit


class _StoredLeases(msgspec.Struct):
    boot_id: str
    leases: list[msgspec.Raw]
    unread: list[str] = []  # what was not understood, as it stood there


class SavedUsage(msgspec.Struct, frozen=True):
    """GPU-seconds of owners whose leases have ended, as they counted at `at` (UTC)."""

    at: float
    owners: dict[str, float]


class LeaseStore:
    """Leases on disk. Raises JournalError: what cannot be recorded does not happen. What was not
    understood stays on disk until the machine restarts, or root says that nothing of it runs."""

    def __init__(self, journal: ActionJournal, boot_id: str) -> None:
        self._journal = journal
        self._boot_id = boot_id
        self._unread: list[str] = []

    @property
    def trouble(self) -> str:
        """Reason why nothing can be leased; "": nothing forbids it."""
        return "" if not self._unread else (
            "leases of this node that are on its disk are not understood, so its GPUs are not "
            "leased until it restarts; when nothing of them runs any more, root can end them: "
            f"gpudeck claim --give-back {UNREAD}")

    def read(self) -> tuple[list[NodeLease], list[NodeLease]]:
        """Return the leases of this boot, and those that the machine's restart ended."""
        text = self._journal.fact(Fact.POOL_LEASES)
        if text is None:
            return [], []
        try:
            stored = msgspec.json.decode(text, type=_StoredLeases)
            leases, unread = _decode(stored.leases)
        except msgspec.MsgspecError:
            stored, leases, unread = _StoredLeases(self._boot_id, []), [], [text]
        if stored.boot_id != self._boot_id:
            return [], leases
        self._unread = stored.unread + unread
        if unread:
            self.write(leases, {"pool": "unread", "unread": [entry[:_LONGEST] for entry in unread]})
        if self._unread:
            log.error("leases_not_understood count=%d", len(self._unread))
        return leases, []

    def write(self, leases: Collection[NodeLease], record: dict[str, Any]) -> None:
        stored = msgspec.json.encode(_StoredLeases(
            self._boot_id, [msgspec.Raw(msgspec.json.encode(lease)) for lease in leases],
            self._unread)).decode()
        self._journal.keep(Fact.POOL_LEASES, stored if leases or self._unread else None, record)

    def read_usage(self) -> SavedUsage | None:
        """Return what owners had before; None: nothing, or nothing that is understood."""
        text = self._journal.fact(Fact.POOL_USAGE)
        try:
            return None if text is None else msgspec.json.decode(text, type=SavedUsage)
        except msgspec.MsgspecError as error:
            log.error("usage_not_understood why=%r", str(error))
            return None

    def write_usage(self, usage: SavedUsage) -> None:
        self._journal.keep(Fact.POOL_USAGE, msgspec.json.encode(usage).decode())

    def forget_unread(self, leases: Collection[NodeLease], owner: str) -> None:
        unread, self._unread = self._unread, []
        try:
            self.write(leases, {"pool": "released", "lease": UNREAD, "by": owner})
        except BaseException:
            self._unread = unread
            raise

    def record(self, record: dict[str, Any]) -> None:
        self._journal.audit.record(record)


def _decode(stored: Sequence[msgspec.Raw]) -> tuple[list[NodeLease], list[str]]:
    leases, unread = [], []
    for raw in stored:
        try:
            leases.append(msgspec.json.decode(raw, type=NodeLease))
        except msgspec.MsgspecError:
            unread.append(bytes(raw).decode())
    return leases, unread
