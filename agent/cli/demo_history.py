"""What a simulated fleet would have reported before it began: the demo's first hours.

The same boards, jobs and faults as the live simulation, by the same code with another clock, so
that the past ends as what goes on begins. Told on stdout, the last quarter of an hour first, for
that is looked at first: MessagePack arrays of a node's name and one message, each after its length.
Before all that, since when which GPU idles, so that it does not grow while the past is made: an
array of "" and of seconds by UUID.
"""

import os
import signal
import struct
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import BinaryIO

import msgspec
from msgspec import structs

from gpudeck.metrics import COLUMN, WIDTH, Absence
from gpudeck.wire import Event, Frame, Inventory, encode, pack, unpack

from ..backends.simulation.control import SimulationControl
from ..backends.simulation.folder import SimulatedJobsFile
from ..backends.simulation.jobs import SimulatedJob, jobs_at
from ..backends.simulation.load import STARTING_S
from ..backends.simulation.mps_state import is_on_whole_boards
from ..backends.simulation.reader import SimulatedReader, parse_options
from ..backends.simulation.world import (
    LiveJob,
    SimulatedNode,
    SimulationOptions,
    energy_since_boot,
    units_of,
)
from ..tasks.boot_id import boot_id
from ..tasks.task_table import TaskTable
from ..telemetry import sampler
from ..telemetry.events import NodeEventDetector
from .simulate import node_name
from .simulated_nodes import boot_id_of

ENERGY = COLUMN["energy_j"]
COARSE_S = 30.0
LENGTH = struct.Struct("<I")
CHUNK_S = 900
SEQS_PER_S = 1_000  # so that no two chunks give one number twice

Message = Inventory | Event | Frame


class _HistoryReader(SimulatedReader):
    """Where a real process runs the job of a turn now, it is the one that ran it before: a task
    in the past is the one that is there to act on."""

    def __init__(self, options: SimulationOptions, real: Sequence[SimulatedJob],
                 clock: Callable[[], float]) -> None:
        self._real: dict[int, list[SimulatedJob]] = {}
        for job in real:
            self._real.setdefault(job.seed, []).append(job)
        super().__init__(options, None, clock=clock, steady=clock)

    def _planned_lives(self) -> tuple[LiveJob, ...]:
        has_mps = self._options.mps
        return tuple(LiveJob(job, is_client=has_mps and is_on_whole_boards(job))
                     for planned in self._planned
                     for job in self._real.get(planned.seed, [planned]))


class DemoHistoryNode:
    """`real`: the jobs of this node that are processes of this machine; None: it has none such."""

    def __init__(self, options: SimulationOptions, real: Sequence[SimulatedJob] | None,
                 energy: "EnergyHistory", span: range) -> None:
        self.name = options.node
        self._at: float = span.start
        self._reader = _HistoryReader(replace(options, world=None), real or (), lambda: self._at)
        boot = boot_id_of(options.seed, options.node) if real is None else boot_id()
        self._tasks = TaskTable(boot)
        self._happenings = NodeEventDetector()
        self._memory = sampler.SamplerState()
        self._energy = energy
        self._seq = span.start * SEQS_PER_S

    def second(self, at: int) -> Iterator[Message]:
        self._at = at + 0.5
        reading = self._reader.read()
        seen = None if reading.processes is None else self._tasks.describe(reading.processes)
        events = self._happenings.reading(reading, reading.happenings, seen, at)
        step = sampler.sample(self._memory, reading, seen, self._seq + 1, at, events)
        self._memory = step.memory
        if step.inventory is not None:
            yield step.inventory
        for message in step.messages:
            self._seq += 1
            if isinstance(message, Frame):
                yield self._energy.into(message, at)
            elif isinstance(message, Event):
                yield message


class EnergyHistory:
    """What the boards' counters said: they end where the live ones begin, so what they added up is
    found first, in coarse steps."""

    def __init__(self, options: SimulationOptions, span: range) -> None:
        uuids, instances = units_of(options)

        def lives(at: float) -> tuple[LiveJob, ...]:
            return tuple(map(LiveJob, jobs_at(options.seed, options.node, uuids, at, instances)))

        world = SimulatedNode(options, lives(span.start), span.start)
        self._places = [place for place, facts in enumerate(world.facts)
                        if facts.parent_uuid is None]
        ends = [energy_since_boot(options, board, span.stop) for board in world.boards]
        self._at = [float(span.start)]
        curves = [world.energy_j]
        while self._at[-1] < span.stop:
            self._at.append(min(float(span.stop), self._at[-1] + COARSE_S))
            world.advance(self._at[-1], lives(self._at[-1]), {}, SimulationControl())
            curves.append(world.energy_j)
        self._curves = [[max(0.0, ends[board] - curves[-1][board] + joules[board])
                         for board in range(len(ends))] for joules in curves]

    def into(self, frame: Frame, at: float) -> Frame:
        values = unpack(frame.values)
        right = min(max(1, bisect_left(self._at, at)), len(self._at) - 1)
        since, until = self._at[right - 1], self._at[right]
        part = min(1.0, (at - since) / (until - since))
        for place, was, then in zip(self._places, self._curves[right - 1], self._curves[right],
                                    strict=True):
            cell = place * WIDTH + ENERGY
            if frame.absent[cell] == Absence.PRESENT:
                values[cell] = round(was + part * (then - was), 3)
        return structs.replace(frame, values=pack(values))


def chunks(span: range) -> list[range]:
    """The last one first; they part where history's own blocks do."""
    parts = [span.start, *(at for at in span[1:] if at % CHUNK_S == 0), span.stop]
    return [range(*pair) for pair in reversed(list(pairwise(parts)))]


def tell(
    makers: Sequence[Callable[[range], DemoHistoryNode]], span: range, out: BinaryIO
) -> None:
    """`makers`: of each node at the beginning of a span."""
    for chunk in chunks(span):
        nodes = [make(chunk) for make in makers]
        for at in chunk:
            for node in nodes:
                for message in node.second(at):
                    put(out, node.name, encode(message))
        out.flush()


def put(out: BinaryIO, name: str, payload: bytes) -> None:
    body = msgspec.msgpack.encode((name, payload))
    out.write(LENGTH.pack(len(body)) + body)


def idle_since(options: SimulationOptions, real: Sequence[SimulatedJob] | None, span: range
               ) -> dict[str, float]:
    """GPUs whose job does nothing at the end of the span, as history will say it in the end."""
    uuids, instances = units_of(options)
    jobs = real if real is not None else jobs_at(
        options.seed, options.node, uuids, span.stop, instances)
    return {uuid: max(float(span.start), job.working_since + STARTING_S)
            for job in jobs if job.kind == "hog" for uuid in job.gpus}


def main(words: Sequence[str]) -> int:
    """`NODES REAL BEGIN END OPTIONS`: the first REAL of the nodes have real processes, and with
    mps=on the last of these has MPS."""
    count, real, begin, end = map(int, words[:4])
    options, span = parse_options(words[4]), range(begin, end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started us ends us
    nodes: list[tuple[SimulationOptions, tuple[SimulatedJob, ...] | None]] = []
    for number in range(1, count + 1):
        mine = replace(options, node=node_name(number), mps=options.mps and number == real)
        jobs = None
        if number <= real and options.world is not None:
            lives = SimulatedJobsFile(options.world, mine.node).lives()
            jobs = () if lives is None else tuple(live.job for live in lives)
        nodes.append((mine, jobs))
    out = sys.stdout.buffer
    put(out, "", msgspec.msgpack.encode(
        {uuid: since for node in nodes for uuid, since in idle_since(*node, span).items()}))
    out.flush()
    os.nice(19)  # nobody waits for the rest
    tell([partial(DemoHistoryNode, mine, jobs, EnergyHistory(mine, span)) for mine, jobs in nodes],
         span, out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
