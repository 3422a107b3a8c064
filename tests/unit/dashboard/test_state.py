"""state.db: its steps from version to version, and that two processes may use it at once."""

import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dashboard.access.policy import Role, Scope
from dashboard.access.store import AccountsStore, SessionStore, SignInRecord, User, new_session
from dashboard.audit.sign_in_notes import SignInWriter
from dashboard.errors import AlreadyExistsError, InvalidChangeError, NotFoundError
from dashboard.nodes.store import CheckpointStore
from dashboard.state import SCHEMA, SCHEMA_VERSION, STEPS, HubState
from gpudeck.errors import CommandError

REPOSITORY = Path(__file__).resolve().parents[3]
EVERYWHERE = Scope(("*",))


def user(name: str, role: Role = Role.ADMIN) -> User:
    return User(name, role, EVERYWHERE, None, 0.0)


@pytest.fixture(name="state")
def _state(tmp_path: Path) -> HubState:
    return HubState.open(tmp_path)


def test_from_schema_1(tmp_path: Path) -> None:
    """Nodes that its hub knew stay; its sessions were nobody's and end."""
    db = sqlite3.connect(tmp_path / "state.db")
    db.executescript(f"begin; {SCHEMA} pragma user_version = 1; commit;")
    db.execute("insert into meta values ('hub_id', 'abc')")
    db.execute("insert into nodes values ('n1', x'01')")
    db.execute("insert into sessions values (x'02', 'csrf', 0, 9e9)")
    db.execute("insert into codes values (x'03', 9e9)")
    db.commit()
    db.close()
    state = HubState.open(tmp_path)
    assert (state.hub_id(), state.store(CheckpointStore).all()) == ("abc", [b"\x01"])
    assert state.store(SessionStore).all(0.0) == []
    assert state.store(AccountsStore).users() == []
    state.close()
    assert HubState.open(tmp_path).hub_id() == "abc"


def test_each_step_is_taken_once(tmp_path: Path) -> None:
    HubState.open(tmp_path).close()
    db = sqlite3.connect(tmp_path / "state.db")
    assert db.execute("pragma user_version").fetchone() == (SCHEMA_VERSION,) == (len(STEPS),)
    db.close()


def test_a_newer_one_is_left_alone(tmp_path: Path) -> None:
    HubState.open(tmp_path).close()
    db = sqlite3.connect(tmp_path / "state.db")
    db.execute(f"pragma user_version = {SCHEMA_VERSION + 1}")
    db.close()
    with pytest.raises(CommandError, match="newer gpudeck"):
        HubState.open(tmp_path)


def test_a_step_that_fails_leaves_all_as_it_was(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / "state.db")
    db.executescript(f"begin; {SCHEMA} create table users (x); pragma user_version = 1; commit;")
    db.close()
    with pytest.raises(CommandError, match="cannot use"):
        HubState.open(tmp_path)
    db = sqlite3.connect(tmp_path / "state.db")
    assert db.execute("pragma user_version").fetchone() == (1,)
    assert db.execute("select count(*) from sessions").fetchone() == (0,)
    db.close()


OTHER = """
import sys, time
from pathlib import Path
from dashboard.access.store import AccountsStore
from dashboard.state import HubState
state = HubState.open(Path(sys.argv[1]))
print(state.store(AccountsStore).add_code("alice", time.time()))
state.close()
"""


def test_what_another_process_writes_is_seen_however_often_it_comes_and_goes(
    state: HubState, tmp_path: Path
) -> None:
    """Once, a thread of ours that closed a file of its own took SQLite's locks with it; the next
    process to leave then deleted the log under the hub, which went on in the deleted one."""
    state.store(AccountsStore).add_user(user("alice"))
    for round_number in range(3):
        before = state.writes_elsewhere()
        code = subprocess.run([sys.executable, "-c", OTHER, str(tmp_path)], cwd=REPOSITORY,
                              capture_output=True, text=True, check=True).stdout.strip()
        assert state.writes_elsewhere() != before
        assert state.store(AccountsStore).use_code(code, time.time()) is not None, round_number
        sign_in = SignInRecord(float(round_number), "alice", "x", "link", "let in")
        SignInWriter(state)([sign_in], {}, {})
        state.store(CheckpointStore).put([("n1", b"1")])
    assert len(HubState.open(tmp_path).store(SessionStore).sign_ins()) == 3


def test_the_last_admin_stays(state: HubState) -> None:
    accounts = state.store(AccountsStore)
    accounts.add_user(user("a"))
    accounts.add_user(user("b", Role.OPERATOR))
    for change in (lambda: accounts.remove_user("a"),
                   lambda: accounts.change_user("a", role=Role.OPERATOR)):
        with pytest.raises(InvalidChangeError, match="last admin"):
            change()
    accounts.change_user("a", scope=Scope(("lab",)))
    accounts.change_user("b", role=Role.ADMIN)
    accounts.change_user("a", role=Role.VIEWER)
    assert [(one.name, one.role) for one in accounts.users()] == [
        ("a", Role.VIEWER), ("b", Role.ADMIN)]


def test_a_change_ends_sessions_and_links(state: HubState) -> None:
    accounts, now = state.store(AccountsStore), time.time()
    accounts.add_user(user("a"))
    accounts.add_user(user("b"))
    remaining = new_session("b", "link", "", now)[1]
    for session in (new_session("a", "link", "", now)[1], remaining):
        state.store(SessionStore).add(session)
    code = accounts.add_code("a", now)
    accounts.change_user("a", password="x")
    assert state.store(SessionStore).all(now) == [remaining]
    assert accounts.code(code, now) is None


def test_what_is_not_there_and_what_is_already(state: HubState) -> None:
    accounts = state.store(AccountsStore)
    accounts.add_user(user("a"))
    with pytest.raises(AlreadyExistsError):
        accounts.add_user(user("a"))
    with pytest.raises(AlreadyExistsError):
        accounts.add_user(user("b"), is_first=True)
    for change in (lambda: accounts.remove_user("x"), lambda: accounts.change_user("x"),
                   lambda: accounts.add_code("x", 0.0), lambda: accounts.remove_token("x"),
                   lambda: state.store(SessionStore).add(new_session("x", "", "", 0.0)[1]),
                   lambda: state.store(SessionStore).renew(new_session("a", "", "", 0.0)[1])):
        with pytest.raises(NotFoundError):
            change()


def test_only_the_newest_sign_ins_are_kept(state: HubState) -> None:
    attempts = [SignInRecord(float(at), f"n{at}", "", "password", "no") for at in range(500)]
    SignInWriter(state)(attempts, {}, {})
    sign_ins = state.store(SessionStore).sign_ins()
    assert (len(sign_ins), sign_ins[0].name, sign_ins[-1].name) == (200, "n499", "n300")
