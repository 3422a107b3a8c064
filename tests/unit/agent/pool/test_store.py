"""Leases of this node on disk, next to everything else in its journal."""

import json
import sqlite3
from pathlib import Path

import pytest

from agent.journal.facts import Fact
from agent.journal.leases import leased_gpus
from agent.journal.store import ActionJournal, ActionStore, JournalError
from agent.limits.stores import TimedLimitStore
from agent.pool.lock import NodeLease
from agent.pool.store import LeaseStore
from gpudeck.contract.limits import TimedLimit
from gpudeck.pool.core.claims import Claim

LEASE = NodeLease(id="l1", claim=Claim(id="c1", owner="ada", gpus=1, submitted_at=1.0),
                  uuids=("GPU-1",), uid=1, is_run=True, state="active", since=1.0, until=9.0,
                  used_at=1.0)
LIMIT = TimedLimit("c-1", "GPU-1", "power", (300.0,), (700.0,), "ada", "", 1.0, 2.0, "boot", 3.0)


@pytest.fixture
def journal(tmp_path: Path) -> ActionJournal:
    return ActionJournal(ActionStore(tmp_path / "acts.db"))


@pytest.mark.parametrize("lease_first", [True, False])
def test_a_lease_and_a_timed_limit_of_one_node_are_both_kept(journal: ActionJournal,
                                                             lease_first: bool) -> None:
    """Once both had one name: with a lease no power cap could be set, and a cap that was
    there took every lease away when the agent started again."""
    def lend() -> None:
        LeaseStore(journal, "boot").write([LEASE], {})

    def limit() -> None:
        TimedLimitStore(journal).begin(LIMIT)

    for do in (lend, limit) if lease_first else (limit, lend):
        do()
    assert LeaseStore(journal, "boot").read() == ([LEASE], [])
    assert TimedLimitStore(journal).all() == (LIMIT,)
    assert leased_gpus(journal, "boot") == {"GPU-1"}
    assert leased_gpus(journal, "another") == frozenset(), "a restart ended it"


def former(tmp_path: Path) -> ActionStore:
    """Return the store of an agent that kept leases under the name of the timed limits."""
    store = ActionStore(tmp_path / "acts.db")
    journal = ActionJournal(store)
    LeaseStore(journal, "boot").write([LEASE], {})
    with store.transaction() as db:
        db.execute("UPDATE fact SET name = 'leases' WHERE name = 'pool_leases'")
    store.close()
    return ActionStore(tmp_path / "acts.db")


def test_a_lease_of_an_earlier_agent_is_taken_over(tmp_path: Path,
                                                   caplog: pytest.LogCaptureFixture) -> None:
    journal = ActionJournal(former(tmp_path))
    assert LeaseStore(journal, "boot").read() == ([LEASE], [])
    [repaired] = [record for record in caplog.records if "journal_repaired" in record.message]
    assert "gpudeck gpu show" in repaired.getMessage()
    assert "repaired" in list(journal.audit.links())[-1].body
    TimedLimitStore(journal).begin(LIMIT)
    assert LeaseStore(journal, "boot").read() == ([LEASE], [])


def test_until_they_could_be_separated_nothing_is_known(tmp_path: Path,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    """The case is a full disk: the leases would be overlooked, and their GPUs leased again."""
    journal = ActionJournal(former(tmp_path))
    with monkeypatch.context() as full:
        full.setattr("agent.journal.store.NodeAudit.append", refuse)
        for _ in range(2):
            with pytest.raises(JournalError, match="disk is full"):
                LeaseStore(journal, "boot").read()
    assert LeaseStore(journal, "boot").read() == ([LEASE], [])


def refuse(*_: object) -> None:
    raise sqlite3.OperationalError("database or disk is full")


def test_limits_of_an_earlier_agent_can_be_used_with_the_pool_off(tmp_path: Path) -> None:
    journal = ActionJournal(former(tmp_path))
    assert TimedLimitStore(journal).all() == ()
    TimedLimitStore(journal).begin(LIMIT)
    assert TimedLimitStore(journal).all() == (LIMIT,)


@pytest.mark.parametrize("text", ["}{", "[]", "null", '{"leases": 1}', '"x"'])
def test_leases_that_are_not_understood_keep_every_gpu(journal: ActionJournal, text: str) -> None:
    journal.keep(Fact.POOL_LEASES, text)
    store = LeaseStore(journal, "boot")
    assert store.read() == ([], [])
    assert "gpudeck claim --give-back unread" in store.trouble
    store.write([LEASE], {})
    for reopened in (LeaseStore(journal, "boot"), LeaseStore(journal, "boot")):
        assert reopened.read() == ([LEASE], [])
        assert reopened.trouble
    with pytest.raises(JournalError, match="not understood"):
        leased_gpus(journal, "boot")
    restarted = LeaseStore(journal, "another")
    assert restarted.read() == ([], [LEASE])
    assert not restarted.trouble


def test_of_several_leases_those_that_are_understood_are_kept(journal: ActionJournal) -> None:
    LeaseStore(journal, "boot").write([LEASE], {})
    stored = json.loads(journal.fact(Fact.POOL_LEASES) or "")
    stored["leases"].append({"id": "l2", "uuids": ["GPU-2"]})
    journal.keep(Fact.POOL_LEASES, json.dumps(stored))
    store = LeaseStore(journal, "boot")
    assert store.read() == ([LEASE], [])
    assert store.trouble
    store.forget_unread([LEASE], "root")
    assert not store.trouble
    reopened = LeaseStore(journal, "boot")
    assert reopened.read() == ([LEASE], [])
    assert not reopened.trouble
    assert leased_gpus(journal, "boot") == {"GPU-1"}


@pytest.mark.parametrize("text", ["}{", "{}", "null", "[[1]]", '[{"gpu_uuid": 1}]'])
def test_limits_that_are_not_understood_stay_beside_others(journal: ActionJournal, text: str
                                                           ) -> None:
    journal.keep(Fact.TIMED_LIMITS, text)
    store = TimedLimitStore(journal)
    assert store.all() == ()
    assert store.unread.startswith("1 of the power caps and clock locks")
    store.begin(LIMIT)
    assert TimedLimitStore(journal).all() == (LIMIT,)
    store.end(LIMIT, "over")
    reopened = TimedLimitStore(journal)
    assert reopened.all() == ()
    assert reopened.unread == store.unread
