"""Past of a simulated fleet: what it would have reported before it began, the demo's first hours.

The same boards, jobs and faults as the live simulation, by the same code with another clock, so
that the past ends as the live fleet begins.

On stdin, once all is live: begin and end of the past, and the boards' energy counters, where those
of the past end. On stdout, MessagePack arrays of a node's name and messages, each after its length:
node by node, the last quarter of an hour first, for that is looked at first; each of one block of
history, so that no minute is cut. Two have no name. The first one says since when which GPU idles,
so that it does not grow while the past is made: seconds by UUID. An empty one comes after the last
quarter of an hour of the nodes that a demo opens with.
"""

import os
import signal
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby, pairwise
from typing import BinaryIO

import msgspec
from msgspec import structs

from gpudeck.contract.wire import Event, Frame, Inventory, encode, pack, unpack
from gpudeck.measures.metrics import COLUMN, WIDTH, Absence

from ..backends.simulation.folder import SimulatedJobsFile
from ..backends.simulation.jobs import SimulatedJob, jobs_at
from ..backends.simulation.load import STARTING_S
from ..backends.simulation.mps_state import is_on_whole_boards
from ..backends.simulation.reader import SimulatedReader, parse_options
from ..backends.simulation.world import LiveJob, SimulationOptions, units_of
from ..tasks.boot_id import boot_id
from ..tasks.task_table import TaskTable
from ..telemetry import sampler
from ..telemetry.events import NodeEventDetector
from .command import node_name
from .nodes import boot_id_of

ENERGY = COLUMN["energy_j"]
LENGTH = struct.Struct("<I")
CHUNK_S = 900
BLOCK_S = 300  # of history
OPENING_NODES = 8  # with more, who starts a large demo would wait for the rest of them
SEQS_PER_S = 1_000  # so that no two chunks give one number twice

Message = Inventory | Event | Frame


class _HistoryReader(SimulatedReader):
    """Reader of the past. Where a real process runs the job of a turn now, the same process ran it
    before: a task in the past is the one that can be acted on."""

    def __init__(self, options: SimulationOptions, real: Sequence[SimulatedJob],
                 clock: Callable[[], float]) -> None:
        self._real: dict[int, list[SimulatedJob]] = {}
        for job in real:
            self._real.setdefault(job.seed, []).append(job)
        super().__init__(options, None, clock=clock, steady=clock)

    @property
    def energy_j(self) -> list[float]:
        """Return what its boards' energy counters say now, in their order."""
        return [] if self._world is None else self._world.energy_j

    def _planned_lives(self) -> tuple[LiveJob, ...]:
        has_mps = self._options.mps
        return tuple(LiveJob(job, is_client=has_mps and is_on_whole_boards(job))
                     for planned in self._planned
                     for job in self._real.get(planned.seed, [planned]))


class DemoHistoryNode:
    """Node of the simulated past. `real`: those of its jobs that are processes of this machine;
    None: it has no such jobs."""

    def __init__(self, options: SimulationOptions, real: Sequence[SimulatedJob] | None,
                 span: range) -> None:
        self.name = options.node
        self._span = span
        self._at: float = span.start
        self._reader = _HistoryReader(replace(options, world=None), real or (), lambda: self._at)
        boot = boot_id_of(options.seed, options.node) if real is None else boot_id()
        self._tasks = TaskTable(boot)
        self._events = NodeEventDetector()
        self._memory = sampler.SamplerState()
        self._seq = span.start * SEQS_PER_S

    def second(self, at: int) -> Iterator[Message]:
        self._at = at + 0.5
        reading = self._reader.read()
        gpu_tasks = None if reading.processes is None else self._tasks.describe(reading.processes)
        events = self._events.reading(reading, reading.happenings, gpu_tasks, at)
        step = sampler.sample(self._memory, reading, gpu_tasks, self._seq + 1, at, events)
        self._memory = step.memory
        if step.inventory is not None:
            yield step.inventory
        for message in step.messages:
            self._seq += 1
            if isinstance(message, Frame | Event):
                yield message

    def messages(self, counters: dict[str, float]) -> list[tuple[int, Message]]:
        """Return the messages of the whole span, each with its second. `counters` holds by a
        board's UUID what its energy counter says in the second after the span; each is replaced by
        what it said in the second before the span."""
        messages: list[tuple[int, Message]] = []
        places: list[tuple[int, str]] = []
        first_counters: list[list[float]] = []  # the counters after each of the first two seconds
        for at in self._span:
            for message in self.second(at):
                messages.append((at, message))
                if isinstance(message, Inventory):
                    places = [(place, facts.uuid) for place, facts in enumerate(message.gpus)
                              if facts.parent_uuid is None]
            if len(first_counters) < 2:
                first_counters.append(self._reader.energy_j)
        last = self._reader.energy_j
        lifts = [counters.get(uuid, end) - end
                 for (_, uuid), end in zip(places, last, strict=True)]
        counters |= {uuid: 2 * first - then + lift for (_, uuid), first, then, lift
                     in zip(places, first_counters[0], first_counters[-1], lifts, strict=True)}
        cells = [(place * WIDTH + ENERGY, lift) for (place, _), lift
                 in zip(places, lifts, strict=True)]
        return [(at, _with_energy(message, cells) if isinstance(message, Frame) else message)
                for at, message in messages]


def _with_energy(frame: Frame, cells: Sequence[tuple[int, float]]) -> Frame:
    values = unpack(frame.values)
    for cell, by_j in cells:
        if frame.absent[cell] == Absence.PRESENT:
            values[cell] = round(values[cell] + by_j, 3)
    return structs.replace(frame, values=pack(values))


def chunks(span: range) -> list[range]:
    """Return the parts of a span, the last one first; they are cut where history's own blocks
    are."""
    newest = max(span.start, (span.stop - CHUNK_S) // BLOCK_S * BLOCK_S)
    cuts = [span.stop, *range(newest, span.start, -CHUNK_S), span.start]
    return [range(begin, end) for end, begin in pairwise(cuts)]


def write_past(makers: Sequence[Callable[[range], DemoHistoryNode]], span: range,
               counters: dict[str, float], out: BinaryIO, on_opened: Callable[[], object]) -> None:
    """Write the past of all nodes. `makers`: make a node at the beginning of a span. `counters`:
    see DemoHistoryNode. `on_opened`: called when nobody waits for the rest."""
    for number, chunk in enumerate(chunks(span)):
        for place, make in enumerate(makers, start=1):
            node = make(chunk)
            for _, block in groupby(node.messages(counters), lambda timed: timed[0] // BLOCK_S):
                put(out, node.name, [encode(message) for _, message in block])
            if number == 0 and place == min(OPENING_NODES, len(makers)):
                put(out, "", [])
                out.flush()
                on_opened()
        out.flush()


def put(out: BinaryIO, name: str, payloads: Sequence[bytes]) -> None:
    body = msgspec.msgpack.encode((name, payloads))
    out.write(LENGTH.pack(len(body)) + body)


def idle_since(options: SimulationOptions, real: Sequence[SimulatedJob] | None, span: range
               ) -> dict[str, float]:
    """Return the GPUs whose job does nothing at the end of the span, and since when, as history
    will have it in the end."""
    uuids, instances = units_of(options)
    jobs = real if real is not None else jobs_at(
        options.seed, options.node, uuids, span.stop, instances)
    return {uuid: max(float(span.start), job.working_since + STARTING_S)
            for job in jobs if job.kind == "hog" for uuid in job.gpus}


def main(words: Sequence[str]) -> int:
    """`NODES REAL OPTIONS`: the first REAL of the nodes have real processes, and with mps=on the
    last of these has MPS."""
    count, real = map(int, words[:2])
    options = parse_options(words[2])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # our parent ends us
    begin, end, counters = msgspec.msgpack.decode(sys.stdin.buffer.read(),
                                                  type=tuple[int, int, dict[str, float]])
    span = range(begin, end)
    nodes: list[tuple[SimulationOptions, tuple[SimulatedJob, ...] | None]] = []
    for number in range(1, count + 1):
        mine = replace(options, node=node_name(number), mps=options.mps and number == real)
        jobs = None
        if number <= real and options.world is not None:
            lives = SimulatedJobsFile(options.world, mine.node).lives()
            jobs = () if lives is None else tuple(live.job for live in lives)
        nodes.append((mine, jobs))
    out = sys.stdout.buffer
    put(out, "", [msgspec.msgpack.encode(
        {uuid: since for node in nodes for uuid, since in idle_since(*node, span).items()})])
    out.flush()
    write_past([partial(DemoHistoryNode, mine, jobs) for mine, jobs in nodes], span, counters, out,
               partial(os.nice, 19))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
