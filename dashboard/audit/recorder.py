"""Recording of every attempt before it acts. What cannot be recorded does not happen."""

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ..errors import AuditWriteError, InvalidChangeError
from ..runtime.dispatcher import Dispatcher
from .events import AuditFailed
from .file_copy import AuditCopy
from .store import AuditStore

log = logging.getLogger("gpudeck.audit")

Fields = Mapping[str, Any]


def new_record(kind: str, fields: Fields) -> dict[str, Any]:
    """Return a record; fields that are None are left out."""
    return {"at": time.time(), "kind": kind} | {
        name: value for name, value in fields.items() if value is not None}


class AuditRecorder:
    """Writes records. `trouble`: why the last record could not be written, or ""."""

    def __init__(self, store: AuditStore, copy: AuditCopy | None, events: Dispatcher) -> None:
        self.store = store
        self._copy = copy
        self._events = events
        self._logged_reason = ""  # why the copy failed, as logged last
        self.trouble = ""

    def record(self, kind: str, fields: Fields) -> int:
        """Write a record and return its number once it is on disk in both places. Raises
        AuditWriteError."""
        with self._tracking_trouble():
            with self.store.together():
                seq = self.store.append(new_record(kind, fields)).seq
            self.copy()
        return seq

    @contextmanager
    def _tracking_trouble(self) -> Iterator[None]:
        """Return a context that sets or clears `trouble` by the outcome of a write."""
        try:
            yield
        except AuditWriteError as error:
            self._failed(str(error))
            raise
        self.trouble = ""

    def _failed(self, why: str) -> None:
        is_new, self.trouble = not self.trouble, why
        if is_new:
            self._events.dispatch(AuditFailed(why))

    @contextmanager
    def change(self, kind: str, fields: Fields, takes_away: bool = False,
               is_strict: bool = False) -> Iterator[None]:
        """Return a context for a change to the hub's state: the change and its record are written
        both or not at all. Nothing in it may wait for anything. `takes_away`: a right is withdrawn,
        which does not wait for the copy. `is_strict`: an action follows, so the record must be in
        the copy before."""
        with self._tracking_trouble():
            if not takes_away:
                self.copy()
            try:
                with self.store.together():
                    yield
                    self.store.append(new_record(kind, {"outcome": "done"} | dict(fields)))
            except InvalidChangeError as why:
                self.record(kind, dict(fields) | {"outcome": "refused", "sentence": str(why)})
                raise
            if is_strict:
                self.copy()
        if not is_strict:
            self.copy_or_log()

    def record_refusal(self, kind: str, fields: Fields) -> None:
        """Record a refused attempt, if possible: it has no effect anyway."""
        self.note(kind, dict(fields) | {"outcome": "refused"})

    def note(self, kind: str, fields: Fields) -> None:
        """Record what has happened already; if that fails, only log it, because it cannot be
        undone."""
        try:
            self.record(kind, fields)
        except AuditWriteError as error:
            log.warning("not recorded reason=%r", str(error))

    def copy(self) -> None:
        """Bring the copy up to date, with records of other processes. Raises AuditWriteError."""
        if self._copy is not None:
            self._copy.catch_up()

    def copy_or_log(self) -> None:
        try:
            self.copy()
        except AuditWriteError as error:
            if str(error) != self._logged_reason:
                log.error("audit_not_copied reason=%r", str(error))
            self._logged_reason = str(error)
            self._failed(str(error))
        else:
            if self.trouble and self.trouble == self._logged_reason:
                self.trouble = ""
            self._logged_reason = ""

    def close(self) -> None:
        self.copy_or_log()
        if self._copy is not None:
            self._copy.close()
