"""Stores over each engine: the same is written, the same is read, and it moves over whole."""

import random
import secrets
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dashboard.access.policy import Role, Scope
from dashboard.access.store import (
    AccountsStore,
    SessionStore,
    SignInRecord,
    User,
    new_session,
    new_token,
)
from dashboard.actions.standing_store import HoldRecord, OwnerKeep, StandingStore
from dashboard.actions.store import CommandsStore
from dashboard.alerts.core.query import AlertQuery
from dashboard.alerts.rehearsal.record import RehearsalRecord
from dashboard.alerts.store import AlertsStore
from dashboard.audit.sign_in_notes import SignInWriter
from dashboard.audit.store import AuditFilter, AuditHead, AuditStore
from dashboard.cli.backup import backup_or_restore
from dashboard.cli.migrate_state import migrate_state
from dashboard.fleet.members import EnrolledNode, Enrolment
from dashboard.jobs.core.records import JobRecord
from dashboard.jobs.store import JobsStore
from dashboard.nodes.store import CheckpointStore, NodeStore
from dashboard.quotas.store import QuotasStore
from dashboard.runtime.postgres_state import PostgresStateStore
from dashboard.runtime.sql_transaction import together
from dashboard.runtime.sqlite_state import SqliteStateStore
from dashboard.runtime.state_store import StateStore
from dashboard.state import HubState
from gpudeck.audit.chain import verify
from gpudeck.contract.quota import Quota
from gpudeck.errors import CommandError
from tests.postgres import PostgresServer, a_server
from tests.unit.dashboard.actions.test_lifecycle import record
from tests.unit.dashboard.alerts.test_marks import alert
from tests.unit.dashboard.alerts.test_rule_guards import a_rule

NUL = "what a node says \0 \\u0000 \\\0 Ü \U0001f525"


@pytest.fixture(name="server", scope="module")
def _server() -> Iterator[PostgresServer]:
    with a_server() as server:
        yield server


@pytest.fixture(name="seed")
def _seed() -> int:
    return random.randrange(10**9)


def fill(state: HubState, seed: int) -> list[Any]:
    """Write a bit of everything and return what was answered."""
    lots = random.Random(seed)
    answers = [access(state, lots), nodes(state, lots), audit(state), standing(state, lots),
               alerts(state, lots), quotas(state), commands(state, lots), jobs(state)]
    state.put("epoch", "1")
    state.put("epoch", "7")
    return [*answers, state.next_epoch(), state.get("nothing")]


def access(state: HubState, lots: random.Random) -> list[Any]:
    accounts = state.store(AccountsStore)
    sessions = state.store(SessionStore)
    names = lots.sample(["ada", "Bob", "Ärger", "_x", "a-b", "zoe"], 6)
    for at, name in enumerate(names):
        accounts.add_user(User(name, lots.choice([*Role]), Scope(("*",)), None, at / 3))
    accounts.change_user(names[0], role=Role.ADMIN)
    _, session = new_session(names[0], "password", "10.0.0.1", 1763863200.25)
    sessions.add(session)
    _, token = new_token("ci", Role.VIEWER, Scope(("*",)), names[0], 5.5, 1e9)
    accounts.add_token(token)
    code = accounts.add_code(names[0], 10.0)
    tries = [SignInRecord(1.0, f"try {at}", "::1", "password", "wrong") for at in range(3)]
    SignInWriter(state)([*tries, SignInRecord(1.0, NUL, "", "", "")],
                        {session.id: 1763863260.125}, {})
    return [accounts.users(),
            [session.used_at for session in sessions.all(1763863261.0)],
            [token.role for token in accounts.tokens()],
            [entry.name.replace("\0", "\ufffd") for entry in sessions.sign_ins()],
            accounts.use_code(code, 11.0), accounts.use_code(code, 11.0)]


def nodes(state: HubState, lots: random.Random) -> list[Any]:
    registry = state.store(NodeStore)
    checkpoints = state.store(CheckpointStore)
    enrolments = [Enrolment(f"e{at}", lots.randbytes(32), None, bool(at % 2), "default", at / 7,
                            "ada", 1e9, uses=2) for at in range(4)]
    assert registry.add(enrolments, 1.0)
    member = EnrolledNode("n1", lots.randbytes(32), "host", "default", "approved", 2.5, "e1")
    uses = [registry.use("e1", member) for _ in range(3)]
    checkpoints.put([("n1", lots.randbytes(9)), ("n2", b"\0\xff"), ("n1", b"last")])
    return [uses, registry.enrolments(), registry.members(), sorted(checkpoints.all())]


def audit(state: HubState) -> list[Any]:
    store = state.store(AuditStore)
    for at in range(9):
        with store.together():
            store.append({"at": 1e9 + at / 8, "kind": "heads" if at == 8 else
                          "command" if at % 2 else "user",
                          "actor": "x" * 5_000 if at == 4 else NUL, "node": None if at < 3 else
                          "n1", "detail": {"b": [1e2, 0.1, at], "a": NUL}})
    store.put_vouched({"n1": AuditHead(3, "h", 2.0)})
    store.put_node_heads({"n1": AuditHead(3, "h", 2.0, "why")})
    with store.snapshot():
        assert verify(store.links()) is None
    newest = [store.newest(AuditFilter(**conditions), before, 3) for conditions, before in (
        ({"kind": "command"}, None), ({"node": "n1", "since": 1e9 + 0.5}, 9),
        ({"actor": "nobody"}, None), ({}, None), ({"has_system": False}, None))]
    assert newest[0]
    assert [link.seq for link in newest[3]] == [9, 8, 7]
    assert [link.seq for link in newest[4]] == [8, 7, 6], "the hub's own are left out"
    return [newest, [*store.links(4, 3)], store.head()[0], store.vouched(), store.node_heads()]


def standing(state: HubState, lots: random.Random) -> list[Any]:
    store = state.store(StandingStore)
    store.put_hold(HoldRecord("", "ada", NUL.replace("\0", ""), 1.25))
    store.put_keep(OwnerKeep("n1", "t", lots.random(), "because", "bob", 0.5))
    store.put_address("bob", "b@example.org")
    store.replace_addresses([("zoe", "z@example.org"), ("Ada", "a@example.org")])
    return [store.holds(), store.keeps(), store.addresses(), store.drop_address("nobody")]


def alerts(state: HubState, lots: random.Random) -> list[Any]:
    store = state.store(AlertsStore)
    entries = [alert("gpu", f"GPU-{at % 3}", (f"GPU-{at % 3}",), float(at), at + lots.random())
               for at in range(20)]
    store.put_alerts(entries)
    store.put_alerts(entries[:3])
    rule = a_rule()
    numbers = [store.put_rule(rule, "ada", 1.0), store.put_rule(rule, "ada", 2.0, False)]
    for at in range(203):
        store.put_backtest(RehearsalRecord(f"b{at}", rule, rule.id, "v", 0.0, 1.0, "ada",
                                           float(at), 60, approved_by="bob" if at == 1 else None))
    backtest_ids = [backtest.id for backtest in store.backtests()]
    assert len(backtest_ids) == 201
    return [numbers, backtest_ids, len(store.backtests("other")), store.rules(),
            store.has_any_rule(),
            [store.ended_alerts(3, 12, about, after=after) for about in (
                AlertQuery(), AlertQuery(gpus=frozenset(("GPU-1",))), AlertQuery(gpus=frozenset()))
             for after in (None, (7.0, "gpu/GPU-1/7.0"))]]


def quotas(state: HubState) -> list[Any]:
    quotas = state.store(QuotasStore)
    for _ in range(2):
        with state.store(AuditStore).together():
            quotas.put(Quota("q", "user:ada", "fleet", gpus=1), "ada", 1.5)
    quotas.put_groups({"ada": ["x", "b"]})
    return [quotas.quotas(), quotas.generation(), quotas.groups(),
            quotas.versions("q")]


def commands(state: HubState, lots: random.Random) -> list[Any]:
    commands = state.store(CommandsStore)
    records = [record(f"c{at}", at // 3) for at in range(450)]
    for command in lots.sample(records, len(records)):
        commands.put(command)
    ids = [command.id for command in commands.newest()]
    assert len(ids) == 450
    return [ids, [command.id for command in commands.newest(
        (100.0, "c301"), True)], commands.counts()]


def jobs(state: HubState) -> list[Any]:
    jobs = state.store(JobsStore)
    records = [JobRecord(f"j{at}", "n1", "host", "ada", "train.py", None, at / 2, 1, (), at / 2,
                         at / 2, None if at % 2 else "torchrun") for at in range(7)]
    jobs.put(records)
    jobs.forget(0.75, 3)
    return [jobs.ended(0.0, 9), jobs.of_ids(["j5", "j6", "j0"]),
            jobs.of_launches(["torchrun"]), jobs.open()]


def contents(store: StateStore) -> dict[str, list[str]]:
    """Return the rows of each table, sorted."""
    with together(store.connection):
        return {table: sorted(map(repr, store.rows(table, columns)))
                for table, columns in store.tables().items()}


def test_each_answers_as_the_other(server: PostgresServer, tmp_path: Path, seed: int) -> None:
    mine = PostgresStateStore(server.database(), None, is_hub=True)
    with (closing(HubState(SqliteStateStore(tmp_path / "state.db"))) as one,
          closing(HubState(mine)) as other):
        assert fill(other, seed) == fill(one, seed)


def test_it_moves_into_a_database_and_back(
    server: PostgresServer, tmp_path: Path, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    tmp_path.chmod(0o700)
    with closing(HubState.open(tmp_path)) as state:
        fill(state, seed)
    with closing(SqliteStateStore(tmp_path / "state.db")) as store:
        before = contents(store)
    url, where = server.database(), ["--data", str(tmp_path)]
    assert migrate_state(["migrate-state", "--to", url, *where]) == 0
    assert "audit: 9" in capsys.readouterr().out
    assert not (tmp_path / "state.db").exists(), "nobody goes on with what is old"
    assert (tmp_path / "state.json").stat().st_mode & 0o077 == 0
    with closing(HubState.open(tmp_path)) as state:
        assert isinstance(state._store, PostgresStateStore)
        assert verify(state.store(AuditStore).links()) is None
        assert without_nul(contents(state._store)) == without_nul(before)
    assert backup_or_restore(["backup", str(tmp_path / "copy"), *where]) == 0
    with closing(SqliteStateStore(tmp_path / "copy/state.db")) as store:
        assert without_nul(contents(store)) == without_nul(before)
    with pytest.raises(CommandError, match="already"):
        migrate_state(["migrate-state", "--to", server.database(), *where])
    assert migrate_state(["migrate-state", "--to", "folder", *where]) == 0
    with closing(SqliteStateStore(tmp_path / "state.db")) as store:
        assert without_nul(contents(store)) == without_nul(before)
    with (closing(PostgresStateStore(url, None, is_hub=True)) as old,
          pytest.raises(CommandError, match="was moved to")):
        old.migrate(())


def without_nul(rows_by_table: dict[str, list[str]]) -> dict[str, list[str]]:
    """Replace a NUL in a name, which PostgreSQL has no character for."""
    return {table: sorted(row.replace("\\x00", "\ufffd") for row in rows)
            if table == "sign_ins" else rows for table, rows in rows_by_table.items()}


def test_a_database_that_is_in_use_or_not_there(server: PostgresServer, tmp_path: Path) -> None:
    with closing(HubState.open(tmp_path)) as state:
        state.put("a", secrets.token_hex(4))
    used_url = server.database()
    with closing(HubState(PostgresStateStore(used_url, None, is_hub=False))) as other:
        other.hub_id()
    for url, why in ((used_url, "has a hub's state"), (server.database() + "&dbname=nobody",
                                                       "does not exist")):
        with pytest.raises(CommandError, match=why):
            migrate_state(["migrate-state", "--to", url, "--data", str(tmp_path)])
    assert (tmp_path / "state.db").exists()
