"""Manifest entries from the files themselves, for when both copies of it are damaged."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..storage.archive import Archive
from ..storage.manifest import HistoryFile, digest, says_nothing
from .parquet import HOUR_S, LAYOUTS, head_of

NAME = re.compile(r"(?P<kind>\w+)/\w+-(?P<start>\d+)-(?P<span>\d+|late)-(?P<number>\d+)\.parquet")


@dataclass(frozen=True, slots=True)
class _FileName:
    """Parts of a file's name."""

    kind: str
    start: int
    span_s: int  # 0: what came late
    number: int

    @property
    def end(self) -> int:
        return self.start + (self.span_s or HOUR_S)

    def has(self, other: "_FileName") -> bool:
        """Return whether it was merged from the other, which a killed hub may have left. Late ones
        may have been merged beside whole ones."""
        return (self.kind == other.kind and self.number > other.number
                and (self.span_s > 0 or other.span_s == 0)
                and self.start <= other.start and other.end <= self.end)


def rebuilt(archive: Archive, unlisted: Iterable[str], listed: Iterable[HistoryFile],
            forgotten: Mapping[str, int]) -> list[HistoryFile]:
    """Return the files that are history: whole, not half a change, not merged into another one, and
    not given up for their age."""
    parsed = {name: parts for name in unlisted if (parts := _parse_name(name)) is not None}
    files = [file for name, parts in sorted(parsed.items())
             if parts.end > forgotten.get(parts.kind, 0)
             and (file := _described(archive, name, parts)) is not None]
    files += listed
    of = {file.name: parts for file in files if (parts := _parse_name(file.name)) is not None}
    newest = max((parts.number for parts in of.values()), default=0)
    last = {parts.kind: parts.span_s for parts in of.values() if parts.number == newest}
    # What came within five minutes, or late, has hours too; a merge is of one kind.
    is_half = "hours" not in last and any(
        span_s in (0, LAYOUTS[kind].spans[0]) for kind, span_s in last.items())
    return [file for file in files if not (
        (is_half and of[file.name].number == newest)
        or any(other.has(of[file.name]) for other in of.values()))]


def _parse_name(name: str) -> _FileName | None:
    match = NAME.fullmatch(name)
    if match is None or match["kind"] not in LAYOUTS:
        return None
    return _FileName(match["kind"], int(match["start"]),
                     0 if match["span"] == "late" else int(match["span"]), int(match["number"]))


def span_in_name(name: str) -> tuple[int, int] | None:
    """Return first and last second of a file's time by its name; None: it is no file of ours."""
    parts = _parse_name(name)
    return None if parts is None else (parts.start, parts.end)


def _described(archive: Archive, name: str, parsed: _FileName) -> HistoryFile | None:
    """Return the file's entry; None: it does not read."""
    path = archive.path(name)
    try:
        head = head_of(path)
        stat = path.stat()
        return None if head.kind != parsed.kind else HistoryFile(
            name, parsed.kind, parsed.start, parsed.end, parsed.span_s, head.rows, stat.st_size,
            digest(path), stat.st_mtime, head.version)
    except OSError as error:
        if says_nothing(error):
            raise
        return None
    except (ValueError, KeyError, TypeError):  # pyarrow's errors are ValueErrors
        return None
