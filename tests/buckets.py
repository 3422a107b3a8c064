"""Buckets of S3: one in memory, and hubs' archives over it."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from dashboard.history.archive_index import ArchivedFile, ArchiveIndex
from dashboard.history.archive_mover import ArchiveMover
from dashboard.history.files import HistoryFiles
from dashboard.history.s3 import S3Bucket, S3Error, S3ExistsError, S3MissingError
from dashboard.history.store import HistoryRetention
from dashboard.history.tiered_archive import TieredArchive

URL = "s3://bucket/history"


class KilledError(BaseException):
    """The process ends here."""


@dataclass
class MemoryBucket:
    """As S3Bucket. `why`: it is away; `kill_at`: the process ends after so many changes to it."""

    objects: dict[str, bytes] = field(default_factory=dict)
    why: str | None = None
    asked: list[str] = field(default_factory=list)
    kill_at: int | None = None

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        if self.why is not None:
            raise S3Error(self.why)

    def _live(self) -> None:
        if self.kill_at is not None:
            self.kill_at -= 1
            if self.kill_at < 0:
                raise KilledError

    def put_file(self, key: str, path: Path, sha256: str) -> None:
        content = path.read_bytes()
        self._ask(f"put {key}")
        self._live()
        self.objects[key] = content
        self._live()

    def get_file(self, key: str, to: Path | None, most: int) -> str:
        content = self.get_small(key)
        if to is not None:
            to.write_bytes(content)
        return hashlib.sha256(content).hexdigest()

    def get_small(self, key: str) -> bytes:
        self._ask(f"get {key}")
        if key not in self.objects:
            raise S3MissingError("not there")
        return self.objects[key]

    def put_small(self, key: str, content: bytes, only_new: bool) -> None:
        self._ask(f"put {key}")
        if only_new and key in self.objects:
            raise S3ExistsError("there")
        self.objects[key] = content

    def delete(self, key: str) -> None:
        self._ask(f"delete {key}")
        self._live()
        self.objects.pop(key, None)
        self._live()

    @property
    def keys(self) -> list[str]:
        return sorted(key for key in self.objects if key.endswith(".parquet"))


def tiered(folder: Path, bucket: MemoryBucket | S3Bucket, hub: str = "a") -> TieredArchive:
    return TieredArchive(folder, ArchiveIndex(folder, URL), cast(Any, bucket), hub)


class _EvictingArchive(TieredArchive):
    """What is put is in the bucket alone at once."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.put = self._put_there

    def _put_there(self, draft: Path, name: str) -> None:
        content = draft.read_bytes()
        draft.unlink()
        file = self.index.set_state(ArchivedFile(name, len(content), hashlib.sha256(
            content).hexdigest(), "sending", 0.0), "there", 0.0)
        cast(MemoryBucket, self.store).objects[file.key] = content


def evicting(folder: Path, bucket: MemoryBucket) -> TieredArchive:
    return _EvictingArchive(folder, ArchiveIndex(folder, URL), bucket, "a")


def mover(archive: TieredArchive, files: HistoryFiles, cache_bytes: int = 10**9) -> ArchiveMover:
    return ArchiveMover(archive, files, HistoryRetention(10**9), 86_400.0, cache_bytes)
