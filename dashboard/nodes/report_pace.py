"""Pace at which records on disk are reported to the state machine, which acknowledges them.

Pure."""

from zlib import crc32

from ..fleet.effects import StreamRecord

# Below this there is time for an Ack a second to each node.
PACED_FROM = 100  # records of a flush


class ReportPacer:
    """Where nodes are many, those of each are reported at every other flush: an Ack says that all
    before it is on disk, so that one stands for several; until it comes the agent keeps a Frame
    more."""

    def __init__(self) -> None:
        self.waiting: list[StreamRecord] = []
        self._turn = 0

    def due(self, stored: list[StreamRecord], is_last: bool) -> list[StreamRecord]:
        """Return the records to report after a flush that stored these; the others wait until the
        next one, if there is one. What is made up for is reported at once: its agent brings more
        only then."""
        records, self.waiting, self._turn = self.waiting + stored, [], 1 - self._turn
        if is_last or len(stored) < PACED_FROM:
            return records
        urgent = {record.node_id for record in stored if record.is_backfill}
        due: list[StreamRecord] = []
        for record in records:
            node_id = record.node_id
            is_due = crc32(node_id.encode()) & 1 == self._turn or node_id in urgent
            (due if is_due else self.waiting).append(record)
        return due
