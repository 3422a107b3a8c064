"""The hub away: nothing lost, nothing twice, in order, and live messages go first. On a virtual
clock (tests/faults/outage.py); `-m soak` runs the long forms."""

import copy
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.backends import NVML
from agent.journal.store import ActionStore
from agent.link.identity import NodeIdentity, node_key
from agent.link.outbox import Outbox, PendingMessages
from agent.link.outbox_file import OutboxFile
from agent.node import run_node
from agent.node_config import NodeConfig
from dashboard.actions.hub_key import HubKey
from dashboard.fleet.effects import ArchiveGrown
from dashboard.history.ingest.headlog import HeadLog
from gpudeck.contract.wire import Event, JournalCopies, decode_from_agent
from tests.faults.outage import Hub, World, streams_of
from tests.integration.hubs import HubProcess, wait_for
from tests.integration.test_agent_delivery import CountingSource

MINUTE_S = 60.0


def assert_whole(world: World) -> None:
    for agent in world.agents:
        assert agent.outbox.pending == 0
        assert world.read_back(agent.name) == agent.messages, agent.name


def away(world: World, seconds: float) -> None:
    world.run(20.0)
    world.hub.kill()
    world.run(seconds)
    world.hub.start()
    world.hub.live_lag_s = 0.0


def test_ten_minutes_away_twenty_agents(tmp_path: Path) -> None:
    """reliability 5.1: drained within 120 s of an agent's return, live within 2 s meanwhile."""
    world = World(tmp_path, 20, random.randrange(10**6))
    away(world, 10 * MINUTE_S)
    took_s = world.settle()
    assert_whole(world)
    assert took_s < MINUTE_S + 120  # full jitter: the last calls within a minute
    assert world.hub.live_lag_s <= 2.0
    count = sum(len(agent.messages) for agent in world.agents)
    print(f"\n{count} messages of 20 agents, drained {took_s:.0f} s after the hub was back")


@pytest.mark.soak
def test_an_hour_away_twenty_agents(tmp_path: Path) -> None:
    world = World(tmp_path, 20, random.randrange(10**6))
    away(world, 60 * MINUTE_S)
    took_s = world.settle()
    assert_whole(world)
    assert took_s < 3 * MINUTE_S
    assert world.hub.live_lag_s <= 2.0
    print(f"\n{sum(len(agent.messages) for agent in world.agents)} messages, {took_s:.0f} s")


def mayhem(world: World, rounds: int) -> None:
    """Break connections all the time and kill hub and agents, also while a backlog is sent."""
    world.break_chance = 0.05
    for _ in range(rounds):
        world.run(world.dice.uniform(5, 40))
        if world.dice.random() < 0.5:
            world.hub.kill()
            world.run(world.dice.uniform(1, 120))
            world.hub.start()
        for agent in world.dice.sample(world.agents, len(world.agents) // 3):
            agent.kill()
    world.break_chance = 0.0


@pytest.mark.parametrize("_", range(3))
def test_breaks_and_kills_of_both_sides_while_it_is_made_up_for(tmp_path: Path, _: int) -> None:
    seed = random.randrange(10**6)
    print(f"\nseed {seed}")
    world = World(tmp_path, 6, seed)
    away(world, 5 * MINUTE_S)
    mayhem(world, 8)
    world.settle()
    assert_whole(world)


@pytest.mark.soak
def test_breaks_and_kills_for_long(tmp_path: Path) -> None:
    for seed in range(20):
        folder = tmp_path / str(seed)
        folder.mkdir()
        world = World(folder, 10, seed)
        mayhem(world, 60)
        world.settle()
        assert_whole(world)


def test_what_is_made_up_for_acts_on_nothing(tmp_path: Path) -> None:
    """A backfill evaluates no rule and never becomes the live picture; the control: live frames do
    both."""
    world = World(tmp_path, 3, random.randrange(10**6))
    world.run(5.0)
    [agent, *_] = world.agents
    first = agent.outbox.last_seq
    world.hub.kill()
    world.run(100.0)
    last = agent.outbox.last_seq
    world.hub.start()
    world.settle()
    assert_whole(world)
    acted = {seq for name, seq in world.hub.acted_on if name == agent.name}
    # All up to a second or two before it was back.
    assert not acted & set(range(first + 1, last - 1))
    assert set(range(last + 65, agent.outbox.last_seq + 1)) <= acted
    assert world.hub.machine is not None
    newest = world.hub.machine.fleet.nodes[agent.name].newest
    assert newest[1] >= agent.outbox.last_seq - 2


@pytest.mark.parametrize("how", ["age", "bytes"])
def test_past_the_cap_exactly_the_excess_is_dropped_and_counted(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """reliability 5.2, with a day of ten minutes."""
    monkeypatch.setattr("agent.link.outbox.DAY_S", 600.0)
    cap = 2**30 if how == "age" else 100_000
    world = World(tmp_path, 3, random.randrange(10**6), cap)
    world.run(5.0)
    world.hub.kill()
    world.run(1_500.0)
    for agent in world.agents:
        if how == "age":
            assert 600 <= agent.outbox.pending <= 602
        else:
            assert 99_000 < agent.outbox._pending.bytes <= cap
    if how == "bytes":
        world.agents[0].kill()  # the count outlives it
    world.hub.start()
    world.settle()
    world.run(30.0)
    for agent in world.agents:
        agent.produces = True
    world.run(20.0)
    world.settle()
    for agent in world.agents:
        stored = world.read_back(agent.name)
        assert agent.outbox.dropped > 800
        missing = [message for message in agent.messages if message not in set(stored)]
        assert len(missing) == agent.outbox.dropped
        start = agent.messages.index(missing[0])
        # The oldest are dropped; what was on its way while more came was not taken back.
        assert agent.messages[start : start + len(missing) - 40] == missing[:-40]
        assert stored == [message for message in agent.messages if message not in set(missing)]
        reports = [message for message in map(decode_from_agent, stored)
                   if isinstance(message, Event) and message.kind == "outbox_dropped"]
        assert [event.numbers["dropped"] for event in reports] == [agent.outbox.dropped]
        assert world.hub.machine is not None
        stream = world.hub.machine.streams.of(agent.name)[agent.outbox.stream]
        assert stream.ledger.missing == agent.outbox.dropped
        assert stream.acked == agent.outbox.last_seq, "what never comes is not waited for"


def test_a_stepped_clock_drops_and_reorders_nothing(tmp_path: Path) -> None:
    """reliability 5.24: hours forward and back, while the hub is away and while it is there."""
    world = World(tmp_path, 4, random.randrange(10**6))
    world.run(10.0)
    world.hub.kill()
    for _ in range(6):
        world.run(40.0)
        for agent in world.agents:
            agent.wall_off_s = world.dice.choice([0.0, 3_600.0, -7_200.0, 1e9, -900_000.0])
        world.agents[0].kill()
    world.hub.start()
    world.run(90.0)
    for agent in world.agents:
        agent.wall_off_s += world.dice.choice([-86_400.0, 90_000.0])
    world.settle()
    assert_whole(world)
    assert {agent.outbox.dropped for agent in world.agents} == {0}


def test_a_hub_with_an_older_copy_of_its_data(tmp_path: Path) -> None:
    """Two hubs in turns: together they have everything, and neither has a thing twice."""
    world = World(tmp_path, 4, random.randrange(10**6))
    one = world.hub
    world.run(30.0)
    two = copy.copy(one)
    two.log, two.waiting, two.agents = list(one.log), [], {}
    for hub in (two, one, two):
        world.hub.kill()
        world.run(world.dice.uniform(1, 60))
        world.hub = hub
        hub.start()
        world.run(world.dice.uniform(70, 100))
    world.settle()
    for agent in world.agents:
        messages = {*_of(one, world, agent.name), *_of(two, world, agent.name)}
        assert messages == set(agent.messages)


@pytest.mark.parametrize("_", range(3))
def test_a_hub_that_loses_its_disk_has_all_of_it_from_the_archive_and_the_nodes(
        tmp_path: Path, _: int) -> None:
    """Again and again, between breaks and kills of both sides."""
    seed = random.randrange(10**6)
    print(f"\nseed {seed}")
    world = World(tmp_path, 6, seed)
    world.hub.kill()
    world.hub.has_archive = True
    world.hub.start()
    for _round in range(4):
        mayhem(world, 3)
        world.hub.lose_disk()
        world.run(world.dice.uniform(1, 60))
        world.hub.start()
    world.settle()
    assert_whole(world)
    world.hub.archive = list(world.hub.log)
    world.hub.do(ArchiveGrown(streams_of(world.hub.archive)))
    for agent in world.agents:
        agent.produces = True
    world.run(5.0)
    for agent in world.agents:
        copies = agent.outbox.copies(world.now, world.now)
        assert isinstance(copies, JournalCopies)
        assert copies.first >= agent.outbox.last_seq - 6, "nothing that is archived stays"


def test_the_count_after_a_lost_disk_can_fail(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A control: agents that drop what is stored."""
    store = PendingMessages.store
    monkeypatch.setattr(PendingMessages, "store", lambda self, first, last, is_copied: store(
        self, first, last, is_copied=False))
    world = World(tmp_path, 3, random.randrange(10**6))
    world.hub.has_archive = True
    world.run(60.0)
    world.hub.lose_disk()
    world.run(5.0)
    world.hub.start()
    world.settle()
    with pytest.raises(AssertionError):
        assert_whole(world)


def _of(hub: Hub, world: World, name: str) -> list[bytes]:
    world.hub = hub
    return world.read_back(name)


def test_a_hub_whose_disk_is_full_sees_live_and_gets_everything_later(tmp_path: Path) -> None:
    world = World(tmp_path, 4, random.randrange(10**6))
    world.run(80.0)
    world.hub.is_disk_full = True
    world.run(300.0)
    assert world.hub.machine is not None
    for agent in world.agents:
        assert world.hub.machine.fleet.nodes[agent.name].newest[1] >= agent.outbox.last_seq - 2
    world.hub.is_disk_full = False
    world.settle()
    assert_whole(world)


@contextmanager
def a_real_node(hub: HubProcess, path: Path) -> Iterator[tuple[CountingSource, Outbox]]:
    identity = NodeIdentity(node_key(path), HubKey(hub.folder).fingerprint, hub.token())
    stop, source, journal = threading.Event(), CountingSource(0.02), OutboxFile(path / "journal.db")
    outbox = Outbox(journal)
    config = NodeConfig(hubs=(hub.url,), tls_of=lambda _: None, identity=identity,
                        host="real", backend=NVML,
                        boot_id="0" * 36, data=path, acts=ActionStore(path / "acts.db"))
    thread = threading.Thread(target=run_node, args=(config, source, outbox, stop, source.wake))
    thread.start()
    try:
        yield source, outbox
    finally:
        stop.set()
        thread.join(timeout=5)
        source.close()
        journal.close()
        config.acts.close()


def test_over_real_sockets_live_first_then_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.link.protocol.BACK_OFF_MAX_S", 0.3)
    (tmp_path / "node").mkdir()
    with HubProcess(tmp_path / "hub", 0, "--agent-messages-per-s", "500") as hub:
        with a_real_node(hub, tmp_path / "node") as (source, outbox):
            wait_for(lambda: outbox.last_seq > 50 and outbox.pending < 60, why="a first hundred")
            hub.kill()
            wait_for(lambda: outbox.pending > 200, why="an outage")
            waiting = outbox.last_seq
            hub.start()
            wait_for(lambda: outbox.first_seq > waiting, why="what was pending")
            source.pause()
            wait_for(lambda: outbox.pending == 0, why="the rest")
            [node] = hub.get("/api/v1/nodes")["items"]
            assert node["frames"]["missing"] == 0
            assert node["frames"]["acked_seq"] == outbox.last_seq
        hub.stop()
    seqs = [entry.seq for entry in HeadLog(hub.folder / "headlog").read() if entry.seq]
    assert sorted(seqs) == list(range(1, outbox.last_seq + 1))
    late = seqs.index(waiting)  # of the outage's end
    assert max(seqs[:late]) > waiting, "something live was there before it"
    print(f"\n{len(seqs)} messages, {sum(seq > waiting for seq in seqs[:late])} live ones first")
