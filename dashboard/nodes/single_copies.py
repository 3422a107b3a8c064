"""Watch over copies: messages that are not archived, and that their node's journal no longer has
are on this hub's disk alone. `span_of` is pure."""

import logging
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from msgspec import UNSET

from gpudeck.contract.sequence_ranges import SequenceRanges
from gpudeck.prometheus.text import single
from gpudeck.rate import RateLimiter

from ..fleet.fleet import Node
from ..fleet.state_machine import FleetStateMachine
from ..history.ingest.message_places import StreamKey
from ..history.reads.protocol import History

log = logging.getLogger("gpudeck.nodes")

EVERY_S = 30.0
Span = tuple[int, int]  # first seconds of the first and the last block in question


def span_of(node: Node, unarchived: Iterable[tuple[int, SequenceRanges]]) -> Span | None:
    """Return the time of which the node has no copy; `unarchived`: of its stream, by the first
    second of a block. None: it has all of them, or has not said."""
    beat = node.beat
    if beat is None or beat.copies is UNSET:
        return None
    starts = [first for first, ranges in unarchived
              if ranges.count_in(1, beat.copies.first - 1)]
    return (min(starts), max(starts)) if starts else None


class SingleCopyWatch:
    def __init__(self, history: History, machine: FleetStateMachine) -> None:
        self._history = history
        self._machine = machine
        self._pacer = RateLimiter()
        self._spans: dict[str, Span] = {}  # by node id

    def step(self, _now: float, mono: float) -> None:
        if self._history.places is None:
            return
        unarchived = self._by_stream()
        spans = ((node_id, span_of(node, unarchived.get((node_id, node.hello.stream), ())))
                 for node_id, node in self._machine.fleet.nodes.items())
        self._spans = {node_id: span for node_id, span in spans if span is not None}
        for node_id, (first, last) in self._spans.items():
            if self._pacer.due(node_id, mono) is not None:
                log.warning("single_copy host=%r from=%s to=%s why=%r",
                            self._machine.fleet.nodes[node_id].hello.host, _words(first),
                            _words(last), "its journal is full, and this time is not archived yet")

    def _by_stream(self) -> dict[StreamKey, list[tuple[int, SequenceRanges]]]:
        streams: dict[StreamKey, list[tuple[int, SequenceRanges]]] = {}
        for key, first, ranges in self._history.unarchived():
            streams.setdefault(key, []).append((first, ranges))
        return streams

    def count(self) -> int:
        """Return how many nodes have lost what is not archived yet."""
        return len(self._spans)

    def families(self) -> Iterator[str]:
        if self._history.places is not None:
            yield single("gpudeck_archive_single_copy_nodes", "gauge",
                         "Nodes whose journal lost what is not archived yet: the hub's disk has "
                         "the only copy; the log says of which time.", float(self.count()))


def _words(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
