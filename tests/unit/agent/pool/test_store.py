"""Leases of this node on disk, beside everything else that its journal keeps."""

from pathlib import Path

import pytest

from agent.journal.leases import leased_gpus
from agent.journal.store import ActionJournal, ActionStore
from agent.limits.stores import TimedLimitStore
from agent.pool.lock import NodeLease
from agent.pool.store import LeaseStore
from gpudeck.limits import TimedLimit
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
    """Both were stored under one name: with a lease no power cap could be set, and a cap that was
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


def test_a_lease_of_an_earlier_agent_is_taken_over(journal: ActionJournal) -> None:
    LeaseStore(journal, "boot").write([LEASE], {})
    journal.keep("leases", journal.fact("pool_leases"))
    journal.keep("pool_leases", None)
    assert LeaseStore(journal, "boot").read() == ([LEASE], [])
    TimedLimitStore(journal).begin(LIMIT)
    assert LeaseStore(journal, "boot").read() == ([LEASE], [])
