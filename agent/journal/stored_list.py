"""What a node keeps of one kind, together under one name in its journal."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec

from .store import ActionJournal, JournalError

T = TypeVar("T")


@dataclass(slots=True)
class StoredList(Generic[T]):
    """Raises JournalError. `is_shared`: another process may write it as well; else what was read
    once holds."""

    journal: ActionJournal
    name: str
    kind: type[T]
    is_shared: bool = True
    _known: tuple[T, ...] | None = field(default=None)

    def all(self) -> tuple[T, ...]:
        if self.is_shared or self._known is None:
            self._known = self._read(self.journal.fact(self.name))
        return self._known

    @property
    def is_surely_empty(self) -> bool:
        """Without a look at the disk."""
        return not self.is_shared and self._known == ()

    def change(self, turn: Callable[[tuple[T, ...]], tuple[T, ...]],
               record: dict[str, Any] | None) -> None:
        """`record`: for the Audit, written in one go with it."""
        def turned(text: str | None) -> str | None:
            self._known = turn(self._read(text))
            return msgspec.json.encode(self._known).decode() if self._known else None

        try:
            self.journal.change(self.name, turned, record)
        except JournalError:
            self._known = None
            raise

    def _read(self, text: str | None) -> tuple[T, ...]:
        if not text:
            return ()
        try:
            return msgspec.json.decode(text,
                                       type=tuple[self.kind, ...])  # type: ignore[name-defined]
        except msgspec.MsgspecError as error:
            raise JournalError(f"the {self.name} in the journal are not understood ({error})"
                               ) from error
