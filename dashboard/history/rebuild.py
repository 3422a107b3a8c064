"""What files of history say of themselves, for when both copies of the manifest are damaged."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .archive import Archive
from .manifest import HistoryFile, digest, says_nothing
from .parquet import HOUR_S, LAYOUTS, head_of

NAME = re.compile(r"(?P<kind>\w+)/\w+-(?P<start>\d+)-(?P<span>\d+|late)-(?P<number>\d+)\.parquet")


@dataclass(frozen=True, slots=True)
class _Named:
    """What the name of a file says."""

    kind: str
    start: int
    span_s: int  # 0: what came late
    number: int

    @property
    def end(self) -> int:
        return self.start + (self.span_s or HOUR_S)

    def has(self, other: "_Named") -> bool:
        """It was merged from the other, which a killed hub may have left. Late ones may have been
        merged beside whole ones."""
        return (self.kind == other.kind and self.number > other.number
                and (self.span_s > 0 or other.span_s == 0)
                and self.start <= other.start and other.end <= self.end)


def rebuilt(archive: Archive, lost: Iterable[str], listed: Iterable[HistoryFile],
            forgotten: Mapping[str, int]) -> list[HistoryFile]:
    """Those that are history: whole, not half a change, not merged into another one, and not given
    up for their age."""
    named = {name: one for name in lost if (one := _named(name)) is not None}
    files = [file for name, one in sorted(named.items())
             if one.end > forgotten.get(one.kind, 0)
             and (file := _described(archive, name, one)) is not None]
    files += listed
    of = {file.name: one for file in files if (one := _named(file.name)) is not None}
    newest = max((one.number for one in of.values()), default=0)
    last = {one.kind: one.span_s for one in of.values() if one.number == newest}
    # What came within five minutes, or late, has hours too; a merge is of one kind.
    is_half = "hours" not in last and any(
        span_s in (0, LAYOUTS[kind].spans[0]) for kind, span_s in last.items())
    return [file for file in files if not (
        (is_half and of[file.name].number == newest)
        or any(other.has(of[file.name]) for other in of.values()))]


def _named(name: str) -> _Named | None:
    found = NAME.fullmatch(name)
    if found is None or found["kind"] not in LAYOUTS:
        return None
    return _Named(found["kind"], int(found["start"]),
                  0 if found["span"] == "late" else int(found["span"]), int(found["number"]))


def _described(archive: Archive, name: str, named: _Named) -> HistoryFile | None:
    """None: it does not read."""
    path = archive.path(name)
    try:
        head = head_of(path)
        stat = path.stat()
        return None if head.kind != named.kind else HistoryFile(
            name, named.kind, named.start, named.end, named.span_s, head.rows, stat.st_size,
            digest(path), stat.st_mtime, head.version)
    except OSError as error:
        if says_nothing(error):
            raise
        return None
    except (ValueError, KeyError, TypeError):  # pyarrow's errors are ValueErrors
        return None
