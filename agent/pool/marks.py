"""Processes that carry the marks of this node's leases.

To look through all processes takes long, so it is done without the pool's lock. What becomes of a
lease meanwhile counts more than what such a scan has seen of it."""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from .lock import Marks, NodeLease, ProcessKey
from .signs import ProcessSigns

SCAN_EVERY_S = 5.0
NO_PROCESSES: Mapping[str, Collection[ProcessKey]] = {}


class MarkScan(NamedTuple):
    """Outcome of a scan. `leases`, `before`: the leases, and their marks, when it began."""

    leases: Mapping[str, NodeLease]
    before: Marks
    marks: Marks

    def is_of(self, lease: NodeLease, marks: Marks) -> bool:
        """Return whether nothing has been bound to a lease since, and nothing marked."""
        scanned = self.leases.get(lease.id)
        return (scanned is not None and scanned.process == lease.process
                and marks.get(lease.id) is self.before.get(lease.id))


class LeaseMarks:
    """`leases`: of now. What changes marks is called with the pool's lock held."""

    def __init__(self, processes: ProcessSigns, leases: Callable[[], Mapping[str, NodeLease]],
                 now: Callable[[], float]) -> None:
        self._processes = processes
        self._leases = leases
        self._now = now
        self._all: Marks = {}
        self._scanned_at = -SCAN_EVERY_S

    @property
    def all(self) -> Marks:
        return self._all

    def of(self, lease_id: str) -> Collection[ProcessKey]:
        return self._all.get(lease_id, ())

    def count(self, lease: NodeLease) -> int:
        """Count the processes of a lease. Until all processes were looked through, the bound one
        counts as one with the mark."""
        marked = self._all.get(lease.id)
        return len(marked) if marked is not None else int(lease.process is not None)

    def forget(self, lease_id: str) -> None:
        """Forget a lease's marks: they say nothing of a process that was bound to it since."""
        self._all = {other_id: processes for other_id, processes in self._all.items()
                     if other_id != lease_id}

    @property
    def is_due(self) -> bool:
        return self._now() - self._scanned_at >= SCAN_EVERY_S

    def put_off(self) -> None:
        """Put the next scan off: one was taken over, or has failed. What a request looked through
        in vain puts nothing off, however often it comes."""
        self._scanned_at = self._now()

    def scan(self, orphans: Mapping[str, Collection[ProcessKey]] = NO_PROCESSES) -> MarkScan:
        """Look through all processes. `orphans`: by lease, what else is known to be of it. Raises
        OSError where not all could be looked at."""
        leases, before = self._leases(), self._all
        return MarkScan(leases, before, self._processes.marked(
            {lease.id: lease.uid for lease in leases.values()},
            {lease.id: {*lease.roots, *before.get(lease.id, ()), *orphans.get(lease.id, ())}
             for lease in leases.values()}))

    def scan_if_due(self) -> MarkScan | None:
        """Look through all processes now and then. Raises OSError as `scan`, and not each time."""
        if not self.is_due:
            return None
        try:
            return self.scan()
        except OSError:
            self.put_off()
            raise

    def take(self, scan: MarkScan) -> None:
        """Take over what a scan has seen of leases that are as they were when it began."""
        self.put_off()
        self._all = {
            lease.id: self._newer(lease, scan) for lease in self._leases().values()
            if lease.id in self._all or scan.is_of(lease, self._all)}

    def _newer(self, lease: NodeLease, scan: MarkScan) -> Collection[ProcessKey]:
        """Return the marks of a lease after a scan: the same object where they are the same, or
        each other scan of the time would have to be made again."""
        before = self._all.get(lease.id)
        if before is not None and (
                not scan.is_of(lease, self._all) or scan.marks[lease.id] == before):
            return before
        return scan.marks[lease.id]
