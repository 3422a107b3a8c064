"""Hubs that share their state share an archive: the one whose turn it is has the other's history,
and the other writes nothing any more."""

import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pyarrow.parquet as pq
import pytest

from dashboard.history.columns.memory import BLOCK_S
from dashboard.history.columns.rows import HistoryMessage
from dashboard.history.files.archive_joiner import ArchiveJoiner
from dashboard.history.files.archive_marker import ArchiveMarker
from dashboard.history.files.archive_mover import KEEPS_S, ArchiveMover
from dashboard.history.files.sealing import GRACE_S
from dashboard.history.files.store import HistoryRetention
from dashboard.history.ingest.message_places import HistoryJoined, MessagePlaces, StreamRanges
from dashboard.history.reads.embedded import EmbeddedHistory
from dashboard.history.storage import tiered_archive
from dashboard.history.storage.archive_index import ArchiveIndex
from dashboard.history.storage.archive_mark import get_mark, read_places
from dashboard.history.storage.archive_owner import KEY as OWNER
from dashboard.history.storage.archive_owner import ArchiveOwner, OwnerEntry
from dashboard.history.storage.archive_turns import ArchiveTurnStore
from dashboard.history.storage.s3 import S3Bucket
from dashboard.history.storage.takeover_folder import ASIDE_S, begin_turn, former_folders
from dashboard.history.storage.tiered_archive import TieredArchive
from dashboard.runtime.state_store import StateUnavailableError
from dashboard.state import HubState
from tests.buckets import URL, KilledError, MemoryBucket, alone, tiered
from tests.unit.histories import START, Source, differences

KEEP = HistoryRetention(raw_s=10**9)


@dataclass
class Site:
    """State and archive that hubs share. `term`: of the hub whose turn it is."""

    folder: Path
    state: HubState
    bucket: MemoryBucket = field(default_factory=MemoryBucket)
    term: int = 0
    now: float = float(START)

    def begin(self, name: str) -> "Hub":
        self.term += 1
        self.now += 10.0
        data = self.folder / name
        data.mkdir(mode=0o700, exist_ok=True)
        begin_turn(data, self.state.store(ArchiveTurnStore), URL, self.now)
        return Hub(self, data)


class Hub:
    def __init__(self, site: Site, data: Path) -> None:
        self.site, self.data, self.term = site, data, site.term
        self.folder = data / "history"
        self.archive = TieredArchive(self.folder, ArchiveIndex(self.folder, URL),
                                     cast(Any, site.bucket), data.name, self.check_term)
        self.places = MessagePlaces(read_places(self.folder))
        self.history = EmbeddedHistory(self.folder, KEEP, self.archive, places=self.places)
        self.history.open()
        store = self.history.store
        self.joiner = ArchiveJoiner(self.archive, store, self.places,
                                    lambda: site.state.another(ArchiveTurnStore), self.term)
        self.marker = ArchiveMarker(self.archive, store, self.places)
        self.mover = ArchiveMover(self.archive, store.files, KEEP, 0.0, 10**9, self.marker,
                                  self.joiner, lambda _: None)
        self.mono = 0.0

    def check_term(self) -> None:
        if self.site.term != self.term:
            raise StateUnavailableError("another hub has taken over")

    def take(self, source: Source, messages: list[HistoryMessage], now: float) -> None:
        self.history.append(source.greetings(), 1)
        self.history.append(messages, 1)
        self.history.store.maintain(now)

    def fill(self, source: Source, start: int, end: int) -> None:
        for block in range(start, end, BLOCK_S):
            self.take(source, source.span(block, block + BLOCK_S),
                      float(block + BLOCK_S + GRACE_S))

    def step(self, now: float) -> str | None:
        self.mono += 1_000.0
        self.mover.step(now, self.mono)
        return self.mover.info().error

    @property
    def news(self) -> StreamRanges | None:
        news = self.joiner.take_news()
        return None if news is None else news.streams

    def mark(self) -> Any:
        owner = ArchiveOwner(self.folder, cast(S3Bucket, self.site.bucket), "", alone)
        owner.read_owner()
        return get_mark(cast(S3Bucket, self.site.bucket), self.folder / "x", owner.marks)


@pytest.fixture(autouse=True)
def _no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("IN_USE_S", "AWAY_S", "WRONG_S", "ROOM_BYTES"):
        monkeypatch.setattr(tiered_archive, name, 0)


@pytest.fixture(name="site")
def _site(tmp_path: Path) -> Iterator[Site]:
    (tmp_path / "state").mkdir(mode=0o700)
    state = HubState.open(tmp_path / "state")
    yield Site(tmp_path, state)
    state.close()


def flaws(hub: Hub, source: Source, end: int) -> list[str]:
    """Return what is missing, made up or twice in files, up to a second."""
    counts = Counter(pair for file in hub.history.store.manifest.of_kind("raw")
                     for pair in pairs(hub.folder / file.name))
    return [*differences(hub.history, source, START, end),
            *(f"{pair} {count} times" for pair, count in counts.items() if count > 1)]


def pairs(path: Path) -> Iterable[tuple[str, int]]:
    table = pq.read_table(path, columns=["gpu", "t"])
    return zip(table.column("gpu").to_pylist(), table.column("t").to_pylist(), strict=True)


def numbers(streams: StreamRanges) -> dict[tuple[str, str], list[tuple[int, int]]]:
    return {key: [*ranges] for key, ranges in streams.items()}


@dataclass
class HubChange:
    """A hub's turn of three blocks, two of which are archived, and the next hub's."""

    source: Source
    first: Hub
    waiting: list[HistoryMessage]  # at nodes: stored, and in no archive
    second: Hub
    middle: int = START + 2 * BLOCK_S
    end: int = START + 3 * BLOCK_S


@pytest.fixture(name="change")
def _change(site: Site) -> HubChange:
    source, first = Source(31), site.begin("a")
    first.fill(source, START, START + 2 * BLOCK_S)
    assert first.step(float(START + 2 * BLOCK_S + 30)) is None
    waiting = source.span(START + 2 * BLOCK_S, START + 3 * BLOCK_S)
    first.take(source, waiting, float(START + 3 * BLOCK_S + GRACE_S))
    return HubChange(source, first, waiting, site.begin("b"))


def test_the_next_hub_serves_at_once_and_then_has_the_archive_s_history(site: Site,
                                                                        change: HubChange) -> None:
    hub, source = change.second, change.source
    assert hub.mover.is_joining
    assert not hub.history.store.manifest.segments
    live = source.span(change.end, change.end + 60)
    hub.take(source, live, float(change.end + 60))
    assert hub.step(float(change.end + 70)) is None
    assert not hub.mover.is_joining
    assert numbers(hub.news or {}) == numbers(change.first.places.archived) != {}
    assert hub.news is None
    assert flaws(hub, source, change.middle) == []
    hub.take(source, change.waiting, float(change.end + BLOCK_S + GRACE_S))  # the nodes bring it
    hub.fill(source, change.end + BLOCK_S, change.end + 2 * BLOCK_S)
    assert flaws(hub, source, change.end + 60) == []
    assert hub.step(float(change.end + 700)) is None
    assert sum(ranges.count for ranges in hub.places.archived.values()) == sum(
        source.seqs.values())
    assert {file.name for file in hub.mark().history_files} == {
        *hub.history.store.manifest.segments}


def test_a_restart_in_the_same_turn_or_in_one_s_next_turn_begins_nothing_afresh(
        site: Site, change: HubChange) -> None:
    hub = change.second
    assert hub.step(float(change.end + 70)) is None
    hub.history.close()
    restart = site.begin("b")
    assert not restart.mover.is_joining
    assert restart.places.is_restored
    assert numbers(restart.places.archived) == numbers(hub.places.archived)
    assert flaws(restart, change.source, change.middle) == []
    restart.take(change.source, change.waiting, float(change.end + GRACE_S + BLOCK_S))
    assert restart.step(float(change.end + 700)) is None
    assert former_folders(restart.data) == []


def test_a_hub_that_was_there_before_writes_nothing_any_more(site: Site, change: HubChange) -> None:
    objects = dict(site.bucket.objects)
    assert change.first.step(float(change.end + 100)) == "another hub has taken over"
    change.first.history.store.maintain(float(change.end + 10_000))  # merges its files
    assert change.first.step(float(change.end + 10_000)) == "another hub has taken over"
    assert site.bucket.objects == objects
    change.second.step(float(change.end + 100))
    archived = numbers(change.first.places.archived)
    change.first.check_term = change.first.archive.owner.check_term = alone  # type: ignore[method-assign]
    assert "has had its turn since" in (change.first.step(float(change.end + 20_000)) or "wrote")
    assert numbers(change.first.places.archived) == archived


@pytest.mark.parametrize("what", ["file", "mark", "deletion"])
def test_a_hub_that_loses_its_turn_within_a_step_stops_there(site: Site, what: str) -> None:
    source, hub = Source(34), site.begin("a")
    hub.fill(source, START, START + 12 * BLOCK_S)
    assert hub.step(float(START + 13 * BLOCK_S)) is None
    now = time.time() + KEEPS_S
    if what == "deletion":  # of files that were merged into others
        hub.history.store.maintain(float(START + 13 * BLOCK_S))
        assert hub.step(now + 60) is None
    elif what == "mark":  # which names one file less
        hub.history.store.manifest.commit((), [*hub.history.store.manifest.segments][:1])
    else:
        hub.fill(source, START + 20 * BLOCK_S, START + 21 * BLOCK_S)
    objects, check, checks = dict(site.bucket.objects), hub.archive.owner.check_term, [0]

    def lose() -> None:
        checks[0] += 1
        site.term += checks[0] == 2
        check()

    hub.archive.owner.check_term = lose
    assert hub.step(now + 120) == "another hub has taken over"
    assert site.bucket.objects == objects


def test_a_mark_that_was_under_way_when_another_hub_took_over_counts_for_neither(
        site: Site) -> None:
    """The former hub stalls within the write of its mark, and goes on after the other's."""
    source, first = Source(32), site.begin("a")
    first.fill(source, START, START + BLOCK_S)
    assert first.step(float(START + BLOCK_S + 30)) is None
    archived = numbers(first.places.archived)
    put, second = site.bucket.put_file, list[Hub]()

    def stall(key: str, path: Path, sha256: str) -> None:
        if key.endswith(".mark") and not second:
            content = path.read_bytes()
            second.append(site.begin("b"))
            assert second[0].step(float(START + 1_000)) is None
            second[0].fill(Source(33), START + 10 * BLOCK_S, START + 11 * BLOCK_S)
            assert second[0].step(float(START + 4_000)) is None
            site.bucket.objects[key] = content
            return
        put(key, path, sha256)

    site.bucket.put_file = stall  # type: ignore[method-assign]
    first.fill(source, START + BLOCK_S, START + 2 * BLOCK_S)
    assert first.step(float(START + 2 * BLOCK_S + 30))
    assert numbers(first.places.archived) == archived
    assert first.marker.take_news() is not None  # of the first mark, and of no other
    assert first.marker.take_news() is None
    [hub] = second
    assert {file.name for file in hub.mark().history_files} == {
        *hub.history.store.manifest.segments}
    third = site.begin("a")
    assert third.step(float(START + 5_000)) is None
    assert numbers(third.news or {}) == numbers(hub.places.archived)


def test_an_owner_entry_that_comes_late_hides_no_mark(site: Site, change: HubChange) -> None:
    """A hub stalls within its claim; the next one claims after it, and is overwritten."""
    late = site.bucket.objects[OWNER]
    hub = change.second
    assert hub.step(float(change.end + 70)) is None
    hub.take(change.source, change.waiting, float(change.end + BLOCK_S + GRACE_S))
    assert hub.step(float(change.end + 400)) is None
    mark = hub.mark()
    site.bucket.objects[OWNER] = late
    third = site.begin("c")
    assert third.step(float(change.end + 500)) is None
    assert numbers(third.news or {}) == numbers(hub.places.archived)
    site.bucket.objects[OWNER] = late
    third.fill(change.source, change.end + BLOCK_S, change.end + 2 * BLOCK_S)
    assert third.step(float(change.end + 1_000)) is None  # it takes it back
    assert OwnerEntry.read(site.bucket.objects[OWNER]).term == third.term
    assert third.mark().number > mark.number


def test_an_archive_that_is_away_is_joined_when_it_is_back(site: Site, change: HubChange) -> None:
    hub, source = change.second, change.source
    site.bucket.why = "it is away"
    for at in range(3):
        hub.fill(source, change.end + at * BLOCK_S, change.end + (at + 1) * BLOCK_S)
        assert hub.step(float(change.end + (at + 1) * BLOCK_S + 30)) == "it is away"
        assert hub.mover.is_joining
    assert differences(hub.history, source, change.end, change.end + 3 * BLOCK_S) == []
    hub.history.save_places(has_checkpoints=True)
    hub.history.close()
    restarted = site.begin("b")
    assert restarted.mover.is_joining
    site.bucket.why = None
    assert restarted.step(float(change.end + 2_000)) is None
    restarted.take(source, change.waiting, float(change.end + 2_100))
    assert flaws(restarted, source, change.end + 3 * BLOCK_S) == []
    assert len(site.state.store(ArchiveTurnStore).last(URL).marks) <= 2  # type: ignore[union-attr]


@pytest.mark.parametrize("where", ["fetch", "places", "index", "manifest", "after"])
def test_a_hub_that_is_killed_while_it_joins_joins_once(
        site: Site, change: HubChange, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hub, source = change.second, change.source

    def kill(*_: object, **__: object) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        match where:
            case "fetch":
                patch.setattr(hub.joiner, "_index", kill)
            case "index":
                patch.setattr(hub.archive.index, "adopt", kill)
            case "places":
                patch.setattr(hub.history.store, "save_places", kill)
            case "manifest":
                patch.setattr(hub.history.store.manifest, "commit", kill)
            case "after":
                patch.setattr("dashboard.history.files.archive_joiner.clean_up", kill)
        with pytest.raises(KilledError):
            hub.step(float(change.end + 70))
    hub.history.close()
    restart = site.begin("b")
    assert restart.mover.is_joining == (where != "after")
    if where in ("manifest", "after"):
        assert numbers(restart.places.archived) == numbers(change.first.places.archived)
    restart.history.store.maintain(float(change.end + 5_000))  # merges what it finds
    assert restart.step(float(change.end + 5_100)) is None
    restart.take(source, change.waiting, float(change.end + 5_200))
    assert flaws(restart, source, change.end) == []


def test_a_hub_that_is_back_begins_with_what_the_other_has_archived(site: Site, change: HubChange
                                                                    ) -> None:
    """Join what both have, without what the first one still has: that is not fetched."""
    hub, source = change.second, change.source
    assert hub.step(float(change.end + 70)) is None
    hub.take(source, change.waiting, float(change.end + BLOCK_S + GRACE_S))
    hub.fill(source, change.end + BLOCK_S, change.end + 2 * BLOCK_S)
    assert hub.step(float(change.end + 700)) is None
    change.first.history.close()
    (change.first.data / "headlog").mkdir()
    (change.first.data / "headlog" / "head-00000001.log").write_bytes(b"what it had received")
    site.bucket.requests.clear()
    back = site.begin("a")
    assert not (back.data / "headlog").exists()
    assert back.step(float(change.end + 800)) is None
    fetched = [request for request in site.bucket.requests if request.startswith("get raw/")]
    assert len(fetched) == 2
    assert flaws(back, source, change.end) == []
    [former] = former_folders(back.data)
    names = {file.name for file in back.history.store.manifest.segments.values()}
    rest = {path.relative_to(former).as_posix() for path in former.glob("*/*.parquet")}
    assert rest
    assert not rest & names
    leaving = {file.key for file in back.archive.index.files("leaving")}
    assert not leaving & {file.key for file in back.archive.index.files("there")}
    back.history.close()
    site.now += ASIDE_S + 60
    site.begin("b")
    site.now += 10
    assert site.begin("a").step(site.now) is None
    assert former not in former_folders(back.data)


def test_a_former_folder_with_the_only_copy_of_hours_stays(site: Site, change: HubChange) -> None:
    """Its archive had refused the hub for two hours when another one took over."""
    assert change.second.step(float(change.end + 70)) is None
    change.first.history.close()
    site.now = float(change.end + 7_200)
    back = site.begin("a")
    assert back.step(site.now) is None
    [former] = former_folders(back.data)
    assert any(former.glob("*/*.parquet"))
    for name in ("b", "a"):
        back.history.close()
        site.now += ASIDE_S + 60
        back = site.begin(name)
        assert back.step(site.now) is None
    assert former in former_folders(back.data)
    assert any(former.glob("*/*.parquet"))


def test_an_archive_of_hubs_with_another_state_is_not_taken(site: Site, change: HubChange) -> None:
    other = tiered(site.folder / "other" / "history", site.bucket, "stranger")
    site.bucket.objects.pop(OWNER)
    other.owner.check(is_new=True)
    assert "belongs to the hub 'stranger'" in (change.second.step(float(change.end + 70)) or "took")
    assert change.second.mover.is_joining
    assert OwnerEntry.read(site.bucket.objects[OWNER]).hub == "stranger"


def test_a_hub_whose_turn_is_over_claims_nothing(site: Site, change: HubChange) -> None:
    site.begin("c")
    assert change.second.step(float(change.end + 70))
    assert OwnerEntry.read(site.bucket.objects[OWNER]).hub == "a"
    change.second.check_term = change.second.archive.owner.check_term = alone  # type: ignore[method-assign]
    assert "has had its turn since" in (change.second.step(float(change.end + 80)) or "took")
    third = site.begin("c")
    assert third.step(float(change.end + 70)) is None
    with pytest.raises(Exception, match="took it later"):
        change.second.archive.owner.claim(("b", OwnerEntry.read(
            site.bucket.objects[OWNER]).token), 2, ("late.mark",))


def test_a_lost_folder_is_one_of_a_hub_that_begins_its_turn(site: Site, change: HubChange) -> None:
    assert change.second.step(float(change.end + 70)) is None
    shutil.rmtree(change.second.data)
    restart = site.begin("b")
    assert restart.mover.is_joining
    assert restart.step(float(change.end + 90)) is None
    assert flaws(restart, change.source, change.middle) == []


def test_news_of_a_join_are_published(site: Site, change: HubChange) -> None:
    assert change.second.step(float(change.end + 70)) is None
    assert isinstance(change.second.joiner.take_news(), HistoryJoined)
