"""Reading and writing of a connection: nothing lost, nothing out of order, whoever writes."""

import random
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import gevent
import gevent.socket
import msgspec
import pytest

from dashboard.web.bounded_socket import BoundedSocket, ConnectionLimits, bytes_of_event
from dashboard.web.http_server import ServerCounters
from dashboard.web.plain_socket import PeerSocket
from gpudeck.network.websocket import frame

LIMITS = ConnectionLimits(100_000, 1e6, 1e6, 25.0, 60.0)
Pair = tuple[Any, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = gevent.socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
    yield ours, theirs
    ours.close()
    theirs.close()


def read_all(theirs: Any, size: int) -> bytes:
    data = b""
    with gevent.Timeout(5):
        while len(data) < size:
            data += theirs.recv(65_536)
    return data


def test_a_read_waits_for_what_comes_and_leaves_nothing(pair: Pair) -> None:
    ours, theirs = pair
    peer = PeerSocket(ours)
    for text in (b"one", b"two", b"x" * 100):
        gevent.spawn_later(0.01, theirs.sendall, text)
        with gevent.Timeout(5):
            assert peer.recv(65_536) == text
    theirs.sendall(b"abcdef")
    with gevent.Timeout(5):
        assert [peer.recv(4), peer.recv(4)] == [b"abcd", b"ef"]
        gevent.spawn_later(0.01, theirs.close)
        assert peer.recv(4) == b""
    peer.close()


def test_the_kernel_takes_what_fits(pair: Pair) -> None:
    ours, theirs = pair
    peer, data = PeerSocket(ours), random.randbytes(1_000_000)
    sent_bytes = peer.send_now(data)
    assert 0 < sent_bytes < len(data)
    while more := peer.send_now(data[sent_bytes:]):
        sent_bytes += more
    assert read_all(theirs, sent_bytes) == data[:sent_bytes]
    peer.close()
    assert peer.send_now(b"after its end") == 0


def test_frames_keep_their_order_whether_they_wait_or_not(pair: Pair) -> None:
    ours, theirs = pair
    engine: Any = SimpleNamespace(tally=ServerCounters(), handlers={})
    peer = BoundedSocket(engine, "a", ours, LIMITS)
    writer = gevent.spawn(peer.write)
    expected, received = b"", b""
    for _ in range(12):
        for _ in range(20):
            encoded = frame(random.randbytes(random.choice([10, 10, 3_000])))
            peer.push(encoded)
            expected += encoded
        received += read_all(theirs, random.randrange(len(expected) - len(received)))
    received += read_all(theirs, len(expected) - len(received))
    assert received == expected
    theirs.close()
    peer.push(frame(b"to nobody"))
    peer.abort()
    with gevent.Timeout(5):
        writer.join()
    assert peer.closed


def test_a_full_queue_ends_the_connection(pair: Pair) -> None:
    ours, _ = pair
    engine: Any = SimpleNamespace(tally=ServerCounters(), handlers={})
    peer = BoundedSocket(engine, "a", ours, LIMITS)
    for _ in range(400):
        peer.push(frame(bytes(3_000)))
    assert peer.closed
    assert engine.tally.counts == {"too_slow": 1}


EVENT = {"type": 2, "nsp": "/agent", "data": ["wire", b"payload"]}


@pytest.mark.parametrize("packet", [
    {"type": 0}, {"type": 5}, {"nsp": "/live"}, {"data": ["other", b""]}, {"data": ["wire"]},
    {"data": ["wire", "text"]}, {"data": ["wire", b"", b""]}, {"data": None}, {"id": "x"}])
def test_what_is_not_one_event_in_bytes_is_socket_ios(packet: dict[str, Any]) -> None:
    encode = msgspec.msgpack.encode
    assert bytes_of_event(encode(EVENT), "wire", "/agent") == b"payload"
    assert bytes_of_event(encode(EVENT | {"id": 7}), "wire", "/agent") == b"payload"
    assert bytes_of_event(encode(EVENT | packet), "wire", "/agent") is None
    assert bytes_of_event(encode(EVENT)[:-1], "wire", "/agent") is None
