"""Marks in the archive: what a hub that lost its disk begins from, and what nodes may give up."""

import shutil
import time
from pathlib import Path
from typing import Any, cast

import pytest

from dashboard.history.columns.memory import BLOCK_S
from dashboard.history.files import archive_marker
from dashboard.history.files.archive_marker import ArchiveMarker
from dashboard.history.files.archive_mover import KEEPS_S, ArchiveMover
from dashboard.history.files.sealing import GRACE_S
from dashboard.history.files.store import HistoryRetention
from dashboard.history.ingest.message_places import MessagePlaces, StreamRanges, spans_of
from dashboard.history.prometheus import archive_families
from dashboard.history.reads.embedded import EmbeddedHistory
from dashboard.history.storage import tiered_archive
from dashboard.history.storage.archive_mark import KEY, get_mark, read_places
from dashboard.history.storage.folder import copied
from dashboard.history.storage.from_archive import FORMER, YOUNG_S, make_folder
from dashboard.history.storage.s3 import S3Bucket
from gpudeck.errors import CommandError
from tests.buckets import URL, MemoryBucket, tiered
from tests.unit.histories import START, Source, differences

KEEP = HistoryRetention(raw_s=10**9)


class Hub:
    """History that is archived at the seal."""

    def __init__(self, folder: Path, bucket: MemoryBucket, name: str = "a") -> None:
        self.folder, self.bucket = folder, bucket
        folder.mkdir(parents=True, exist_ok=True)
        self.archive = tiered(folder, bucket, name)
        self.places = MessagePlaces(read_places(folder))
        self.history = EmbeddedHistory(folder, KEEP, self.archive, places=self.places)
        self.history.open()
        store = self.history.store
        self.mover = ArchiveMover(self.archive, store.files, KEEP, 0.0, 10**9,
                                  ArchiveMarker(self.archive, store, self.places), None,
                                  lambda _: None)
        self.mono = 0.0

    def fill(self, source: Source, start: int, end: int) -> None:
        self.history.append(source.greetings(), 1)
        for block in range(start, end, BLOCK_S):
            self.history.append(source.span(block, min(end, block + BLOCK_S)), 1)
            self.history.store.maintain(float(block + BLOCK_S + GRACE_S))

    def step(self, now: float) -> str | None:
        self.mono += 1_000.0
        self.mover.step(now, self.mono)
        return self.mover.info().error

    @property
    def archived(self) -> StreamRanges:
        return self.places.archived

    def mark(self) -> Any:
        return get_mark(cast(S3Bucket, self.bucket), self.folder / "x")


@pytest.fixture(autouse=True)
def _no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("IN_USE_S", "AWAY_S", "WRONG_S", "ROOM_BYTES"):
        monkeypatch.setattr(tiered_archive, name, 0)


@pytest.fixture(name="bucket")
def _bucket() -> MemoryBucket:
    return MemoryBucket()


def marked(folder: Path, bucket: MemoryBucket, source: Source, end: int) -> Hub:
    hub = Hub(folder, bucket)
    hub.fill(source, START, end)
    assert hub.step(float(end + 100)) is None
    return hub


def test_files_move_as_they_are_written_and_then_what_is_in_them_is_archived(
        tmp_path: Path, bucket: MemoryBucket) -> None:
    source = Source(21)
    hub = Hub(tmp_path / "a", bucket)
    hub.fill(source, START, START + BLOCK_S)
    hub.history.append(source.span(START + BLOCK_S, START + BLOCK_S + 60), 1)  # waits in memory
    assert hub.step(float(START + BLOCK_S + 100)) is None
    assert hub.mover.info().waiting_files == 0
    assert {file.name for file in hub.mark().history_files} == {
        *hub.history.store.manifest.segments}
    assert hub.mover.info().oldest == START + BLOCK_S
    metrics = "".join(archive_families(hub.mover, START + BLOCK_S + 100.0))
    assert "gpudeck_archive_behind_seconds 100" in metrics
    assert hub.mover._marker is not None
    news = hub.mover._marker.take_news()
    assert news is not None
    assert spans_of(news) == spans_of(hub.archived) == hub.mark().streams != []
    assert hub.mover._marker.take_news() is None


@pytest.mark.parametrize("which", ["file", "mark", "all"])
def test_nothing_is_archived_that_is_not_there(tmp_path: Path, bucket: MemoryBucket, which: str
                                               ) -> None:
    """A store that takes it and gives back something else, or is away."""
    hub = Hub(tmp_path / "a", bucket)
    hub.fill(Source(22), START, START + BLOCK_S)
    put = bucket.put_file

    def spoil(key: str, path: Path, sha256: str) -> None:
        put(key, path, sha256)
        if (key == KEY) == (which == "mark") and (which == "mark" or key.startswith("slow/")):
            bucket.objects[key] += b"x"

    if which == "all":
        bucket.why = "it is away"
    else:
        bucket.put_file = spoil  # type: ignore[method-assign]
    assert hub.step(float(START + 400))
    assert hub.archived == {}
    assert hub.mover.info().oldest == START
    bucket.why, bucket.put_file = None, put  # type: ignore[method-assign]
    assert hub.step(float(START + 400)) is None
    assert hub.archived != {}


def test_what_is_damaged_here_before_it_was_there_is_not_archived(
        tmp_path: Path, bucket: MemoryBucket) -> None:
    hub = Hub(tmp_path / "a", bucket)
    source = Source(23)
    hub.fill(source, START, START + 2 * BLOCK_S)
    [first, second] = sorted(hub.history.store.manifest.of_kind("raw"), key=lambda file: file.start)
    (hub.folder / first.name).write_bytes(b"rot")
    hub.history.store.manifest._verified.clear()  # nobody has read it since
    for _ in range(2):
        assert hub.step(float(START + 1_000)) is None
    assert second.name in {file.name for file in hub.mark().history_files}
    seqs = {seq for first_seq, last in hub.archived["n0", "s"]
            for seq in range(first_seq, last + 1)}
    assert 1 not in seqs
    assert len(seqs) > 200


def test_a_hub_that_lost_its_disk_has_what_is_archived_and_no_other_second(
        tmp_path: Path, bucket: MemoryBucket) -> None:
    source, middle = Source(24), START + 3 * BLOCK_S
    hub = marked(tmp_path / "a", bucket, source, middle)
    archived = {key: [*ranges] for key, ranges in hub.archived.items()}
    newest = source.span(middle, middle + BLOCK_S)
    hub.history.append(newest, 1)
    hub.history.close()
    shutil.rmtree(tmp_path / "a")
    make_folder(tmp_path / "b", URL, cast(S3Bucket, bucket), replaces=False)
    new = Hub(tmp_path / "b", bucket)
    assert new.places.is_restored
    assert {key: [*ranges] for key, ranges in new.archived.items()} == archived
    assert differences(new.history, source, START, middle) == []
    assert "it belongs to the hub 'a'" in (new.step(float(middle + 700)) or "it wrote")
    new.archive.owner.take()
    # The nodes bring the rest, and something that was archived: it is not taken twice.
    new.history.append(source.greetings(), 1)
    new.history.append(newest, 1)
    new.history.store.maintain(float(middle + BLOCK_S + GRACE_S))
    assert differences(new.history, source, START, middle + BLOCK_S) == []
    assert new.step(float(middle + 700)) is None
    assert sum(ranges.count for ranges in new.archived.values()) == sum(source.seqs.values())
    assert read_places(tmp_path / "b").is_restored
    new.history.save_places(has_checkpoints=True)
    assert not read_places(tmp_path / "b").is_restored
    new.history.close()


def test_old_files_stay_there_and_young_ones_lie_in_the_new_folder(
        tmp_path: Path, bucket: MemoryBucket) -> None:
    hub = marked(tmp_path / "a", bucket, Source(25), START + 2 * BLOCK_S)
    files = hub.history.store.manifest.segments.values()
    old = min(file.made_at for file in files)
    hub.mono, hub.mover._marker._number = 10**9, -1  # type: ignore[union-attr]
    hub.step(old + YOUNG_S)
    hub.history.close()
    make_folder(tmp_path / "b", URL, cast(S3Bucket, bucket), replaces=False)
    here = {path.relative_to(tmp_path / "b").as_posix()
            for path in (tmp_path / "b").glob("*/*.parquet")}
    assert here == {file.name for file in files if file.made_at > old}


def test_a_folder_that_is_newer_stays_and_an_older_one_lies_beside(
        tmp_path: Path, bucket: MemoryBucket) -> None:
    source = Source(26)
    hub = marked(tmp_path / "a", bucket, source, START + BLOCK_S)
    shutil.copytree(tmp_path / "a", tmp_path / "backup")
    hub.fill(source, START + BLOCK_S, START + 2 * BLOCK_S)
    with pytest.raises(CommandError, match="newer than the archive"):
        make_folder(tmp_path / "a", URL, cast(S3Bucket, bucket), replaces=False)
    with pytest.raises(CommandError, match="did not lose its disk"):
        make_folder(tmp_path / "a", URL, cast(S3Bucket, bucket), replaces=True)
    assert hub.step(float(START + 900)) is None
    bucket.requests.clear()
    make_folder(tmp_path / "backup", URL, cast(S3Bucket, bucket), replaces=False)
    assert (tmp_path / FORMER).is_dir()
    is_fetched = [request for request in bucket.requests if "raw/" in request]
    assert len(is_fetched) == 1  # the other one was in the backup
    new = Hub(tmp_path / "backup", bucket)
    assert differences(new.history, source, START, START + 2 * BLOCK_S) == []
    with pytest.raises(CommandError, match="move it away"):
        make_folder(tmp_path / "backup", URL, cast(S3Bucket, bucket), replaces=False)


def test_a_hub_that_began_without_its_archive_may_still_get_it(
        tmp_path: Path, bucket: MemoryBucket) -> None:
    source, middle = Source(30), START + 2 * BLOCK_S
    hub = marked(tmp_path / "a", bucket, source, START + BLOCK_S)
    copied(tmp_path / "a", tmp_path / "backup")
    hub.fill(source, START + BLOCK_S, middle)
    assert hub.step(float(middle + 500)) is None
    began = Hub(tmp_path / "backup", bucket, "b")
    assert "it belongs to the hub 'a'" in (began.step(float(middle + 600)) or "it wrote")
    began.archive.owner.take()
    assert "from-archive" in (began.step(float(middle + 700)) or "it wrote")
    for block in range(2, 9):  # what came since, and in files by now
        began.fill(source, START + block * BLOCK_S, START + (block + 1) * BLOCK_S)
    began.history.close()
    with pytest.raises(CommandError, match="add --replace"):
        make_folder(tmp_path / "backup", URL, cast(S3Bucket, bucket), replaces=False)
    make_folder(tmp_path / "backup", URL, cast(S3Bucket, bucket), replaces=True)
    new = Hub(tmp_path / "backup", bucket, "b")
    assert differences(new.history, source, START, middle) == []
    new.fill(source, middle, middle + BLOCK_S)
    assert new.step(float(middle + 900)) is None, "it has owned the prefix before"


def test_a_file_of_the_mark_that_is_gone_keeps_no_hub_from_writing(
        tmp_path: Path, bucket: MemoryBucket) -> None:
    hub = marked(tmp_path / "a", bucket, Source(31), START + BLOCK_S)
    [raw] = hub.history.store.manifest.of_kind("raw")
    there = hub.archive.index.there(raw.name)
    assert there is not None
    del bucket.objects[there.key]
    hub.archive.index.set_state(there, "deleted", time.time())
    hub.history.close()
    restarted = Hub(tmp_path / "a", bucket)
    restarted.fill(Source(32), START + BLOCK_S, START + 2 * BLOCK_S)
    assert restarted.step(float(START + 5_000)) is None


def test_a_hub_from_a_backup_takes_nothing_out_of_a_newer_mark(
        tmp_path: Path, bucket: MemoryBucket) -> None:
    source = Source(29)
    hub = marked(tmp_path / "a", bucket, source, START + BLOCK_S)
    shutil.copytree(tmp_path / "a", tmp_path / "backup")
    hub.fill(source, START + BLOCK_S, START + 3 * BLOCK_S)
    hub.step(float(START + 1_200))
    mark = bucket.objects[KEY]
    old = Hub(tmp_path / "backup", bucket)
    for block in range(8):  # it goes on for long, and has more than the mark
        old.fill(Source(block), START + (4 + block) * BLOCK_S, START + (5 + block) * BLOCK_S)
        assert "its mark is newer" in (old.step(float(START + 10_000 + block)) or "it wrote")
    assert bucket.objects[KEY] == mark
    old.history.close()
    restarted = Hub(tmp_path / "backup", bucket)
    assert restarted.history.store.manifest.number > hub.mark().number
    assert "name another prefix" in (restarted.step(float(START + 20_000)) or "it wrote")
    assert bucket.objects[KEY] == mark
    bucket.objects[KEY] = b"rot"  # from which nobody can begin
    restarted = Hub(tmp_path / "a", bucket)
    assert restarted.step(float(START + 20_000)) is None
    assert restarted.mark().number >= hub.history.store.manifest.number


def test_a_mark_that_is_missing_or_spoilt_changes_nothing(tmp_path: Path, bucket: MemoryBucket
                                                          ) -> None:
    with pytest.raises(CommandError, match="there is no mark"):
        make_folder(tmp_path / "b", URL, cast(S3Bucket, bucket), replaces=False)
    hub = marked(tmp_path / "a", bucket, Source(27), START + BLOCK_S)
    mark = bucket.objects[KEY]
    for spoilt in (mark[:-9], b"", mark[:40] + b"\0" + mark[41:]):
        bucket.objects[KEY] = spoilt
        with pytest.raises(CommandError, match="nothing was changed"):
            make_folder(tmp_path / "b", URL, cast(S3Bucket, bucket), replaces=False)
    bucket.objects[KEY] = mark
    [raw] = [key for key in bucket.keys if key.startswith("raw/")]
    bucket.objects[raw] += b"x"
    with pytest.raises(CommandError, match="is not what was put there; nothing was changed"):
        make_folder(tmp_path / "b", URL, cast(S3Bucket, bucket), replaces=False)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    hub.history.close()


def test_no_object_goes_that_the_newest_mark_names(
        tmp_path: Path, bucket: MemoryBucket, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(28)
    hub = marked(tmp_path / "a", bucket, source, START + 12 * BLOCK_S)
    merged_at, now = START + 12 * BLOCK_S + 500, time.time() + KEEPS_S
    before = {*bucket.keys}
    monkeypatch.setattr(archive_marker, "put_mark", lambda *_: (_ for _ in ()).throw(OSError("no")))
    hub.history.store.maintain(float(merged_at))
    assert hub.step(now + 60) == "no"
    assert before <= {*bucket.keys}
    monkeypatch.undo()
    assert before <= {*bucket.keys}
    hub.step(now + 61)
    hub.step(now + 62)
    assert not before <= {*bucket.keys}
    assert {file.name for file in hub.mark().history_files} == {
        *hub.history.store.manifest.segments}
