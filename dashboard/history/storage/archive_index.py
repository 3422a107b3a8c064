"""Index of the files of history in a bucket: `archive.jsonl`, kept twice as the manifest is, one
line per change. A file is named here before it is sent and until it is deleted there, so that
whenever a hub is killed, nothing lies in the bucket that no line knows of."""

import threading
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from gpudeck.errors import CommandError, ExitCode

from .manifest import REWRITE_LINES, HistoryFile, append_twice, read_lines, write_twice

COPIES = ("archive.jsonl", "archive.copy.jsonl")
ArchiveState = Literal["sending", "there", "leaving", "deleted"]


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    name: str
    size_bytes: int
    sha256: str
    state: ArchiveState
    at: float  # UTC, of this state

    @classmethod
    def of(cls, file: HistoryFile, state: ArchiveState = "there", at: float = 0.0
           ) -> "ArchivedFile":
        return cls(file.name, file.size_bytes, file.sha256, state, at)

    @property
    def key(self) -> str:
        """Object key. Files with different content never share one, not even those of two hubs."""
        return f"{self.name.removesuffix('.parquet')}.{self.sha256[:16]}.parquet"


class ArchiveIndex:
    def __init__(self, folder: Path, url: str) -> None:
        """`url`: where its files are; "": as the index itself says."""
        self._folder = folder
        self.url = url
        self.lock = threading.RLock()
        self._files: dict[str, ArchivedFile] = {}
        self._number = 0
        self._load()

    @classmethod
    def open_existing(cls, folder: Path) -> "ArchiveIndex | None":
        return cls(folder, "") if any((folder / name).exists() for name in COPIES) else None

    def _load(self) -> None:
        first, second = (read_lines(self._folder / name) for name in COPIES)
        lines = second.lines | first.lines
        if len(lines) < max(first.line_count, second.line_count):
            raise CommandError(f"both copies of {self._folder / COPIES[0]} are damaged, which says "
                               "what is in the archive; bring one back from a backup",
                               ExitCode.CANNOT_START)
        for number in sorted(lines):
            self.url = self.url or lines[number].get("url", "")
            for entry in lines[number]["files"]:
                self._apply(ArchivedFile(**entry))
        self._number = max(lines, default=0)

    def begin(self) -> None:
        """Begin as the hub that writes it: half a change of either copy is mended."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.write_to(self._folder, self._files.values())

    def write_to(self, folder: Path, files: Iterable[ArchivedFile]) -> None:
        write_twice(folder, COPIES, {"n": self._number, "url": self.url,
                                     "files": [asdict(file) for file in files]})

    def _apply(self, file: ArchivedFile) -> None:
        if file.state == "deleted":
            self._files.pop(file.name, None)
        else:
            self._files[file.name] = file

    def set_state(self, file: ArchivedFile, state: ArchiveState, now: float) -> ArchivedFile:
        changed = replace(file, state=state, at=now)
        with self.lock:
            line: dict[str, Any] = {"n": self._number + 1, "files": [asdict(changed)]}
            append_twice(self._folder, COPIES, line)
            self._number += 1
            self._apply(changed)
            if self._number % REWRITE_LINES == 0:
                self.begin()
        return changed

    def adopt(self, files: Iterable[ArchivedFile]) -> None:
        """Name files that another hub has put there."""
        with self.lock:
            entries = list(files)
            append_twice(self._folder, COPIES, {"n": self._number + 1,
                                                "files": [asdict(file) for file in entries]})
            self._number += 1
            for file in entries:
                self._apply(file)

    def of(self, name: str) -> ArchivedFile | None:
        return self._files.get(name)

    def knows(self, file: HistoryFile) -> bool:
        """Return whether the folder had this very file, and it may lie there still."""
        entry = self._files.get(file.name)
        return entry is not None and entry.sha256 == file.sha256

    def there(self, name: str) -> ArchivedFile | None:
        file = self._files.get(name)
        return file if file is not None and file.state == "there" else None

    def files(self, *states: ArchiveState) -> list[ArchivedFile]:
        with self.lock:
            return [file for file in self._files.values() if file.state in states]
