"""Tiers: young files in the hub's folder, all others in S3, and those used lately in both."""

import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from ...errors import ArchiveAwayError
from .archive import FolderArchive
from .archive_index import ArchivedFile, ArchiveIndex
from .archive_owner import ArchiveOwner
from .manifest import HistoryFile, digest
from .s3 import S3Bucket, S3Error, S3MissingError, S3WrongError

log = logging.getLogger("gpudeck.history")

IN_USE_S = 600.0  # a file may be read for so long after somebody asked for it
AWAY_S, WRONG_S = 10.0, 60.0  # until the store is asked again
ROOM_BYTES = 1_000_000_000  # of the disk stay free
TRIES = 2


class TieredArchive:
    def __init__(self, folder: Path, index: ArchiveIndex, store: S3Bucket, hub: str,
                 check_term: Callable[[], None]) -> None:
        """`check_term`: raises an error if another hub may be writing there since."""
        self.index = index
        self.store = store
        self.owner = ArchiveOwner(folder, store, hub, check_term)
        self.folder = folder
        self._local = FolderArchive(folder)
        self._lock = threading.Lock()
        self._fetching = threading.Lock()
        self._began_mono = time.monotonic()
        self._used_mono: dict[str, float] = {}
        self._away: dict[str, tuple[float, str]] = {}  # until when, why; "": all files
        self.draft, self.put = self._local.draft, self._local.put
        index.begin()

    def path(self, name: str) -> Path:
        path = self._local.path(name)
        with self._lock:
            self._used_mono[name] = time.monotonic()
        if path.exists() or (file := self.index.there(name)) is None:
            return path
        with self._fetching:
            if not path.exists():
                self._fetch(file, path)
        return path

    def _fetch(self, file: ArchivedFile, path: Path) -> None:
        for key in ("", file.name):
            until, why = self._away.get(key, (0.0, ""))
            if time.monotonic() < until:
                raise ArchiveAwayError(why)
        draft = self._local.draft(file.name)
        try:
            if shutil.disk_usage(self.folder).free < file.size_bytes + ROOM_BYTES:
                raise OSError("the hub's disk has no room for it")
            for _ in range(TRIES):
                if self.store.get_file(file.key, draft, file.size_bytes) == file.sha256:
                    draft.replace(path)
                    self._away.clear()
                    return
            self._refuse(file.name, WRONG_S, f"{file.key} there is not what was put there")
        except S3MissingError:
            self._missing(file)
        except (S3Error, OSError) as error:
            if isinstance(error, ArchiveAwayError):
                raise
            self._refuse("", AWAY_S, str(error))
        finally:
            draft.unlink(missing_ok=True)

    def _missing(self, file: ArchivedFile) -> None:
        """Note that a file is gone for good, if the bucket is the right one: then it is as one that
        was lost from the folder."""
        try:
            is_right = self.owner.read_owner() is not None
        except S3Error as error:
            self._refuse("", AWAY_S, str(error))
        if not is_right:
            self._refuse("", AWAY_S, "the bucket is not the one to which the files went")
        log.error("history file is gone from the archive key=%r", file.key)
        self.index.set_state(file, "deleted", time.time())

    def _refuse(self, key: str, within_s: float, why: str) -> None:
        words = f"history of that time is in the archive, which cannot be read now: {why}"
        self._away[key] = time.monotonic() + within_s, words
        raise ArchiveAwayError(words)

    def is_foreign(self, file: HistoryFile) -> bool:
        """Return whether a file that lies there was never this folder's. What leaves the folder
        stays in the index as long as it lies there."""
        if self.index.knows(file):
            return False
        with suppress(S3MissingError):
            self.store.get_file(ArchivedFile.of(file).key, None, file.size_bytes)
            return True
        return False

    def is_here(self, name: str) -> bool:
        return self._local.path(name).exists() or self.index.there(name) is None

    def drop_copy(self, name: str) -> bool:
        file, path = self.index.there(name), self._local.path(name)
        if file is None or not path.exists():
            return False
        log.warning("history file is damaged and is fetched from the archive file=%r", name)
        path.unlink(missing_ok=True)
        return True

    def evict(self, name: str) -> bool:
        """Remove a file from the folder; it is in the store."""
        with self._lock:
            used_mono = self._used_mono.get(name, self._began_mono)
            if time.monotonic() - used_mono < IN_USE_S or self.index.there(name) is None:
                return False
            self._used_mono.pop(name, None)
            self._local.remove(name)
            return True

    def last_use_mono(self, name: str) -> float:
        return self._used_mono.get(name, self._began_mono)

    def local_bytes(self, name: str) -> int:
        path = self._local.path(name)
        return path.stat().st_size if path.exists() else 0

    def send(self, file: ArchivedFile) -> None:
        """Send a file, and look that it is whole there before anything says so."""
        self.owner.check_term()
        self.store.put_file(file.key, self._local.path(file.name), file.sha256)
        if self.store.get_file(file.key, None, file.size_bytes) != file.sha256:
            if digest(self._local.path(file.name)) != file.sha256:
                return  # the local file is damaged; the next read of it finds out
            raise S3WrongError(f"what it gives back as {file.key} is not what was sent")
        with self.index.lock:
            if self.index.of(file.name) == file:  # else it was removed meanwhile
                self.index.set_state(file, "there", time.time())

    def remove(self, name: str) -> None:
        self._local.remove(name)
        self._mark_leaving(name)

    def set_aside(self, name: str) -> None:
        self._local.set_aside(name)
        self._mark_leaving(name)

    def _mark_leaving(self, name: str) -> None:
        with self._lock:
            self._used_mono.pop(name, None)
        file = self.index.of(name)
        if file is not None and file.state != "leaving":
            self.index.set_state(file, "leaving", time.time())

    def names(self) -> Iterable[str]:
        return sorted({*self._local.names(), *(file.name for file in self.index.files("there"))})
