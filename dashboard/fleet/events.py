"""The newest Events of all Nodes, bounded so that no Node and no chatter crowds out the rest."""

from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from gpudeck.contract.wire import Event
from gpudeck.measures.events import SEVERITIES, Severity, severity_of

MOST = 2_000
MOST_PER_NODE = 200  # of each sort
SLACK = 100  # beyond MOST before they are sorted out, so that this is not done for each one

LAST_AT, LAST_SEQ = 1e11, 2**53

Sort = tuple[str, bool]  # a Node, and whether they are more than info


@dataclass(frozen=True, slots=True)
class FleetEvent:
    node_id: str
    stream: str
    at: float  # by the hub's clock, as well as that is known
    user: str | None  # whose Task it is about, where that was known when it came
    event: Event

    @property
    def order(self) -> tuple[str, ...]:
        """Sort key, ascending from the newest. Text of fixed width, as cursors have it."""
        return (f"{LAST_AT - self.at:019.6f}", self.node_id, self.stream,
                f"{LAST_SEQ - self.event.seq:017d}")

    @property
    def id(self) -> str:
        return f"{self.node_id}:{self.stream}:{self.event.seq}"

    @property
    def severity(self) -> Severity:
        return severity_of(self.event.kind, self.event.numbers)


class RecentEvents:
    """Chatter of each Node (tasks that begin and end) and what matters have separate room. Where
    all are more than MOST, those who have most lose their oldest; each keeps one."""

    def __init__(self) -> None:
        self._of: dict[Sort, deque[FleetEvent]] = {}
        self._count = 0
        self.version = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[FleetEvent]:
        for events in self._of.values():
            yield from events

    def add(self, entry: FleetEvent) -> None:
        mine = self._of.setdefault((entry.node_id, entry.severity != "info"), deque())
        # What the disk refused is brought again.
        if any(old.event.seq == entry.event.seq and old.stream == entry.stream for old in mine):
            return
        mine.append(entry)
        self._count += 1
        self.version += 1
        if len(mine) > MOST_PER_NODE:
            # What is brought after an outage comes late, and is older than what came first.
            mine.remove(min(mine, key=lambda event: event.at))
            self._count -= 1
        if self._count > MOST + SLACK:
            self._share()

    def _share(self) -> None:
        share = fair_share([len(events) for events in self._of.values()], MOST)
        for events in self._of.values():
            while len(events) > share:
                events.remove(min(events, key=lambda event: event.at))
                self._count -= 1

    def newest(self, on: Collection[str]) -> list[FleetEvent]:
        """Return the events on these Nodes, newest first."""
        entries = [entry for entry in self if entry.node_id in on]
        return sorted(entries, key=lambda entry: entry.order)


def fair_share(lengths: list[int], most: int) -> int:
    """Return the highest number that each may have so that together they have at most `most`."""
    remaining, share = most, most
    for place, length in enumerate(sorted(lengths)):
        share = remaining // (len(lengths) - place)
        if length > share:
            break
        remaining -= length
    return max(1, share)


def is_at_least(severity: Severity, least: Severity) -> bool:
    return SEVERITIES.index(severity) >= SEVERITIES.index(least)
