"""Agents and a hub on one virtual clock: the agent's own LinkStateMachine, Outbox and OutboxFile on
a real disk, the hub's own BackfillQueue and FleetStateMachine; only sockets and time are made up. A
connection here is as TCP is: what arrives has no holes, and a break loses the end of it, either
way."""

import random
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path

from agent.link.outbox import CAP_BYTES, Outbox
from agent.link.outbox_file import OutboxFile
from agent.link.protocol import CloseConnection, LinkStateMachine, OpenConnection, SendToHub
from dashboard.fleet.effects import (
    ArchiveGrown,
    CloseLink,
    Effect,
    LinkClosed,
    MessageReceived,
    RecordsStored,
    SendMessage,
    StreamRecord,
)
from dashboard.fleet.state_machine import FleetStateMachine
from dashboard.nodes.backfills import BackfillQueue
from dashboard.nodes.checkpoint import encode_nodes, restore
from gpudeck.contract.sequence_ranges import SequenceRanges
from gpudeck.contract.wire import (
    Backfill,
    Beat,
    Call,
    Challenge,
    Event,
    Frame,
    GpuFacts,
    Hello,
    Inventory,
    decode_from_agent,
    decode_from_hub,
    encode,
    pack,
)
from gpudeck.measures.metrics import WIDTH

STEP_S = 0.25
FLUSH_S = 1.0


@dataclass
class Hub:
    """Hub that loses what it has received and not flushed when it is killed."""

    world: "World"
    machine: FleetStateMachine | None = None
    log: list[StreamRecord] = field(default_factory=list)
    since_checkpoint: int = 0
    checkpoint: list[tuple[str, bytes]] = field(default_factory=list)
    waiting: list[StreamRecord] = field(default_factory=list)
    agents: dict[str, "Agent"] = field(default_factory=dict)  # by link
    is_disk_full: bool = False
    starts: int = 0
    links: int = 0
    live_lag_s: float = 0.0  # the worst
    acted_on: set[tuple[str, int]] = field(default_factory=set)
    has_archive: bool = False
    archive: list[StreamRecord] = field(default_factory=list)  # of the log, what it has
    has_lost_disk: bool = False

    def start(self) -> None:
        self.starts += 1
        self.machine = machine = FleetStateMachine("hub", self.starts, self.world.now)
        for _, data in self.checkpoint:
            restore(machine, data)
        if self.has_lost_disk:
            machine.begin_from_archive(streams_of(self.archive), {})
        for record in self.log[self.since_checkpoint :]:
            machine.recover(record)
        if self.has_archive:
            machine.streams.begin_archive(streams_of(self.archive))
        machine.recovered(self.world.now, self.world.now)
        self.backfills = BackfillQueue(self.filled, lambda: True)

    def kill(self) -> None:
        self.machine, self.waiting = None, []
        for agent in list(self.agents.values()):
            agent.cut()
        self.agents = {}

    def lose_disk(self) -> None:
        """Kill it and throw its disk away. Checkpoints are in a database elsewhere."""
        self.kill()
        self.log, self.since_checkpoint, self.has_lost_disk = list(self.archive), 0, True

    def receive(self, link: str, payload: bytes) -> None:
        message = decode_from_agent(payload)
        agent = self.agents[link]
        if isinstance(message, Call):
            agent.down.append(encode(Challenge(bytes(32), "hub", bytes(32), 1, bytes(64))))
        elif isinstance(message, Backfill):
            assert self.backfills.put(link, message, len(payload)), "two steps at once"
        else:
            if isinstance(message, Frame):
                self.live_lag_s = max(self.live_lag_s,
                                      self.world.now - agent.made_at[message.seq])
            self.do(MessageReceived(link, message, payload))

    def filled(self, link: str, part: Backfill) -> None:
        if link in self.agents:
            self.do(MessageReceived(link, part, b""))

    def do(self, event: MessageReceived | LinkClosed | RecordsStored | ArchiveGrown) -> None:
        assert self.machine is not None
        self.perform(self.machine.handle(event, self.world.now, self.world.now))

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case StreamRecord():
                    self.waiting.append(effect)
                    if effect.seq and not effect.is_backfill:
                        self.acted_on.add((effect.node_id, effect.seq))
                case SendMessage(link, message) if link in self.agents:
                    self.agents[link].down.append(encode(message))
                case CloseLink(link) if link in self.agents:
                    self.agents[link].cut()

    def step(self) -> None:
        if self.machine is None:
            return
        while self.backfills.take_slice():
            pass
        self.perform(self.machine.probes(self.world.now, self.world.now))
        if self.world.now % FLUSH_S < STEP_S and not self.is_disk_full:
            batch, self.waiting = tuple(self.waiting), []
            if self.world.dice.random() < 0.02:
                self.checkpoint = encode_nodes(self.machine, self.world.now, self.world.now)
                self.since_checkpoint = len(self.log) + len(batch)
                self.has_lost_disk = False  # checkpoints have the rest, too
            self.log += batch
            self.do(RecordsStored(batch))
            if self.has_archive and self.world.dice.random() < 0.05:
                self.put_into_archive()

    def put_into_archive(self) -> None:
        """Archive all but some of the newest, and of these a few."""
        count = self.world.dice.randint(0, len(self.log))
        safe = set(map(id, self.archive)) | set(map(id, self.log[:count]))
        safe |= {id(record) for record in self.log[count:] if self.world.dice.random() < 0.2}
        self.archive = [record for record in self.log if id(record) in safe]
        self.do(ArchiveGrown(streams_of(self.archive)))


def streams_of(records: list[StreamRecord]) -> dict[tuple[str, str], SequenceRanges]:
    streams: dict[tuple[str, str], SequenceRanges] = {}
    for record in records:
        if record.seq:
            streams.setdefault((record.node_id, record.stream), SequenceRanges()).add(record.seq)
    return streams


class Agent:
    def __init__(self, world: "World", name: str, path: Path, cap_bytes: int) -> None:
        self.world, self.name, self.path, self.cap_bytes = world, name, path, cap_bytes
        self.messages: list[bytes] = []  # each message without its number, in the order made
        self.made_at: dict[int, float] = {}
        self.down: deque[bytes] = deque()
        self.link: str | None = None
        self.wall_off_s = 0.0
        self.produces = True
        self.lost_to_kills = 0
        self.journal: OutboxFile | None = None
        self.begin()

    def begin(self) -> None:
        self.journal = OutboxFile(self.path)
        self.outbox = Outbox(self.journal, cap_bytes=self.cap_bytes)
        self.protocol = LinkStateMachine(self.outbox, self, self.world.dice.uniform)
        if self.outbox.latest_inventory is None:
            self.outbox.keep_inventory(Inventory(1, (GpuFacts(f"GPU-{self.name}", 0, "board"),)))

    def kill(self) -> None:
        """Kill it with SIGKILL and start it again: what was committed is there."""
        self.cut()
        self.begin()

    def call(self) -> Call:
        return Call(bytes(32))

    def hello(self, call: Call, challenge: Challenge) -> Hello:
        return Hello((1,), bytes(32), bytes(64), self.name, self.name, "boot", self.outbox.stream,
                     self.outbox.last_seq, "1", "test")

    def beat(self) -> Beat:
        return Beat("ok", 0.1, self.outbox.pending, self.outbox.dropped,
                    first_seq=self.outbox.first_seq)

    def cut(self) -> None:
        link, self.link = self.link, None
        self.down.clear()
        self.protocol.closed(self.world.now, "cut")
        hub = self.world.hub
        if link is not None and hub.agents.pop(link, None) is not None and hub.machine is not None:
            hub.backfills.drop_link(link)
            hub.do(LinkClosed(link))

    def make(self) -> None:
        dice, seq = self.world.dice, self.outbox.last_seq + 1
        taken_at = self.world.now + self.wall_off_s
        message: Frame | Event = Frame(
            seq, taken_at, 1.0, 1, pack([dice.uniform(0, 100)] + [0.0] * (WIDTH - 1)),
            bytes(WIDTH), bytes(1))
        if dice.random() < 0.05:
            message = Event(seq, taken_at, "xid", text=str(dice.random()))
        self.made_at[seq] = self.world.now
        self.messages.append(encode(message))
        self.outbox.append([message], self.world.now)

    def step(self) -> None:
        now = self.world.now
        if self.produces and now % 1.0 < STEP_S:
            self.make()
            event = self.outbox.drop_event(now, now) if self.protocol.phase == "live" else None
            if event is not None:
                self.made_at[event.seq] = now
                self.messages.append(encode(event))
                self.outbox.append([event], now)
        while self.down:
            self.protocol.receive(decode_from_hub(self.down.popleft()), now, now)
        acts = self.protocol.step(now, self.beat)
        arrives = len(acts)
        is_cut = self.link is not None and self.world.dice.random() < self.world.break_chance
        if is_cut:
            arrives = self.world.dice.randint(0, arrives)
        for act in acts[:arrives]:
            match act:
                case OpenConnection():
                    self.dial()
                case SendToHub(body) if self.link is not None:
                    self.world.hub.receive(self.link, body)
                case CloseConnection():
                    self.cut()
        if is_cut:
            self.cut()

    def dial(self) -> None:
        hub = self.world.hub
        if hub.machine is None:
            self.protocol.closed(self.world.now, "refused")
            return
        hub.links += 1
        self.link = f"link-{hub.links}"
        hub.agents[self.link] = self
        self.protocol.opened(self.world.now)


class World:
    def __init__(self, folder: Path, agents: int, seed: int, cap_bytes: int = CAP_BYTES) -> None:
        self.now = 1_000.0
        self.dice = random.Random(seed)
        self.break_chance = 0.0
        self.hub = Hub(self)
        self.hub.start()
        self.agents = [Agent(self, f"n{at}", folder / f"n{at}.db", cap_bytes)
                       for at in range(agents)]

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            for agent in self.agents:
                agent.step()
            self.hub.step()
            # Nothing happens between two seconds while nobody is there to talk to.
            self.now += STEP_S if self.hub.machine is not None else 1.0

    def settle(self, within_s: float = 600.0) -> float:
        """Run until the hub has everything; return the seconds that this took."""
        began = self.now
        while any(agent.outbox.pending > 2 or agent.protocol.phase != "live"
                  for agent in self.agents):
            assert self.now - began < within_s, [agent.outbox.pending for agent in self.agents]
            self.run(1.0)
        took_s = self.now - began
        for agent in self.agents:
            agent.produces = False
        self.run(5.0)
        return took_s

    def read_back(self, name: str) -> list[bytes]:
        """Return what the hub's disk has of a node, in order of stream and seq."""
        records = [record for record in self.hub.log if record.node_id == name and record.seq]
        counts = Counter((record.stream, record.seq) for record in records)
        doubled = [key for key, times in counts.items() if times > 1]
        assert doubled == [], f"{name} has some twice"
        order: dict[str, int] = {}
        for record in records:
            order.setdefault(record.stream, len(order))
        return [record.payload for record in sorted(
            records, key=lambda record: (order[record.stream], record.seq))]


