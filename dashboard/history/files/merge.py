"""Choice of the files that are to become one. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ..storage.manifest import HistoryFile
from .parquet import LAYOUTS

SETTLE_S = 120  # after its end, a stretch waits for what comes late
MANY_LATE = 64  # so many make a stretch worth rewriting while more comes in
QUIET_S = 600.0
# Seconds of so many rows fill their row groups: in one file with others they would be read no
# faster, and to write them again would cost as much as all else together.
FULL_ROWS = 150_000


@dataclass(frozen=True, slots=True)
class FileMerge:
    kind: str
    start: int
    end: int
    span_s: int
    parts: tuple[HistoryFile, ...]


def merges(segments: Iterable[HistoryFile], now: float) -> list[FileMerge]:
    """Return the merges that are due, shortest stretches first; each segment is in one at most."""
    by_kind: dict[str, list[HistoryFile]] = {}
    for segment in segments:
        by_kind.setdefault(segment.kind, []).append(segment)
    due: list[FileMerge] = []
    for kind, files in by_kind.items():
        merged: set[str] = set()
        for span_s in LAYOUTS[kind].spans[1:]:
            for merge in _of_span(kind, [part for part in files if part.name not in merged], span_s,
                                  now):
                merged.update(part.name for part in merge.parts)
                due.append(merge)
    return sorted(due, key=lambda merge: merge.span_s)


def _of_span(kind: str, segments: list[HistoryFile], span_s: int,
             now: float) -> Iterator[FileMerge]:
    stretches: dict[int, list[HistoryFile]] = {}
    for segment in segments:
        start = segment.start - segment.start % span_s
        if segment.span_s <= span_s and segment.end <= start + span_s:
            stretches.setdefault(start, []).append(segment)
    for start, parts in sorted(stretches.items()):
        late = _beside_full(kind, parts)
        if late is not None:
            if len(late) > 1 and _are_ripe(late, now):
                yield FileMerge(kind, start, start + span_s, 0, tuple(late))
            continue
        if start + span_s + SETTLE_S <= now and _is_due(parts, span_s, now):
            yield FileMerge(kind, start, start + span_s, span_s, tuple(parts))


def _beside_full(kind: str, parts: list[HistoryFile]) -> list[HistoryFile] | None:
    """Return what came late for a stretch of full files, which is merged apart; None: not full."""
    if kind != "raw" or all(part.rows < FULL_ROWS for part in parts if part.span_s):
        return None
    return [part for part in parts if not part.span_s]


def _is_due(parts: list[HistoryFile], span_s: int, now: float) -> bool:
    """Return whether to merge. Beside a whole, late ones may gather until no more come."""
    if len(parts) < 2:
        return False
    beside = [part for part in parts if part.span_s != span_s]
    return len(beside) == len(parts) or _are_ripe(beside, now)


def _are_ripe(late: list[HistoryFile], now: float) -> bool:
    return (len(late) >= MANY_LATE
            or now - max((part.made_at for part in late), default=now) >= QUIET_S)
