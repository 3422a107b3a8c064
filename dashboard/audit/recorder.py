"""Records every attempt before it acts. What cannot be recorded does not happen."""

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


def shaped(kind: str, fields: Fields) -> dict[str, Any]:
    """One record. What is not known is not in it."""
    return {"at": time.time(), "kind": kind} | {
        name: value for name, value in fields.items() if value is not None}


class AuditRecorder:
    """`trouble`: why the last that was to be recorded was not."""

    def __init__(self, store: AuditStore, copy: AuditCopy | None, events: Dispatcher) -> None:
        self.store = store
        self._copy = copy
        self._events = events
        self._said = ""  # of the copy's trouble
        self.trouble = ""

    def record(self, kind: str, fields: Fields) -> int:
        """On disk, in both places, when it returns: its number. Raises AuditWriteError."""
        with self._judged():
            with self.store.together():
                seq = self.store.append(shaped(kind, fields)).seq
            self.copy()
        return seq

    @contextmanager
    def _judged(self) -> Iterator[None]:
        """Around all that ends with a record."""
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
        """Around a change to the hub's state: it and its record, both or neither. Nothing within
        may wait for anything. `takes_away`: a right is withdrawn, and that waits for no copy.
        `is_strict`: something is done because of it, so it must be in the copy before."""
        with self._judged():
            if not takes_away:
                self.copy()
            try:
                with self.store.together():
                    yield
                    self.store.append(shaped(kind, {"outcome": "done"} | dict(fields)))
            except InvalidChangeError as why:
                self.record(kind, dict(fields) | {"outcome": "refused", "sentence": str(why)})
                raise
            if is_strict:
                self.copy()
        if not is_strict:
            self.copy_or_say()

    def refused(self, kind: str, fields: Fields) -> None:
        """An attempt that comes to nothing either way."""
        self.note(kind, dict(fields) | {"outcome": "refused"})

    def note(self, kind: str, fields: Fields) -> None:
        """What has happened already, and cannot be undone for want of a record."""
        try:
            self.record(kind, fields)
        except AuditWriteError as error:
            log.warning("not recorded reason=%r", str(error))

    def copy(self) -> None:
        """What others have recorded since goes into the copy, too. Raises AuditWriteError."""
        if self._copy is not None:
            self._copy.catch_up()

    def copy_or_say(self) -> None:
        try:
            self.copy()
        except AuditWriteError as error:
            if str(error) != self._said:
                log.error("audit_not_copied reason=%r", str(error))
            self._said = str(error)
            self._failed(str(error))
        else:
            if self.trouble and self.trouble == self._said:
                self.trouble = ""
            self._said = ""

    def close(self) -> None:
        self.copy_or_say()
        if self._copy is not None:
            self._copy.close()
