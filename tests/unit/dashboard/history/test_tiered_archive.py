"""Older files move to a bucket: what is there, whose it is, and what each failure does."""

import hashlib
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dashboard.errors import ArchiveAwayError
from dashboard.history.columns.memory import BLOCK_S
from dashboard.history.files.archive_mover import KEEPS_S, is_due
from dashboard.history.files.file_set import HistoryFiles
from dashboard.history.files.sealing import GRACE_S
from dashboard.history.files.store import HistoryRetention
from dashboard.history.reads.embedded import EmbeddedHistory
from dashboard.history.storage import tiered_archive
from dashboard.history.storage.archive_index import COPIES
from dashboard.history.storage.archive_owner import FILE, KEY
from dashboard.history.storage.aws_credentials import (
    AwsCredentials,
    NoCredentialsError,
    credentials,
)
from dashboard.history.storage.folder import copied
from dashboard.history.storage.manifest import HistoryFile
from dashboard.history.storage.s3 import NOTHING, S3Address, signed
from dashboard.settings import archive as archive_setting
from gpudeck.errors import CommandError
from tests.buckets import KilledError, MemoryBucket, evicting, mover, tiered
from tests.unit.histories import START, Source, differences

DAY_S = 86_400.0
NOW = 10 * DAY_S
KINDS = ("raw", "hosts", "slow")


class Hub:
    """History of three old files, an archive, and what moves them."""

    def __init__(self, folder: Path, bucket: MemoryBucket, cache_bytes: int = 10**9,
                 name: str = "a") -> None:
        self.folder, self.bucket = folder, bucket
        self.archive = tiered(folder, bucket, name)
        self.files = HistoryFiles(folder, self.archive)
        self.files.open()
        self.mover = mover(self.archive, self.files, cache_bytes)
        self.mono = 0.0

    @classmethod
    def filled(cls, folder: Path, bucket: MemoryBucket, cache_bytes: int = 10**9,
               name: str = "a") -> "Hub":
        hub = cls(folder, bucket, cache_bytes, name)
        for kind in KINDS:
            hub.add(f"{kind}/{kind}-0-3600-{hub.files.manifest.number + 1}.parquet")
        return hub

    def add(self, name: str, made_at: float = 0.0) -> HistoryFile:
        content = name.encode() * 100
        draft = self.archive.draft(name)
        draft.write_bytes(content)
        self.archive.put(draft, name)
        kind, start = name.partition("/")[0], int(name.split("-")[1])
        file = HistoryFile(name, kind, start, start + 3_600, 3_600, 1, len(content),
                           hashlib.sha256(content).hexdigest(), made_at)
        self.files.commit([file])
        return file

    def step(self, now: float = NOW) -> str | None:
        self.mono += 1_000.0  # it does not wait before it tries again
        self.mover.step(now, self.mono)
        return self.mover.info().error

    def read(self) -> list[bytes]:
        """Return what a reader of each file gets."""
        manifest = self.files.manifest
        return [path.read_bytes() for path in manifest.verified([*manifest.segments.values()])]

    def here(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("*/*.parquet"))


@pytest.fixture(autouse=True)
def _no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing be in use, the store be asked again at once, and the disk have room."""
    for name in ("IN_USE_S", "AWAY_S", "WRONG_S"):
        monkeypatch.setattr(tiered_archive, name, 0.0)
    monkeypatch.setattr(tiered_archive, "ROOM_BYTES", 0)


@pytest.fixture(name="bucket")
def _bucket() -> MemoryBucket:
    return MemoryBucket()


@pytest.fixture(name="evicted")
def _evicted(tmp_path: Path, bucket: MemoryBucket) -> Hub:
    hub = Hub.filled(tmp_path / "a", bucket, cache_bytes=0)
    assert hub.step() is None
    assert hub.here() == []
    return hub


def test_what_is_old_goes_there_whole_and_is_read_from_there(evicted: Hub) -> None:
    assert len(evicted.bucket.keys) == 3
    assert evicted.mover.info()[:3] == (3, sum(map(len, evicted.read())), 0)
    assert len(evicted.read()) == 3
    assert len(evicted.here()) == 3
    evicted.bucket.requests.clear()
    assert len(evicted.read()) == 3
    assert evicted.bucket.requests == []  # they are kept here now


@pytest.mark.parametrize(("kind", "made_at", "now", "due"), [
    ("raw", 0.0, 3_600 + DAY_S - 1, False), ("raw", 0.0, 3_600 + DAY_S, True),
    ("raw", 3 * DAY_S, 3 * DAY_S + 3_600, False),  # it was written anew lately
    ("minutes", 0.0, 3_600 + DAY_S, False), ("minutes", 0.0, 2 * DAY_S, True),
    ("hours", 0.0, 30 * DAY_S, False), ("hours", 0.0, 31 * DAY_S, True),
])
def test_no_file_goes_there_that_is_still_to_be_merged(kind: str, made_at: float, now: float,
                                                       due: bool) -> None:
    file = HistoryFile(f"{kind}/x", kind, 0, 3_600, 3_600, 1, 1, "", made_at)
    assert is_due(file, now, DAY_S, 90 * DAY_S) is due
    assert not is_due(file, now, DAY_S, DAY_S)


def test_young_files_those_in_use_and_what_fits_stay_here(
        tmp_path: Path, bucket: MemoryBucket, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub.filled(tmp_path, bucket, cache_bytes=0)
    hub.add(f"raw/raw-0-3600-{hub.files.manifest.number + 1}.parquet", NOW - 1.5 * DAY_S)
    monkeypatch.setattr(tiered_archive, "IN_USE_S", 600.0)
    assert hub.step() is None
    assert (len(bucket.keys), len(hub.here())) == (4, 4)
    monkeypatch.setattr(tiered_archive, "IN_USE_S", 0.0)
    hub.mover = mover(hub.archive, hub.files, 4 * 3_000)
    hub.step()
    assert len(hub.here()) == 4
    hub.mover = mover(hub.archive, hub.files, 0)
    hub.step()
    assert hub.here() == ["raw-0-3600-4.parquet"]  # the head log may bring its rows again


@pytest.mark.parametrize("at", range(6))
def test_a_kill_at_any_moment_loses_and_doubles_nothing(tmp_path: Path, bucket: MemoryBucket,
                                                        at: int) -> None:
    hub = Hub.filled(tmp_path, bucket, cache_bytes=0)
    contents = hub.read()
    bucket.kill_at = at
    with pytest.raises(KilledError):
        hub.step()
    bucket.kill_at = None
    reopened = Hub(tmp_path, bucket, cache_bytes=0)
    assert reopened.read() == contents
    assert reopened.step() is None
    assert (len(bucket.keys), reopened.here()) == (3, [])
    assert Hub(tmp_path, bucket).read() == contents
    assert reopened.files.manifest.quarantined == []


def test_a_kill_before_a_file_is_given_up_here_leaves_it_twice_and_told_once(
        tmp_path: Path, bucket: MemoryBucket) -> None:
    hub = Hub.filled(tmp_path, bucket)
    assert hub.step() is None
    assert len(hub.here()) == 3
    reopened = Hub(tmp_path, bucket)
    assert (len([*reopened.archive.names()]), len(reopened.files.manifest.segments)) == (3, 3)


def test_what_was_removed_while_it_was_sent_is_not_there(tmp_path: Path, bucket: MemoryBucket,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub.filled(tmp_path, bucket)
    put, name = bucket.put_file, f"raw/{hub.here()[1]}"

    def remove_while_sent(key: str, path: Path, sha256: str) -> None:
        put(key, path, sha256)
        if key.startswith("raw/"):
            hub.files.manifest.commit([], [name])
            hub.archive.remove(name)

    monkeypatch.setattr(bucket, "put_file", remove_while_sent)
    assert hub.step() is None
    assert name not in hub.archive.names()
    assert hub.step(time.time() + KEEPS_S + 1) is None
    assert [key for key in bucket.keys if key.startswith("raw/")] == []


def test_a_store_that_is_away_is_never_taken_for_files_that_are_gone(evicted: Hub) -> None:
    evicted.bucket.why = "it answered 500"
    with pytest.raises(ArchiveAwayError, match="cannot be read now: it answered 500"):
        evicted.read()
    reopened = Hub(evicted.folder, evicted.bucket)  # a start asks it nothing
    assert len(reopened.files.manifest.segments) == 3
    young = reopened.add("raw/raw-720000-3600-9.parquet", NOW)
    assert len(reopened.files.manifest.verified([young])) == 1
    reopened.add("slow/slow-0-3600-10.parquet")
    assert reopened.files.manifest.verified([reopened.files.manifest.segments[young.name]])
    assert reopened.step() == "it answered 500"
    assert reopened.files.manifest.quarantined == []
    evicted.bucket.why = None
    assert len(reopened.read()) == 5


def test_a_store_that_is_away_is_not_asked_by_each_reader(
        evicted: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiered_archive, "AWAY_S", 60.0)
    evicted.bucket.why = "away"
    evicted.bucket.requests.clear()
    for _ in range(5):
        with pytest.raises(ArchiveAwayError):
            evicted.read()
    assert len(evicted.bucket.requests) == 1


def test_wrong_bytes_are_fetched_again_and_then_said_and_no_file_is_given_up(evicted: Hub) -> None:
    key = evicted.bucket.keys[0]
    right, evicted.bucket.objects[key] = evicted.bucket.objects[key], b"wrong"
    evicted.bucket.requests.clear()
    with pytest.raises(ArchiveAwayError, match="is not what was put there"):
        evicted.read()
    assert evicted.bucket.requests.count(f"get {key}") == 2
    assert evicted.files.manifest.quarantined == []
    evicted.bucket.objects[key] = right
    assert len(evicted.read()) == 3


def test_what_a_store_does_not_give_back_as_it_was_sent_stays_here(
        tmp_path: Path, bucket: MemoryBucket, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub.filled(tmp_path, bucket, cache_bytes=0)
    put = bucket.put_file

    def spoilt(key: str, path: Path, sha256: str) -> None:
        put(key, path, sha256)
        if key.startswith("raw/"):
            bucket.objects[key] += b"!"

    monkeypatch.setattr(bucket, "put_file", spoilt)
    assert "is not what was sent" in str(hub.step())
    assert hub.here() == ["raw-0-3600-1.parquet"]  # the others went
    assert len(hub.read()) == 3


def test_an_object_that_somebody_deleted_is_a_hole_and_an_empty_bucket_is_another_one(
        evicted: Hub) -> None:
    key, owner = evicted.bucket.keys[0], evicted.bucket.objects.pop(KEY)
    del evicted.bucket.objects[key]
    with pytest.raises(ArchiveAwayError, match="is not the one"):
        evicted.read()
    assert "own-archive" in str(Hub.filled(evicted.folder, evicted.bucket).step())
    assert KEY not in evicted.bucket.objects
    evicted.bucket.objects[KEY] = owner
    manifest = evicted.files.manifest
    assert len(evicted.read()) == 2
    assert len(manifest.quarantined) == 1
    assert len(Hub(evicted.folder, evicted.bucket).files.manifest.segments) >= 2


def test_a_damaged_copy_here_is_fetched_again(evicted: Hub) -> None:
    contents = evicted.read()
    path = next(evicted.folder.glob("raw/*.parquet"))
    path.write_bytes(bytes(len(path.read_bytes())))
    assert evicted.read() == contents
    assert evicted.files.manifest.quarantined == []


def test_a_disk_without_room_says_so_and_gives_up_nothing(
        evicted: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiered_archive, "ROOM_BYTES", 10**18)
    with pytest.raises(ArchiveAwayError, match="no room"):
        evicted.read()
    assert evicted.files.manifest.quarantined == []


def test_what_is_given_up_stays_there_for_backups_and_is_then_deleted_whatever_ends_meanwhile(
        evicted: Hub) -> None:
    bucket = evicted.bucket
    names = [*evicted.files.manifest.segments]
    evicted.files.commit([], names)
    evicted.files.delete_retired()
    now = time.time()
    assert evicted.step(now + KEEPS_S - 60) is None
    assert (len(bucket.keys), [*evicted.archive.names()]) == (3, [])
    bucket.kill_at = 1
    with pytest.raises(KilledError):
        evicted.step(now + KEEPS_S + 60)
    bucket.kill_at = None
    reopened = Hub(evicted.folder, bucket)
    assert reopened.step(now + KEEPS_S + 60) is None
    assert bucket.keys == []
    assert reopened.archive.index.files("leaving", "there", "sending") == []


def test_one_prefix_is_one_hub_s(tmp_path: Path, evicted: Hub) -> None:
    keys = evicted.bucket.keys
    other = Hub.filled(tmp_path / "b", evicted.bucket, 0, "b")
    assert "belongs to the hub 'a'" in str(other.step())
    assert (evicted.bucket.keys, len(other.here())) == (keys, 3)


def test_a_copy_reads_from_there_and_writes_nothing_until_it_is_told_to(
        tmp_path: Path, evicted: Hub) -> None:
    young = evicted.add("raw/raw-720000-3600-9.parquet", NOW)
    assert copied(evicted.folder, tmp_path / "backup") == 4
    assert not (tmp_path / "backup" / FILE).exists()
    assert copied(tmp_path / "backup", tmp_path / "b") == 4
    other = Hub(tmp_path / "b", evicted.bucket, 0, "b")
    assert other.here() == [young.name.partition("/")[2]]
    assert len(other.read()) == 4
    other.files.commit([], [young.name])
    other.archive.remove(evicted.files.manifest.of_kind("slow")[0].name)
    assert "belongs to the hub 'a'" in str(other.step(time.time() + KEEPS_S + 60))
    assert len(evicted.bucket.keys) == 3
    other.archive.owner.take()
    assert other.step(time.time() + KEEPS_S + 60) is None
    assert len(evicted.bucket.keys) == 2
    evicted.add("slow/slow-0-3600-12.parquet")
    assert "belongs to the hub 'b'" in str(evicted.step())


def test_of_the_index_one_copy_is_enough_and_without_both_no_hub_starts(evicted: Hub) -> None:
    folder, bucket = evicted.folder, evicted.bucket
    first, second = (folder / name for name in COPIES)
    whole = second.read_bytes()
    first.write_bytes(b"x" + first.read_bytes()[1:])
    assert len(Hub(folder, bucket).read()) == 3
    first.write_bytes(whole + b'{"n": 99')  # it was killed while it wrote this
    assert len(Hub(folder, bucket).read()) == 3
    for path in (first, second):
        path.write_bytes(b"x" + whole[1:])
    with pytest.raises(CommandError, match="damaged"):
        Hub(folder, bucket)


def test_history_says_the_same_of_what_is_there_and_what_comes_late_waits_for_no_store(
        tmp_path: Path, bucket: MemoryBucket) -> None:
    source = Source(4)
    archive = evicting(tmp_path, bucket)
    keep = HistoryRetention(raw_s=10**9)
    history = EmbeddedHistory(tmp_path, keep, archive)
    history.open()
    history.append(source.greetings(), 1)
    late = source.node_second("n0", START + 5)
    end = START + 2 * BLOCK_S
    for start in range(START, end, BLOCK_S):
        history.append([one for t in range(start, start + BLOCK_S) if t != START + 5
                        for one in source.second(t)], 1)
        history.store.maintain(start + BLOCK_S + GRACE_S)
    for path in tmp_path.glob("*/*.parquet"):
        assert archive.evict(f"{path.parent.name}/{path.name}")
    history.close()
    history = EmbeddedHistory(tmp_path, keep, tiered(tmp_path, bucket))  # it remembers no block
    history.open()
    history.append(source.greetings(), 2)
    bucket.why = "away"
    history.append(late, 2)
    assert history.info().open_seconds > 0
    with pytest.raises(ArchiveAwayError):
        differences(history, source, START, end)
    bucket.why = None
    assert differences(history, source, START, end) == []
    history.close()


# -- what is spoken


def test_a_signature_is_the_one_of_the_specification() -> None:
    """AWS's own example: GET of a part of an object."""
    headers = signed("GET", "/test.txt", {"Host": "examplebucket.s3.amazonaws.com",
                                          "Range": "bytes=0-9"}, NOTHING,
                     AwsCredentials("AKIAIOSFODNN7EXAMPLE",
                                    "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
                     "us-east-1", datetime(2013, 5, 24, tzinfo=UTC))
    assert headers["Authorization"].endswith(
        "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41")


@pytest.mark.parametrize(("url", "host", "path"), [
    ("s3://buck/years", "buck.s3.eu-west-1.amazonaws.com", "/years/"),
    ("s3://buck", "buck.s3.eu-west-1.amazonaws.com", "/"),
    ("s3://with.dots/a/b/", "s3.eu-west-1.amazonaws.com", "/with.dots/a/b/"),
    ("s3://buck/a?endpoint=http://localhost:9000", "localhost", "/buck/a/"),
    ("s3://buck?endpoint=https://ceph.site/s3/", "ceph.site", "/s3/buck/"),
])
def test_where_a_bucket_is(url: str, host: str, path: str) -> None:
    at = S3Address.of(archive_setting(url), {"AWS_REGION": "eu-west-1"})
    assert (at.host, at.path, at.region) == (host, path, "eu-west-1")


@pytest.mark.parametrize("url", [
    "http://buck/a", "s3://", "s3://KEY:SECRET@buck/a", "s3://buck/a?secret=x",
    "s3://buck?endpoint=ftp://x", "s3://buck?endpoint=https://KEY:SECRET@host", "s3://Buck_et"])
def test_no_other_url_is_taken_and_none_with_a_secret(url: str) -> None:
    with pytest.raises(ValueError, match="is needed"):
        archive_setting(url)


def test_credentials_are_found_where_others_find_them_and_shown_nowhere(tmp_path: Path) -> None:
    file = tmp_path / "credentials"
    file.write_text("[default]\naws_access_key_id = A\naws_secret_access_key = S%x\n"
                    "[two]\naws_access_key_id = B\naws_secret_access_key = T\n"
                    "aws_session_token = U\n")
    at = {"AWS_SHARED_CREDENTIALS_FILE": str(file)}
    assert credentials(at) == AwsCredentials("A", "S%x")
    assert credentials(at | {"AWS_PROFILE": "two"}) == AwsCredentials("B", "T", "U")
    env = {"AWS_ACCESS_KEY_ID": "C", "AWS_SECRET_ACCESS_KEY": "hush"}
    assert credentials(at | env) == AwsCredentials("C", "hush")
    assert "hush" not in repr(credentials(env))
    with pytest.raises(NoCredentialsError, match="there are no credentials"):
        credentials({"HOME": str(tmp_path)})
