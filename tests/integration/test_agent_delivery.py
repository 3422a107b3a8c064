"""Link, outbox and node against a real Socket.IO server: nothing lost, nothing twice."""

import itertools
import random
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.backends import NVML
from agent.journal.store import ActionStore
from agent.link.identity import NodeIdentity, node_key
from agent.link.outbox import Outbox
from agent.link.outbox_file import OutboxFile
from agent.node import run_node
from agent.node_config import NodeConfig
from agent.readings import BackendEvent, GpuReading, OnDemandReading, Reading
from agent.runtime.wake import ThreadWakeSignal
from gpudeck.contract.wire import Frame, GpuFacts, ReaderState, Refused, unpack
from gpudeck.measures.metrics import WIDTH
from gpudeck.network.keys import EnrolmentToken, SigningKey, fingerprint
from tests.fakes.hub import FakeHub, wait_for


class CountingSource:
    """Readings as fast as asked, each with its number as its first value."""

    def __init__(self, every_s: float = 0.01) -> None:
        self.state: ReaderState = "ok"
        self.detail = ""
        self.age_s: float | None = 0.0
        self.read_s: float | None = None
        self.reading_count = 0
        self._every_s = every_s
        self._unread: Reading | None = None
        self.wake = ThreadWakeSignal()
        self._is_paused = False
        self._fetched = threading.Event()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._closed.wait(self._every_s):
            with self._lock:
                is_due = self._unread is None and not self._is_paused
                if is_due:
                    self.reading_count += 1
                    self._unread = a_reading(self.reading_count % 100)
            if is_due:
                self.wake.ring()

    def pause(self) -> None:
        """Make no more, and wait until the node has kept the last one: only then it asks again."""
        with self._lock:
            self._is_paused = True
            self._fetched.clear()
        assert self._fetched.wait(20)

    def latest(self) -> Reading | None:
        with self._lock:
            reading, self._unread = self._unread, None
            if reading is None:
                self._fetched.set()
        return reading

    def take_events(self) -> tuple[BackendEvent, ...]:
        return ()

    pids: frozenset[int] = frozenset()

    def readers_of(self, uuid: str) -> frozenset[int]:
        return self.pids

    def fresh(self, timeout_s: float) -> OnDemandReading | None:
        return None

    def close(self) -> None:
        self._closed.set()
        self._thread.join()


def a_reading(value: float) -> Reading:
    gpu = GpuReading("GPU-1", "ok", (value, *[0.0] * (WIDTH - 1)), bytes(WIDTH))
    facts = GpuFacts(uuid="GPU-1", index=0, name="a board")
    return Reading(time.time(), 0.01, (gpu,), (facts,), None)


@contextmanager
def a_node(
    hub: FakeHub, path: Path, token: EnrolmentToken | None = None
) -> Iterator[tuple[CountingSource, Outbox]]:
    """Run a node with its data in `path`; the first time it gets a token of the hub."""
    if token is None and not (path / "agent.key").exists():
        token = hub.token()
    identity = NodeIdentity(node_key(path), fingerprint(hub.key.public), token)
    stop, source, journal = threading.Event(), CountingSource(), OutboxFile(path / "journal.db")
    outbox = Outbox(journal)
    config = NodeConfig(
        hubs=(hub.url,), tls_of=lambda _: None, identity=identity, host="host", backend=NVML,
        boot_id="0" * 36,
        data=path, acts=ActionStore(path / "acts.db"),
    )
    thread = threading.Thread(target=run_node, args=(config, source, outbox, stop, source.wake))
    thread.start()
    try:
        yield source, outbox
    finally:
        stop.set()
        thread.join(timeout=5)
        assert not thread.is_alive()
        source.close()
        journal.close()
        config.acts.close()


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pace itself is tested in test_agent_conversation, by the clock it is given."""
    monkeypatch.setattr("agent.node.WAIT_MAX_S", 0.2)
    monkeypatch.setattr("agent.link.protocol.BEAT_EVERY_S", 0.4)
    monkeypatch.setattr("agent.link.protocol.BACK_OFF_MAX_S", 0.2)
    monkeypatch.setattr("agent.link.protocol.DENIED_S", (0.2, 0.3))


def drained_frames(hub: FakeHub, source: CountingSource, outbox: Outbox) -> list[Frame]:
    """Return all frames that the hub has kept, once it has everything."""
    source.pause()
    # What is live comes first: the last one there says nothing of those before it.
    wait_for(lambda: hub.seqs(hub.stream)[-1:] == [outbox.last_seq] and outbox.pending == 0)
    assert hub.broken == []
    messages = [hub.messages[hub.stream][seq] for seq in hub.seqs(hub.stream)]
    return [message for message in messages if isinstance(message, Frame)]


def assert_whole(hub: FakeHub, source: CountingSource, outbox: Outbox) -> None:
    frames = drained_frames(hub, source, outbox)
    assert hub.seqs(hub.stream) == list(range(1, outbox.last_seq + 1))
    assert len(frames) == source.reading_count
    assert [unpack(frame.values)[0] for frame in frames] == [
        number % 100 for number in range(1, source.reading_count + 1)
    ]


def has_reached(hub: FakeHub, seq: int) -> Callable[[], bool]:
    return lambda: bool(hub.hellos) and hub.seqs(hub.stream)[-1:] > [seq]


def test_all_arrives_in_order_and_once(hub: FakeHub, tmp_path: Path) -> None:
    with a_node(hub, tmp_path) as (source, outbox):
        wait_for(lambda: len(hub.seqs(hub.stream)) > 60 if hub.hellos else False)
        assert_whole(hub, source, outbox)
        assert len(hub.arrived) == source.reading_count + 1  # that the agent began
        wait_for(lambda: outbox.pending == 0)


def test_connections_that_break_all_the_time(hub: FakeHub, tmp_path: Path) -> None:
    dice = random.Random(random.random())
    hub.break_after = lambda: dice.randint(3, 40)
    hub.ack_every = dice.randint(2, 9)
    with a_node(hub, tmp_path) as (source, outbox):
        wait_for(lambda: len(hub.hellos) >= 8)  # each of them up to 40 messages apart
        hub.break_after, hub.ack_every = None, 1
        hub.drop_all()
        assert_whole(hub, source, outbox)
        # The breaks were real. That some had to come twice does not follow: what is live goes
        # first, and the first Ack of it names all that was kept before the break.
        assert set(hub.backfilled) - {1}


def test_hub_that_crashes_and_forgets(hub: FakeHub, tmp_path: Path) -> None:
    hub.ack_every = 7
    with a_node(hub, tmp_path) as (source, outbox):
        for round_ in range(1, 4):
            wait_for(has_reached(hub, 30 * round_))
            hub.crash()
            time.sleep(random.uniform(0.05, 0.4))
            hub.start()
        hub.ack_every = 1
        assert_whole(hub, source, outbox)


def test_restart_of_the_agent_goes_on_where_it_was(hub: FakeHub, tmp_path: Path) -> None:
    with a_node(hub, tmp_path) as (source, outbox):
        wait_for(lambda: hub.hellos and len(hub.seqs(hub.stream)) > 20)
        first = hub.hellos[0]
        hub.crash()
        wait_for(lambda: outbox.pending > 20)
        count_before, last = source.reading_count, outbox.last_seq
    hub.start()
    with a_node(hub, tmp_path) as (source, outbox):
        wait_for(lambda: hub.seqs(first.stream)[-1:] > [last])
        frames = drained_frames(hub, source, outbox)
    assert hub.seqs(first.stream) == list(range(1, outbox.last_seq + 1))
    assert count_before <= len(frames) <= count_before + source.reading_count
    assert (hub.hellos[-1].stream, hub.hellos[-1].node_id) == (first.stream, first.node_id)


def test_half_open_connection_is_given_up(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.link.protocol.SILENCE_S", 0.5)
    monkeypatch.setattr("agent.link.protocol.GREETING_S", 0.5)
    with a_node(hub, tmp_path) as (source, outbox):
        wait_for(lambda: hub.hellos and hub.acked[hub.stream] > 5)
        hub.silent = True
        wait_for(lambda: outbox.pending > 5)
        time.sleep(0.7)
        hub.silent = False
        wait_for(lambda: len(hub.hellos) >= 2)
        assert_whole(hub, source, outbox)


def test_a_node_that_the_hub_does_not_know_says_so_and_keeps_its_frames(
    hub: FakeHub, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    token = hub.token()
    entry = hub.tokens.pop(token.id)
    with a_node(hub, tmp_path, token) as (source, outbox):
        wait_for(lambda: len(hub.strangers) >= 2)
        assert hub.hellos == []
        assert outbox.pending > 0
        hub.tokens[token.id] = entry
        wait_for(lambda: hub.hellos)
        assert_whole(hub, source, outbox)
    assert "this hub does not know this node" in caplog.text


def test_another_hub_at_the_same_address_is_told_nothing(
    hub: FakeHub, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with a_node(hub, tmp_path) as (source, outbox):
        wait_for(lambda: hub.hellos and len(hub.seqs(hub.stream)) > 5)
        true_key, hub.key = hub.key, SigningKey(secrets.token_bytes(32))
        hub.drop_all()
        hello_count, attempts = len(hub.hellos), hub.attempts
        wait_for(lambda: hub.attempts >= attempts + 3)
        assert len(hub.hellos) == hello_count
        hub.key = true_key
        assert_whole(hub, source, outbox)
    assert "agent --forget-hub" in caplog.text


def test_a_hub_that_shows_our_hubs_key_but_has_it_not(
    hub: FakeHub, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The impostor replays what the true hub once sent."""
    with a_node(hub, tmp_path) as (_, outbox):
        true_key = hub.key
        wait_for(lambda: hub.hellos)
        hub.key = SigningKey(secrets.token_bytes(32))
        hub.key.public = true_key.public
        hub.drop_all()
        hello_count, attempts = len(hub.hellos), hub.attempts
        wait_for(lambda: hub.attempts >= attempts + 3)
        assert len(hub.hellos) == hello_count
        assert outbox.pending > 0
    assert "cannot prove it" in caplog.text


def test_refused_with_a_wait(
    hub: FakeHub, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hub.refuse = Refused("too many agents at once", 0.4)
    with a_node(hub, tmp_path) as (source, outbox):
        wait_for(lambda: len(hub.hellos) == 2)
        hub.refuse = None
        wait_for(lambda: hub.seqs(hub.stream))
        assert_whole(hub, source, outbox)
    assert "too many agents at once" in caplog.text


def test_beats_go_on_while_the_reader_hangs(hub: FakeHub, tmp_path: Path) -> None:
    with a_node(hub, tmp_path) as (source, outbox):
        wait_for(lambda: hub.hellos and hub.seqs(hub.stream))
        source.pause()
        source.state, source.detail = "hung", "the driver does not answer"
        wait_for(lambda: len([1 for _, beat in hub.beats if beat.reader == "hung"]) >= 4)
        hung = [at for at, beat in hub.beats if beat.reader == "hung"]
        assert max(b - a for a, b in itertools.pairwise(hung)) < 1
        last = hub.messages[hub.stream][outbox.last_seq]
        assert isinstance(last, Frame)
        assert set(last.states) == {1}
        hub.probe(4711)
        wait_for(lambda: [echo.probe_id for echo in hub.echoes] == [4711])


def test_stops_within_two_seconds(hub: FakeHub, tmp_path: Path) -> None:
    with a_node(hub, tmp_path):
        wait_for(lambda: hub.hellos)
        began = time.monotonic()
    assert time.monotonic() - began < 2
