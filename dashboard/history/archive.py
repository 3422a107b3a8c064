"""Where sealed files of history lie."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

QUARANTINE = "quarantine"


class Archive(Protocol):
    """Whole files that never change under their name, which is like `raw/raw-0-300-1.parquet`."""

    def draft(self, name: str) -> Path:
        """Where this file is to be written before it is put."""

    def put(self, draft: Path, name: str) -> None:
        """Whole and safe from a power cut, or not there."""

    def path(self, name: str) -> Path:
        """To read it from this machine. It may not be there. Raises ArchiveAwayError where it
        exists and cannot be had now."""

    def is_here(self, name: str) -> bool:
        """Nobody else is asked for it."""

    def drop_copy(self, name: str) -> bool:
        """The file at `path` is damaged; whether `path` has another copy from now on."""

    def remove(self, name: str) -> None:
        """Also where there is none."""

    def set_aside(self, name: str) -> None:
        """It is no history any more, and somebody may want to look at it. Also where there is
        none."""

    def names(self) -> Iterable[str]:
        """Of all files and leftover drafts, whichever hub wrote them."""


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
    """A file or a folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_all(file: Any, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]
