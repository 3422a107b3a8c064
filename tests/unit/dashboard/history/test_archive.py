"""Behaviour that every Archive shares."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dashboard.history.storage.archive import Archive, FolderArchive
from tests.buckets import MemoryBucket, evicting, tiered

Open = Callable[[], Archive]
NAME = "raw/raw-0-300-1.parquet"


@pytest.fixture(name="open_archive", params=["folder", "tiered", "tiered, not in the folder"])
def _open_archive(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    if request.param == "folder":
        return lambda: FolderArchive(tmp_path)
    bucket = MemoryBucket()
    return lambda: (tiered if request.param == "tiered" else evicting)(tmp_path, bucket)


def put(archive: Archive, name: str, content: bytes) -> None:
    draft = archive.draft(name)
    draft.write_bytes(content)
    archive.put(draft, name)


def test_what_was_put_is_there_whole_and_after_a_restart(open_archive: Open) -> None:
    put(open_archive(), NAME, b"abc")
    reopened = open_archive()
    assert (list(reopened.names()), reopened.path(NAME).read_bytes()) == ([NAME], b"abc")


def test_a_draft_is_not_there_under_its_name(open_archive: Open) -> None:
    archive = open_archive()
    archive.draft(NAME).write_bytes(b"abc")
    assert not archive.path(NAME).exists()
    assert NAME not in archive.names()


def test_what_was_removed_or_set_aside_is_gone(open_archive: Open) -> None:
    archive = open_archive()
    other = NAME.replace("raw-0", "raw-300")
    for name in (NAME, other):
        put(archive, name, b"abc")
    archive.remove(NAME)
    archive.remove(NAME)
    archive.set_aside(other)
    archive.set_aside(other)
    assert [archive.path(name).exists() for name in (NAME, other)] == [False, False]
    assert not {NAME, other} & set(archive.names())


def test_what_was_never_put_is_not_there(open_archive: Open) -> None:
    archive = open_archive()
    assert not archive.path(NAME).exists()
    assert archive.is_here(NAME)
    assert not archive.drop_copy(NAME)
