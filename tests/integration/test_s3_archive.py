"""History moves to a real S3 server and is read from there, whatever ends meanwhile."""

import json
import re
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dashboard.cli.history import history as history_command
from dashboard.errors import ArchiveAwayError
from dashboard.history.columns.memory import BLOCK_S
from dashboard.history.files.archive_mover import ArchiveMover
from dashboard.history.files.sealing import GRACE_S
from dashboard.history.files.store import HistoryRetention
from dashboard.history.reads.embedded import EmbeddedHistory
from dashboard.history.storage import s3, tiered_archive
from dashboard.history.storage.archive_index import ArchiveIndex
from dashboard.history.storage.archive_owner import KEY, NotOwnerError
from dashboard.history.storage.manifest import digest
from dashboard.history.storage.s3 import S3Bucket, S3Error, S3ExistsError, S3MissingError
from dashboard.history.storage.tiered_archive import TieredArchive
from gpudeck.errors import CommandError
from tests.buckets import alone
from tests.integration.hubs import HubProcess, wait_for
from tests.s3_server import BUCKET, S3Server, SpoiltStore, s3_server
from tests.unit.histories import Source, differences

HOUR_S = 3_600
KEEP = HistoryRetention(raw_s=10**9)
COUNT = re.compile(r"^gpudeck_archive_(files|waiting_files|failed) (\d+)$", re.M)


@pytest.fixture(name="server", scope="module")
def _server() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


def url(server: S3Server, prefix: str) -> str:
    return f"s3://{BUCKET}/{prefix}?endpoint={server.endpoint}"


def opened(folder: Path, server: S3Server, prefix: str) -> tuple[EmbeddedHistory, ArchiveMover]:
    at = url(server, prefix)
    archive = TieredArchive(folder, ArchiveIndex(folder, at), S3Bucket(at, server.keys), "a",
                            alone)
    history = EmbeddedHistory(folder, KEEP, archive)
    history.open()
    return history, ArchiveMover(archive, history.store.files, KEEP, 3_600.0, 0, None, None,
                                 lambda _: None)


def filled(history: EmbeddedHistory, source: Source, start: int, end: int) -> None:
    history.append(source.greetings(), 1)
    for block in range(start, end, BLOCK_S):
        history.append(source.span(block, block + BLOCK_S), 1)
        history.store.maintain(block + BLOCK_S + GRACE_S)
    history.store.maintain(end + 1_000.0)


def names_in(server: S3Server, prefix: str) -> list[str]:
    return sorted(key for key in server.objects() if key.startswith(f"{prefix}/")
                  and key.endswith(".parquet"))


def test_a_store_speaks_as_ours_expects(server: S3Server, tmp_path: Path) -> None:
    bucket = S3Bucket(url(server, "words and+signs"), server.keys)
    with pytest.raises(S3MissingError):
        bucket.get_small("a")
    bucket.put_small("a", b"1", only_new=True)
    with pytest.raises(S3ExistsError):
        bucket.put_small("a", b"2", only_new=True)
    assert bucket.get_small("a") == b"1"
    path, got = tmp_path / "file", tmp_path / "got"
    path.write_bytes(bytes(range(256)) * 10_000)
    bucket.put_file("b/c.parquet", path, digest(path))
    assert bucket.get_file("b/c.parquet", got, 2_560_000) == digest(path) == digest(got)
    assert bucket.get_file("b/c.parquet", None, 1_000) != digest(path)
    bucket.delete("b/c.parquet")
    bucket.delete("b/c.parquet")
    with pytest.raises(S3MissingError):
        bucket.get_file("b/c.parquet", None, 10)
    with pytest.raises(S3Error, match="there is no such bucket"):
        S3Bucket(url(server, "x").replace(BUCKET, "other"), server.keys).get_small("a")


def test_every_second_is_as_it_came_though_the_store_and_the_hub_end_meanwhile(
        server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("IN_USE_S", 0.0), ("AWAY_S", 0.0), ("ROOM_BYTES", 0)):
        monkeypatch.setattr(tiered_archive, name, value)
    source, start = Source(11), 1_700_000_000 // HOUR_S * HOUR_S
    end, old = start + 2 * HOUR_S, start + 100 * HOUR_S
    history, mover = opened(tmp_path, server, "kills")
    filled(history, source, start, end)
    count = len(history.store.manifest.segments)
    mover.step(float(old), 1e9)
    assert mover.info().error is None
    moved = len(names_in(server, "kills"))
    assert 0 < moved <= count
    assert moved == mover.info().files
    history.store.maintain(float(end + 2_000))
    server.kill()
    with pytest.raises(ArchiveAwayError, match="cannot be read now"):
        differences(history, source, start, end)
    history.close()
    reopened, mover = opened(tmp_path, server, "kills")  # while it is away
    reopened.append(source.greetings(), 1)
    young = source.span(end, end + 5)
    reopened.append(young, 1)
    assert differences(reopened, source, end, end + 5) == []
    server.start()
    assert differences(reopened, source, start, end) == []
    assert reopened.info().quarantined == []
    assert len(names_in(server, "kills")) == moved
    reopened.close()


def test_the_terminal_verifies_copies_and_takes_what_is_in_the_bucket_alone(
        server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(tiered_archive, "IN_USE_S", 0.0)
    for name, value in server.keys.items():
        monkeypatch.setenv(name, value)
    start, data, other = 1_700_000_000 // HOUR_S * HOUR_S, tmp_path / "data", tmp_path / "other"
    data.mkdir(mode=0o700)

    def ask(verb: str, folder: Path, *more: str) -> dict[str, Any]:
        assert history_command([verb, *more, "--data", str(folder), "--json"]) == 0
        answer: dict[str, Any] = json.loads(capsys.readouterr().out)
        return answer

    history, mover = opened(data / "history", server, "terminal")
    filled(history, Source(3), start, start + 2 * HOUR_S)
    files = len(history.store.manifest.segments)
    mover.step(float(start + 100 * HOUR_S), 1e9)
    history.close()
    moved = [one for one in ArchiveIndex(data / "history", "").files("there")
             if not (data / "history" / one.name).exists()]
    assert moved
    assert ask("verify", data) == {"whole": True, "files": files, "quarantined": []}
    ask("backup", data, str(tmp_path / "copy"))
    ask("restore", other, str(tmp_path / "copy"))
    assert ask("verify", other)["files"] == files

    second, its_mover = opened(other / "history", server, "terminal")
    second.close()
    with pytest.raises(NotOwnerError, match="belongs to the hub 'a'"):
        its_mover._archive.owner.check(is_new=False)
    assert ask("own-archive", other)["before"] == "a"
    its_mover._archive.owner.check(is_new=False)
    with pytest.raises(NotOwnerError):
        mover._archive.owner.check(is_new=False)

    S3Bucket(url(server, "terminal"), server.keys).put_small(moved[0].key, b"other", only_new=False)
    with pytest.raises(CommandError, match="does not read as it was written in the archive"):
        ask("verify", other)


def test_credentials_that_are_wrong_are_one_sentence_and_ours_are_believed(tmp_path: Path) -> None:
    with s3_server() as server:
        at = url(server, "k")
        server.guard()
        S3Bucket(at, server.keys).put_small("a", b"1", only_new=True)
        wrong = {**server.keys, "AWS_SECRET_ACCESS_KEY": "hush" * 10}
        nobody = {**server.keys, "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE"}
        messages = []
        for env in (wrong, nobody, {"HOME": str(tmp_path)}):
            with pytest.raises(S3Error) as error:
                S3Bucket(at, env).get_small("a")
            messages.append(str(error.value))
        assert messages[0] == "the secret key is not the access key's (SignatureDoesNotMatch)"
        assert messages[1] == "it does not know the access key (InvalidAccessKeyId)"
        assert messages[2].startswith("there are no credentials in AWS_ACCESS_KEY_ID")
        assert "hush" not in "".join(messages)


@pytest.mark.parametrize(("status", "body", "announced", "wait_s", "why"), [
    (500, b"<Error><Code>InternalError</Code></Error>", 41, 0.0, "it answered 500 InternalError"),
    (503, b"", 0, 0.0, "it answered 503"),
    (200, b"half", 8, 0.0, "in the middle|IncompleteRead"),
    (200, b"whole", 5, 30.0, "it did not answer in time"),
])
def test_a_store_that_is_spoilt_says_nothing_of_a_file(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, body: bytes, announced: int,
        wait_s: float, why: str) -> None:
    monkeypatch.setattr(s3, "WITHIN_S", 1.0 if wait_s else 30.0)
    env = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    with SpoiltStore(status, body, announced, wait_s) as store:
        bucket = S3Bucket(f"s3://b/p?endpoint=http://127.0.0.1:{store.server_port}", env)
        with pytest.raises(S3Error, match=why):
            bucket.get_file("a", tmp_path / "got", 100)


def test_a_full_disk_here_is_no_error_of_the_store() -> None:
    env = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    with SpoiltStore(200, b"whole", 5) as store:
        bucket = S3Bucket(f"s3://b/p?endpoint=http://127.0.0.1:{store.server_port}", env)
        with pytest.raises(S3Error, match="this machine's disk takes no more of it: No space"):
            bucket.get_file("a", Path("/dev/full"), 100)


def test_a_hub_moves_its_history_is_killed_and_answers_from_there(
        server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in server.keys.items():
        monkeypatch.setenv(name, value)
    source, start = Source(12), int(time.time()) // HOUR_S * HOUR_S - 72 * HOUR_S
    folder = tmp_path / "hub"
    folder.mkdir(0o700)
    with closing(EmbeddedHistory(folder / "history", KEEP)) as history:
        history.open()
        filled(history, source, start, start + HOUR_S)
    flags = ("--archive", url(server, "hub"), "--archive-cache-gb", "0",
             "--history-raw-hours", "1000")
    constants = {"dashboard.history.files.archive_mover.EVERY_S": 0.2,
                 "dashboard.history.storage.tiered_archive.IN_USE_S": 3.0,
                 "dashboard.history.storage.tiered_archive.ROOM_BYTES": 0}

    def counts(hub: HubProcess) -> dict[str, int]:
        return {name: int(number)
                for name, number in COUNT.findall(hub.ask("/metrics").body.decode())}

    def here() -> int:
        return len([*folder.glob("history/raw/*.parquet")])

    with HubProcess(folder, 0, *flags, constants=constants) as hub:
        wait_for(lambda: names_in(server, "hub"), why="the first file is there")
        hub.kill()
        hub.start()
        wait_for(lambda: counts(hub)["files"] and not counts(hub)["waiting_files"], why="all")
        wait_for(lambda: not here(), why="nothing old is here")
        assert counts(hub)["failed"] == 0
        gpu = source.all_uuids[0]
        path = f"/api/v1/series?gpu={gpu}&metric=power_w&start={start}&end={start + 60}"
        # On a machine that is busy enough, it is given up here while it is being read.
        series = wait_for(lambda: (page := hub.ask(path)).status == 200 and page, why="from there")
        assert gpu.encode() in series.body
        wait_for(lambda: not here(), why="it is given up here again")
        server.kill()
        answer = hub.ask(path)
        assert (answer.status, b"cannot be read now" in answer.body) == (503, True)
        assert hub.ask("/readyz").status == 200
        server.start()
    keys = [key.rpartition("/")[2].partition(".")[0] for key in names_in(server, "hub")]
    assert len(keys) == len(set(keys))
    assert f"hub/{KEY}" in server.objects()
    assert server.keys["AWS_SECRET_ACCESS_KEY"] not in hub.log.read_text()
