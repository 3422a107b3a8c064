"""A data folder of an earlier version opens, is copied first, and shows what it held."""

import gzip
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dashboard.access.store import AccountsStore, SessionStore
from dashboard.audit.store import AuditStore
from dashboard.history.reads.embedded import EmbeddedHistory
from dashboard.nodes.store import CheckpointStore
from dashboard.quotas.store import QuotasStore
from dashboard.state import SCHEMA_VERSION, HubState
from tests.unit.histories import START, Source

EARLIER = Path(__file__).parents[2] / "captures" / "data-folder-54f4ade"
EARLIER_VERSION = 14
NOW = 4_000_000_100.0


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Path:
    shutil.copytree(EARLIER / "history", tmp_path / "history")
    (tmp_path / "state.db").write_bytes(gzip.decompress((EARLIER / "state.db.gz").read_bytes()))
    return tmp_path


@pytest.fixture(name="state")
def _state(folder: Path) -> Iterator[HubState]:
    with closing(HubState.open(folder)) as state:
        yield state


def version(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        number: int = db.execute("pragma user_version").fetchone()[0]
        return number


def test_its_content_is_there(state: HubState) -> None:
    assert state.hub_id() == "0123456789abcdef"
    assert [user.name for user in state.store(AccountsStore).users()] == ["ann"]
    assert [session.user for session in state.store(SessionStore).all(NOW)] == ["ann"]
    assert [(sign_in.name, sign_in.outcome)
            for sign_in in state.store(SessionStore).sign_ins()] == [("ann", "ok")]
    assert state.store(QuotasStore).groups() == {"ann": frozenset({"research"})}
    assert [version.by for version in state.store(QuotasStore).versions("fair-share")] == ["ann"]
    assert state.store(CheckpointStore).all() == [b"\x01\x02"]
    assert state.store(AuditStore).head()[0] == 1


def test_it_is_copied_before_it_is_changed(folder: Path, state: HubState) -> None:
    copy = folder / f"state.db.before-{SCHEMA_VERSION}"
    assert (version(folder / "state.db"), version(copy)) == (SCHEMA_VERSION, EARLIER_VERSION)
    assert copy.stat().st_mode & 0o077 == 0
    with closing(sqlite3.connect(copy)) as db:
        assert db.execute("select user from sessions").fetchall() == [("ann",)]
    assert [path.name for path in folder.glob("state.db.*") if "before" in path.name] == [copy.name]


def test_one_of_today_is_not_copied(tmp_path: Path) -> None:
    for _ in range(2):
        HubState.open(tmp_path).close()
    assert list(tmp_path.glob("*before*")) == []


def test_its_history_is_read(folder: Path) -> None:
    history = EmbeddedHistory(folder / "history")
    history.open()
    source = Source(1, nodes=1, gpus=2)
    try:
        power = history.series(source.all_uuids, ["power_w"], START, START + 300, 1)
        assert set(power["gpu"]) == set(source.all_uuids)
        assert len(history.tasks(START, START + 300)) > 0
        assert history.info().quarantined == []
    finally:
        history.close()
