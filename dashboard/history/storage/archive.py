"""Storage of history's sealed files."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

QUARANTINE = "quarantine"


class Archive(Protocol):
    """Whole files that never change under their name, such as `raw/raw-0-300-1.parquet`."""

    def draft(self, name: str) -> Path:
        """Return where this file is to be written before it is put."""

    def put(self, draft: Path, name: str) -> None:
        """Store a file whole and safe from a power cut, or not at all."""

    def path(self, name: str) -> Path:
        """Return the path to read it from on this machine. It may not be there. Raises
        ArchiveAwayError where it exists and cannot be had now."""

    def is_here(self, name: str) -> bool:
        """Return whether it can be read without asking anybody else."""

    def drop_copy(self, name: str) -> bool:
        """Drop the damaged file at `path`; return whether `path` has another copy from now on."""

    def remove(self, name: str) -> None:
        """Remove a file, if there is one."""

    def set_aside(self, name: str) -> None:
        """Set a file aside, if there is one: it is no history any more, but somebody may want to
        look at it."""

    def names(self) -> Iterable[str]:
        """Return the names of all files and leftover drafts, whichever hub wrote them."""


class FolderArchive:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def draft(self, name: str) -> Path:
        path = self._folder / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path.with_name(f".{path.stem}.new")

    def put(self, draft: Path, name: str) -> None:
        path = self._folder / name
        draft.replace(path)
        sync(path.parent)

    def path(self, name: str) -> Path:
        return self._folder / name

    def is_here(self, name: str) -> bool:
        return True

    def drop_copy(self, name: str) -> bool:
        return False

    def remove(self, name: str) -> None:
        (self._folder / name).unlink(missing_ok=True)

    def set_aside(self, name: str) -> None:
        aside = self._folder / QUARANTINE
        aside.mkdir(mode=0o700, exist_ok=True)
        path = self._folder / name
        with suppress(FileNotFoundError):
            path.replace(aside / path.name)

    def names(self) -> Iterable[str]:
        return sorted(path.relative_to(self._folder).as_posix()
                      for path in self._folder.glob("*/*"))


def sync(path: Path) -> None:
    """Flush a file or a folder to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_all(file: Any, data: bytes) -> None:
    remaining = memoryview(data)
    while remaining:
        remaining = remaining[file.write(remaining) :]
