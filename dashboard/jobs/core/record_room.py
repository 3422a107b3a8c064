"""Room on disk for the records of one node's jobs: a node chooses their names and words. Pure."""

from collections.abc import Sequence

import msgspec
from msgspec import structs

from ...fleet.node_budget import DAY_S, HOUR_S, NodeBudget
from ...runtime.row_room import room_of
from .records import JobRecord

# Some 2,000 jobs an hour, or 400 with long command lines.
BYTES_MOST = ((HOUR_S, 2_000_000), (DAY_S, 32_000_000))

_encode = msgspec.json.Encoder().encode


class RecordRoom:
    """Budget of each node, and running jobs that are beyond it: they are tried again."""

    def __init__(self, bounds: Sequence[tuple[float, int]] = BYTES_MOST) -> None:
        self._budget = NodeBudget(bounds)
        # By node and id, with the record that is stored.
        self._left_out: dict[str, dict[str, JobRecord | None]] = {}
        self._full_at: dict[str, float] = {}

    def take(self, had: JobRecord | None, record: JobRecord, at: float) -> bool:
        """Charge a record, or by how much it has grown; return whether it may be written."""
        left_out = self._left_out.setdefault(record.node, {})
        stored = left_out.get(record.id, had)
        # One that does not fit stands for all of this moment: a node may have thousands.
        if self._full_at.get(record.node) != at:
            more = _room(record) - (0 if stored is None else _room(stored))
            if self._budget.take(record.node, max(0, more), at):
                left_out.pop(record.id, None)
                return True
            self._full_at[record.node] = at
        left_out[record.id] = stored
        return False

    def end(self, had: JobRecord, at: float) -> JobRecord | None:
        """Return the record to write of a job that has ended; None: none of it is stored. One that
        is stored ends in any case."""
        stored = self._left_out.get(had.node, {}).get(had.id, had)
        last = structs.replace(had, last_seen=at, ended_at=at)
        if self.take(had, last, at):
            return last
        self.forget(had)
        return None if stored is None else structs.replace(stored, last_seen=at, ended_at=at)

    def forget(self, record: JobRecord) -> None:
        self._left_out.get(record.node, {}).pop(record.id, None)

    def is_short(self, node_id: str) -> bool:
        return bool(self._left_out.get(node_id))

    def is_left_out(self, record: JobRecord) -> bool:
        return record.id in self._left_out.get(record.node, ())


def _room(record: JobRecord) -> int:
    # A launch is a key of one more index.
    return room_of(_encode(record), record.id, record.node, *(record.launch or "",) * 2)
