"""Agents and the hub over real sockets: handshake, exactly once, acks only from disk."""

import resource
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dashboard.history.ingest.headlog import HeadLog
from gpudeck.contract.wire import (
    Event,
    Inventory,
    Refused,
    decode_from_agent,
    decode_from_hub,
    encode,
)
from tests.integration.hubs import (
    Caller,
    HubProcess,
    RawSocket,
    WireAgent,
    greet,
    one_task,
    raw_agent,
    wait_for,
)


@pytest.fixture(name="hub")
def _hub(tmp_path: Path) -> Iterator[HubProcess]:
    with HubProcess(tmp_path / "data") as hub:
        yield hub


@pytest.fixture(name="shared", scope="module")
def _shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    """A hub for tests that leave it as it is."""
    with HubProcess(tmp_path_factory.mktemp("shared") / "data") as hub:
        yield hub


def seqs_on_disk(hub: HubProcess) -> dict[str, list[int]]:
    seqs: dict[str, list[int]] = {}
    for entry in HeadLog(hub.folder / "headlog").read():
        if entry.seq:
            seqs.setdefault(entry.node_id, []).append(entry.seq)
    return seqs


def open_tap(hub: HubProcess) -> RawSocket:
    """Open a tap. A tap is not answered: the answer to the watch after it shows that it is set."""
    tap = RawSocket(hub, "/live", hub.api_token)
    tap.emit("tap", True)
    tap.emit("watch", {"metric": "util_pct", "filter": ""})
    tap.event("filter")
    tap.emit("hide")
    return tap


def test_values_reach_the_api(hub: HubProcess) -> None:
    agent = WireAgent("n1")
    agent.connect(hub)
    agent.tick(one_task(gpu=1, user="bob"))
    gpus = wait_for(lambda: [gpu for gpu in hub.get("/api/v1/gpus")["items"]
                             if gpu["state"] == "ok"], why="live values")
    assert [gpu["values"]["util_pct"] for gpu in gpus] == [
        pytest.approx(util, abs=0.001) for util in agent.util]
    [task] = hub.get("/api/v1/tasks?filter=user:bob")["items"]
    assert (task["user"], task["gpus"][0]["uuid"]) == ("bob", "GPU-n1-1")
    assert hub.get("/api/v1/tasks?filter=user:alice")["items"] == []
    agent.close()
    [node] = wait_for(lambda: [node for node in hub.get("/api/v1/nodes")["items"]
                               if node["state"] == "suspect"], why="suspect at once")
    assert node["clock_offset_s"] == pytest.approx(0.0, abs=0.5)


def test_each_seq_once_across_kills_of_the_hub(hub: HubProcess) -> None:
    """Acked messages are there once after kill -9, the others are sent again and count once: on
    disk, in the API and in a tap."""
    agents = [WireAgent(f"n{at}") for at in range(3)]
    for life in range(3):
        if life:
            hub.start()
        tap = open_tap(hub)
        for agent in agents:
            agent.connect(hub)
        for _ in range(12):
            for agent in agents:
                agent.tick()
            time.sleep(0.1)
        acked = {agent.node_id: agent.acked for agent in agents}
        if life < 2:
            hub.kill()
            on_disk = seqs_on_disk(hub)
            for agent in agents:
                seqs = set(on_disk[agent.node_id])
                assert set(range(1, acked[agent.node_id] + 1)) <= seqs
                agent.close()
            tap.close()
    for agent in agents:
        wait_for(lambda agent=agent: agent.acked == agent.seq, 5, "all acked")  # type: ignore[misc]
    pairs: list[tuple[str, int]] = []
    while not all((agent.node_id, 36) in pairs for agent in agents):
        pairs += [(row[0], row[2]) for row in tap.event("applied")["frames"]]
    assert len(pairs) == len(set(pairs))
    for agent in agents:
        frames = hub.get(f"/api/v1/nodes/{agent.node_id}")["frames"]
        assert (frames["first_seq"], frames["last_seq"], frames["missing"]) == (1, 36, 0)
        assert frames["acked_seq"] == 36
    hub.stop()
    for agent in agents:
        assert sorted(seqs_on_disk(hub)[agent.node_id]) == list(range(1, 37))
        agent.close()


def test_a_resend_is_counted_and_dropped(hub: HubProcess) -> None:
    agent = WireAgent("n1")
    agent.connect(hub)
    tap = open_tap(hub)
    agent.tick()
    payload = agent.outbox[1]
    assert agent._client is not None
    for _ in range(3):
        agent._emit(payload)
    agent.tick()
    applied: list[int] = []
    while 2 not in applied:
        applied += [row[2] for row in tap.event("applied")["frames"]]
    assert applied == [1, 2]
    assert hub.get(f"/api/v1/nodes/{Caller('n1').node_id}")["frames"]["duplicates"] == 3
    agent.close()


def test_no_ack_before_the_disk(hub: HubProcess) -> None:
    """Check every ack, as it comes, against what another process reads from the disk."""
    agent = WireAgent("n1")
    agent.connect(hub)
    last_acked = 0
    for _ in range(25):
        agent.tick()
        time.sleep(0.1)
        acked = agent.acked
        if acked > last_acked:
            last_acked = acked
            assert max(seqs_on_disk(hub)[Caller("n1").node_id]) >= acked
    assert last_acked > 0
    agent.close()


def test_last_values_come_back_stale_at_once(hub: HubProcess) -> None:
    agent = WireAgent("n1")
    agent.connect(hub)
    agent.tick(one_task())
    wait_for(lambda: agent.acked == 1, why="ack")
    hub.kill()
    hub.start()
    gpus = hub.get("/api/v1/gpus")["items"]
    assert [gpu["state"] for gpu in gpus] == ["stale", "stale"]
    assert [gpu["last_values"]["util_pct"] for gpu in gpus] == [
        pytest.approx(util, abs=0.001) for util in agent.util]
    assert gpus[0]["values"] == {}
    assert hub.get("/api/v1/tasks")["items"][0]["user"] == "alice"
    assert hub.get(f"/api/v1/nodes/{Caller('n1').node_id}")["state"] == "suspect"
    assert hub.get(f"/api/v1/nodes/{Caller('n1').node_id}")["frames"]["acked_seq"] == 1


def test_what_a_full_disk_refuses_is_not_acked_and_comes_back(tmp_path: Path) -> None:
    """RLIMIT_FSIZE stands in for the full disk: writes beyond it fail, and it can be lifted."""
    with HubProcess(tmp_path / "data") as hub:
        agent = WireAgent("n1")
        agent.connect(hub)
        agent.tick()
        wait_for(lambda: agent.acked == 1, why="first ack")
        size = max(path.stat().st_size for path in (hub.folder / "headlog").iterdir())
        limit_file_size(hub, size + 10)
        for _ in range(5):
            agent.tick()
        wait_for(lambda: hub.ask("/readyz").status == 503, why="not ready")
        assert b"disk is not writable" in hub.ask("/readyz").body
        assert hub.ask("/healthz").status == 200
        last = hub.get("/api/v1/gpus/GPU-n1-0")
        assert last["values"]["util_pct"] == pytest.approx(agent.util[0], abs=0.001)
        assert agent.acked == 1
        limit_file_size(hub, resource.RLIM_INFINITY)
        wait_for(lambda: agent.acked == 6, why="acks after the disk is writable again")
        assert hub.ask("/readyz").status == 200
        agent.close()
        hub.stop()
        assert seqs_on_disk(hub)[Caller("n1").node_id] == [1, 2, 3, 4, 5, 6]


def limit_file_size(hub: HubProcess, size: int) -> None:
    resource.prlimit(hub.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


@pytest.mark.parametrize("payload", [
    b"", b"\x00", b"not msgpack at all", encode(Inventory(1, ())),  # Call must be first
    encode(Caller("n1").said), encode(Event(1, 0.0, "x"))])
def test_what_is_no_call_is_refused_with_a_reason(shared: HubProcess, payload: bytes) -> None:
    raw = RawSocket(shared, "/agent")
    raw.emit("wire", payload)
    reply = decode_from_hub(raw.event("wire"))
    assert isinstance(reply, Refused)
    code, reason = raw.closed()
    assert code == 1007
    assert reason


def test_an_unknown_version_is_refused(shared: HubProcess) -> None:
    raw = RawSocket(shared, "/agent")
    reply = greet(raw, Caller("n", wire_versions=(99,)), shared.token())
    assert isinstance(reply, Refused)
    assert "wire version 1" in reply.reason
    assert raw.closed()[0] == 1008


def test_a_second_connection_of_a_node_takes_over(shared: HubProcess) -> None:
    first = raw_agent(shared)
    second = raw_agent(shared)
    assert first.closed()[1] == "another connection of this node took over"
    second.emit("wire", encode(Inventory(1, ())))
    assert wait_for(lambda: shared.get(f"/api/v1/nodes/{Caller('raw').node_id}")["state"] == "live")


def test_a_hub_that_was_paused_doubts_itself_first(hub: HubProcess) -> None:
    agent = WireAgent("n1")
    agent.connect(hub)
    agent.tick()
    wait_for(lambda: agent.acked == 1, why="ack")
    hub.signal(signal.SIGSTOP)
    time.sleep(7)  # more than the 5 s within which it would find nothing odd
    hub.signal(signal.SIGCONT)
    agent.tick()
    assert hub.get(f"/api/v1/nodes/{Caller('n1').node_id}")["state"] == "live"
    wait_for(lambda: "was_suspended" in hub.log.read_text(), why="it says so")
    assert agent.is_connected
    agent.close()


def test_the_log_holds_what_was_said(hub: HubProcess) -> None:
    agent = WireAgent("n1")
    agent.connect(hub)
    agent.tick()
    payload = agent.outbox[1]
    wait_for(lambda: agent.acked == 1, why="ack")
    agent.close()
    hub.stop()
    entries = list(HeadLog(hub.folder / "headlog").read())
    kinds = [type(decode_from_agent(entry.payload)).__name__ for entry in entries]
    assert kinds == ["Hello", "Inventory", "Frame"]
    assert entries[2].payload == payload
