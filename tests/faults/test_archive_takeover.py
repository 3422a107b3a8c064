"""Two hubs with one state and one archive: the active one is lost with its disk, stands still, or
is lost while the archive is away, and the other takes its place. Hubs, agents, sockets, database
and S3 server are real; every second is counted at the end in the hub that is left."""

import re
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.link.outbox import PendingMessages
from dashboard.history.storage.archive_index import COPIES
from tests.faults.test_lost_disk import (
    BEHIND,
    FAST,
    Node,
    acked,
    archived,
    check_seqs,
    flaws_in,
    nodes_of,
    read_seconds,
    start_server,
    url,
)
from tests.integration.hubs import wait_for
from tests.integration.standbys import PairedHub
from tests.integration.test_standby import copy_key
from tests.patience import GIVE_UP_S
from tests.postgres import PostgresServer, a_server
from tests.s3_server import BUCKET, S3Server

__all__ = ["start_server"]  # the fixture
JOINING = re.compile(r"^gpudeck_archive_joining (\S+)$", re.M)
FROZEN_S = 20.0


@pytest.fixture(name="postgres", scope="module")
def _postgres() -> Iterator[PostgresServer]:
    with a_server() as server:
        yield server


class Pair:
    def __init__(self, one: PairedHub, two: PairedHub, nodes: list[Node], server: S3Server) -> None:
        self.one, self.two, self.nodes, self.server = one, two, nodes, server

    def store_and_lose(self) -> None:
        """Let the first hub store what gets into no archive, and lose it with its disk."""
        self.server.kill()
        stored = acked(self.one)
        wait_for(lambda: acked(self.one) > stored + 200, why="stored, and in no archive")
        self.one.kill()
        shutil.rmtree(self.one.folder)

    def goes_on(self, hub: PairedHub, messages: int = 300) -> None:
        """Wait until the hub has taken over, and nodes have brought it so many messages."""
        wait_for(lambda: hub.is_active, GIVE_UP_S, "it takes over")
        numbers = [node.source.number for node in self.nodes]
        wait_for(lambda: sum(node.source.number - number for node, number in zip(
            self.nodes, numbers, strict=True)) > messages, why="the nodes go on")

    def archives(self, hub: PairedHub, folder: Path, messages: int = 100) -> None:
        """Wait until the hub has joined what is in the archive, and adds to it."""
        wait_for(lambda: metric(JOINING, hub) == 0.0, GIVE_UP_S, "it joins what is there")
        more = archived(self.server, folder) + messages
        wait_for(lambda: archived(self.server, folder) > more, GIVE_UP_S, "it archives")

    def settle(self, hub: PairedHub) -> None:
        for node in self.nodes:
            node.source.pause()
        wait_for(lambda: not any(node.outbox.pending for node in self.nodes), GIVE_UP_S,
                 "all is stored")
        wait_for(lambda: metric(BEHIND, hub) < 3_600.0, GIVE_UP_S, "all seconds are archived")


def metric(pattern: "re.Pattern[str]", hub: PairedHub) -> float:
    return float(pattern.findall(hub.ask("/metrics").body.decode())[0])


@contextmanager
def pair(tmp_path: Path, postgres: PostgresServer, server: S3Server) -> Iterator[Pair]:
    state, flags = postgres.database(), (
        "--archive", url(server), "--archive-after-hours", "0", "--history-raw-hours", "1000",
        "--agent-messages-per-s", "1000")
    with PairedHub(tmp_path / "one", state, *flags, constants=FAST) as one:
        wait_for(lambda: one.is_active, why="nobody else is there")
        (tmp_path / "two").mkdir(mode=0o700)
        copy_key(one, tmp_path / "two")
        with PairedHub(tmp_path / "two", state, *flags, constants=FAST) as two, nodes_of(
                tmp_path, one, two) as nodes:
            wait_for(lambda: archived(server, tmp_path) > 100, why="something is archived")
            yield Pair(one, two, nodes, server)


def lose_the_first(tmp_path: Path, postgres: PostgresServer, server: S3Server) -> list[str]:
    """Lose the active hub with its disk; return what is missing or doubled at the end."""
    with pair(tmp_path, postgres, server) as hubs:
        hubs.store_and_lose()
        server.start()
        hubs.goes_on(hubs.two)
        hubs.archives(hubs.two, tmp_path)
        hubs.settle(hubs.two)
        flaws = flaws_in(hubs.two.folder, hubs.nodes)
        if not flaws:
            check_seqs(hubs.two, hubs.nodes)
            print(f"\n{sum(read_seconds(hubs.nodes).values())} seconds: 0 missing, 0 doubled")
        return flaws


def test_every_second_is_there_once_after_the_active_hub_is_lost_with_its_disk(
        tmp_path: Path, postgres: PostgresServer, server: S3Server) -> None:
    assert lose_the_first(tmp_path, postgres, server) == []


def test_the_count_can_fail(tmp_path: Path, postgres: PostgresServer, server: S3Server,
                            monkeypatch: pytest.MonkeyPatch) -> None:
    """A control: agents that drop what is stored and not archived."""
    store = PendingMessages.store
    monkeypatch.setattr(PendingMessages, "store", lambda self, first, last, is_copied: store(
        self, first, last, is_copied=False))
    assert any("1 times, 0 in files" in flaw for flaw in lose_the_first(
        tmp_path, postgres, server))


def test_one_that_stood_still_writes_nothing_and_is_the_standby_then(
        tmp_path: Path, postgres: PostgresServer, server: S3Server) -> None:
    """Let it take its place again after that: its folder is older than the archive."""
    with pair(tmp_path, postgres, server) as hubs:
        began = time.monotonic()
        hubs.one.signal(signal.SIGSTOP)
        index = index_of(hubs.one)
        hubs.goes_on(hubs.two)
        hubs.archives(hubs.two, tmp_path)
        wait_for(lambda: time.monotonic() - began > FROZEN_S, why="it stands still for so long")
        hubs.one.signal(signal.SIGCONT)
        assert hubs.one.process.wait(GIVE_UP_S) == 1
        assert "hold_lost" in hubs.one.log.read_text()
        indexes = index + index_of(hubs.two)
        strays = [key for key in keys(server)
                  if key.endswith(".parquet") and key.split(".")[1] not in indexes]
        assert len(strays) <= 1, "one may have been on its way when it stood still"
        hubs.one._begin_again()  # as its service does
        wait_for(hubs.one._answers, why="it is back")
        assert not hubs.one.is_active
        hubs.archives(hubs.two, tmp_path)
        hubs.two.kill()
        shutil.rmtree(hubs.two.folder)
        hubs.goes_on(hubs.one)
        hubs.archives(hubs.one, tmp_path)
        hubs.settle(hubs.one)
        assert flaws_in(hubs.one.folder, hubs.nodes) == []
        check_seqs(hubs.one, hubs.nodes)


def test_an_archive_that_is_away_delays_no_takeover(
        tmp_path: Path, postgres: PostgresServer, server: S3Server) -> None:
    with pair(tmp_path, postgres, server) as hubs:
        hubs.store_and_lose()
        hubs.goes_on(hubs.two)
        assert metric(JOINING, hubs.two) == 1.0
        assert hubs.two.get("/api/v1/archive")["state"] == "joining"
        server.start()
        hubs.archives(hubs.two, tmp_path)
        hubs.settle(hubs.two)
        assert flaws_in(hubs.two.folder, hubs.nodes) == []
        check_seqs(hubs.two, hubs.nodes)


def index_of(hub: PairedHub) -> str:
    """Return the index of a hub's archive: a file is in it before it is sent."""
    return (hub.folder / "history" / COPIES[0]).read_text()


def keys(server: S3Server) -> list[str]:
    rows = server.client().list_objects_v2(Bucket=BUCKET).get("Contents", [])
    return sorted(row["Key"] for row in rows)
