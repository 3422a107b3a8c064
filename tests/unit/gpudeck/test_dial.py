"""Connections to a hub whose name has several addresses."""

import contextlib
import socket
import threading

import pytest

from gpudeck.network.dial import HandshakeError, opened


def test_an_address_that_answers_nothing_leaves_time_for_the_next(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    """A firewall drops all of IPv6, say, and the hub's name has an address of each family."""
    with socket.create_server(("127.0.0.1", 0)) as hub, contextlib.ExitStack() as stack:
        silent = ("127.0.0.9", hub.getsockname()[1])
        stack.enter_context(socket.create_server(silent, backlog=0))
        for _ in range(3):  # more than its queue takes: it drops the next one's packets
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(silent)
        monkeypatch.setenv("no_proxy", "*")
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [
            (socket.AF_INET, socket.SOCK_STREAM, 0, "", address)
            for address in (silent, hub.getsockname())])
        thread = threading.Thread(target=lambda: hub.accept()[0].close())
        thread.start()
        with pytest.raises((HandshakeError, ConnectionResetError)):  # the hub was reached
            opened("http://deck.example", None, 3.0)
        thread.join(5)
        assert not thread.is_alive()
