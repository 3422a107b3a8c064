"""Records every attempt before it acts. What cannot be recorded does not happen."""

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from .audit_store import AuditStore, CannotRecord
from .core.access import Actor

__all__ = ["Auditor", "CannotRecord", "by"]

log = logging.getLogger("gpudeck.audit")

Fields = Mapping[str, Any]


def by(actor: Actor) -> dict[str, Any]:
    """Who."""
    return {"actor": actor.name, "actor_kind": actor.kind, "credential": actor.credential or None}


def shaped(kind: str, fields: Fields) -> dict[str, Any]:
    """One record. What is not known is not in it."""
    return {"at": time.time(), "kind": kind} | {
        name: value for name, value in fields.items() if value is not None}


class Auditor:
    def __init__(self, store: AuditStore) -> None:
        self.store = store

    def record(self, kind: str, fields: Fields) -> int:
        """On disk when it returns: its number. Raises CannotRecord."""
        with self.store.together():
            return self.store.append(shaped(kind, fields)).seq

    @contextmanager
    def change(self, kind: str, fields: Fields) -> Iterator[None]:
        """Around a change to the hub's state: it and its record, both or neither."""
        with self.store.together():
            yield
            self.store.append(shaped(kind, {"outcome": "done"} | dict(fields)))

    def refused(self, kind: str, fields: Fields) -> None:
        """An attempt that comes to nothing either way."""
        try:
            self.record(kind, dict(fields) | {"outcome": "refused"})
        except CannotRecord as error:
            log.warning("not recorded reason=%r", str(error))
