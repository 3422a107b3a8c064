"""Checkpoint of each Node, in bytes: what the hub keeps when it drops an old log segment."""

from collections.abc import Iterable

import msgspec

from gpudeck.contract.wire import MAX_MESSAGE_BYTES, Event, Frame, Hello, Inventory, encode

from ..fleet.agent_streams import AgentStream
from ..fleet.events import FleetEvent
from ..fleet.node_budget import Spent
from ..fleet.sample_seconds import SampleTick
from ..fleet.sequence_ledger import SequenceLedger
from ..fleet.state_machine import FleetStateMachine
from ..history.ingest.headlog import CARRIED, HeadLogEntry
from ..history.ingest.message_places import MessagePlaces


class SavedStream(msgspec.Struct, array_like=True):
    name: str
    ranges: list[tuple[int, int]]
    settled: int
    lost: int = 0


class SavedEvent(msgspec.Struct, array_like=True):
    stream: str
    at: float
    user: str | None
    event: Event


class SavedNode(msgspec.Struct):
    hello: Hello
    heard_at: float
    inventories: list[Inventory]
    frame: Frame | None
    streams: list[SavedStream]
    events: list[SavedEvent] = []
    spent: dict[str, Spent] = {}  # of what a node may cause, by the wall clock
    saved_at: float = 0.0
    tick: SampleTick | None = None  # of its last Frame


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(SavedNode)


def encode_nodes(machine: FleetStateMachine, now: float, mono: float) -> list[tuple[str, bytes]]:
    events: dict[str, list[SavedEvent]] = {}
    for entry in machine.events:
        events.setdefault(entry.node_id, []).append(
            SavedEvent(entry.stream, entry.at, entry.user, entry.event))
    # The batch in hand will be on disk before this is, so all that arrived counts as stored.
    return [(node_id, _encode(SavedNode(
        node.hello, node.heard_at, [listing.inventory for listing in node.listings.values()],
        machine.fleet.snapshot(node),
        [SavedStream(name, stream.ledger.ranges, stream.ledger.settled, stream.ledger.lost)
         for name, stream in machine.streams.of(node_id).items()], events.get(node_id, []),
        machine.allowances.entries(node_id, now - mono), now, machine.ticks.get(node_id))))
        for node_id, node in machine.fleet.nodes.items()]


def restore_all(machine: FleetStateMachine, checkpoints: Iterable[bytes],
                places: MessagePlaces | None) -> None:
    """Restore all nodes. Of their messages a folder that was made from the archive has those that
    are archived, those in its files and those in its head log."""
    for data in checkpoints:
        restore(machine, data)
    if places is not None and places.is_restored:
        machine.begin_from_archive(places.in_files(), places.ticks)
    if places is not None and places.is_waiting:
        machine.streams.wait()


def restore(machine: FleetStateMachine, data: bytes) -> None:
    saved = _decoder.decode(data)
    node = machine.fleet.hello(saved.hello, saved.heard_at, 0.0)
    for inventory in saved.inventories:
        machine.fleet.inventory(node, inventory)
    if saved.frame is not None:
        machine.fleet.frame(node, saved.frame, saved.heard_at, 0.0)
    if saved.tick is not None:
        machine.ticks[saved.hello.node_id] = saved.tick
    machine.streams.restore(saved.hello.node_id, {
        stream.name: AgentStream(_ledger(stream), _ledger(stream)) for stream in saved.streams})
    for entry in saved.events:
        machine.events.add(FleetEvent(saved.hello.node_id, entry.stream, entry.at, entry.user,
                                   entry.event))
    machine.allowances.charge(saved.hello.node_id, saved.spent)
    machine.allowances.known_until = max(machine.allowances.known_until, saved.saved_at)


def _ledger(saved: SavedStream) -> SequenceLedger:
    return SequenceLedger(saved.ranges, saved.settled, saved.lost)


def carried(nodes: list[tuple[str, bytes]]) -> list[HeadLogEntry]:
    """Return the entries with which a segment of the log begins, so that its Frames can be read
    without those before it."""
    entries = []
    for node_id, data in nodes:
        saved = _decoder.decode(data)
        messages: list[Hello | Inventory | Frame] = [
            saved.hello, *saved.inventories, *([] if saved.frame is None else [saved.frame])]
        entries += [HeadLogEntry(node_id, saved.hello.stream, 0, saved.heard_at, payload, CARRIED)
                    for message in messages if len(payload := encode(message)) <= MAX_MESSAGE_BYTES]
    return entries
