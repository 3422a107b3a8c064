"""Streams of each node's messages: what came of them, and what of it is on disk."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from msgspec import UNSET

from gpudeck.contract.sequence_ranges import SequenceRanges
from gpudeck.contract.wire import MAX_SPANS, Ack, ArchivedSpans, Span

from .effects import StreamRecord
from .sequence_ledger import SequenceLedger

MAX_STREAMS = 8


@dataclass(slots=True)
class AgentStream:
    """A stream's messages: what came of them, and what of it is on disk."""

    ledger: SequenceLedger = field(default_factory=SequenceLedger)
    stored: SequenceLedger = field(default_factory=SequenceLedger)
    must_bring: bool = False  # something did not fit; the agent must bring it again
    applied: int = 0
    last_ack: Ack | None = None  # on the present connection
    archived: ArchivedSpans = UNSET  # of what is stored; unset: there is no archive of seconds
    is_waiting: bool = False  # what another hub has archived of it is not known yet

    @property
    def acked(self) -> int:
        return self.stored.settled

    def settle(self, upto: int) -> None:
        for ledger in (self.ledger, self.stored):
            (ledger.begin_after if self.is_waiting else ledger.settle)(upto)

    def join(self, archived: SequenceRanges) -> None:
        """Note what another hub has archived of it."""
        self.ledger, self.stored = self.ledger.union(archived), self.stored.union(archived)
        self.is_waiting = False

    def settle_one(self, seq: int) -> None:
        """Settle a message that is accepted and not kept."""
        self.ledger.note(seq)
        self.stored.note(seq)

    def ack(self) -> Ack:
        """Acknowledge what is on disk. If there are more gaps than fit, the agent brings again what
        lies between older ones: that costs a little, and nothing is taken twice."""
        spans = self.stored.spans(MAX_SPANS)
        return Ack(self.stored.settled, tuple(Span(*span) for span in spans) if spans else (),
                   self.archived)

    def new_ack(self) -> Ack | None:
        """Return an Ack to send; None: the agent knows all of it."""
        ack = self.ack()
        if ack == self.last_ack:
            return None
        self.last_ack = ack
        return ack


Streams = Mapping[tuple[str, str], SequenceRanges]  # by node id and stream


class AgentStreams:
    def __init__(self) -> None:
        self._of_node: dict[str, dict[str, AgentStream]] = {}  # by node id, then by stream
        self._new_archived: ArchivedSpans = UNSET  # of a new stream
        self.is_waiting = False  # for what another hub has archived: no earlier message is taken

    def of(self, node_id: str) -> dict[str, AgentStream]:
        return self._of_node.get(node_id, {})

    def open(self, node_id: str, name: str) -> AgentStream:
        streams = self._of_node.setdefault(node_id, {})
        stream = streams.pop(name, None) or AgentStream(archived=self._new_archived,
                                                        is_waiting=self.is_waiting)
        streams[name] = stream  # last: the one in use
        while len(streams) > MAX_STREAMS:
            del streams[next(iter(streams))]
        return stream

    def restore(self, node_id: str, streams: dict[str, AgentStream]) -> None:
        self._of_node[node_id] = streams

    def begin_archive(self, archived: Streams) -> None:
        """Begin with what is archived: from now on every stream says how much of it is."""
        self._new_archived = ()
        for streams in self._of_node.values():
            for stream in streams.values():
                stream.archived = ()
        self.note_archived(archived)

    def begin_from_archive(self, archived: Streams) -> None:
        """Begin with what is archived alone: the disk with all that came later is lost."""
        self._of_node.clear()
        for (node_id, name), ranges in archived.items():
            self._of_node.setdefault(node_id, {})[name] = AgentStream(
                SequenceLedger(ranges), SequenceLedger(ranges))

    def wait(self) -> None:
        """Wait for what another hub has archived."""
        self.is_waiting = True
        for streams in self._of_node.values():
            for stream in streams.values():
                stream.is_waiting = True

    def join(self, archived: Streams) -> None:
        """Note what another hub has archived: nodes bring all else from now on."""
        self.is_waiting = False
        for node_id, name in archived:
            self._of_node.setdefault(node_id, {}).setdefault(name, AgentStream(
                archived=self._new_archived))
        for node_id, streams in self._of_node.items():
            for name, stream in streams.items():
                stream.join(archived.get((node_id, name), SequenceRanges()))
        self.note_archived(archived)

    def note_archived(self, archived: Streams) -> None:
        """Note what is archived: the next Ack says it, and wakes nobody for it."""
        for (node_id, name), ranges in archived.items():
            stream = self.of(node_id).get(name)
            if stream is not None:
                stream.archived = tuple(Span(*span) for span in [*ranges][-MAX_SPANS:])

    def stored(self, records: Iterable[StreamRecord]) -> dict[tuple[str, str], AgentStream]:
        """Note records that are on disk now; return the streams that they belong to."""
        touched: dict[tuple[str, str], AgentStream] = {}
        for record, stream in self._with_streams(records):
            stream.stored.note(record.seq)
            touched[record.node_id, record.stream] = stream
        return touched

    def dropped(self, records: Iterable[StreamRecord]) -> None:
        """Note records that were dropped: their agents have to bring them again."""
        for record, stream in self._with_streams(records):
            stream.must_bring = True
            stream.ledger.forget(record.seq)

    def _with_streams(self, records: Iterable[StreamRecord]
                      ) -> Iterator[tuple[StreamRecord, AgentStream]]:
        for record in records:
            stream = self.of(record.node_id).get(record.stream)
            if record.seq and stream is not None:
                yield record, stream

    def must_bring(self, node_id: str) -> bool:
        return any(stream.must_bring for stream in self.of(node_id).values())

    def begin_counts(self) -> None:
        """Reset the counts: what the disk held at the start is neither duplicate nor applied."""
        for streams in self._of_node.values():
            for stream in streams.values():
                stream.ledger.duplicates = 0
                stream.applied = 0
