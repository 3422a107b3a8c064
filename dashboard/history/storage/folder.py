"""A folder of history: what is in it, whether it is whole, a copy and its way back."""

import os
import shutil
from pathlib import Path
from typing import Any

from .archive import sync
from .archive_index import ArchivedFile, ArchiveIndex
from .manifest import COPIES, HistoryFile, Manifest, digest
from .s3 import S3Bucket, S3Error

TRIES = 5


class HistoryDamagedError(Exception):
    """A file is not what was written; the message says which."""


def read(folder: Path) -> Manifest:
    """Read the manifest without changing anything: a hub may be running there."""
    manifest = Manifest(folder)
    manifest.read()
    return manifest


def totals(manifest: Manifest) -> dict[str, dict[str, Any]]:
    kinds: dict[str, dict[str, Any]] = {}
    for file in manifest.segments.values():
        kind = kinds.setdefault(file.kind, {"files": 0, "rows": 0, "bytes": 0, "oldest": file.start,
                                            "newest": file.end})
        kind["files"] += 1
        kind["rows"] += file.rows
        kind["bytes"] += file.size_bytes
        kind["oldest"] = min(kind["oldest"], file.start)
        kind["newest"] = max(kind["newest"], file.end)
    return kinds


def verified(folder: Path) -> int:
    """Return how many files are whole: all of them, or it raises HistoryDamagedError."""
    manifest = read(folder)
    if manifest.damaged_lines:
        raise HistoryDamagedError(f"{manifest.damaged_lines} lines of {' and '.join(COPIES)} in "
                                  f"{folder} are "
                                  "damaged; start the hub there: it continues with what the other "
                                  "copy says")
    for at, segment in enumerate(_by_time(manifest)):
        flaw = _flaw(folder, segment) and _flaw_in_archive(folder, segment)
        # A hub that runs there may have merged it away meanwhile.
        if flaw is not None and segment.name in read(folder).segments:
            raise HistoryDamagedError(f"{folder / segment.name} {flaw}; it is file {at + 1} of "
                                      f"{len(manifest.segments)}: bring it back from a backup, or "
                                      "start the "
                                      "hub, which puts it aside and leaves a hole")
    return len(manifest.segments)


def _by_time(manifest: Manifest) -> list[HistoryFile]:
    return sorted(manifest.segments.values(), key=lambda segment: (segment.start, segment.name))


def _flaw(folder: Path, segment: HistoryFile) -> str | None:
    path = folder / segment.name
    try:
        if path.stat().st_size != segment.size_bytes:
            return f"has {path.stat().st_size} bytes and should have {segment.size_bytes}"
        return None if digest(path) == segment.sha256 else "does not read as it was written"
    except FileNotFoundError:
        return "is gone"
    except OSError as error:
        return f"cannot be read ({error.strerror})"


def _archived(folder: Path, segment: HistoryFile) -> tuple[ArchiveIndex, ArchivedFile] | None:
    """Return where it is, if it is in the archive alone."""
    index = None if (folder / segment.name).exists() else ArchiveIndex.open_existing(folder)
    file = None if index is None else index.there(segment.name)
    return None if index is None or file is None else (index, file)


def _flaw_in_archive(folder: Path, segment: HistoryFile) -> str | None:
    archived = _archived(folder, segment)
    if archived is None:
        return _flaw(folder, segment)
    index, file = archived
    try:
        sha256 = S3Bucket(index.url, os.environ).get_file(file.key, None, file.size_bytes)
    except S3Error as error:
        return f"cannot be read in the archive {index.url} ({error})"
    return None if sha256 == segment.sha256 else (
        f"does not read as it was written in the archive {index.url}, as {file.key}")


def copied(source: Path, target: Path) -> int:
    """Make a whole copy in a new folder, each file checked; return how many. The source may be in
    use. What is in its archive alone stays there, and the copy says where."""
    former = set(read(target).segments)  # of an earlier copy in the same place
    for attempt in range(TRIES):
        manifest = read(source)
        try:
            for segment in _by_time(manifest):
                _copy(source, target, segment)
        except HistoryDamagedError:
            if attempt == TRIES - 1 or all(name in read(source).segments
                                           for name in manifest.segments):
                raise
            continue  # it was merged away under us
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        Manifest(target).begin(manifest)
        _copy_index(source, target, manifest)
        for name in former - manifest.segments.keys():
            (target / name).unlink(missing_ok=True)
        return len(manifest.segments)
    raise AssertionError("the last attempt returns or raises")


def _copy_index(source: Path, target: Path, manifest: Manifest) -> None:
    index = ArchiveIndex.open_existing(source)
    if index is not None:
        index.write_to(target, [file for file in index.files("there")
                                if file.name in manifest.segments])


def _copy(source: Path, target: Path, segment: HistoryFile) -> None:
    copy = target / segment.name
    if ".." in Path(segment.name).parts or not copy.is_relative_to(target):
        raise HistoryDamagedError(f"{source} names {segment.name[:80]!r}, which is no file in it")
    if _flaw(target, segment) is None or _archived(source, segment) is not None:
        return
    copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    flaw = _flaw(source, segment)
    if flaw is None:
        shutil.copyfile(source / segment.name, copy)
        copy.chmod(0o600)
        flaw = _flaw(target, segment)
    if flaw is not None:
        copy.unlink(missing_ok=True)
        raise HistoryDamagedError(f"{source / segment.name} {flaw}")
    sync(copy.parent)
