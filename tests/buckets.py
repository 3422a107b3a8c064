"""Buckets of S3: one in memory, and hubs' archives over it."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from dashboard.history.files.archive_mover import ArchiveMover
from dashboard.history.files.file_set import HistoryFiles
from dashboard.history.files.store import HistoryRetention
from dashboard.history.storage.archive_index import ArchivedFile, ArchiveIndex
from dashboard.history.storage.s3 import S3Bucket, S3Error, S3ExistsError, S3MissingError
from dashboard.history.storage.tiered_archive import TieredArchive

URL = "s3://bucket/history"


class KilledError(BaseException):
    """End of the process at this point."""


@dataclass
class MemoryBucket:
    """Stand-in for S3Bucket. `why`: the error of each request while it is away; `kill_at`: the
    process ends after so many steps, of which a new file or a deletion has two."""

    objects: dict[str, bytes] = field(default_factory=dict)
    why: str | None = None
    requests: list[str] = field(default_factory=list)
    kill_at: int | None = None

    def _request(self, what: str) -> None:
        self.requests.append(what)
        if self.why is not None:
            raise S3Error(self.why)

    def _step(self) -> None:
        if self.kill_at is not None:
            self.kill_at -= 1
            if self.kill_at < 0:
                raise KilledError

    def put_file(self, key: str, path: Path, sha256: str) -> None:
        content = path.read_bytes()
        self._request(f"put {key}")
        self._step()
        self.objects[key] = content
        self._step()

    def get_file(self, key: str, to: Path | None, most: int) -> str:
        content = self.get_small(key)
        if to is not None:
            to.write_bytes(content)
        return hashlib.sha256(content).hexdigest()

    def get_small(self, key: str) -> bytes:
        self._request(f"get {key}")
        if key not in self.objects:
            raise S3MissingError("not there")
        return self.objects[key]

    def put_small(self, key: str, content: bytes, only_new: bool) -> None:
        self._request(f"put {key}")
        if only_new and key in self.objects:
            raise S3ExistsError("there")
        self.objects[key] = content

    def delete(self, key: str) -> None:
        self._request(f"delete {key}")
        self._step()
        self.objects.pop(key, None)
        self._step()

    @property
    def keys(self) -> list[str]:
        return sorted(key for key in self.objects if key.endswith(".parquet"))


def tiered(folder: Path, bucket: MemoryBucket | S3Bucket, hub: str = "a") -> TieredArchive:
    return TieredArchive(folder, ArchiveIndex(folder, URL), cast(Any, bucket), hub, alone)


def alone() -> None:
    """Check of the term of a hub that shares its state with no other."""


class _EvictingArchive(TieredArchive):
    """Archive that keeps a new file in the bucket alone, from the start."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.put = self._put_there

    def _put_there(self, draft: Path, name: str) -> None:
        content = draft.read_bytes()
        draft.unlink()
        file = self.index.set_state(ArchivedFile(name, len(content), hashlib.sha256(
            content).hexdigest(), "sending", 0.0), "there", 0.0)
        cast(MemoryBucket, self.store).objects[file.key] = content


def evicting(folder: Path, bucket: MemoryBucket) -> TieredArchive:
    return _EvictingArchive(folder, ArchiveIndex(folder, URL), bucket, "a", alone)


def mover(archive: TieredArchive, files: HistoryFiles, cache_bytes: int = 10**9) -> ArchiveMover:
    return ArchiveMover(archive, files, HistoryRetention(10**9), 86_400.0, cache_bytes, None,
                        None, lambda _: None)
