"""Two hubs on one database: one is active, the other takes its place when it is gone."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from dashboard.actions.hub_key import HubKey
from dashboard.audit.store import AuditStore
from dashboard.cli.hub import hub as hub_command
from dashboard.history.ingest.headlog import HeadLog
from dashboard.state import HubState
from gpudeck.audit.chain import verify
from gpudeck.contract.wire import Beat
from gpudeck.errors import CommandError
from tests.integration.acting import ActingAgent, ordered, previewed, settled, several
from tests.integration.hubs import HubProcess, wait_for
from tests.integration.standbys import PairedHub
from tests.integration.visitors import Visitor, add_person, signed_in
from tests.postgres import PostgresServer, a_server

TASK = "boot-1-100-5"
ROOT = Path(__file__).parents[2]
# As asked: 10 s. A test machine that is busy with others may take longer to start a hub.
LIVE_WITHIN_S = 40.0


@pytest.fixture(name="server", scope="module")
def _server() -> Iterator[PostgresServer]:
    with a_server() as server:
        yield server


@contextmanager
def pair(server: PostgresServer, tmp_path: Path) -> Iterator[tuple[PairedHub, PairedHub]]:
    url = server.database()
    with PairedHub(tmp_path / "one", url) as one:
        wait_for(lambda: one.is_active, why="nobody else is there")
        wait_for((tmp_path / "one" / "hub.json").exists)
        (tmp_path / "two").mkdir(mode=0o700)
        copy_key(one, tmp_path / "two")
        with PairedHub(tmp_path / "two", url) as two:
            assert not two.is_active
            yield one, two


def copy_key(hub: HubProcess, folder: Path) -> None:
    """Copy the hub's key, as docs/scale.md says."""
    (folder / "hub.key").write_bytes((hub.folder / "hub.key").read_bytes())
    (folder / "hub.key").chmod(0o600)


@contextmanager
def an_agent(*hubs: PairedHub, name: str = "n1") -> Iterator["subprocess.Popen[bytes]"]:
    """Run a real agent that knows both hubs."""
    folder = hubs[0].folder.parent
    token = folder / "token"
    token.write_text(hubs[0].token().text + "\n")
    with (folder / "agent.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "agent", "--hub", ",".join(hub.url for hub in hubs), "--data",
             str(folder / name), "--token-file", str(token), "--backend", "simulated"],
            cwd=ROOT, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def is_live(hub: PairedHub) -> bool:
    if not hub.is_active:
        return False
    nodes = hub.get("/api/v1/nodes")["items"]
    return any(node["state"] == "live" for node in nodes)


@pytest.mark.parametrize("how", ["killed", "stopped", "frozen"])
def test_the_standby_takes_over(server: PostgresServer, tmp_path: Path, how: str) -> None:
    with pair(server, tmp_path) as (one, two), an_agent(one, two):
        wait_for(lambda: is_live(one), why="the agent is there")
        ready = two.ready()
        assert ready is not None
        assert (ready.status, ready.body.startswith(b"standby of ")) == (503, True)
        began = time.monotonic()
        if how == "killed":
            one.kill()
        elif how == "stopped":
            assert one.stop() == 0
        else:
            one.signal(signal.SIGSTOP)
        wait_for(lambda: two.is_active, LIVE_WITHIN_S, "it has taken over")
        active_s = time.monotonic() - began
        wait_for(lambda: is_live(two), LIVE_WITHIN_S, "the agent has come")
        print(f"{how}: active after {active_s:.1f} s, agent live after "
              f"{time.monotonic() - began:.1f} s")


def test_one_that_was_frozen_ends_before_it_writes_or_sends(
    server: PostgresServer, tmp_path: Path
) -> None:
    with pair(server, tmp_path) as (one, two):
        node = joined_node(one)
        one.signal(signal.SIGSTOP)
        for _ in range(5):  # into the buffers of the one that does not read
            node.tick()
        wait_for(lambda: two.is_active, LIVE_WITHIN_S, "it has taken over")
        before, count = stored(one), len(node.messages)
        one.signal(signal.SIGCONT)
        assert one.process.wait(20) == 1
        assert "hold_lost" in one.log.read_text()
        assert (stored(one), len(node.messages)) == (before, count), "nothing written, nothing sent"
        one._begin_again()  # as its service does
        wait_for(one._answers, why="it is back")
        assert not one.is_active
        assert verified(two) is None


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_samples_and_commands_in_flight(server: PostgresServer, tmp_path: Path, how: str) -> None:
    with pair(server, tmp_path) as (one, two):
        node = joined_node(one)
        node.is_mute = True
        add_person(one, "carol", "operator")
        carol = signed_in(one, "carol")
        [command] = ordered(carol, previewed(carol, f"{node.node_id}/{TASK}"))["items"]
        wait_for(lambda: len(node.commands) == 1, why="it has been sent")
        for _ in range(20):
            node.tick()
        wait_for(lambda: node.acked >= 3, why="some of it is acknowledged")
        one.signal(signal.SIGSTOP)
        for _ in range(20):
            node.tick()
        if how == "killed":
            one.kill()
        wait_for(lambda: two.is_active, LIVE_WITHIN_S, "it has taken over")
        node.is_mute = False
        acked = node.acked
        node.connect(two)
        assert node.welcomes[-1].epoch > node.welcomes[0].epoch
        node.say(Beat("ok", 0.5, 0, 0, first_seq=min(node.outbox)))  # the rest was acknowledged
        node.tick()
        wait_for(lambda: not node.outbox, why="all is acknowledged")
        there = Visitor(two)
        there.cookies |= carol.cookies
        there._own |= carol._own
        settled(there, command["id"], within_s=20)
        assert (len(node.commands), node.executed) == (1, [command["id"]])
        if how == "frozen":
            one.signal(signal.SIGCONT)
            assert one.process.wait(20) == 1
        assert verified(two) is None
        assert two.stop() == 0
        first, second = stored(one), stored(two)
        assert sorted({*first, *second}) == list(range(1, node.seq + 1)), "none is missing"
        assert len({*first}) == len(first)
        assert len({*second}) == len(second)
        assert all(seq > acked for seq in {*first} & {*second}), "only what was not acknowledged"


def test_after_a_restart_of_the_server_the_active_one_stays(
    server: PostgresServer, tmp_path: Path
) -> None:
    with pair(server, tmp_path) as (one, two):
        server.stop()
        wait_for(lambda: not one.is_active, why="it has noticed")
        server.start()
        wait_for(lambda: one.is_active, why="it is back by itself")
        wait_for(lambda: "state_away" in two.log.read_text(), why="the standby has seen it")
        assert not two.is_active


def test_of_two_that_wait_one_takes_over(server: PostgresServer, tmp_path: Path) -> None:
    with pair(server, tmp_path) as (one, two):
        (tmp_path / "three").mkdir(mode=0o700)
        copy_key(one, tmp_path / "three")
        with PairedHub(tmp_path / "three", two.flags[1]) as three:
            one.kill()
            wait_for(lambda: two.is_active or three.is_active, LIVE_WITHIN_S, "one of them")
            first, other = (two, three) if two.is_active else (three, two)
            assert not other.is_active
            first.kill()
            wait_for(lambda: other.is_active, LIVE_WITHIN_S, "then the other")
            assert verified(other) is None


def test_a_standby_shows_one_page_and_takes_nothing(
    server: PostgresServer, tmp_path: Path
) -> None:
    with pair(server, tmp_path) as (one, two):
        assert two.ask("/healthz", token=None).status == 200
        page = two.ask("/", token=None)
        assert (page.status, one.url.encode() in page.body) == (503, True)
        for path in ("/sign-in", "/api/v1/nodes", "/socket.io/?EIO=4&transport=websocket",
                     "/metrics"):
            answer = two.ask(path)
            assert (answer.status, answer.headers["Server"]) == (503, "gpudeck-standby")
        assert two.ask("/api/v1/hold", "POST", body=b"{}").status == 503
        assert not (two.folder / "headlog").exists()
        assert two.stop() == 0


def test_a_standby_of_another_key_does_not_start(server: PostgresServer, tmp_path: Path) -> None:
    url = server.database()
    with PairedHub(tmp_path / "one", url) as one:
        wait_for((one.folder / "hub.json").exists, why="it has said its key")

        def refusal(*flags: str) -> str:
            with pytest.raises(CommandError) as why:
                hub_command(["--data", str(tmp_path / "two"), "--bind", "127.0.0.1:0",
                             "--standby", *flags])
            return str(why.value)

        state_flags = ("--state", url, "--cluster", "pair")
        assert "needs its state in a database" in refusal()
        assert "hub.key is missing" in refusal(*state_flags)
        assert not (tmp_path / "two" / "hub.key").exists()
        HubKey(tmp_path / "two")
        run = subprocess.run(  # without the guard it would wait, not end
            [sys.executable, "-m", "dashboard", "hub", "--data", str(tmp_path / "two"),
             "--bind", "127.0.0.1:0", "--standby", *state_flags],
            cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
        assert "is another key than that of the hub on" in run.stderr
        copy_key(one, tmp_path / "two")
        assert "give both the same --cluster" in refusal("--state", url, "--cluster", "other")


class HearingAgent(ActingAgent):
    """An agent that keeps all messages of the hub."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.messages: list[bytes] = []

    def _on_message(self, data: bytes) -> None:
        self.messages.append(data)
        super()._on_message(data)


def joined_node(hub: PairedHub) -> HearingAgent:
    node = HearingAgent("n1")
    node.connect(hub)
    node.show(several(2))
    node.beat()
    wait_for(lambda: hub.get(f"/api/v1/nodes/{node.node_id}")["reader"], why="its Beat")
    return node


def stored(hub: PairedHub) -> list[int]:
    """Return the numbers of the Frames in its log, in the order in which they lie there."""
    return [entry.seq for _, entries in HeadLog(hub.folder / "headlog").segments()
            for entry in entries if entry.seq]


def verified(hub: PairedHub) -> object:
    with closing(HubState.open(hub.folder)) as state:
        return verify(state.store(AuditStore).links())
