import random
import sqlite3
import threading
from pathlib import Path

import pytest

from agent.journal import DAY_S, PRUNE_EVERY_S, UNSAVED_MAX, Journal, Outbox
from gpudeck.errors import CommandError, ExitCode
from gpudeck.wire import Event, Frame, GpuFacts, Inventory, Sequenced, decode_from_agent


def events(outbox: Outbox, count: int, text: str = "") -> list[Sequenced]:
    first = outbox.last_seq + 1
    return [Event(seq, 0.0, "test", text=text) for seq in range(first, first + count)]


def pending(outbox: Outbox, after: int = 0) -> list[int]:
    entries = outbox.pending_from(after, 100_000)
    assert [decode_from_agent(body).seq for _, body in entries] == [  # type: ignore[union-attr]
        seq for seq, _ in entries
    ]
    return [seq for seq, _ in entries]


def test_what_is_not_acked_outlives_the_process(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db")
    outbox = journal.outbox()
    outbox.append(events(outbox, 5), 0.0)
    outbox.append(events(outbox, 5), 1.0)
    outbox.ack(3)
    outbox.append(events(outbox, 1), 2.0)
    # not closed: as after kill -9, another process opens the file
    again = Journal(tmp_path / "j.db").outbox()
    assert pending(again) == [4, 5, 6, 7, 8, 9, 10, 11]
    assert (again.last_seq, again.stream) == (11, outbox.stream)


def test_numbering_goes_on_when_everything_was_acked(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db")
    outbox = journal.outbox()
    outbox.append(events(outbox, 7), 0.0)
    outbox.ack(7)
    assert (pending(outbox), outbox.pending) == ([], 0)
    journal.close()
    again = Journal(tmp_path / "j.db").outbox()
    assert again.last_seq == 7
    again.ack(7)  # the Welcome says so
    assert pending(again) == []


def test_a_disk_that_forgot_what_was_sent_gives_no_number_twice(tmp_path: Path) -> None:
    outbox = Journal(tmp_path / "j.db").outbox()
    outbox.append(events(outbox, 2), 0.0)
    outbox.ack(50)
    outbox.append(events(outbox, 1), 1.0)
    assert pending(outbox) == [51]


def test_pending_from_is_bounded_and_in_order(tmp_path: Path) -> None:
    outbox = Journal(tmp_path / "j.db").outbox()
    for _ in range(10):
        outbox.append(events(outbox, 10), 0.0)
    assert [seq for seq, _ in outbox.pending_from(42, 5)] == [43, 44, 45, 46, 47]
    assert [seq for seq, _ in outbox.pending_from(97, 50)] == [98, 99, 100]
    assert outbox.pending_from(100, 50) == []


def test_older_than_a_day_is_dropped_and_counted(tmp_path: Path) -> None:
    outbox = Journal(tmp_path / "j.db").outbox()
    start = random.uniform(0, 1e9)
    outbox.append(events(outbox, 30), start)
    outbox.append(events(outbox, 10), start + 3_600)
    outbox.append(events(outbox, 1), start + DAY_S + 60)
    assert (outbox.dropped, pending(outbox)[0]) == (30, 31)
    assert Journal(tmp_path / "j.db").outbox().dropped == 30


def test_more_than_the_cap_drops_the_oldest(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db")
    outbox = journal.outbox(cap_bytes=100_000)
    for at in range(300):
        outbox.append(events(outbox, 1, text="x" * 900), at * PRUNE_EVERY_S)
    seqs = pending(outbox)
    [(size,)] = journal.rows("SELECT sum(length(body)) FROM message")
    assert size <= 100_000 * 17 / 16
    assert size > 80_000
    assert seqs == list(range(outbox.dropped + 1, 301))
    assert outbox.pending == len(seqs)


def test_inventories_are_kept_while_a_frame_needs_them(tmp_path: Path) -> None:
    outbox = Journal(tmp_path / "j.db").outbox()

    def frame_of(generation: int) -> None:
        facts = GpuFacts(uuid=f"GPU-{generation}", index=0, name="n")
        outbox.keep_inventory(Inventory(generation, (facts,)))
        frame = Frame(outbox.last_seq + 1, 0.0, 1.0, generation, b"", b"", b"")
        outbox.append([frame], 0.0)

    def kept(after: int = -1) -> list[int]:
        return [decode_from_agent(body).generation  # type: ignore[union-attr]
                for body in outbox.inventories_after(after)]

    for generation in (1, 2, 3):
        frame_of(generation)
    assert kept() == [1, 2, 3]
    assert kept(after=2) == [3]
    outbox.ack(2)
    frame_of(4)
    assert kept() == [3, 4]
    again = Journal(tmp_path / "j.db").outbox()
    latest = again.latest_inventory()
    assert latest is not None
    assert (again.generation, latest.gpus[0].uuid) == (4, "GPU-4")


def test_nodes_in_one_file_do_not_meet(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db")
    first, second = journal.outbox("n1"), journal.outbox("n2")
    first.append(events(first, 3), 0.0)
    second.append(events(second, 5), 0.0)
    first.ack(3)
    first.append(events(first, 1), 0.0)
    assert (pending(first), pending(second)) == ([4], [1, 2, 3, 4, 5])
    assert first.stream != second.stream
    assert first.stream != second.stream


def test_many_nodes_share_their_commits(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db", group_s=0.05)
    commits: list[str] = []
    journal._db.set_trace_callback(lambda sql: commits.append(sql) if sql == "COMMIT" else None)

    def one_node(name: str) -> None:
        outbox = journal.outbox(name)
        outbox.append(events(outbox, 1), 0.0)

    threads = [threading.Thread(target=one_node, args=(f"n{n}",)) for n in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    other = sqlite3.connect(tmp_path / "j.db")
    [(stored,)] = other.execute("SELECT count(*) FROM message").fetchall()
    other.close()
    assert stored == 50
    assert 1 <= len(commits) < 25


def test_a_disk_that_refuses_is_said_and_messages_go_on_in_memory(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db")
    outbox = journal.outbox()
    outbox.append(events(outbox, 2), 0.0)
    [(pages,)] = journal.rows("PRAGMA page_count")
    journal.rows(f"PRAGMA max_page_count = {pages}")  # sqlite's own "disk is full"
    while not outbox.trouble:
        outbox.append(events(outbox, 10, text="x" * 1_000), 1.0)
    assert "free space" in outbox.trouble
    outbox.keep_inventory(Inventory(9, ()))
    outbox.append(events(outbox, 3), 2.0)
    assert pending(outbox) == list(range(1, outbox.last_seq + 1))
    assert len(outbox.inventories_after(-1)) == 1
    outbox.append(events(outbox, UNSAVED_MAX), 3.0)
    assert outbox.dropped > 0

    journal.rows("PRAGMA max_page_count = 1000000")
    outbox.append(events(outbox, 1), 4.0)
    assert outbox.trouble == ""
    stored = pending(Journal(tmp_path / "j.db").outbox())
    assert stored == pending(outbox)
    assert stored[-1] == outbox.last_seq


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CommandError, match="--data") as caught:
        Journal(tmp_path / "file" / "j.db")
    assert caught.value.code == ExitCode.CANNOT_START


def test_a_file_that_is_no_journal(tmp_path: Path) -> None:
    (tmp_path / "j.db").write_bytes(b"not a database, but long enough to be read as one" * 100)
    with pytest.raises(CommandError, match="another folder"):
        Journal(tmp_path / "j.db")
