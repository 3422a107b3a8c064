import random
import sqlite3
import threading
from pathlib import Path

import pytest

from agent.link.outbox import DAY_S, QUIET_S, Outbox
from agent.link.outbox_file import (
    DAMAGED_KEPT,
    FREE_KEPT_PAGES,
    STEP_EVERY_S,
    STEP_PAGES,
    OutboxFile,
)
from agent.link.outbox_rows import UNSAVED_MAX
from gpudeck.contract.wire import (
    Event,
    Frame,
    GpuFacts,
    Inventory,
    Sequenced,
    Span,
    decode_from_agent,
)
from gpudeck.errors import CommandError, ExitCode


def events(outbox: Outbox, count: int, text: str = "") -> list[Sequenced]:
    first = outbox.last_seq + 1
    return [Event(seq, 0.0, "test", text=text) for seq in range(first, first + count)]


def pending(outbox: Outbox, after: int = 0) -> list[int]:
    entries = outbox.entries(after, outbox.last_seq, 100_000, 2**30)
    assert [decode_from_agent(body).seq for _, body in entries] == [  # type: ignore[union-attr]
        seq for seq, _ in entries
    ]
    return [seq for seq, _ in entries]


def seqs(outbox: Outbox, after: int, upto: int, limit: int) -> list[int]:
    return [seq for seq, _ in outbox.entries(after, upto, limit)]


def mark_all_sent(outbox: Outbox) -> None:
    outbox.mark_sent(1, outbox.last_seq)


@pytest.mark.parametrize("was_there", [False, True])
def test_nobody_else_reads_it(tmp_path: Path, was_there: bool) -> None:
    """Commands of tasks are in it, also in one that an earlier version made."""
    path = tmp_path / "journal.db"
    before = OutboxFile(path) if was_there else None
    for file in tmp_path.iterdir():
        file.chmod(0o644)
    journal = OutboxFile(path)
    Outbox(journal).append(events(Outbox(journal), 1), 0.0)
    assert {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {
        path.name + end: 0o600 for end in ("", "-wal", "-shm")}
    journal.close()
    if before is not None:
        before.close()


def test_what_is_not_acked_outlives_the_process(tmp_path: Path) -> None:
    journal = OutboxFile(tmp_path / "j.db")
    outbox = Outbox(journal)
    outbox.append(events(outbox, 5), 0.0)
    outbox.append(events(outbox, 5), 1.0)
    mark_all_sent(outbox)
    outbox.ack(3)
    outbox.append(events(outbox, 1), 2.0)
    # not closed: as after kill -9, another process opens the file
    reopened = Outbox(OutboxFile(tmp_path / "j.db"))
    assert pending(reopened) == [4, 5, 6, 7, 8, 9, 10, 11]
    assert (reopened.last_seq, reopened.stream) == (11, outbox.stream)


def test_numbering_goes_on_when_everything_was_acked(tmp_path: Path) -> None:
    journal = OutboxFile(tmp_path / "j.db")
    outbox = Outbox(journal)
    outbox.append(events(outbox, 7), 0.0)
    mark_all_sent(outbox)
    outbox.ack(7)
    outbox.append([], 1.0)
    assert (pending(outbox), outbox.pending) == ([], 0)
    journal.close()
    reopened = Outbox(OutboxFile(tmp_path / "j.db"))
    assert reopened.last_seq == 7
    reopened.welcomed(7)
    assert pending(reopened) == []


def test_a_disk_that_forgot_what_was_sent_gives_no_number_twice(tmp_path: Path) -> None:
    before = Outbox(OutboxFile(tmp_path / "j.db"))
    before.append(events(before, 2), 0.0)
    outbox = Outbox(OutboxFile(tmp_path / "j.db"))
    outbox.welcomed(50)
    outbox.append(events(outbox, 1), 1.0)
    assert pending(outbox) == [51]


def test_pending_from_is_bounded_and_in_order(tmp_path: Path) -> None:
    outbox = Outbox(OutboxFile(tmp_path / "j.db"))
    for _ in range(10):
        outbox.append(events(outbox, 10), 0.0)
    assert seqs(outbox, 42, 100, 5) == [43, 44, 45, 46, 47]
    assert seqs(outbox, 97, 100, 50) == [98, 99, 100]
    assert seqs(outbox, 10, 12, 50) == [11, 12]
    assert seqs(outbox, 100, 100, 50) == []


def test_older_than_a_day_is_dropped_and_counted(tmp_path: Path) -> None:
    outbox = Outbox(OutboxFile(tmp_path / "j.db"))
    start = random.uniform(0, 1e9)
    outbox.append(events(outbox, 30), start)
    outbox.append(events(outbox, 10), start + 3_600)
    outbox.append(events(outbox, 1), start + DAY_S + 60)
    assert (outbox.dropped, pending(outbox)[0]) == (30, 31)
    assert Outbox(OutboxFile(tmp_path / "j.db")).dropped == 30


def test_more_than_the_cap_drops_the_oldest(tmp_path: Path) -> None:
    journal = OutboxFile(tmp_path / "j.db")
    outbox = Outbox(journal, cap_bytes=100_000)
    for at in range(300):
        outbox.append(events(outbox, 1, text="x" * 900), float(at))
    seqs = pending(outbox)
    [(size,)] = journal.rows("SELECT sum(length(body)) FROM message")
    assert size == outbox._pending.bytes
    assert 98_000 < size <= 100_000
    assert seqs == list(range(outbox.dropped + 1, 301))
    assert outbox.pending == len(seqs)


def test_inventories_are_kept_while_a_frame_needs_them(tmp_path: Path) -> None:
    outbox = Outbox(OutboxFile(tmp_path / "j.db"))

    def frame_of(generation: int) -> None:
        facts = GpuFacts(uuid=f"GPU-{generation}", index=0, name="n")
        outbox.keep_inventory(Inventory(generation, (facts,)))
        frame = Frame(outbox.last_seq + 1, 0.0, 1.0, generation, b"", b"", b"")
        outbox.append([frame], 0.0)

    def generations(after: int = -1) -> list[int]:
        return [decode_from_agent(body).generation  # type: ignore[union-attr]
                for body in outbox.inventories_after(after)]

    for generation in (1, 2, 3):
        frame_of(generation)
    assert generations() == [1, 2, 3]
    assert generations(after=2) == [3]
    mark_all_sent(outbox)
    outbox.ack(2)
    frame_of(4)
    assert generations() == [3, 4]
    reopened = Outbox(OutboxFile(tmp_path / "j.db"))
    latest = reopened.latest_inventory
    assert latest is not None
    assert (reopened.generation, latest.gpus[0].uuid) == (4, "GPU-4")


def test_nodes_in_one_file_do_not_meet(tmp_path: Path) -> None:
    journal = OutboxFile(tmp_path / "j.db")
    first, second = Outbox(journal, "n1"), Outbox(journal, "n2")
    first.append(events(first, 3), 0.0)
    second.append(events(second, 5), 0.0)
    mark_all_sent(first)
    first.ack(3)
    first.append(events(first, 1), 0.0)
    assert (pending(first), pending(second)) == ([4], [1, 2, 3, 4, 5])
    assert first.stream != second.stream
    file = OutboxFile(tmp_path / "j.db")  # of the next process
    assert [(pending(outbox), outbox.stream)
            for outbox in (Outbox(file, "n1"), Outbox(file, "n2"))] == [
        ([4], first.stream), ([1, 2, 3, 4, 5], second.stream)]


def test_many_nodes_share_their_commits(tmp_path: Path) -> None:
    journal = OutboxFile(tmp_path / "j.db", group_s=0.05)
    commits: list[str] = []
    assert journal._db is not None
    journal._db.set_trace_callback(lambda sql: commits.append(sql) if sql == "COMMIT" else None)

    def one_node(name: str) -> None:
        outbox = Outbox(journal, name)
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
    journal = OutboxFile(tmp_path / "j.db")
    outbox = Outbox(journal)
    outbox.append(events(outbox, 2), 0.0)
    [(pages,)] = journal.rows("PRAGMA page_count")
    journal.rows(f"PRAGMA max_page_count = {pages}")  # sqlite's own "disk is full"
    while not outbox.trouble:
        outbox.append(events(outbox, 10, text="x" * 1_000), 1.0)
    assert "free some space" in outbox.trouble
    outbox.keep_inventory(Inventory(9, ()))
    outbox.append(events(outbox, 3), 2.0)
    assert pending(outbox) == list(range(1, outbox.last_seq + 1))
    assert len(outbox.inventories_after(-1)) == 1
    unsaved = outbox.last_seq
    outbox.append(events(outbox, UNSAVED_MAX), 3.0)
    assert outbox.dropped + outbox.pending == outbox.last_seq
    assert 0 < outbox.dropped <= unsaved

    journal.rows("PRAGMA max_page_count = 1000000")
    outbox.append(events(outbox, 1), 4.0)
    assert outbox.trouble == ""
    stored = pending(Outbox(OutboxFile(tmp_path / "j.db")))
    assert stored == pending(outbox)
    assert stored[-1] == outbox.last_seq


def test_a_disk_that_became_read_only(tmp_path: Path) -> None:
    journal = OutboxFile(tmp_path / "j.db")
    outbox = Outbox(journal)
    outbox.append(events(outbox, 2), 0.0)
    mark_all_sent(outbox)
    outbox.ack(1)
    journal.rows("PRAGMA query_only = ON")
    outbox.append(events(outbox, 3), 1.0)
    assert "readonly" in outbox.trouble
    assert pending(outbox) == [2, 3, 4, 5]
    mark_all_sent(outbox)
    outbox.ack(4)
    journal.rows("PRAGMA query_only = OFF")
    outbox.append(events(outbox, 1), 2.0)
    assert (outbox.trouble, outbox.dropped) == ("", 0)
    assert pending(Outbox(OutboxFile(tmp_path / "j.db"))) == [5,
                                                               6], "what was acked meanwhile goes"


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CommandError, match="--data") as error:
        OutboxFile(tmp_path / "file" / "j.db")
    assert error.value.code == ExitCode.CANNOT_START


def test_a_file_that_is_no_journal_is_set_aside_and_said(tmp_path: Path) -> None:
    data = random.randbytes(5_000)
    (tmp_path / "j.db").write_bytes(data)
    outbox = Outbox(OutboxFile(tmp_path / "j.db"))
    outbox.append(events(outbox, 3), 0.0)
    [aside] = tmp_path.glob("j.db.damaged-*")
    assert aside.read_bytes() == data, "nothing is thrown away"
    event = outbox.drop_event(QUIET_S, 0.0)
    assert event is not None
    assert aside.name in event.text
    assert outbox.drop_event(QUIET_S, 0.0) is None
    assert pending(Outbox(OutboxFile(tmp_path / "j.db"))) == [1, 2, 3]


def test_a_file_that_is_damaged_under_us(tmp_path: Path) -> None:
    """Messages that were only there are lost and counted, new ones go on under the name of a new
    stream: no number is given out twice."""
    journal = OutboxFile(tmp_path / "j.db")
    outbox = Outbox(journal)
    facts = GpuFacts(uuid="GPU-1", index=0, name="n")
    outbox.keep_inventory(Inventory(1, (facts,)))
    for _ in range(40):
        outbox.append(events(outbox, 5, text="x" * 500), 0.0)
    stream = outbox.stream
    journal.rows("PRAGMA wal_checkpoint(TRUNCATE)")
    size = (tmp_path / "j.db").stat().st_size
    with open(tmp_path / "j.db", "r+b") as file:
        file.write(random.randbytes(size))
    journal.rows("PRAGMA shrink_memory")
    outbox.append(events(outbox, 1), 1.0)
    outbox.entries(0, 100, 50)
    assert outbox.stream != stream
    pending_count = outbox.pending
    assert outbox.dropped + pending_count == outbox.last_seq
    assert outbox.dropped >= 199
    assert len(outbox.inventories_after(0)) == 1
    outbox.append(events(outbox, 2), 2.0)
    assert outbox.trouble == ""
    reopened = Outbox(OutboxFile(tmp_path / "j.db"))
    assert (reopened.stream, reopened.dropped) == (outbox.stream, outbox.dropped)
    assert pending(reopened) == pending(outbox)
    assert reopened.last_seq == outbox.last_seq
    assert reopened.latest_inventory == Inventory(1, (facts,))
    event = outbox.drop_event(2.0 + QUIET_S, 0.0)
    assert event is not None
    assert event.numbers["dropped"] == outbox.dropped


def test_only_some_damaged_files_are_kept(tmp_path: Path) -> None:
    for _ in range(DAMAGED_KEPT + 2):
        (tmp_path / "j.db").write_bytes(random.randbytes(5_000))
        OutboxFile(tmp_path / "j.db").close()
        for end in ("-wal", "-shm"):
            (tmp_path / f"j.db{end}").unlink(missing_ok=True)
    assert len(list(tmp_path.glob("j.db.damaged-*"))) == DAMAGED_KEPT


def test_what_is_acked_out_of_order_is_not_sent_again(tmp_path: Path) -> None:
    outbox = Outbox(OutboxFile(tmp_path / "j.db"))
    outbox.append(events(outbox, 30), 0.0)
    mark_all_sent(outbox)
    outbox.ack(5, [Span(10, 12), Span(20, 30)])
    unacked = [*range(6, 10), *range(13, 20)]
    assert (pending(outbox), outbox.pending, outbox.first_seq) == (unacked, len(unacked), 6)
    outbox.append(events(outbox, 1), 1.0)
    assert pending(Outbox(OutboxFile(tmp_path / "j.db"))) == [*unacked, 31]


def test_an_ack_of_what_was_never_sent_deletes_nothing(tmp_path: Path) -> None:
    outbox = Outbox(OutboxFile(tmp_path / "j.db"))
    outbox.append(events(outbox, 30), 0.0)
    outbox.mark_sent(1, 10)
    outbox.ack(20, [Span(25, 30)])
    assert outbox.first_seq == 11
    assert outbox.pending == 20


@pytest.mark.parametrize("are_pending", [0, 3])
def test_numbers_that_our_disk_forgot_are_not_given_out_twice(
    tmp_path: Path, are_pending: int
) -> None:
    """Sent from memory while the disk refused, or committed just before the power went: the hub
    has seqs that a restarted agent gives out again. The control: a hub that has what we said."""
    outbox = Outbox(OutboxFile(tmp_path / "j.db"))
    outbox.append(events(outbox, 10), 0.0)
    reopened = Outbox(OutboxFile(tmp_path / "j.db"))
    reopened.append(events(reopened, 5), 0.0)  # 11 to 15: the hub has others of this name
    stream = reopened.stream
    reopened.welcomed(10 - are_pending, [Span(12, 40)])
    assert reopened.stream != stream
    assert pending(reopened) == [*range(11 - are_pending, 11), 11, 12, 13, 14, 15]
    assert reopened.dropped == 0
    assert Outbox(OutboxFile(tmp_path / "j.db")).stream == reopened.stream
    stream = reopened.stream
    mark_all_sent(reopened)
    reopened.broke()
    reopened.append(events(reopened, 5), 1.0)
    reopened.welcomed(12, [Span(14, 15)])
    assert (reopened.stream, pending(reopened)) == (stream, [13, *range(16, 21)])


def test_an_episode_of_dropping_is_told_once_when_it_is_over(tmp_path: Path) -> None:
    outbox = Outbox(OutboxFile(tmp_path / "j.db"), cap_bytes=10_000)
    for at in range(30):
        outbox.append(events(outbox, 1, text="x" * 900), float(at))
        assert outbox.drop_event(float(at), 0.0) is None, "it goes on"
    reopened = Outbox(OutboxFile(tmp_path / "j.db"))  # a restart does not swallow it
    reopened.append([], 0.0)
    event = reopened.drop_event(QUIET_S + 40.0, 0.0)
    assert event is not None
    assert event.numbers["dropped"] == outbox.dropped > 10
    reopened.append([event], 41.0)
    assert reopened.drop_event(100.0, 0.0) is None
    once_more = Outbox(OutboxFile(tmp_path / "j.db"))
    assert once_more.drop_event(100.0, 0.0) is None, "nor does another tell it again"


def test_what_is_on_its_way_is_not_dropped_nor_counted(tmp_path: Path) -> None:
    outbox = Outbox(OutboxFile(tmp_path / "j.db"), cap_bytes=10_000)
    outbox.append(events(outbox, 10, text="x" * 900), 0.0)
    outbox.welcomed(0)
    outbox.mark_sent(1, 3)
    outbox.append(events(outbox, 2, text="x" * 900), 0.0)
    assert pending(outbox)[:4] == [1, 2, 3, 6]
    outbox.ack(3)
    assert outbox.dropped == 2
    outbox.mark_sent(6, 7)
    outbox.broke()
    outbox.append(events(outbox, 6, text="x" * 900), 0.0)
    assert outbox.first_seq > 7
    dropped = outbox.dropped
    outbox.welcomed(7)  # they had arrived after all
    assert outbox.dropped == dropped - 2


def test_an_hour_of_wall_clock_makes_nothing_old(tmp_path: Path) -> None:
    """Age is of a steady clock, and stands still while we do not run."""
    outbox = Outbox(OutboxFile(tmp_path / "j.db"))
    boot = random.uniform(0, 1e6)
    outbox.append(events(outbox, 1), boot)
    outbox.append(events(outbox, 1), boot + DAY_S - 10)
    reopened = Outbox(OutboxFile(tmp_path / "j.db"))  # after a reboot: the steady clock begins at 0
    reopened.append(events(reopened, 1), 5.0)
    assert reopened.dropped == 0
    reopened.append(events(reopened, 1), 25.0)
    assert (reopened.dropped, reopened.first_seq) == (1, 2)


def on_disk(path: Path) -> int:
    return sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*"))


def test_the_file_shrinks_after_an_outage(tmp_path: Path) -> None:
    """Shrinking takes small steps, and nothing that is pending is lost by it."""
    path, clock = tmp_path / "j.db", [0.0]
    journal = OutboxFile(path, clock=lambda: clock[0])
    outbox = Outbox(journal)
    text = "x" * 1_000
    for _ in range(40):
        outbox.append(events(outbox, 500, text=text), 0.0)
    full = on_disk(path)
    assert full > 20 * 2**20
    mark_all_sent(outbox)
    outbox.ack(outbox.last_seq - 100)
    outbox.append(events(outbox, 1), 1.0)
    before, backlog = int(journal.rows("PRAGMA page_count")[0][0]), pending(outbox)
    assert len(backlog) == 101
    for _ in range(5):  # all in one second: one step
        outbox.append(events(outbox, 1), 1.0)
    assert before - int(journal.rows("PRAGMA page_count")[0][0]) <= STEP_PAGES
    while int(journal.rows("PRAGMA freelist_count")[0][0]) > FREE_KEPT_PAGES:
        clock[0] += STEP_EVERY_S
        outbox.append(events(outbox, 1), clock[0])
        assert clock[0] < 200
    assert pending(outbox)[:101] == backlog
    journal.rows("PRAGMA wal_checkpoint(TRUNCATE)")  # it does so by itself after each 1,000 pages
    assert path.stat().st_size < (FREE_KEPT_PAGES + 512) * 4_096 < full / 3
    journal.close()
    assert pending(Outbox(OutboxFile(path)))[:101] == backlog


def test_a_file_of_before_is_made_one_that_can_shrink(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    old = sqlite3.connect(path)
    old.execute("CREATE TABLE filler (body BLOB)")
    old.executemany("INSERT INTO filler VALUES (?)", [(bytes(4_000),)] * 2_000)
    old.execute("DROP TABLE filler")
    old.commit()
    old.close()
    large = path.stat().st_size
    journal = OutboxFile(path)
    assert journal.rows("PRAGMA auto_vacuum") == [(2,)]
    outbox = Outbox(journal)
    outbox.append(events(outbox, 2), 0.0)
    journal.close()
    assert path.stat().st_size < large / 10
    assert pending(Outbox(OutboxFile(path))) == [1, 2]
