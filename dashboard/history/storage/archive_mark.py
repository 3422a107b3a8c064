"""Mark of the archive: an object there that names all files of history and, of each stream, the
messages that are in them and in no other place. A hub that lost its disk begins from it.

`archive.places` in the folder of history has the same of messages that are in files here, archived
or not: of those the head log has forgotten.
"""

import hashlib
import zlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from .archive import sync
from .manifest import HistoryFile, write_whole
from .s3 import S3Bucket, S3Error, S3MissingError, S3WrongError

KEY = "gpudeck-history.mark"
DRAFT, PLACES = "archive.mark", "archive.places"
MOST_BYTES = 500_000_000

# By node id, of its last Frame: when it was taken, and the second that it was given. So the next
# hub cuts seconds as this one did.
Ticks = dict[str, tuple[float, int]]


class StreamSpans(Struct, frozen=True, array_like=True):
    node_id: str
    stream: str
    ranges: list[tuple[int, int]]


class SealedBlockSpans(Struct, frozen=True, array_like=True):
    start: int
    first: int
    streams: list[StreamSpans]


class PlacesRecord(Struct, frozen=True):
    """`is_restored`: this folder was made from the archive, so that what is archived is all that
    its hub has, whatever the state says. `joins`: number of the takeover at which it was begun
    empty; its history of before is in the archive until the manifest has the same number."""

    archived: list[StreamSpans] = []
    sealed: list[SealedBlockSpans] = []
    ticks: Ticks = {}
    is_restored: bool = False
    joins: int = 0


class ArchiveMark(Struct, frozen=True):
    at: float
    number: int  # of the manifest's line
    forgotten: dict[str, int]
    files: list[dict[str, Any]]
    streams: list[StreamSpans]
    ticks: Ticks

    @classmethod
    def of(cls, at: float, number: int, forgotten: dict[str, int], files: list[HistoryFile],
           streams: list[StreamSpans], ticks: Ticks) -> "ArchiveMark":
        return cls(at, number, forgotten, [asdict(file) for file in files], streams, ticks)

    @property
    def history_files(self) -> list[HistoryFile]:
        return [HistoryFile(**file) for file in self.files]


class MarkDamagedError(S3Error):
    """The mark there does not read."""


def put_mark(folder: Path, store: S3Bucket, mark: ArchiveMark, key: str) -> None:
    """Write it there as `key`, and look that it is whole before anything counts on it."""
    data = zlib.compress(msgspec.msgpack.encode(mark))
    path, sha256 = folder / DRAFT, hashlib.sha256(data).hexdigest()
    write_whole(path, data)
    store.put_file(key, path, sha256)
    if store.get_file(key, None, len(data)) != sha256:
        raise S3WrongError(f"what it gives back as {key} is not what was sent")


def get_mark(store: S3Bucket, path: Path, keys: Iterable[str] = (KEY,)) -> ArchiveMark:
    """Fetch the first of these that is there, by way of a file at `path`."""
    for key in keys:
        with suppress(S3MissingError):
            return _read_mark(store, path, key)
    raise S3MissingError("there is no mark")


def _read_mark(store: S3Bucket, path: Path, key: str) -> ArchiveMark:
    store.get_file(key, path, MOST_BYTES)
    try:
        return msgspec.msgpack.decode(zlib.decompress(path.read_bytes()), type=ArchiveMark)
    except (zlib.error, msgspec.MsgspecError) as error:
        raise MarkDamagedError(f"its {key} does not read: {error}") from None
    finally:
        path.unlink(missing_ok=True)


def read_places(folder: Path) -> PlacesRecord:
    """Read what was written last. Without it, or if it does not read, nothing counts as archived:
    nodes keep their copies for longer."""
    try:
        return msgspec.msgpack.decode((folder / PLACES).read_bytes(), type=PlacesRecord)
    except (FileNotFoundError, msgspec.MsgspecError):
        return PlacesRecord()


def write_places(folder: Path, record: PlacesRecord) -> None:
    draft = folder / f"{PLACES}.new"
    write_whole(draft, msgspec.msgpack.encode(record))
    draft.replace(folder / PLACES)
    sync(folder)
