"""Import of a recording: into history, past the picture, as a Backfill. Pure."""

from gpudeck.contract import wire

from . import effects
from .agent_streams import AgentStreams
from .fleet import Fleet


def import_recording(fleet: Fleet, streams: AgentStreams, event: effects.RecordingImported,
                     now: float, mono: float) -> list[effects.Effect]:
    hello = event.hello
    node = fleet.hello(hello, now, mono)
    stream = streams.open(hello.node_id, hello.stream)
    answer: list[effects.Effect] = [effects.StreamRecord(
        hello.node_id, hello.stream, 0, now, wire.encode(hello), message=hello)]
    for inventory in event.inventories:
        fleet.inventory(node, inventory)
        answer.append(effects.StreamRecord(
            hello.node_id, hello.stream, 0, now, wire.encode(inventory), message=inventory))
    for frame in event.frames:
        stream.ledger.note(frame.seq)
        answer.append(effects.StreamRecord(
            hello.node_id, hello.stream, frame.seq, now, wire.encode(frame), True, frame,
            int(frame.taken_at)))
    return answer
