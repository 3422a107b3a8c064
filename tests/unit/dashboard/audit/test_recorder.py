"""The Audit on disk: with its change or not at all, in both places, and found where broken."""

import ast
import json
import os
import random
import re
import resource
import sqlite3
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import dashboard
from agent.cli.audit import audit as audit_command
from dashboard.access.policy import Role, Scope
from dashboard.access.sign_in_attempts import FAILED_AT_ONCE, SUMMED_EVERY_S, SignInAttempts
from dashboard.access.store import AccountsStore, User
from dashboard.audit.file_copy import AuditCopy, line_of
from dashboard.audit.recorder import AuditRecorder
from dashboard.audit.store import AuditStore
from dashboard.audit.verify import AuditVerifier
from dashboard.audit.views import record_view
from dashboard.errors import AlreadyExistsError, AuditWriteError
from dashboard.nodes.audit_heads import AuditHeadExchange
from dashboard.runtime.dispatcher import Dispatcher
from dashboard.state import HubState
from gpudeck.audit.chain import AuditChainLink, link
from gpudeck.audit.file import AuditFile
from gpudeck.contract.wire import Anchor, Beat, Hello
from gpudeck.errors import CommandError


class Deck:
    """Folder of a hub, with the services that record there."""

    def __init__(self, folder: Path, copy: Path | None = None) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        self.folder = folder
        self.state = HubState.open(folder)
        self.copy = copy
        store = self.state.store(AuditStore)
        self.audit = AuditRecorder(store, None if copy is None else AuditCopy(copy, store),
                                   Dispatcher())
        self.sent_anchors: list[Anchor] = []
        self.anchors = AuditHeadExchange(self.audit, self.sent_anchors.append)

    def fill(self, count: int) -> None:
        for _ in range(count):
            self.audit.record("command", {"actor": random.choice(("carol", "dave")),
                                          "why": f"é{random.random()}", "action": "end"})

    def verdict(self) -> Any:
        return AuditVerifier(lambda: self.state.another(AuditStore), self.copy).verdict()

    def close(self) -> None:
        self.audit.close()
        self.state.close()


@pytest.fixture(name="deck")
def _deck(tmp_path: Path) -> Iterator[Deck]:
    deck = Deck(tmp_path / "hub")
    yield deck
    deck.close()


def user(name: str) -> User:
    return User(name, Role.ADMIN, Scope(("*",)), None, 0.0)


def tamper(deck: Deck, sql: str, *values: Any) -> None:
    with closing(sqlite3.connect(deck.folder / "state.db")) as db:
        db.execute(sql, values)
        db.commit()


# -- with its change, or not at all


def test_a_change_and_its_record_are_one(deck: Deck) -> None:
    with deck.audit.change("user", {"actor": "carol", "action": "add"}):
        deck.state.store(AccountsStore).add_user(user("alice"))
    with pytest.raises(AlreadyExistsError), deck.audit.change("user",
                                                              {"actor": "carol", "action": "add"}):
        deck.state.store(AccountsStore).add_user(user("alice"))
    with pytest.raises(ZeroDivisionError), deck.audit.change("user", {"action": "add"}):
        deck.state.store(AccountsStore).add_user(user(f"bob{1 / 0}"))
    assert [account.name for account in deck.state.store(AccountsStore).users()] == ["alice"]
    views = [record_view(entry) for entry in deck.state.store(AuditStore).links()]
    assert [view.outcome for view in views] == ["done", "refused"]
    assert "already" in views[1].sentence


def test_on_a_full_disk_nothing_is_done_and_nothing_is_lost(deck: Deck) -> None:
    deck.fill(3)
    # As on a full disk, writes fail from here on; Python leaves SIGXFSZ ignored.
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    log = deck.folder / "state.db-wal"
    resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size, before[1]))
    try:
        with pytest.raises(AuditWriteError, match="are refused"):
            deck.audit.record("command", {"why": "x" * 100_000})
        with pytest.raises(AuditWriteError), deck.audit.change("user", {"action": "add"}):
            deck.state.store(AccountsStore).add_user(user("alice"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert deck.state.store(AccountsStore).users() == []
    with deck.audit.change("user", {"action": "add"}):
        deck.state.store(AccountsStore).add_user(user("alice"))
    assert len(deck.state.store(AccountsStore).users()) == 1  # the control: with room it is done
    verdict = deck.verdict()
    assert (verdict.broken, verdict.records >= 4) == (None, True)


def test_two_connections_never_fork_the_chain(deck: Deck) -> None:
    with deck.state.another(AuditStore) as other:
        for at in range(20):
            with other.together():
                other.append({"kind": "cli", "n": at})
            deck.fill(1)
    assert deck.verdict().records == 40
    assert deck.verdict().broken is None


# -- the copy


def test_the_copy_holds_what_the_chain_holds(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    with closing(Deck(tmp_path / "hub", copy)) as deck:
        deck.fill(5)
        with deck.state.another(AuditStore) as other, other.together():
            other.append({"kind": "cli"})
        deck.audit.copy()
        assert [json.loads(line)["hash"] for line in copy.read_text().splitlines()] == [
            entry.hash for entry in deck.state.store(AuditStore).links()]
    with copy.open("ab") as file:
        file.write(b'{"seq":7,"bo')  # a crash in the middle of a line
    with closing(Deck(tmp_path / "hub", copy)) as deck:
        deck.fill(2)
        assert deck.verdict().broken is None
        assert len(copy.read_text().splitlines()) == 9


def test_where_the_copy_is_full_nothing_is_done(tmp_path: Path) -> None:
    with closing(Deck(tmp_path / "hub", tmp_path / "copy")) as deck:
        deck.fill(1)
        file = deck.audit._copy._file  # type: ignore[union-attr]
        duplicate, full = os.dup(file), os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, file)
        with pytest.raises(AuditWriteError, match="No space left"):
            deck.audit.record("command", {"action": "end"})
        with pytest.raises(AuditWriteError), deck.audit.change("user", {"action": "add"}):
            deck.state.store(AccountsStore).add_user(user("alice"))
        with deck.audit.change("token", {"action": "remove"}, takes_away=True):
            pass  # what takes a right away does not wait for a copy
        os.dup2(duplicate, file)
        assert deck.state.store(AccountsStore).users() == []
        deck.fill(1)
        assert deck.verdict().broken is None


@pytest.mark.parametrize("cut", [True, False])
def test_a_folder_that_does_not_fit_its_copy_records_nothing(tmp_path: Path, cut: bool) -> None:
    copy = tmp_path / "copy"
    with closing(Deck(tmp_path / "hub", copy)) as deck:
        deck.fill(9)
        first = random.randint(1, 9)
        tamper(deck, "delete from audit where seq >= ?", first)
    if not cut:
        with closing(Deck(tmp_path / "hub")) as deck:
            deck.fill(20)  # written anew, with right hashes, past where it was
    with closing(Deck(tmp_path / "hub", copy)) as deck:
        with pytest.raises(AuditWriteError, match="truncated, rewritten, or restored"):
            deck.fill(1)
        broken = deck.verdict().broken
        assert broken is not None
        assert broken.seq == first


# -- changes in the file itself


def one_byte(rng: random.Random, db: sqlite3.Connection, count: int) -> int:
    seq = rng.randint(1, count)
    [body] = db.execute("select body from audit where seq = ?", (seq,)).fetchone()
    at = body.index("carol") if "carol" in body else body.index("dave")
    db.execute("update audit set body = ? where seq = ?",
               (body[:at] + "X" + body[at + 1:], seq))
    return seq


def one_hash(rng: random.Random, db: sqlite3.Connection, count: int) -> int:
    seq = rng.randint(1, count)
    db.execute("update audit set hash = ? where seq = ?", (f"{rng.getrandbits(256):064x}", seq))
    return seq


def one_gone(rng: random.Random, db: sqlite3.Connection, count: int) -> int:
    seq = rng.randint(1, count - 1)
    db.execute("delete from audit where seq = ?", (seq,))
    return seq


def one_more(rng: random.Random, db: sqlite3.Connection, count: int) -> int:
    planted = link(count + 1, f"{rng.getrandbits(256):064x}", {"kind": "planted"})
    db.execute("insert into audit (seq, body, hash) values (?, ?, ?)",
               (planted.seq, planted.body, planted.hash))
    return planted.seq


@pytest.mark.parametrize("change", [one_byte, one_hash, one_gone, one_more])
def test_what_is_changed_in_the_file_is_named(
    deck: Deck, capsys: pytest.CaptureFixture[str],
    change: Callable[[random.Random, sqlite3.Connection, int], int],
) -> None:
    deck.fill(12)
    assert audit_command(["verify", "--data", str(deck.folder)]) == 0
    with closing(sqlite3.connect(deck.folder / "state.db")) as db:
        first = change(random.Random(random.random()), db, 12)
        db.commit()
    assert deck.verdict().broken.seq == first
    assert audit_command(["verify", "--data", str(deck.folder), "--json"]) == 1
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["broken"]["seq"] == first


# -- heads on the other side


def hello(node: str, anchor: Anchor | None = None) -> Hello:
    return Hello((1,), bytes(32), bytes(64), node, f"host-{node}", "boot", "s", 0, "0", "x",
                 anchor_seq=0 if anchor is None else anchor.audit_seq,
                 anchor_head="" if anchor is None else anchor.audit_head)


@pytest.mark.parametrize("cut", [True, False])
def test_a_node_that_keeps_our_head_finds_a_cut_and_a_rewriting(
    tmp_path: Path, cut: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(Deck(tmp_path / "hub")) as deck:
        deck.fill(9)
        deck.anchors.step(0.0, 0.0)
        [anchor] = deck.sent_anchors
        deck.anchors.joined(hello("n1", anchor))
        deck.anchors.step(0.0, 1.0)
        assert deck.verdict().broken is None
        first = random.randint(2, 9)
        tamper(deck, "delete from audit where seq >= ?", first)
        tamper(deck, "delete from vouched")
    with closing(Deck(tmp_path / "hub")) as deck:
        assert deck.verdict().broken is None  # the control: the chain alone does not show it
        if not cut:
            deck.fill(20)
        deck.anchors.joined(hello("n1", anchor))
        deck.anchors.joined(hello("n2"))
        deck.anchors.step(0.0, 0.0)
        broken = deck.verdict().broken
        assert broken is not None
        # The alarm is a record itself, the first after the cut; and 9 is what was vouched for.
        assert broken.seq == (min(first + 1, 9) if cut else 9)
        assert "1 of the 1 nodes" in broken.sentence
        assert "n1" in broken.sentence
        records = [record_view(entry) for entry in deck.state.store(AuditStore).links()]
        alarm = records[first - 1 if cut else -1]
        assert (alarm.kind, alarm.node) == ("anchor", "n1")
        deck.anchors.joined(hello("n1", Anchor(1, str(deck.state.store(AuditStore).hash_at(1)))))
        deck.anchors.step(0.0, 2.0)
        assert deck.verdict().broken is not None  # a later Anchor does not make it forgotten
        assert audit_command(["verify", "--data", str(deck.folder)]) == 1
        assert "BROKEN" in capsys.readouterr().out


def test_a_nodes_own_tail_does_not_go_unnoticed(deck: Deck) -> None:
    def beat(seq: int, head: str) -> Beat:
        return Beat("ok", 0.5, 0, 0, audit_seq=seq, audit_head=head)

    for seq, head in ((3, "a"), (7, "b"), (7, "b")):
        deck.anchors.beaten("n1", beat(seq, head))
    deck.anchors.beaten("n2", beat(5, "x"))
    deck.anchors.step(0.0, 0.0)
    assert [node.broken for node in deck.verdict().nodes] == [None, None]
    deck.anchors.beaten("n1", beat(4, "c"))
    deck.anchors.beaten("n2", beat(5, "y"))
    deck.anchors.step(0.0, 61.0)
    cut, rewritten = deck.verdict().nodes
    assert "had 7 records and has 4" in cut.broken
    assert (cut.audit_seq, cut.audit_head) == (7, "b")
    assert "rewritten" in rewritten.broken
    views = [record_view(entry) for entry in deck.state.store(AuditStore).links()]
    assert [view.kind for view in views] == ["heads", "heads"]
    assert views[0].detail["heads"] == {"n1": [7, "b"], "n2": [5, "x"]}


def test_heads_are_exchanged_once_a_minute_at_most(deck: Deck) -> None:
    for second in range(200):
        deck.anchors.beaten("n1", Beat("ok", 0.5, 0, 0, audit_seq=second + 1, audit_head="h"))
        deck.anchors.step(0.0, float(second))
    assert deck.verdict().records == 4
    assert len(deck.sent_anchors) == 4


# -- sign-ins


def test_who_guesses_cannot_fill_the_disk_nor_push_a_success_out() -> None:
    attempts = SignInAttempts(0.0)
    attempts.add(1.0, "alice", "here", "password", "let in", 1.0)
    for _ in range(10_000):
        attempts.add(1.0, "alice", "there", "password", "refused", 1.0)
    records = attempts.take(2.0, SUMMED_EVERY_S)
    assert len(records) == 1 + FAILED_AT_ONCE + 1
    assert records[0]["outcome"] == "let in"
    assert records[-1]["detail"]["count"] == 10_000 - FAILED_AT_ONCE
    attempts.put_back(records)
    assert attempts.take(3.0, SUMMED_EVERY_S) == records


# -- size, and reading it elsewhere


def test_verify_is_fast_enough_for_a_million_in_30_s_and_keeps_no_list(deck: Deck) -> None:
    def fill(count: int) -> None:
        seq, head = deck.state.store(AuditStore).head()
        rows = []
        for at in range(count):
            entry = link(seq + at + 1, head, {"kind": "command", "at": 1e9 + at, "actor": "carol",
                                              "node": "6f" * 16, "why": "w" * 400})
            head = entry.hash
            rows.append((entry.seq, entry.body, entry.hash))
        with closing(sqlite3.connect(deck.folder / "state.db")) as db:
            db.executemany("insert into audit (seq, body, hash) values (?, ?, ?)", rows)
            db.commit()

    peaks = []
    for count in (2_000, 28_000):
        fill(count)
        tracemalloc.start()
        assert deck.verdict().broken is None
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0] + 200_000
    began = time.process_time()
    assert deck.verdict().records == 30_000
    assert time.process_time() - began < 30_000 * 30e-6


def test_an_agents_chains_are_read_alike(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Chains as agent/journal/store.py keeps them: many nodes may have theirs in one file."""
    with closing(sqlite3.connect(tmp_path / "acts.db")) as db:
        db.execute("create table audit (node text not null, seq integer not null, body text not "
                   "null, hash text not null, primary key (node, seq)) without rowid")
        for node in ("n1", "n2"):
            head = "0" * 64
            for seq in range(1, 6):
                entry = link(seq, head, {"action": "end", "state": "done", "at": 1.0, "step": "",
                                         "asker": {"kind": "person", "name": "carol"}})
                head = entry.hash
                db.execute("insert into audit values (?, ?, ?, ?)",
                           (node, entry.seq, entry.body, entry.hash))
        db.commit()
        assert audit_command(["verify", "--data", str(tmp_path)]) == 0
        assert "n2: 5 records hold" in capsys.readouterr().out
        assert audit_command(["tail", "--data", str(tmp_path), "--node", "n2", "-n", "2"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == 2
        assert "carol end done" in lines[1]
        with pytest.raises(CommandError, match="--node"):
            audit_command(["tail", "--data", str(tmp_path)])
        db.execute("update audit set body = replace(body, 'carol', 'davie') where node = 'n2'"
                   " and seq = 3")
        db.commit()
        assert audit_command(["verify", "--data", str(tmp_path)]) == 1
        assert "n2: BROKEN at record 3" in capsys.readouterr().out


def test_by_hand_as_the_docs_say(deck: Deck, tmp_path: Path) -> None:
    page = (Path(__file__).parents[4] / "docs/audit.md").read_text()
    [script] = re.findall(r"```python\n(.*?)```", page, re.S)
    deck.fill(7)
    lines = b"".join(map(line_of, deck.state.store(AuditStore).links()))
    for content, code in ((lines, 0), (lines.replace(b"carol", b"davie", 1) if b"carol" in lines
                                       else lines.replace(b"dave", b"dove", 1), 1),
                          (b"".join(lines.splitlines(True)[1:]), 1)):
        (tmp_path / "export").write_bytes(content)
        process = subprocess.run([sys.executable, "-c", script, str(tmp_path / "export")],
                                 capture_output=True, text=True, check=False)
        assert process.returncode == code, process.stderr
        assert code or str(deck.state.store(AuditStore).head()[1]) in process.stdout


def test_a_folder_without_an_audit_says_so(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="--data"):
        AuditFile(tmp_path)


def test_a_terminal_is_not_steered(deck: Deck, capsys: pytest.CaptureFixture[str]) -> None:
    deck.audit.record("sign_in", {"actor": "\x1b[2Jroot\n", "sentence": "a\rb\x07"})
    audit_command(["tail", "--data", str(deck.folder)])
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert not {"\x1b", "\r", "\x07"} & set(out)


def test_a_spoiled_record_is_shown_as_that() -> None:
    for body in ("not json", "[]", '{"at":"x","detail":7}', "{}"):
        assert record_view(AuditChainLink(3, body, "h")).seq == 3


def test_what_kind_a_record_is_of_is_never_the_name_of_who_asked() -> None:
    """The pool and advice once gave the name as the kind, and nobody was said to have done it."""
    calls = [(file.name, ast.unparse(call.args[0]))
             for file in Path(dashboard.__file__).parent.rglob("*.py")
             for call in ast.walk(ast.parse(file.read_text()))
             if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
             and call.func.attr in ("note", "record", "refused", "change")
             and "audit" in ast.unparse(call.func.value).lower()]
    assert len(calls) > 20
    assert [call for call in calls if call[1] != "kind" and not call[1].startswith("'")] == []
