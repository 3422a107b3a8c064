"""`limit` of a client of MPS: its owner's next clients get a smaller share, nobody else's, and the
former share comes back."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.actions import guard
from agent.limits.mps_shares import ServerShare, step
from agent.limits.timed_limits import NodeTime
from agent.runtime.action_lock import ActionLock
from gpudeck.contract.actions import ActionParams, Reply
from gpudeck.contract.limits import LimitRelease, MpsPercent, TimedLimit
from tests.fakes.children import Child, Children
from tests.fakes.mps_control import FakeMps
from tests.integration.limits_bench import Bench, done

NOBODY = 65_534


@pytest.fixture
def mps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMps]:
    control = FakeMps(tmp_path / "mps")
    for name, value in control.env().items():
        monkeypatch.setenv(name, value)
    control.start()
    yield control
    control.close()


@pytest.fixture
def bench(tmp_path: Path, children: Children, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(guard, "YOUNGEST_S", 0.0)
    children.start()
    return Bench(tmp_path, children)


def start_client(bench: Bench, mps: FakeMps, *neighbours: int) -> tuple[Child, Child]:
    server = bench.children.start(listed=False)
    client = bench.children.start(kind="mps_client", gpu=bench.gpu)
    mps.server(server.pid, client.pid, *neighbours)
    return server, client


def limited(bench: Bench, task: Child) -> Reply:
    with bench.here(actions=["limit", "release_limit", "set_mps"]) as here:
        return here.act(here.preview("limit", task.task_id, ActionParams()), "a test", "ada")


def shares(mps: FakeMps, server: Child) -> list[str]:
    """Return the shares that were set of a server, one after the other."""
    return [line.split()[-1] for line in mps.changed()
            if line.startswith(f"set_active_thread_percentage {server.pid} ")]


def test_next_clients_get_half_and_it_is_taken_back(bench: Bench, mps: FakeMps) -> None:
    server, client = start_client(bench, mps)
    with bench.here(actions=["limit"]) as here:
        preview = here.preview("limit", client.task_id, ActionParams())
        assert any("changes nothing for a client that runs" in words for words in preview.warnings)
    reply = limited(bench, client)
    assert (reply.state, reply.verified and reply.verified.in_force) == ("done", True), reply
    assert "50 % of the threads instead of 100 %" in reply.step
    [limit] = bench.book().all()
    assert (limit.what, limit.wanted, limit.before, limit.state, limit.server) == (
        "mps_share", (50.0,), (100.0,), "in_force", server.pid)
    second = limited(bench, client)
    assert (second.state, second.refusal and second.refusal.code) == ("refused", "setting")
    with bench.keeper() as run:
        assert [lease.state for lease in run.round()] == ["in_force"]
    with bench.here(actions=["release_limit"]) as here:
        assert done(here, LimitRelease(limit.gpu_uuid, "mps_share")).state == "done"
    assert (shares(mps, server), bench.book().all()) == (["50", "100"], ())
    assert client.is_alive()


def test_it_comes_back_at_its_end_also_after_the_agent_was_restarted(
        bench: Bench, mps: FakeMps, monkeypatch: pytest.MonkeyPatch) -> None:
    server, client = start_client(bench, mps)
    assert limited(bench, client).state == "done"
    monkeypatch.setattr("agent.limits.mps_shares.left_s", lambda limit, clock: 0.0)
    with bench.keeper() as run:
        run.round()
    assert (shares(mps, server), bench.book().all()) == (["50", "100"], ())


def test_a_daemon_that_lets_us_wait_keeps_nobody_from_acting(
        bench: Bench, mps: FakeMps, monkeypatch: pytest.MonkeyPatch) -> None:
    _, client = start_client(bench, mps)
    assert limited(bench, client).state == "done"
    is_free: list[bool] = []

    def read(*_: object) -> ServerShare:
        lock = ActionLock(bench.data)
        is_free.append(lock.take(0.0))
        lock.free()
        return ServerShare(None, True)

    monkeypatch.setattr("agent.limits.mps_shares.read", read)
    with bench.keeper() as run:
        assert [limit.state for limit in run.round()] == ["unknown"]
    assert is_free == [True]


def test_what_somebody_else_has_set_since_stays(bench: Bench, mps: FakeMps) -> None:
    server, client = start_client(bench, mps)
    assert limited(bench, client).state == "done"
    [limit] = bench.book().all()
    with bench.here(actions=["set_mps", "release_limit"]) as here:
        assert done(here, MpsPercent(str(mps.pipes), 33, server.pid)).state == "done"
        with bench.keeper() as run:
            [drifted] = run.round()
            assert (drifted.state, drifted.words) == (
                "drifted", "somebody has set 33 % since")
        assert done(here, LimitRelease(limit.gpu_uuid, "mps_share")).state == "done"
    assert shares(mps, server) == ["50", "33"]


def test_a_server_that_serves_others_too_is_left_alone(bench: Bench, mps: FakeMps) -> None:
    if os.geteuid() != 0:
        pytest.skip("root alone can start a process of somebody else")
    other = subprocess.Popen(["sleep", "60"], user=NOBODY)
    try:
        server, client = start_client(bench, mps, other.pid)
        reply = limited(bench, client)
        assert (reply.state, reply.refusal and reply.refusal.code) == ("refused", "mps")
        assert "serves others as well" in reply.step
        assert (shares(mps, server), bench.book().all()) == ([], ())
    finally:
        other.kill()
        other.wait()


def test_where_no_server_is_seen_it_is_refused_in_words(bench: Bench, mps: FakeMps) -> None:
    client = bench.children.start(kind="mps_client")
    reply = limited(bench, client)
    assert (reply.state, reply.refusal and reply.refusal.code) == ("refused", "mps")
    assert "no MPS server that answers here lists it" in reply.step


def test_a_share_that_does_not_read_back_is_no_limit(bench: Bench, mps: FakeMps) -> None:
    _, client = start_client(bench, mps)
    mps.save(ignores=True)
    reply = limited(bench, client)
    assert (reply.state, reply.refusal and reply.refusal.code) == ("refused", "setting")
    assert "it reads back 100 %, not 50 %" in reply.step
    assert bench.book().all() == ()


LIMIT = TimedLimit("c", "GPU-1", "mps_share", (50.0,), (100.0,), "ada", "", 0.0, 100.0, "boot",
                   100.0, "in_force", pipes="/run/mps", server=4_242)
EARLY, LATE = NodeTime(50.0, "boot", 50.0), NodeTime(150.0, "boot", 150.0)


@pytest.mark.parametrize(("state", "share", "clock", "do", "after"), [
    ("in_force", ServerShare(50.0, True), EARLY, "keep", "in_force"),
    ("in_force", ServerShare(None, True), LATE, "keep", "unknown"),
    ("in_force", ServerShare(50.0, True), LATE, "undo", "in_force"),
    ("in_force", ServerShare(70.0, True), EARLY, "keep", "drifted"),
    ("in_force", ServerShare(70.0, True), LATE, "forget", "drifted"),
    ("in_force", ServerShare(None, False), EARLY, "forget", "in_force"),
    ("in_force", ServerShare(None, True), NodeTime(50.0, "another", 5.0), "forget", "in_force"),
    ("beginning", ServerShare(50.0, True), EARLY, "undo", "in_force"),
    ("beginning", ServerShare(None, True), EARLY, "keep", "beginning"),
    ("beginning", ServerShare(100.0, True), EARLY, "undo", "drifted"),
])
def test_what_is_done_about_a_limited_share(state: str, share: ServerShare, clock: NodeTime,
                                            do: str, after: str) -> None:
    limit = TimedLimit(**{name: getattr(LIMIT, name) for name in LIMIT.__struct_fields__} | {
        "state": state})
    decision = step(limit, share, clock)
    assert (decision.do, decision.limit.state) == (do, after)
