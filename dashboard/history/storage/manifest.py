"""Manifest: which files are history, and how each must read. `manifest.jsonl`, a line per change.

A line is JSON, a tab, and the CRC-32 of the JSON. What a line adds is on disk, whole and named,
before the line is; what it drops is deleted after. So a file that no line names is either half a
change, which the head log brings again, or nothing of ours. The manifest is kept twice: a flipped
bit in one copy costs nothing. If both are damaged, files tell what they are themselves.
"""

import errno
import hashlib
import json
import logging
import os
import re
import threading
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .archive import QUARANTINE, Archive, FolderArchive, sync, write_all

log = logging.getLogger("gpudeck.history")

# What the files hold. Version n is read by steps from n to n + 1 (MIGRATIONS in reading.py).
SCHEMA_VERSION = 2  # 2: cluster and host in each row
COPIES = ("manifest.jsonl", "manifest.copy.jsonl")
REWRITE_LINES = 5_000
# A file of history, or the draft of one: hidden from whoever reads the whole folder.
OURS = re.compile(r"(\w+)/\.?\1-\d+-(\d+|late)-\d+\.(parquet|new)")
# Why a whole file may not open: to believe these would put history aside on a busy machine.
SAYS_NOTHING = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EACCES,
                          errno.EPERM))


def says_nothing(error: OSError) -> bool:
    """Return whether it says nothing of the file, which may open another time."""
    return error.errno in SAYS_NOTHING


@dataclass(frozen=True, slots=True)
class HistoryFile:
    """A file. `span_s`: of how long a stretch it is the whole; 0: it is what came late for it."""

    name: str  # below the folder
    kind: str
    start: int
    end: int
    span_s: int
    rows: int
    size_bytes: int
    sha256: str
    made_at: float = 0.0
    schema: int = SCHEMA_VERSION

    def meets(self, t0: float, t1: float) -> bool:
        return self.start < t1 and t0 < self.end


# Returns what is history, of files without a line and those that are listed.
Rebuild = Callable[[Archive, Iterable[str], Iterable[HistoryFile], Mapping[str, int]],
                   list[HistoryFile]]


class Manifest:
    def __init__(self, folder: Path, archive: Archive | None = None) -> None:
        """`archive`: where its files lie; None: in the same folder."""
        self.folder = folder
        self.archive = FolderArchive(folder) if archive is None else archive
        self.segments: dict[str, HistoryFile] = {}
        self.quarantined: list[str] = []
        self.forgotten: dict[str, int] = {}  # kind -> before when its files have been given up
        self.takeover = 0  # number of the takeover whose archive is part of it; 0: of none
        self.damaged_lines = 0
        self.number = 0  # of the newest line; names of files carry it
        self._verified: dict[str, tuple[int, int]] = {}
        self._lines = 0
        self._is_lost = False  # a line, from both copies
        self._lock = threading.RLock()  # a reader may find a damaged file while one is written

    def load(self, rebuild: Rebuild) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        are_alike = self.read()
        is_rebuilt = self._clear(rebuild)
        if self.damaged_lines or not are_alike or self.is_long or is_rebuilt:
            self.rewrite()

    def begin(self, other: "Manifest") -> None:
        """Begin with what another copy has."""
        self.segments, self.number = dict(other.segments), other.number
        self.forgotten, self.takeover = dict(other.forgotten), other.takeover
        self.rewrite()

    def read(self) -> bool:
        """Read without changing anything; return whether both copies have the same lines."""
        first, second = (read_lines(self.folder / name) for name in COPIES)
        lines = second.lines | first.lines
        self.damaged_lines = first.damaged + second.damaged
        for number in sorted(lines):
            self._apply(lines[number])
        self.number = max(lines, default=0)
        self._lines = len(lines)
        # One copy may be behind, and the end of the last line may not have been written.
        self._is_lost = len(lines) < max(1, first.line_count, second.line_count)
        return len(first.lines) == len(second.lines)

    def _apply(self, line: dict[str, Any]) -> None:
        if line.get("base"):
            self.segments.clear()
        for name in line.get("drop", ()):
            self.segments.pop(name, None)
            self._verified.pop(name, None)
        for kind, end in line.get("forgot", {}).items():
            self.forgotten[kind] = max(end, self.forgotten.get(kind, 0))
        self.takeover = max(self.takeover, line.get("takeover", 0))
        for added in line.get("add", ()):
            segment = HistoryFile(**added)
            self.segments[segment.name] = segment

    def _clear(self, rebuild: Rebuild) -> bool:
        """Remove half changes, and leave what others have put there; return whether files were
        found to be history for which a line is lost."""
        there = set(self.archive.names())
        strays = {name for name in there - self.segments.keys() if OURS.fullmatch(name)}
        unlisted = {name for name in strays if self._is_lost and name.endswith(".parquet")}
        for name in strays - unlisted:
            self.archive.remove(name)
        for name in sorted(self.segments.keys() - there):
            log.warning("history file is gone file=%r", name)
            self.quarantined.append(name)
            del self.segments[name]
        if unlisted:
            self._rebuild(unlisted, rebuild)
        return bool(unlisted)

    def _rebuild(self, unlisted: set[str], rebuild: Rebuild) -> None:
        names = unlisted | self.segments.keys()
        files = rebuild(self.archive, unlisted, self.segments.values(), self.forgotten)
        self.segments = {file.name: file for file in files}
        aside = sorted(names - self.segments.keys())
        for name in aside:
            self.archive.set_aside(name)
        self.quarantined += aside
        # Names of files carry the numbers of lines, and none may come twice.
        self.number = max([self.number, *(int(name[:-8].rpartition("-")[2]) for name in unlisted)])
        log.error("both copies of the manifest of history were damaged; it was rebuilt from what "
                  "the files say files=%d rows=%d put_aside=%d folder=%s", len(files),
                  sum(file.rows for file in files), len(aside), self.folder / QUARANTINE)

    def find(self, kind: str, t0: float, t1: float) -> list[HistoryFile]:
        return [segment for segment in self.of_kind(kind) if segment.meets(t0, t1)]

    def of_kind(self, kind: str) -> list[HistoryFile]:
        # As a list at once: a reader in another thread may condemn a file meanwhile.
        return [segment for segment in list(self.segments.values()) if segment.kind == kind]

    def commit(self, add: Iterable[HistoryFile], drop: Iterable[str] = (),
               forgot: dict[str, int] | None = None, takeover: int = 0) -> None:
        """Make these files history, and drop those. `takeover`: the number of the takeover whose
        archive they are."""
        line: dict[str, Any] = {"add": [asdict(segment) for segment in add], "drop": list(drop),
                                "forgot": forgot or {}}
        if takeover:
            line["takeover"] = takeover
        with self._lock:
            self._append_line(line | {"n": self.number + 1})

    def _append_line(self, line: dict[str, Any]) -> None:
        append_twice(self.folder, COPIES, line)
        self.number += 1
        self._lines += 1
        self._apply(line)

    @property
    def is_long(self) -> bool:
        return self._lines > REWRITE_LINES

    def rewrite(self) -> None:
        with self._lock:
            line = {"n": self.number, "base": True, "forgot": self.forgotten,
                    "takeover": self.takeover,
                    "add": [asdict(segment) for segment in self.segments.values()]}
            write_twice(self.folder, COPIES, line)
            self._lines = 1

    # -- before it is believed

    def verified(self, segments: Iterable[HistoryFile]) -> list[Path]:
        """Return the files of those that are what was written; others are put aside and counted."""
        paths = []
        for segment in segments:
            path = self.archive.path(segment.name)
            is_whole = self._is_whole(segment, path)
            if not is_whole and self.archive.drop_copy(segment.name):
                path = self.archive.path(segment.name)
                is_whole = self._is_whole(segment, path)
            if is_whole:
                paths.append(path)
            elif segment.name in self.segments:
                self.condemn(segment)
        return paths

    def _is_whole(self, segment: HistoryFile, path: Path) -> bool:
        try:
            stat = path.stat()
            mark = (stat.st_mtime_ns, stat.st_size)
            if self._verified.get(segment.name) == mark:
                return True
            if stat.st_size != segment.size_bytes or digest(path) != segment.sha256:
                return False
        except OSError as error:
            if says_nothing(error):
                raise
            return False
        if segment.name in self.segments:
            self._verified[segment.name] = mark
        return True

    def trust(self, segment: HistoryFile) -> None:
        """Trust a file that was written just now, and read back for its digest."""
        with suppress(OSError):  # else it is read once more when it is asked for
            stat = self.archive.path(segment.name).stat()
            self._verified[segment.name] = (stat.st_mtime_ns, stat.st_size)

    def condemn(self, segment: HistoryFile) -> None:
        with self._lock:
            if segment.name not in self.segments:
                return
            log.error("history file is damaged and was put aside file=%r", segment.name)
            self.quarantined.append(segment.name)
            self.commit((), (segment.name,))
            self.archive.set_aside(segment.name)

    def aside(self) -> Path:
        """Return the folder of what is not history."""
        folder = self.folder / QUARANTINE
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder


def _line_of(line: dict[str, Any]) -> bytes:
    body = json.dumps(line, separators=(",", ":"), sort_keys=True).encode()
    return b"%s\t%08x\n" % (body, zlib.crc32(body))


def append_twice(folder: Path, copies: Iterable[str], line: dict[str, Any]) -> None:
    """Append a line to both copies. OSError: neither copy says it."""
    for at, name in enumerate(copies):
        try:
            _append(folder / name, _line_of(line))
        except OSError:
            if at == 0:
                raise  # nothing was said yet
            log.warning("a second copy is behind file=%r", name)


def write_twice(folder: Path, copies: Iterable[str], line: dict[str, Any]) -> None:
    for name in copies:
        draft = folder / (name + ".new")
        write_whole(draft, _line_of(line))
        draft.replace(folder / name)
        sync(folder)


@dataclass(frozen=True, slots=True)
class LineCopy:
    lines: dict[int, dict[str, Any]]  # those that are whole, by number
    damaged: int
    line_count: int  # whole or not


def read_lines(path: Path) -> LineCopy:
    """Read the lines of a copy. A later `base` replaces everything before it."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        data = b""
    lines: dict[int, dict[str, Any]] = {}
    raws = [raw for raw in data.split(b"\n") if raw]
    for raw in raws:
        body, _, crc = raw.rpartition(b"\t")
        if crc == b"%08x" % zlib.crc32(body):
            line = json.loads(body)
            lines[line["n"]] = line
    return LineCopy(lines, len(raws) - len(lines), len(raws) - (not data.endswith(b"\n")))


def _append(path: Path, data: bytes) -> None:
    """Append to a file. A torn line before it is ended first, so that it stays one line."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "r+b", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        if size and os.pread(file.fileno(), 1, size - 1) != b"\n":
            data = b"\n" + data
        try:
            write_all(file, data)
            os.fdatasync(file.fileno())
        except OSError:
            file.truncate(size)
            raise


def write_whole(path: Path, data: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "wb", buffering=0) as file:
        write_all(file, data)
        os.fsync(file.fileno())


def digest(path: Path) -> str:
    """Return its SHA-256, as `sha256sum` prints it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
