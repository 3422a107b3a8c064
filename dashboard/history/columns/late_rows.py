"""Rows that come for seconds which a copy of history has already taken."""

from .arrays import Bools, take_rows
from .memory import SampleBatch, SampleRows

MOST_ROWS = 500_000


class LateRows:
    """Used under the store's lock."""

    def __init__(self) -> None:
        self.dropped = 0
        self._until: int | None = None  # None: nothing is copied
        self._parts: list[SampleRows] = []
        self._count = 0

    def take(self, batch: SampleBatch, new: Bools) -> None:
        if self._until is None:
            return
        late = new & (batch.t < self._until)
        if not late.any():
            return
        rows = take_rows(batch, late).rows()
        if self._count + len(rows) > MOST_ROWS:
            self.dropped += len(rows)
            return
        self._parts.append(rows)
        self._count += len(rows)

    def mark_copied(self, until: int) -> None:
        """Note that all before `until` that is there by now was copied."""
        self._until = max(until, self._until or 0)

    def drain(self) -> list[SampleRows]:
        parts, self._parts, self._count = self._parts, [], 0
        return parts
