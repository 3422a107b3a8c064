"""Copies of what the hub has stored and not yet archived: how long they stay, and who gets them."""

import random
import sqlite3
from pathlib import Path

import pytest
from msgspec import UNSET

from agent.link.outbox import DAY_S, RATE_OVER_S, Outbox
from agent.link.outbox_file import OutboxFile
from agent.link.outbox_rows import UNSAVED_MAX
from gpudeck.contract.wire import Event, JournalCopies, Sequenced, Span, decode_from_agent


@pytest.fixture(name="file")
def _file(tmp_path: Path) -> OutboxFile:
    return OutboxFile(tmp_path / "j.db")


def fill(outbox: Outbox, count: int, now: float = 0.0, text: str = "") -> None:
    first = outbox.last_seq + 1
    messages: list[Sequenced] = [Event(seq, 0.0, "test", text=text)
                                 for seq in range(first, first + count)]
    outbox.append(messages, now)


def filled(file: OutboxFile, count: int, text: str = "", cap_bytes: int = 2**30) -> Outbox:
    outbox = Outbox(file, cap_bytes=cap_bytes)
    fill(outbox, count, text=text)
    outbox.mark_sent(1, outbox.last_seq)
    return outbox


def to_send(outbox: Outbox) -> list[int]:
    return [seq for seq, _ in outbox.entries(0, outbox.last_seq, 100_000, 2**30)]


def on_disk(tmp_path: Path) -> list[int]:
    with sqlite3.connect(tmp_path / "j.db") as db:
        return [seq for seq, in db.execute("select seq from message order by seq")]


def first_in(outbox: Outbox) -> int:
    copies = outbox.copies(0.0, 0.0)
    assert isinstance(copies, JournalCopies)
    return copies.first


def test_what_is_stored_stays_until_it_is_archived(tmp_path: Path, file: OutboxFile) -> None:
    outbox = filled(file, 10)
    outbox.ack(8, (), (Span(1, 3),))
    assert (outbox.pending, to_send(outbox), outbox.first_seq) == (2, [9, 10], 9)
    assert first_in(outbox) == 4
    fill(outbox, 1)
    assert on_disk(tmp_path) == [*range(4, 12)]
    outbox.mark_sent(11, 11)
    outbox.ack(11, (), (Span(1, 3), Span(6, 7)))
    fill(outbox, 1)
    assert on_disk(tmp_path) == [4, 5, *range(8, 13)]


def test_a_hub_without_an_archive_of_seconds_has_them_dropped_as_ever(
        tmp_path: Path, file: OutboxFile) -> None:
    outbox = filled(file, 10)
    outbox.ack(8)
    assert outbox.copies(0.0, 0.0) is UNSET
    fill(outbox, 1)
    assert on_disk(tmp_path) == [9, 10, 11]
    outbox.ack(9, (), ())  # it has one from now on
    outbox.mark_sent(11, 11)
    outbox.ack(11)  # and none again
    fill(outbox, 1)
    assert on_disk(tmp_path) == [12]


@pytest.mark.parametrize("archived", [Span(1, 2**53), Span(5, 12), Span(11, 15)])
def test_no_word_of_an_archive_removes_what_no_hub_has_stored(file: OutboxFile, archived: Span
                                                              ) -> None:
    outbox = filled(file, 10)
    fill(outbox, 5)
    outbox.ack(0, (), (archived,))
    assert to_send(outbox) == [*range(1, 16)]
    outbox.ack(4, (), (archived,))
    assert to_send(outbox) == [*range(5, 16)]
    outbox.welcomed(4, (), (archived,))
    assert to_send(outbox) == [*range(5, 16)]


def test_a_hub_that_lost_its_disk_gets_the_copies(file: OutboxFile) -> None:
    outbox = filled(file, 20)
    outbox.ack(15, (Span(17, 20),), (Span(1, 4), Span(6, 8)))
    outbox.broke()
    outbox.welcomed(4, (Span(6, 8),), (Span(1, 4), Span(6, 8)))
    assert to_send(outbox) == [5, *range(9, 21)]
    assert outbox.first_seq == 5
    entries = outbox.entries(0, 20, 100, 2**30)
    assert [getattr(decode_from_agent(body), "seq", None) for _, body in entries] == to_send(outbox)
    outbox.mark_sent(1, 20)
    outbox.ack(20, (), (Span(1, 8),))
    assert (outbox.pending, first_in(outbox)) == (0, 9)


def test_copies_outlive_the_agent_and_the_next_welcome_says_that_they_are_copies(
        tmp_path: Path, file: OutboxFile) -> None:
    filled(file, 10).ack(10, (), (Span(1, 2),))
    file.close()
    reopened = Outbox(OutboxFile(tmp_path / "j.db"))
    reopened.welcomed(10, (), (Span(1, 5),))
    assert (reopened.pending, first_in(reopened)) == (0, 6)


def test_a_full_journal_gives_up_copies_and_nothing_that_is_not_stored(
        tmp_path: Path, file: OutboxFile) -> None:
    outbox = filled(file, 30, text="x" * 1_000, cap_bytes=40_000)
    outbox.ack(20, (), ())
    for _ in range(15):
        fill(outbox, 1, text="x" * 1_000)
        outbox.mark_sent(outbox.last_seq, outbox.last_seq)
    assert to_send(outbox) == [*range(21, 46)]
    assert (outbox.dropped, outbox.pending) == (0, 25)
    assert 5 < first_in(outbox) <= 20
    fill(outbox, 30, text="x" * 1_000)  # nobody has them: as without an archive
    assert first_in(outbox) > 20
    assert on_disk(tmp_path) == to_send(outbox)


def test_copies_are_given_up_after_a_day(file: OutboxFile) -> None:
    outbox = filled(file, 5)
    outbox.ack(5, (), ())
    fill(outbox, 1, now=DAY_S - 1)
    assert first_in(outbox) == 1
    fill(outbox, 1, now=DAY_S + 1)
    assert first_in(outbox) == 6
    assert outbox.dropped == 0


def test_a_disk_that_refuses_gives_up_copies_before_memory_is_full(
        file: OutboxFile, monkeypatch: pytest.MonkeyPatch) -> None:
    outbox = filled(file, 1)
    monkeypatch.setattr(file, "commit", lambda: False)
    for _ in range(UNSAVED_MAX + 50):
        fill(outbox, 1)
        outbox.mark_sent(outbox.last_seq, outbox.last_seq)
        outbox.ack(outbox.last_seq, (), ())
    assert UNSAVED_MAX - 10 <= outbox._pending.copies.ranges.count <= UNSAVED_MAX + 1
    assert outbox.dropped == 0


def test_another_stream_has_no_copies_of_the_former_one(file: OutboxFile) -> None:
    outbox = filled(file, 10)
    outbox.ack(5, (), ())
    stream = outbox.stream
    outbox.welcomed(random.randrange(1_000, 2_000), (), ())  # this disk forgot what it gave out
    assert outbox.stream != stream
    assert (to_send(outbox), first_in(outbox)) == ([*range(6, 11)], 6)


def test_the_beat_says_since_when_there_are_copies_and_how_many_fit(file: OutboxFile) -> None:
    outbox = filled(file, 1, text="x" * 900, cap_bytes=2_000_000)
    for second in range(1, 101):
        fill(outbox, 1, now=float(second), text="x" * 900)
        outbox.mark_sent(outbox.last_seq, outbox.last_seq)
    outbox.ack(outbox.last_seq, (), (Span(1, 11),))
    copies = outbox.copies(100.0, 5_000.0)
    assert isinstance(copies, JournalCopies)
    assert (copies.first, copies.since) == (12, 4_911.0)
    assert copies.room_s is not None
    assert 1_500 < copies.room_s < 2_200
    outbox.ack(outbox.last_seq, (), (Span(1, 100 - int(RATE_OVER_S) + 5),))
    young = outbox.copies(100.0, 5_000.0)
    assert isinstance(young, JournalCopies)
    assert young.room_s is None  # not known yet
    outbox.ack(outbox.last_seq, (), (Span(1, 101),))
    assert outbox.copies(100.0, 5_000.0) == JournalCopies(102, None, None)
