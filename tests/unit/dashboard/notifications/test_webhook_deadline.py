"""A webhook's time limit holds for all of its steps together, whatever the receiver does."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from dashboard.notifications.webhook import WebRequest, trial
from dashboard.trusted_networks import NONE

WITHIN_S = 0.5
Answer = Callable[[socket.socket], None]


def drips_a_body(client: socket.socket) -> None:
    client.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        client.sendall(b"X-Drip: 1\r\n")
        time.sleep(0.05)


def stops_in_its_headers(client: socket.socket) -> None:
    client.sendall(b"HTTP/1.1 200 OK\r\nX-More: ")
    time.sleep(10 * WITHIN_S)


def says_nothing(client: socket.socket) -> None:
    client.recv(1 << 16)
    time.sleep(10 * WITHIN_S)


def says_yes(client: socket.socket) -> None:
    client.recv(1 << 16)
    client.sendall(b"HTTP/1.1 204 Taken\r\n\r\n")
    client.close()


@pytest.fixture(name="listening")
def _listening() -> Iterator[Callable[[Answer], int]]:
    with ExitStack() as stack:
        def listen(answer: Answer) -> int:
            server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))

            def serve() -> None:
                try:
                    client, _ = server.accept()
                    with closing(client):
                        answer(client)
                except OSError:
                    return  # the other side has hung up, or the test is over

            threading.Thread(target=serve, daemon=True).start()
            return int(server.getsockname()[1])

        yield listen


def timed(port: int) -> tuple[bool, str, float]:
    began = time.monotonic()
    is_taken, words, *_ = trial(WebRequest(f"http://hook.example:{port}/x", {}), "", NONE,
                                WITHIN_S)
    return is_taken, words, time.monotonic() - began


def resolves_to(monkeypatch: pytest.MonkeyPatch, *hosts: str, after_s: float = 0.0) -> None:
    def resolve(_: str, port: int, *__: object) -> list[object]:
        time.sleep(after_s)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port)) for host in hosts]
    monkeypatch.setattr("dashboard.notifications.webhook.socket.getaddrinfo", resolve)


@pytest.mark.parametrize("answer", [drips_a_body, stops_in_its_headers, says_nothing])
def test_a_receiver_that_never_ends_is_cut_off(listening: Callable[[Answer], int], answer: Answer,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    resolves_to(monkeypatch, "127.0.0.1")
    is_taken, words, took_s = timed(listening(answer))
    assert (is_taken, words) == (False, "it did not answer in time")
    assert WITHIN_S <= took_s < 4 * WITHIN_S


def test_addresses_that_do_not_answer_do_not_add_up(listening: Callable[[Answer], int],
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    """A timer that fires while there is no socket must still bind the socket that comes."""
    real = socket.socket.connect
    monkeypatch.setattr("dashboard.notifications.webhook.STEP_WITHIN_S", WITHIN_S * 0.8)

    def connect(self: socket.socket, address: tuple[str, int]) -> None:
        if address[0] == "127.0.0.1":
            return real(self, address)
        time.sleep(self.gettimeout() or 0.0)  # a black hole
        raise TimeoutError

    monkeypatch.setattr(socket.socket, "connect", connect)
    resolves_to(monkeypatch, "198.51.100.1", "198.51.100.2", "198.51.100.3", "127.0.0.1")
    is_taken, words, took_s = timed(listening(drips_a_body))
    assert (is_taken, words) == (False, "it did not answer in time")
    assert WITHIN_S <= took_s < 4 * WITHIN_S


def test_a_slow_resolver_counts(listening: Callable[[Answer], int],
                                monkeypatch: pytest.MonkeyPatch) -> None:
    port = listening(says_yes)
    resolves_to(monkeypatch, "127.0.0.1", after_s=10 * WITHIN_S)
    is_taken, words, took_s = timed(port)
    assert (is_taken, words) == (False, "it did not answer in time")
    assert took_s < 4 * WITHIN_S
    resolves_to(monkeypatch, "127.0.0.1", after_s=WITHIN_S / 10)
    assert timed(port)[:2] == (True, "it answered 204 Taken")


def test_a_name_that_is_none_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    is_taken, words, *_ = trial(WebRequest(f"http://{'x' * 70}.example/", {}), "", NONE, WITHIN_S)
    assert not is_taken
    assert "label" in words
