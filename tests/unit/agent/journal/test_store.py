"""Records that are on disk before they count."""

import os
import secrets
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from agent.journal.facts import Fact
from agent.journal.store import ActionJournal, ActionStore, JournalError, is_alive, worker_name
from gpudeck.audit.chain import verify
from gpudeck.contract.action_table import KILLS, Action
from gpudeck.contract.actions import Command, CommandActor, Reply


def a_command(kind: str = "person", action: Action = "end") -> Command:
    return Command(secrets.token_hex(8), "n" * 32, 1, 1.0, 2.0, secrets.token_bytes(32), action,
                   CommandActor(kind, "ada"), "why", None)  # type: ignore[arg-type]


def accepted(command: Command) -> Reply:
    return Reply(command.command_id, 1, "accepted", 1.0)


def later(reply: Reply, state: str, number: int) -> Reply:
    return Reply(reply.command_id, number, state, float(number))  # type: ignore[arg-type]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new" / "acts.db"


@pytest.fixture
def journal(path: Path) -> ActionJournal:
    return ActionJournal(ActionStore(path))


def test_a_command_is_taken_once_begun_once_and_settled_once(journal: ActionJournal) -> None:
    command = a_command()
    first = journal.record_first(command, "d", accepted(command))
    with pytest.raises(JournalError):
        journal.record_first(command, "d", accepted(command))
    acting = journal.record_intent(command, later(first, "acting", 2))
    with pytest.raises(JournalError):
        journal.record_intent(command, later(first, "acting", 3))
    settled = journal.record_result(later(acting, "done", 3), {})
    with pytest.raises(JournalError):
        journal.record_result(later(acting, "refused", 4), {})
    entry = journal.find_command(command.command_id)
    assert entry is not None
    assert entry.reply == settled
    assert [link.seq for link in journal.audit.links()] == [1, 2, 3]
    assert verify(journal.audit.links()) is None
    assert journal.audit.head == (settled.audit_seq, settled.audit_head)


def test_a_refused_command_cannot_be_begun(journal: ActionJournal) -> None:
    command = a_command()
    refusal = later(accepted(command), "refused", 1)
    journal.record_first(command, "d", refusal)
    with pytest.raises(JournalError):
        journal.record_intent(command, later(refusal, "acting", 2))


def test_replies_are_kept_until_the_newest_is_noted(journal: ActionJournal) -> None:
    command, local = a_command(), a_command("terminal")
    journal.record_first(command, "d", accepted(command))
    journal.record_first(local, "d", accepted(local))
    acting = journal.record_intent(command, later(accepted(command), "acting", 2))
    journal.note(command.command_id, 1)
    assert journal.unsettled() == [acting]  # and nothing of what was asked here
    journal.note(command.command_id, 2)
    assert journal.unsettled() == []
    settled = journal.record_result(later(acting, "done", 3), {})
    assert journal.unsettled() == [settled]
    journal.note("never heard of", 9)


def test_the_budget_counts_what_was_begun_and_not_refused(journal: ActionJournal) -> None:
    for action, outcome in (("end", "done"), ("end", "refused"), ("pause", "done"), ("end", None)):
        command = a_command(action=action)  # type: ignore[arg-type]
        first = journal.record_first(command, "d", accepted(command))
        acting = journal.record_intent(command, later(first, "acting", 2))
        if outcome is not None:
            journal.record_result(later(acting, outcome, 3), {})
    journal.record_first(command := a_command(), "d", accepted(command))
    assert journal.begun_since(KILLS, 0) == 2


CRASHES = """
import sys
from pathlib import Path
from agent.journal.store import ActionJournal, ActionStore
from tests.unit.agent.journal.test_store import a_command, accepted, later
journal = ActionJournal(ActionStore(Path(sys.argv[1])))
for begun in (False, True):
    command = a_command()
    first = journal.record_first(command, "d", accepted(command))
    if begun:
        journal.record_intent(command, later(first, "acting", 2))
    print(command.command_id, flush=True)
input()
"""


def test_what_a_dead_process_left_open(path: Path, journal: ActionJournal) -> None:
    child = subprocess.Popen([sys.executable, "-c", CRASHES, str(path)], text=True,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             cwd=Path(__file__).parents[4])
    assert child.stdout is not None
    waiting_id, begun_id = (child.stdout.readline().strip() for _ in range(2))
    assert journal.recover() == []  # it is at work
    child.kill()
    child.communicate()
    outcomes = {reply.command_id: reply.state for reply in journal.recover()}
    assert outcomes == {waiting_id: "expired", begun_id: "unknown"}
    assert journal.recover() == []
    assert verify(journal.audit.links()) is None


def test_two_processes_never_fork_the_chain(path: Path) -> None:
    def write(count: int) -> None:
        mine = ActionJournal(ActionStore(path))
        for number in range(count):
            mine.audit.record({"number": number})

    threads = [threading.Thread(target=write, args=(25,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    links = list(ActionJournal(ActionStore(path)).audit.links())
    assert len(links) == 100
    assert verify(links) is None
    # The control: a record that is written past the chain is found.
    with sqlite3.connect(path) as db:
        db.execute("UPDATE audit SET body = '{}' WHERE seq = 50")
    broken = verify(ActionJournal(ActionStore(path)).audit.links())
    assert broken is not None
    assert broken.seq == 50


def test_a_new_file_that_another_process_writes_to_is_waited_for(path: Path) -> None:
    path.parent.mkdir()
    with sqlite3.connect(path, isolation_level=None, check_same_thread=False) as other:
        other.execute("BEGIN IMMEDIATE")
        threading.Timer(0.3, other.execute, ["ROLLBACK"]).start()
        ActionJournal(ActionStore(path)).audit.record({"a": 1})
    other.close()


def test_a_full_disk_refuses_in_words(path: Path, journal: ActionJournal) -> None:
    journal.audit.record({"first": 1})
    with sqlite3.connect(path) as db:
        [(pages,)] = db.execute("PRAGMA page_count")
    journal._store._open().execute(f"PRAGMA max_page_count = {pages}")
    head = journal.audit.head
    with pytest.raises(JournalError, match="free some space"):
        journal.audit.record({"long": "x" * 1_000_000})
    assert journal.audit.head == head  # nobody is told of what is not on disk
    assert verify(journal.audit.links()) is None


def test_nodes_of_a_simulator_share_a_file(path: Path) -> None:
    store = ActionStore(path, durable=False)
    one, other = ActionJournal(store, "n1"), ActionJournal(store, "n2")
    one.audit.record({"a": 1})
    one.keep(Fact.HUB_HOLD, "held")
    assert other.fact(Fact.HUB_HOLD) is None
    assert list(other.audit.links()) == []
    assert one.fact(Fact.HUB_HOLD) == "held"
    one.keep(Fact.HUB_HOLD, None)
    assert one.fact(Fact.HUB_HOLD) is None


def test_the_file_is_ours_alone(path: Path, journal: ActionJournal) -> None:
    journal.audit.record({})
    assert path.stat().st_mode & 0o077 == 0
    assert is_alive(worker_name())
    assert not is_alive(f"other-boot {os.getpid()} 1")


@pytest.mark.parametrize("where", ["nonce = 'n'", "action = 'end' AND is_spent AND intent_at > 1"])
def test_a_full_journal_is_asked_by_an_index(tmp_path: Path, where: str) -> None:
    ActionJournal(ActionStore(tmp_path / "acts.db")).audit.open()
    db = sqlite3.connect(tmp_path / "acts.db")
    [(*_, plan)] = db.execute(
        f"EXPLAIN QUERY PLAN SELECT count(*) FROM command WHERE node = '' AND {where}")
    db.close()
    assert "USING" in plan
    assert "command_at" not in plan
    assert "PRIMARY KEY" not in plan
