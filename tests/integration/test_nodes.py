"""Nodes that connect to a real hub: which are admitted, which are removed, and how fast."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
import websocket

from agent.cli.node import node
from gpudeck.contract.wire import Beat, Call, Challenge, Refused, Welcome, decode_from_hub, encode
from gpudeck.errors import ExitCode
from gpudeck.network.keys import EnrolmentToken
from tests.integration.hubs import (
    REPOSITORY,
    Caller,
    HubProcess,
    RawSocket,
    WireAgent,
    greet,
    raw_agent,
    wait_for,
)
from tests.ports import free_port


@pytest.fixture(name="hub", scope="module")
def _hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubProcess(tmp_path_factory.mktemp("hub") / "data") as hub:
        yield hub
        assert "Traceback" not in hub.log.read_text()


def item(hub: HubProcess, name: str) -> Any:
    return hub.get(f"/api/v1/nodes/{Caller(name).node_id}")


def post(hub: HubProcess, path: str, content: Any = None, method: str = "POST") -> Any:
    answer = hub.ask(f"/api/v1/{path}", method, body=json.dumps(content or {}).encode(),
                     Content_Type="application/json")
    assert answer.status in (200, 201, 204), (answer.status, answer.body)
    return answer.json if answer.body else None


def refusal(answer: Any) -> str:
    assert isinstance(answer, Refused), answer
    return answer.reason


def test_an_unknown_node_is_no_part_of_the_fleet(hub: HubProcess) -> None:
    raw = RawSocket(hub, "/agent")
    assert "token create agent" in refusal(greet(raw, Caller("unknown")))
    assert raw.closed()[0] == 1008
    assert hub.ask(f"/api/v1/nodes/{Caller('unknown').node_id}").status == 404


def test_a_place_by_rest_and_the_node_that_takes_it(hub: HubProcess) -> None:
    entry = post(hub, "enrolments", {"host": "host-rest", "group": "lab"})
    assert entry["command"] == f"GPUDECK_TOKEN={entry['token']} gpudeck agent --hub {hub.url}"
    assert 3_590 < entry["expires_at"] - time.time() <= 3_600
    [listed] = [one for one in hub.get("/api/v1/enrolments")["items"] if one["id"] == entry["id"]]
    assert "token" not in listed
    assert "command" not in listed
    token = EnrolmentToken.read(entry["token"])
    assert "'host-rest'" in refusal(greet(RawSocket(hub, "/agent"), Caller("else"), token))
    assert isinstance(greet(RawSocket(hub, "/agent"), Caller("rest"), token), Welcome)
    more = Caller("more", host="host-rest")
    assert "used already" in refusal(greet(RawSocket(hub, "/agent"), more, token))
    view = item(hub, "rest")
    assert (view["group"], view["access"]) == ("lab", "approved")
    assert view["fingerprint"].replace(" ", "") == view["id"]
    assert post(hub, f"nodes/{view['id']}", {"group": "other"}, "PATCH")["group"] == "other"
    listed = hub.get(f"/api/v1/enrolments/{entry['id']}")
    assert listed["used_by"] == view["id"]
    assert "token" not in listed


def test_a_withdrawn_place(hub: HubProcess) -> None:
    entry = post(hub, "enrolments")
    assert post(hub, f"enrolments/{entry['id']}", method="DELETE") is None
    token = EnrolmentToken.read(entry["token"])
    assert "does not know the enrolment token" in refusal(
        greet(RawSocket(hub, "/agent"), Caller("late"), token))
    for method in ("DELETE", "GET"):
        assert hub.ask(f"/api/v1/enrolments/{entry['id']}", method).status == 404


@pytest.mark.parametrize(("path", "method", "content", "status"), [
    ("enrolments", "POST", {"group": "*"}, 400), ("enrolments", "POST", {"host": ""}, 400),
    ("enrolments", "POST", {"approve": 1}, 400), ("enrolments", "POST", {"x": 1}, 400),
    ("enrolments", "POST", [], 400), ("enrolments", "POST", {"host": "a\nb"}, 400),
    ("nodes/x", "PATCH", {"group": "lab"}, 404), ("nodes/x/approve", "POST", None, 404),
    ("nodes/x/revoke", "POST", None, 404), ("nodes/x", "PATCH", {}, 400)])
def test_what_is_wrong_is_said(hub: HubProcess, path: str, method: str, content: Any, status: int
                               ) -> None:
    answer = hub.ask(f"/api/v1/{path}", method, body=json.dumps(content).encode(),
                     Content_Type="application/json")
    assert answer.status == status, answer.body
    assert answer.headers["Content-Type"] == "application/problem+json"


def test_a_node_that_waits_is_seen_with_its_fingerprint_and_nothing_of_it_enters(
    hub: HubProcess
) -> None:
    token = hub.token(approve=True)
    waiting = refusal(greet(RawSocket(hub, "/agent"), Caller("wait"), token))
    view = item(hub, "wait")
    assert view["access"] == "waiting"
    assert view["fingerprint"] in waiting
    assert (view["gpus"], view["last_heard_at"]) == (0, None)
    before = hub.get("/api/v1/gpus?limit=1000")["items"]
    raw = RawSocket(hub, "/agent")
    greet(raw, Caller("wait"))
    with suppress(OSError, websocket.WebSocketException):
        raw.emit("wire", encode(Beat("ok", 0.0, 0, 0)))
    assert hub.get("/api/v1/gpus?limit=1000")["items"] == before
    assert item(hub, "wait")["last_heard_at"] is None
    assert post(hub, f"nodes/{view['id']}/approve")["access"] == "approved"
    assert isinstance(greet(RawSocket(hub, "/agent"), Caller("wait")), Welcome)
    assert item(hub, "wait")["state"] == "live"


def test_waiting_nodes_are_approved_by_a_list_and_no_other(
    hub: HubProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str]
) -> None:
    token, names = hub.token(approve=True, uses=3), ("first", "second", "third")
    for name in names:
        refusal(greet(RawSocket(hub, "/agent"), Caller(name), token))
    first, second, third = (item(hub, name)["fingerprint"] for name in names)
    listed = tmp_path / "fingerprints"
    listed.write_text(f"{first.upper()}  # rack 1\n\n{second.replace(' ', ':')}\n")
    monkeypatch.setenv("GPUDECK_TOKEN", hub.api_token)
    assert node(["approve", "--hub", hub.url, "--file", str(listed)]) == ExitCode.OK
    assert [item(hub, name)["access"] for name in names] == ["approved", "approved", "waiting"]
    # A beginning of one lets nobody in, and what is not there is said.
    part = third.replace(" ", "")[:16]
    assert node(["approve", "--hub", hub.url, part, first]) == ExitCode.FAILED
    output = capsys.readouterr().out
    assert "no such node has come" in output
    assert "was approved before" in output
    assert item(hub, "third")["access"] == "waiting"
    assert hub.ask("/api/v1/nodes/approvals", "POST", body=b'{"fingerprints": []}',
                   Content_Type="application/json").status == 400


def test_two_agents_with_one_key(hub: HubProcess) -> None:
    """The newer one wins by its proof, the other gets the reason, and the node is flagged."""
    first = raw_agent(hub, "twin")
    second = RawSocket(hub, "/agent")
    assert isinstance(greet(second, Caller("twin", stream="another")), Welcome)
    messages = [decode_from_hub(packet["data"][1]) for packet in rest_of(first)]
    [rejection] = [message for message in messages if isinstance(message, Refused)]
    assert "another agent with this node's key" in rejection.reason
    assert first.close_reason == "another connection of this node took over"
    takeovers = item(hub, "twin")["takeovers"]
    assert takeovers["count"] == 1
    assert abs(takeovers["last_at"] - time.time()) < 5
    thief = RawSocket(hub, "/agent")
    thief.emit("wire", encode(Caller("twin").call))
    challenge = decode_from_hub(thief.event("wire"))
    assert isinstance(challenge, Challenge)
    caller = Caller("twin")
    caller.key = Caller("thief").key  # without the key nobody wins anything
    forged = msgspec.structs.replace(
        caller.said, signature=caller.key.sign(encode(caller.said)), last_seq=7)
    thief.emit("wire", encode(forged))
    assert thief.closed() == (1008, "the signature is not that of the node's key")
    assert item(hub, "twin")["takeovers"]["count"] == 1
    second.emit("wire", encode(Beat("ok", 0.0, 0, 0)))
    assert item(hub, "twin")["state"] == "live"


def rest_of(raw: RawSocket) -> list[Any]:
    packets = []
    while (packet := raw.receive()) is not None:
        packets.append(packet)
    return packets


def test_a_revoked_node_is_out_within_a_second_and_stays_out(hub: HubProcess) -> None:
    agent = WireAgent("gone")
    agent.connect(hub)
    agent.tick()
    wait_for(lambda: agent.acked == 1, why="ack")
    started = time.monotonic()
    assert post(hub, f"nodes/{agent.node_id}/revoke")["access"] == "revoked"
    wait_for(lambda: not agent.is_connected, 1.0, "closed")
    assert time.monotonic() - started < 1.0
    assert "revoked" in agent.rejections[-1].reason
    assert "revoked" in refusal(greet(RawSocket(hub, "/agent"), Caller("gone"), hub.token()))
    assert hub.ask(f"/api/v1/nodes/{agent.node_id}/approve", "POST").status == 409
    agent.close()


def test_revocation_under_load(hub: HubProcess) -> None:
    """50 agents that send as fast as they may, and one of them reads nothing any more: each is out
    within a second of its revocation, and nothing it says afterwards is taken."""
    agents = [raw_agent(hub, f"load{at}") for at in range(50)]
    agents[0].socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    stop, ended_at = threading.Event(), dict[int, float]()
    beat = encode(Beat("ok", 0.0, 0, 0))

    def shout(at: int) -> None:
        with suppress(OSError, websocket.WebSocketException):
            while not stop.wait(0.1):
                agents[at].emit("wire", beat)
        ended_at[at] = time.monotonic()

    threads = [threading.Thread(target=shout, args=(at,)) for at in range(50)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    revoked: dict[int, tuple[float, float]] = {}
    for at in range(50):
        post(hub, f"nodes/{Caller(f'load{at}').node_id}/revoke")
        revoked[at] = time.monotonic(), item(hub, f"load{at}")["last_heard_at"]
    wait_for(lambda: len(ended_at) == 50, 3.0, "all out")
    stop.set()
    for thread in threads:
        thread.join()
    late = [ended_at[at] - revoked[at][0] for at in range(50)]
    assert max(late) < 1.0, max(late)
    assert [item(hub, f"load{at}")["last_heard_at"] for at in range(50)] == [
        heard_at for _, heard_at in revoked.values()]


def test_before_the_proof_there_is_one_call_and_one_hello(hub: HubProcess) -> None:
    beat = encode(Beat("ok", 0.0, 0, 0))
    call = encode(Call(bytes(32)))
    for messages in ([beat], [call, beat], [call, call], [encode(Caller("x").said)]):
        raw = RawSocket(hub, "/agent")
        for body in messages:
            raw.emit("wire", body)
        assert raw.closed()[0] == 1007


def test_strangers_get_little(hub: HubProcess) -> None:
    """Limits before the proof: not many messages, no large one, not much time."""
    raw = RawSocket(hub, "/agent")
    with suppress(OSError, websocket.WebSocketException):
        for _ in range(200):
            raw.ws.ping()
        assert raw.closed() == (1008, "more messages than allowed")
    raw = RawSocket(hub, "/agent")
    with suppress(OSError, websocket.WebSocketException):
        raw.emit("wire", bytes(20_000))
        assert raw.closed()[0] == 1009
    started = time.monotonic()
    raw = RawSocket(hub, "/agent")
    raw.emit("wire", encode(Call(bytes(32))))
    assert raw.closed(8.0)[1] == "did not identify itself"
    assert time.monotonic() - started < 7.0


def test_a_thousand_that_prove_nothing_shut_no_agent_out(hub: HubProcess) -> None:
    """500 connect and say nothing, 500 get their challenge and never answer it."""
    bystander = WireAgent("bystander")
    bystander.connect(hub)
    before = hub.pss_bytes()
    with ExitStack() as stack:
        for at in range(1_000):
            if at % 2:
                stack.enter_context(socket.create_connection(("127.0.0.1", hub.port)))
            else:
                stack.enter_context(_unproven(hub))
        started = time.monotonic()
        newcomer = WireAgent("newcomer")
        newcomer.connect(hub)
        assert time.monotonic() - started < 4.0  # before the first of them is sent away
        for agent in (bystander, newcomer):
            agent.tick()
            wait_for(lambda: agent.acked == agent.seq, 5, "acks")  # noqa: B023
            agent.close()
        grown = hub.pss_bytes() - before
    print(f"\n1,000 connections that prove nothing: +{grown / 1e6:.1f} MB")
    assert grown < 60e6
    assert hub.get("/api/v1/nodes?limit=1000")["items"]


def _unproven(hub: HubProcess) -> socket.socket:
    """Shake hands by hand: 500 clients of a library would be most of what is measured."""
    sock = socket.create_connection(("127.0.0.1", hub.port))
    sock.sendall(f"GET /socket.io/?EIO=4&transport=websocket HTTP/1.1\r\n"
                 f"Host: 127.0.0.1:{hub.port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                 "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
                 .encode())
    return sock


def test_a_browser_is_no_agent(hub: HubProcess) -> None:
    for origin in (hub.url, "http://evil.example", "null"):
        with pytest.raises(websocket.WebSocketBadStatusException):
            RawSocket(hub, "/agent", origin=origin)


@contextmanager
def agent_process(hub: HubProcess, data: Path, *flags: str, token: str = ""
                  ) -> "Iterator[subprocess.Popen[str]]":
    with subprocess.Popen(
        [sys.executable, "-m", "agent", "--hub", hub.url, "--data", str(data), "--backend",
         "simulated", "--host", data.name, *flags], cwd=REPOSITORY, text=True,
        env={"PATH": "/usr/bin", "GPUDECK_TOKEN": token}, stderr=subprocess.PIPE,
        stdout=subprocess.PIPE, stdin=subprocess.DEVNULL,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_real_agent_enrols_once_and_comes_back_by_its_key(
    hub: HubProcess, tmp_path: Path
) -> None:
    data = tmp_path / "real-agent"
    for token in (hub.token().text, ""):
        with agent_process(hub, data, token=token) as process:
            wait_for(lambda: any(node["host"] == "real-agent" and node["state"] == "live"
                                 for node in hub.get("/api/v1/nodes?limit=1000")["items"]),
                     why="a live node")
            process.terminate()
            log = process.communicate(timeout=10)[1]
        assert process.returncode == 0
        assert not token or token.split(".")[2] not in log
        wait_for(lambda: all(node["host"] != "real-agent" or node["state"] != "live"
                             for node in hub.get("/api/v1/nodes?limit=1000")["items"]), 5, "gone")
    [node] = [node for node in hub.get("/api/v1/nodes?limit=1000")["items"]
              if node["host"] == "real-agent"]
    assert f"fingerprint {node['fingerprint']}" in log or token == ""


def test_an_agent_without_a_hub_says_what_to_do(hub: HubProcess, tmp_path: Path) -> None:
    for flags, token, code, sentence in (
        ((), "", 3, "gpudeck token create agent"),
        ((), "rubbish", 2, "not an enrolment token"),
        (("--forget-hub",), "", 0, "forgotten"),
        (("--hub", "http://hub.example"), "", 2, "use https"),
    ):
        with agent_process(hub, tmp_path / "new", *flags, token=token) as process:
            output = "".join(process.communicate(timeout=20))
        assert (process.returncode, output.count("\n")) == (code, 1), output
        assert sentence in output


def test_a_host_name_means_its_node_until_two_have_it(hub: HubProcess) -> None:
    """Take a host name wherever a node's id is taken. With two of that name it is a conflict that
    names both ids; when one of them is revoked, the name is the other's again."""
    first, second = Caller("namesake-1", host="namesake"), Caller("namesake-2", host="namesake")
    routes = ("nodes/namesake", "nodes/namesake/quotas", *(
        f"{path}?node=namesake" for path in ("gpus", "tasks", "mps", "limits", "mps/past",
                                             "events", "commands", "audit")))

    def enrol(caller: Caller) -> None:
        assert isinstance(greet(RawSocket(hub, "/agent"), caller, hub.token()), Welcome)

    def answers() -> list[int]:
        return [hub.ask(f"/api/v1/{path}").status for path in routes]

    enrol(first)
    assert answers() == [200] * len(routes)
    assert hub.get("/api/v1/nodes/namesake")["id"] == first.node_id
    audited = hub.get("/api/v1/audit?node=namesake")["items"]
    assert audited
    assert {one["node"] for one in audited} == {first.node_id}
    enrol(second)
    assert answers() == [409] * len(routes)
    conflict = hub.ask("/api/v1/nodes/namesake/maintenance", "DELETE")
    assert (conflict.status, first.node_id in conflict.body.decode()) == (409, True)
    assert second.node_id in conflict.body.decode()
    hold = hub.ask("/api/v1/hold", "POST", body=b'{"node": "namesake"}',
                   Content_Type="application/json")
    assert hold.status == 409
    listed = hub.get("/api/v1/nodes?id=namesake")["items"]
    assert {one["id"] for one in listed} == {first.node_id, second.node_id}
    post(hub, f"nodes/{second.node_id}/revoke")
    assert hub.get("/api/v1/nodes/namesake")["id"] == first.node_id


def test_a_node_cannot_take_anothers_id_as_its_name(hub: HubProcess) -> None:
    owner = Caller("named-owner")
    for caller in (owner, Caller("named-thief", host=owner.node_id)):
        assert isinstance(greet(RawSocket(hub, "/agent"), caller, hub.token()), Welcome)
    assert hub.get(f"/api/v1/nodes/{owner.node_id}")["id"] == owner.node_id


def test_join_reads_the_token_from_standard_input(hub: HubProcess, tmp_path: Path) -> None:
    """Try the second URL when the first leads nowhere."""
    token, data = hub.token(host="joiner").text, tmp_path / "agent"
    env = {**os.environ, "GPUDECK_HOST": "joiner"}
    with subprocess.Popen(
            [sys.executable, "-m", "gpudeck.cli.main", "join", f"http://127.0.0.1:{free_port()}",
             hub.url, "--foreground", "--data", str(data)], env=env, cwd=REPOSITORY,
            stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdin is not None
        process.stdin.write(token)
        process.stdin.close()
        wait_for(lambda: [node for node in hub.get("/api/v1/nodes")["items"]
                          if node["host"] == "joiner" and node["state"] == "live"], why="joined")
        command = Path(f"/proc/{process.pid}/cmdline").read_text()
        assert token not in command
        process.terminate()
    wrong = subprocess.run([sys.executable, "-m", "gpudeck.cli.main", "join", hub.url],
                           input="gdk1.x", capture_output=True, text=True, cwd=REPOSITORY)
    assert wrong.returncode == 2
    assert "token" in wrong.stderr
