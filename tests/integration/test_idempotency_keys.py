"""`Idempotency-Key` on a real hub, and clients whose answer was lost on the way."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest

from gpudeck.client.hub import Client
from gpudeck.errors import CommandError, ExitCode
from tests.integration.hubs import Answer, HubProcess


@pytest.fixture(name="hub", scope="module")
def _hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubProcess(tmp_path_factory.mktemp("once") / "data") as hub:
        yield hub
        assert "Traceback" not in hub.log.read_text()


def add_place(hub: HubProcess, key: str, **content: object) -> Answer:
    return hub.ask("/api/v1/enrolments", "POST", body=json.dumps(content).encode(),
                   Content_Type="application/json", Idempotency_Key=key)


def places(hub: HubProcess) -> int:
    return len(hub.get("/api/v1/enrolments")["items"])


def test_asked_twice_it_is_done_once_and_answered_alike(hub: HubProcess) -> None:
    key, before = str(uuid4()), places(hub)
    first, second = add_place(hub, key), add_place(hub, key)
    assert (first.status, second.status) == (201, 201)
    assert first.json == second.json  # the secret that is shown once, too
    assert places(hub) == before + 1
    assert "Idempotency-Replayed" not in first.headers
    assert second.headers["Idempotency-Replayed"] == "true"
    assert add_place(hub, str(uuid4())).json != first.json


def test_many_at_once_are_one(hub: HubProcess) -> None:
    key, before = str(uuid4()), places(hub)
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: add_place(hub, key), range(48)))
    assert {answer.status for answer in answers} <= {201, 409}
    assert len({answer.body for answer in answers if answer.status == 201}) == 1
    assert places(hub) == before + 1


def test_a_key_means_one_request_of_one_credential(hub: HubProcess) -> None:
    key = str(uuid4())
    first = add_place(hub, key)
    other = add_place(hub, key, group="other")
    assert other.status == 422
    assert "new one" in other.json["detail"]
    token = hub.ask("/api/v1/tokens", "POST", Content_Type="application/json",
                    body=json.dumps({"name": key, "role": "admin",
                                     "expires_at": time.time() + 3600}).encode())
    assert token.status == 201, token.body
    reply = hub.ask("/api/v1/enrolments", "POST", token=token.json["token"], body=b"{}",
                    Content_Type="application/json", Idempotency_Key=key)
    assert reply.status == 201
    assert reply.json != first.json


@pytest.mark.parametrize("key", ["", " ", "a b", "x" * 129, "schl\xfcssel"])
def test_what_is_no_key_is_refused(hub: HubProcess, key: str) -> None:
    before = places(hub)
    answer = add_place(hub, key)
    assert answer.status == 400
    assert "Idempotency-Key" in answer.json["detail"]
    assert places(hub) == before


def test_a_refusal_is_kept_as_well(hub: HubProcess) -> None:
    key = str(uuid4())
    first, second = add_place(hub, key, group=7), add_place(hub, key, group=7)
    assert (first.status, first.body) == (second.status, second.body) == (400, first.body)


class Losing:
    """A way to the hub that lets every request through, and loses the first `losses` answers."""

    def __init__(self, port: int, losses: int) -> None:
        self._port = port
        self.losses = losses
        self.requests = 0
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                near, _ = self._server.accept()
            except OSError:
                return
            with near, socket.create_connection(("127.0.0.1", self._port)) as far:
                near.settimeout(0.2)
                self._ask(near, far)

    def _ask(self, near: socket.socket, far: socket.socket) -> None:
        request = near.recv(65_536)
        try:
            while more := near.recv(65_536):
                request += more
        except TimeoutError:
            pass
        self.requests += 1
        far.sendall(request.replace(self.url.removeprefix("http://").encode(),
                                    f"127.0.0.1:{self._port}".encode(), 1))
        answer = b""
        while part := far.recv(65_536):
            answer += part
        if self.requests > self.losses:
            near.sendall(answer)

    def close(self) -> None:
        self._server.close()


@pytest.mark.parametrize("losses", [0, 1])
def test_an_answer_lost_on_the_way_is_asked_for_again(hub: HubProcess, losses: int) -> None:
    way, before = Losing(hub.port, losses), places(hub)
    try:
        enrolment = Client(way.url, hub.api_token).hub.ask_for("POST", "enrolments", {})
    finally:
        way.close()
    assert way.requests == losses + 1
    assert places(hub) == before + 1
    assert enrolment["token"]


def test_lost_twice_it_is_unknown_and_done_once(hub: HubProcess) -> None:
    way, before = Losing(hub.port, 2), places(hub)
    try:
        with pytest.raises(CommandError) as error:
            Client(way.url, hub.api_token).hub.ask_for("POST", "enrolments", {})
    finally:
        way.close()
    assert error.value.code == ExitCode.UNREACHABLE
    assert way.requests == 2
    assert places(hub) == before + 1
