"""Stores of what is set on a node, in a file that other processes write too."""

import os
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from agent.journal.store import UNSURE_NS, ActionJournal, ActionStore
from agent.limits import stores
from agent.limits.repairs import ROUND_S, RepairKeeper
from agent.limits.stores import RepairStore
from agent.runtime.action_lock import ActionLock
from gpudeck.contract.repairs import WHOLE_NODE, GpuRepair
from tests.integration.hubs import wait_for

REPAIR = GpuRepair(WHOLE_NODE, "cordoned", "ops", "a fan", 1.0, 1.0, "boot")


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """Return a journal that some other process holds open, and wrote an hour ago."""
    path = tmp_path / "acts.db"
    with closing(ActionStore(path)) as other:
        other.rows("SELECT 1")
        age(path)
        yield path


def age(path: Path) -> None:
    for end in ("", "-wal"):
        os.utime(f"{path}{end}", (0, time.time() - 3_600))


@pytest.fixture
def store(path: Path) -> Iterator[RepairStore]:
    with closing(ActionStore(path)) as mine:
        mine.rows("SELECT 1")
        age(path)
        yield RepairStore(ActionJournal(mine))


def written_by_another(path: Path) -> None:
    with closing(ActionStore(path)) as other:
        RepairStore(ActionJournal(other)).keep(REPAIR)


def test_it_is_not_empty_before_it_was_read(store: RepairStore) -> None:
    assert not store.is_surely_empty
    assert store.all() == ()
    assert store.is_surely_empty


def test_what_another_process_writes_ends_it_at_once(store: RepairStore, path: Path) -> None:
    store.all()
    written_by_another(path)
    assert not store.is_surely_empty
    assert store.all() == (REPAIR,)
    assert not store.is_surely_empty


def test_a_file_written_this_moment_may_be_written_again_in_the_same_tick(
        store: RepairStore, path: Path) -> None:
    store.all()
    now = time.time() - 0.5 * UNSURE_NS / 1e9
    os.utime(f"{path}-wal", (now, now))
    assert store.all() == ()
    assert not store.is_surely_empty


def test_it_is_read_again_whatever_the_times_of_the_file_are(
        store: RepairStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.all()
    assert store.is_surely_empty
    monkeypatch.setattr(stores, "READ_AGAIN_S", 0.0)
    assert not store.is_surely_empty


def test_a_keeper_of_nothing_starts_no_thread_and_notices_what_comes(
        store: RepairStore, path: Path, tmp_path: Path) -> None:
    wakes: list[None] = []
    keeper = RepairKeeper(store, "boot", ActionLock(tmp_path), lambda: wakes.append(None))
    rounds, put = [], keeper._worker.put
    keeper._worker.put = lambda job: rounds.append(job) or put(job)  # type: ignore[method-assign, func-returns-value]
    for at in range(10):
        keeper.step(at * ROUND_S)
        wait_for(lambda: keeper.is_idle, why="a round")
    assert len(rounds) == len(wakes) == 1
    written_by_another(path)
    keeper.step(10 * ROUND_S)
    wait_for(lambda: len(wakes) == 2, why="the repair")
    [*_, news] = keeper.poll()
    assert news.repairs == (REPAIR,)
    keeper.close()
