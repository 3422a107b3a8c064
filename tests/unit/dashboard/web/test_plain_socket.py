"""Reading and writing of a connection: nothing lost, nothing out of order, whoever writes."""

import itertools
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
from dashboard.web.plain_socket import REST_S, PeerSocket, ReadinessPoll
from gpudeck.network.websocket import frame

LIMITS = ConnectionLimits(100_000, 1e6, 1e6, 25.0, 60.0)
Pair = tuple[Any, socket.socket]


@pytest.fixture
def poll() -> Iterator[ReadinessPoll]:
    poll = ReadinessPoll()
    running = gevent.spawn(poll.run)
    yield poll
    assert not running.dead
    running.kill()


@pytest.fixture
def pair() -> Iterator[Pair]:
    hub_end, agent_end = gevent.socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    hub_end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
    yield hub_end, agent_end
    hub_end.close()
    agent_end.close()


def read_all(agent_end: Any, size: int) -> bytes:
    data = b""
    with gevent.Timeout(5):
        while len(data) < size:
            data += agent_end.recv(65_536)
    return data


def test_a_read_waits_for_what_comes_and_leaves_nothing(pair: Pair, poll: ReadinessPoll) -> None:
    hub_end, agent_end = pair
    peer = PeerSocket(hub_end, poll)
    for text in (b"one", b"two", b"x" * 100):
        gevent.spawn_later(0.01, agent_end.sendall, text)
        with gevent.Timeout(5):
            assert peer.recv(65_536) == text
    agent_end.sendall(b"abcdef")
    with gevent.Timeout(5):
        assert [peer.recv(4), peer.recv(4)] == [b"abcd", b"ef"]
        gevent.spawn_later(0.01, agent_end.close)
        assert peer.recv(4) == b""
    peer.close()


def test_the_end_is_read_however_it_comes(poll: ReadinessPoll) -> None:
    """Edges are reported once: an end that comes with bytes must not be taken for read with them.
    """
    for with_bytes, first_waits, is_ours in itertools.product((True, False), repeat=3):
        hub_end, agent_end = gevent.socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        peer = PeerSocket(hub_end, poll)
        reads: list[bytes] = []

        def read(peer: PeerSocket = peer, reads: list[bytes] = reads) -> None:
            while data := peer.recv(100):
                reads.append(data)

        reader = gevent.spawn(read)
        if first_waits:
            gevent.sleep(2 * REST_S)
        if with_bytes:
            agent_end.sendall(b"last words")
        (hub_end if is_ours else agent_end).shutdown(socket.SHUT_RDWR)
        with gevent.Timeout(5):
            reader.join()
        assert reads == [b"last words"] * with_bytes
        peer.close()
        hub_end.close()
        agent_end.close()


def test_no_message_is_missed_by_readers_that_come_and_go_late(poll: ReadinessPoll) -> None:
    """A reader in four pauses between its reads, as one whose sender is too fast does."""
    pairs = [gevent.socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(20)]
    peers = [PeerSocket(hub_end, poll) for hub_end, _ in pairs]
    received = [b""] * len(pairs)

    def read(at: int) -> None:
        while data := peers[at].recv(64):
            received[at] += data
            if at % 4 == 0:
                gevent.sleep(random.choice([0.0, 0.001, 0.005]))

    readers = [gevent.spawn(read, at) for at in range(len(pairs))]
    texts = [b""] * len(pairs)
    for _ in range(400):
        at = random.randrange(len(pairs))
        text = random.randbytes(random.choice([1, 63, 64, 65, 200]))
        pairs[at][1].sendall(text)
        texts[at] += text
        gevent.sleep(random.choice([0.0, 0.0, 0.0, 0.001]))
    for _, agent_end in pairs:
        agent_end.close()
    with gevent.Timeout(10):
        gevent.joinall(readers)
    assert received == texts
    for peer, (hub_end, _) in zip(peers, pairs, strict=True):
        peer.close()
        hub_end.close()


def test_a_reader_that_was_killed_leaves_nothing(pair: Pair, poll: ReadinessPoll) -> None:
    hub_end, agent_end = pair
    peer = PeerSocket(hub_end, poll)
    reader = gevent.spawn(peer.recv, 10)
    gevent.sleep(0)
    agent_end.sendall(b"to nobody")
    gevent.sleep(2 * REST_S)
    reader.kill()
    assert reader.dead
    peer.close()
    assert vars(poll)["_readers"] == {}
    other = PeerSocket(hub_end, poll)
    agent_end.sendall(b"again")
    with gevent.Timeout(5):
        assert other.recv(100)
    other.close()


def test_the_kernel_takes_what_fits(pair: Pair, poll: ReadinessPoll) -> None:
    hub_end, agent_end = pair
    peer, data = PeerSocket(hub_end, poll), random.randbytes(1_000_000)
    sent_bytes = peer.send_now(data)
    assert 0 < sent_bytes < len(data)
    while more := peer.send_now(data[sent_bytes:]):
        sent_bytes += more
    assert read_all(agent_end, sent_bytes) == data[:sent_bytes]
    peer.close()
    assert peer.send_now(b"after its end") == 0


def test_frames_keep_their_order_whether_they_wait_or_not(pair: Pair, poll: ReadinessPoll
                                                          ) -> None:
    hub_end, agent_end = pair
    engine: Any = SimpleNamespace(tally=ServerCounters(), handlers={}, readiness=poll)
    peer = BoundedSocket(engine, "a", hub_end, LIMITS)
    writer = gevent.spawn(peer.write)
    frames, received = b"", b""
    for _ in range(12):
        for _ in range(20):
            encoded = frame(random.randbytes(random.choice([10, 10, 3_000])))
            peer.push(encoded)
            frames += encoded
        received += read_all(agent_end, random.randrange(len(frames) - len(received)))
    received += read_all(agent_end, len(frames) - len(received))
    assert received == frames
    agent_end.close()
    peer.push(frame(b"to nobody"))
    peer.abort()
    with gevent.Timeout(5):
        writer.join()
    assert peer.closed


def test_a_full_queue_ends_the_connection(pair: Pair, poll: ReadinessPoll) -> None:
    hub_end, _ = pair
    engine: Any = SimpleNamespace(tally=ServerCounters(), handlers={}, readiness=poll)
    peer = BoundedSocket(engine, "a", hub_end, LIMITS)
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
