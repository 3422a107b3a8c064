"""A folder of history made from the archive alone, after the one that wrote there is lost."""

import os
import shutil
from pathlib import Path

from gpudeck.errors import CommandError, ExitCode

from .archive import sync
from .archive_index import ArchivedFile, ArchiveIndex
from .archive_mark import ArchiveMark, PlacesRecord, get_mark, write_places
from .archive_owner import FILE as OWNER_FILE
from .folder import read
from .manifest import HistoryFile, Manifest, digest
from .s3 import S3Bucket, S3Error, S3MissingError

# Files written within so long before the mark lie in the folder: nodes bring what is next to them,
# and whatever of it is there already must be known without asking the archive.
YOUNG_S = 2 * 86_400.0
DRAFT, FORMER = "history.from-archive", "history.before"


def make_folder(folder: Path, url: str, store: S3Bucket, replaces: bool) -> ArchiveMark:
    """Make the folder of history as the newest mark says; a former one, of a backup, stays beside
    it as FORMER. `replaces`: also one in which a hub has begun without what the archive has. Raises
    CommandError and leaves everything as it was."""
    draft, former = folder.with_name(DRAFT), folder.with_name(FORMER)
    if former.exists():
        raise CommandError(f"{former} is there from an earlier attempt; move it away first",
                           ExitCode.CANNOT_START)
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(mode=0o700)
    try:
        mark = _mark(store, draft, url)
        _check_lost(folder, mark, replaces)
        for file in mark.history_files:
            _fetch(store, file, folder, draft, file.made_at + YOUNG_S > mark.at)
        _describe(draft, url, mark)
        if (folder / OWNER_FILE).exists():  # `own-archive` came first
            shutil.copy2(folder / OWNER_FILE, draft / OWNER_FILE)
        if folder.exists():
            folder.rename(former)
        draft.rename(folder)
        sync(folder.parent)
    except S3Error as error:
        raise CommandError(f"{url}: {error}; nothing was changed", ExitCode.CANNOT_START) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return mark


def _mark(store: S3Bucket, draft: Path, url: str) -> ArchiveMark:
    try:
        return get_mark(store, draft / "mark")
    except S3MissingError as error:
        raise CommandError(f"there is no mark in {url}: no hub with --archive-after-hours 0 has "
                           "written there; bring history back from a backup",
                           ExitCode.CANNOT_START) from error


def _check_lost(folder: Path, mark: ArchiveMark, replaces: bool) -> None:
    """Check that the folder has nothing that the archive has not; where it is to be replaced, that
    it at least lost something."""
    if not folder.exists():
        return
    if not replaces and read(folder).number > mark.number:
        raise CommandError(f"{folder} is newer than the archive: keep it. If its hub was started "
                           "without what the archive has, add --replace", ExitCode.CANNOT_START)
    index = ArchiveIndex.open_existing(folder) if replaces else None
    if index is not None and all(index.knows(file) for file in mark.history_files):
        raise CommandError(f"{folder} has all that the archive has: this hub did not lose its "
                           "disk; start it as it is", ExitCode.CANNOT_START)


def _fetch(store: S3Bucket, file: HistoryFile, folder: Path, draft: Path, is_young: bool) -> None:
    """Take a file from the former folder if it is whole there, and a young one from the archive."""
    path, there = draft / file.name, folder / file.name
    if ".." in Path(file.name).parts or not path.is_relative_to(draft):
        raise S3Error(f"its mark names {file.name[:80]!r}, which is no file of history")
    path.parent.mkdir(mode=0o700, exist_ok=True)
    if there.is_file() and there.stat().st_size == file.size_bytes and (
            digest(there) == file.sha256):
        os.link(there, path)
    elif is_young:
        key = ArchivedFile.of(file).key
        if store.get_file(key, path, file.size_bytes) != file.sha256:
            raise S3Error(f"{key} there is not what was put there")
        path.chmod(0o600)


def _describe(draft: Path, url: str, mark: ArchiveMark) -> None:
    manifest = Manifest(draft)
    manifest.segments = {file.name: file for file in mark.history_files}
    manifest.number, manifest.forgotten = mark.number, dict(mark.forgotten)
    manifest.rewrite()
    ArchiveIndex(draft, url).write_to(draft, [ArchivedFile.of(file, at=mark.at)
                                              for file in mark.history_files])
    write_places(draft, PlacesRecord(mark.streams, ticks=mark.ticks,
                                     is_restored=True))
