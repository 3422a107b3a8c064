"""Places of messages: what counts as being in files is there, all of it, and nothing else does."""

import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dashboard.history.columns.memory import BLOCK_S
from dashboard.history.columns.rows import HistoryMessage
from dashboard.history.files.file_set import HistoryFiles
from dashboard.history.files.parquet import HOUR_S
from dashboard.history.files.sealing import GRACE_S, LATE_S
from dashboard.history.files.store import RETRY_S
from dashboard.history.ingest.message_places import (
    MAX_RANGES,
    MAX_STREAMS,
    MessagePlaces,
    StreamRanges,
)
from dashboard.history.reads.embedded import EmbeddedHistory
from dashboard.history.storage.archive_mark import PLACES, PlacesRecord, read_places
from gpudeck.contract.sequence_ranges import SequenceRanges
from gpudeck.contract.wire import Event, Frame
from tests.unit.histories import START, Source

KEY = ("n0", "s")


def opened(folder: Path) -> EmbeddedHistory:
    folder.mkdir(exist_ok=True)
    history = EmbeddedHistory(folder, places=MessagePlaces(read_places(folder)))
    history.open()
    return history


def places_of(history: EmbeddedHistory) -> MessagePlaces:
    assert history.places is not None
    return history.places


def in_files(history: EmbeddedHistory) -> set[tuple[str, int]]:
    return {(node, seq) for (node, _), ranges in places_of(history).in_files().items()
            for first, last in ranges for seq in range(first, last + 1)}


def unarchived(history: EmbeddedHistory) -> set[tuple[str, int]]:
    return {(key[0], seq) for key, _, ranges in history.unarchived()
            for first, last in ranges for seq in range(first, last + 1)}


def rows_in_files(history: EmbeddedHistory, kind: str, *columns: str) -> set[tuple[object, ...]]:
    manifest = history.store.manifest
    return {row for path in manifest.verified(manifest.of_kind(kind))
            for row in zip(*(pq.read_table(path).column(name).to_pylist() for name in columns),
                           strict=True)}


def agree(history: EmbeddedHistory, messages: list[HistoryMessage], is_exact: bool = True) -> None:
    """Check that a message counts as being in files if, and only if, all that it says is. Where it
    is not `is_exact` some that are may still count as waiting."""
    samples = rows_in_files(history, "raw", "node", "t")
    events = rows_in_files(history, "events", "node", "seq")
    there = {(entry.node_id, entry.message.seq) for entry in messages
             if isinstance(entry.message, Frame) and (entry.node_id, entry.second) in samples}
    there |= {(entry.node_id, entry.message.seq) for entry in messages
              if isinstance(entry.message, Event) and (
                  entry.node_id, entry.message.seq) in events}
    assert in_files(history) <= there
    if is_exact:
        assert in_files(history) == there
    numbers = {(entry.node_id, entry.message.seq) for entry in messages
            if isinstance(entry.message, Frame | Event)}
    assert numbers - in_files(history) <= unarchived(history)


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("seed", random.sample(range(10**6), 2))
def test_what_counts_as_being_in_files_is_in_files(tmp_path: Path, seed: int, is_killed: bool
                                                   ) -> None:
    """Messages come in any order, late and doubled, and the hub is killed."""
    source, rng = Source(seed), random.Random(seed)
    history = opened(tmp_path / "h")
    greetings = source.greetings()
    history.append(greetings, 1)
    waiting = source.span(START, START + 3 * BLOCK_S)
    rng.shuffle(waiting)
    by_time = sorted(waiting, key=lambda entry: entry.second or entry.received_at)
    # A third of them come late, in any order.
    late = set(map(id, rng.sample(by_time, len(by_time) // 3)))
    order = [entry for entry in by_time if id(entry) not in late] + [
        entry for entry in waiting if id(entry) in late]
    received: list[HistoryMessage] = []
    now = START
    while order:
        part, order = order[:120], order[120:]
        history.append(part, 1)
        history.append(rng.sample(received, min(len(received), 20)), 1)  # doubled
        received += part
        now = max(now, int(part[-1].received_at))
        history.store.maintain(float(now + rng.randrange(60)))
        agree(history, received, not is_killed)
        if is_killed and rng.random() < 0.2:  # killed: the head log brings all again
            if rng.random() < 0.5:
                history.save_places()
            history.close()
            history = opened(tmp_path / "h")
            history.append(greetings, 1)
            history.append(received, 1)
            agree(history, received, is_exact=False)
    end = START + 3 * BLOCK_S + HOUR_S
    for second in range(0, 200, 25):
        history.store.maintain(float(end + second))
    agree(history, received)
    assert places_of(history).oldest is not None  # none of it is archived
    places_of(history).mark_archived(places_of(history).in_files())
    assert (unarchived(history), places_of(history).oldest) == (set(), None)
    history.close()


def test_the_oldest_second_that_is_not_archived_is_known(tmp_path: Path) -> None:
    history, source = opened(tmp_path / "h"), Source(5)
    history.append(source.greetings(), 1)
    assert places_of(history).oldest is None
    history.append(source.node_second("n0", START + 7), 1)
    history.append(source.node_second("n1", START + BLOCK_S + 3), 1)
    assert places_of(history).oldest == START + 7
    history.store.maintain(float(START + BLOCK_S + GRACE_S))
    assert places_of(history).oldest == START + 7
    places_of(history).mark_archived(places_of(history).in_files())
    assert places_of(history).oldest == START + BLOCK_S + 3
    history.close()


def test_what_is_shed_or_lost_is_never_archived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                                ) -> None:
    history, source = opened(tmp_path / "h"), Source(6)
    history.append(source.greetings(), 1)
    history.append(source.span(START, START + 5), 1)

    def refuse(*_: object) -> None:
        raise ValueError("it cannot be written")

    with monkeypatch.context() as patch:
        patch.setattr(HistoryFiles, "write", refuse)
        for attempt in range(4):
            history.store.maintain(float(START + BLOCK_S + GRACE_S + attempt))
    assert history.store.feed.counts.shed_seconds > 0 or history.info().quarantined
    assert in_files(history) == set()

    start = START + 2 * BLOCK_S
    history.append(source.span(start, start + 5), 1)
    history.store.maintain(float(start + BLOCK_S + GRACE_S))
    assert in_files(history)
    places_of(history).lose(start + 3_600, start + 7_200)
    assert in_files(history)
    places_of(history).lose(start, start + 1)
    assert in_files(history) == set()
    history.close()


def test_what_comes_while_a_late_file_is_tried_again_waits_for_the_next(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of then is in the next attempt's file, and an event of then is not."""
    history, source = opened(tmp_path / "h"), Source(9)
    history.append(source.greetings(), 1)
    now = START + HOUR_S
    first = Event(1_000, float(START), "test")
    history.append([*_late(source, range(5), now), _event(first, now)], 1)
    with monkeypatch.context() as patch:
        patch.setattr(HistoryFiles, "commit", _no_room)
        for attempt in range(2):
            history.store.maintain(now + attempt * LATE_S)
    second = Event(1_001, float(START), "test")
    history.append([*_late(source, range(5, 10), now), _event(second, now)], 1)
    is_written = False
    for attempt in range(2, 8):
        history.store.maintain(now + attempt * 2 * LATE_S + RETRY_S)
        is_there = ("n0", 1_001) in rows_in_files(history, "events", "node", "seq")
        assert is_there or ("n0", 1_001) not in in_files(history)
        is_written |= is_there
    assert is_written
    assert ("n0", 1_001) in in_files(history)
    history.close()


def _late(source: Source, seconds: range, received_at: float) -> list[HistoryMessage]:
    return [one for at in seconds for one in source.second(START + at, received_at, whole=True)]


def _event(event: Event, received_at: float) -> HistoryMessage:
    return HistoryMessage("n0", "s", received_at, event)


def _no_room(*_: object) -> None:
    raise OSError(28, "no space left on device")


def test_a_node_cannot_make_it_remember_without_end() -> None:
    places = MessagePlaces(PlacesRecord())
    streams: StreamRanges = {
        ("n0", f"s{number}"): SequenceRanges((2 * seq, 2 * seq) for seq in range(2_000))
        for number in range(20)}
    places.note(("n0", "s0"), 2, START, is_new=True)
    places.close(START - START % BLOCK_S)
    places.mark_sealed(START - START % BLOCK_S)
    places.mark_archived(streams)
    assert places.oldest is None
    bounded = places.in_files()
    assert [*bounded] == [("n0", f"s{number}") for number in range(20 - MAX_STREAMS, 20)]
    assert {len(ranges) for ranges in bounded.values()} == {MAX_RANGES}
    assert {ranges.last for ranges in bounded.values()} == {3_998}


def test_a_record_that_does_not_read_archives_nothing(tmp_path: Path) -> None:
    history, source = opened(tmp_path / "h"), Source(8)
    history.append(source.greetings(), 1)
    history.append(source.span(START, START + 5), 1)
    history.store.maintain(float(START + BLOCK_S + GRACE_S))
    history.save_places()
    numbers = in_files(history)
    history.close()
    reopened = opened(tmp_path / "h")
    assert in_files(reopened) == numbers != set()
    reopened.close()
    (tmp_path / "h" / PLACES).write_bytes(b"\x93\x01")
    spoilt = opened(tmp_path / "h")
    assert in_files(spoilt) == set()
    spoilt.close()
