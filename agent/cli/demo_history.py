"""What a simulated fleet would have reported before it began: the demo's first hours.

The same boards, jobs and faults as the live simulation, by the same code with another clock, so
that the past ends as what goes on begins. Told on stdout, the last quarter of an hour first, for
that is looked at first: MessagePack arrays of a node's name and one message, each after its length.
"""

import os
import signal
import struct
import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import BinaryIO

import msgspec
from msgspec import structs

from gpudeck.metrics import COLUMN, WIDTH, Absence
from gpudeck.wire import Event, Frame, Inventory, encode

from ..backends.simulation.control import Control
from ..backends.simulation.folder import JobsFile, jobs_path
from ..backends.simulation.jobs import Job, jobs_at
from ..backends.simulation.mps_kept import is_on_whole_boards
from ..backends.simulation.reader import Options, SimulatedReader, parse_options
from ..backends.simulation.world import Live, World, energy_since_boot, units_of
from ..tasks.task_table import TaskTable, boot_id
from ..telemetry import sampler
from ..telemetry.events import Happenings
from .simulate import node_name
from .simulated_nodes import boot_id_of

ENERGY = COLUMN["energy_j"]
COARSE_S = 30.0
LENGTH = struct.Struct("<I")
CHUNK_S = 900
SEQS_PER_S = 1_000  # so that no two chunks give one number twice

Message = Inventory | Event | Frame


@dataclass(frozen=True, slots=True)
class Span:
    begin: int
    end: int


class _Clock:
    def __init__(self, at: float) -> None:
        self.at = at

    def __call__(self) -> float:
        return self.at


class _Reader(SimulatedReader):
    """Where a real process runs the job of a turn now, it is the one that ran it before: whoever
    looks back finds the task that is there to be acted on."""

    def __init__(self, options: Options, real: tuple[Job, ...], clock: _Clock) -> None:
        self._real: dict[int, list[Job]] = {}
        for job in real:
            self._real.setdefault(job.seed, []).append(job)
        super().__init__(options, None, clock=clock, steady=clock)

    def _planned_lives(self) -> tuple[Live, ...]:
        has_mps = self._options.mps
        return tuple(Live(job, is_client=has_mps and is_on_whole_boards(job))
                     for planned in self._planned
                     for job in self._real.get(planned.seed, [planned]))


class PastNode:
    """`real`: the jobs of this node that are processes of this machine."""

    def __init__(self, options: Options, real: Sequence[Job] | None, span: Span,
                 energy: "Energy") -> None:
        self._options = replace(options, world=None)
        self._clock = _Clock(span.begin)
        self._reader = _Reader(self._options, tuple(real or ()), self._clock)
        boot = boot_id_of(options.seed, options.node) if real is None else boot_id()
        self._tasks = TaskTable(boot)
        self._happenings = Happenings()
        self._memory = sampler.Memory()
        self._energy = energy
        self._seq = span.begin * SEQS_PER_S

    def second(self, at: int) -> Iterator[Message]:
        self._clock.at = at + 0.5
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


class Energy:
    """What the boards' counters said: they end where the live ones begin, so what they added up is
    found first, in coarse steps."""

    def __init__(self, options: Options, span: Span) -> None:
        setup = options.setup()
        uuids, instances = units_of(setup)

        def lives(at: float) -> tuple[Live, ...]:
            return tuple(map(Live, jobs_at(setup.seed, setup.node, uuids, at, instances)))

        world = World(setup, lives(span.begin), span.begin)
        self._places = [place for place, facts in enumerate(world.facts)
                        if facts.parent_uuid is None]
        ends = [energy_since_boot(setup, board, span.end) for board in world.boards]
        self._at = [float(span.begin)]
        curves = [world.energy_j]
        while self._at[-1] < span.end:
            self._at.append(min(float(span.end), self._at[-1] + COARSE_S))
            world.advance(self._at[-1], lives(self._at[-1]), {}, Control())
            curves.append(world.energy_j)
        self._curves = [[max(0.0, ends[board] - curves[-1][board] + joules[board])
                         for board in range(len(ends))] for joules in curves]

    def into(self, frame: Frame, at: float) -> Frame:
        values = array("d", frame.values)
        if sys.byteorder == "big":
            values.byteswap()
        right = min(max(1, bisect_left(self._at, at)), len(self._at) - 1)
        since, until = self._at[right - 1], self._at[right]
        part = min(1.0, (at - since) / (until - since))
        for place, was, then in zip(self._places, self._curves[right - 1], self._curves[right],
                                    strict=True):
            cell = place * WIDTH + ENERGY
            if frame.absent[cell] == Absence.PRESENT:
                values[cell] = round(was + part * (then - was), 3)
        if sys.byteorder == "big":
            values.byteswap()
        return structs.replace(frame, values=values.tobytes())


@dataclass(frozen=True, slots=True)
class Plan:
    """One node. `real`: its jobs that are processes of this machine; None: it has none such."""

    options: Options
    real: tuple[Job, ...] | None
    energy: Energy


def chunks(span: Span) -> list[Span]:
    """The last one first; they part where history's own blocks do."""
    parts = [span.begin, *(at for at in range(span.begin + 1, span.end) if at % CHUNK_S == 0),
             span.end]
    return [Span(*pair) for pair in reversed(list(pairwise(parts)))]


def tell(plans: Sequence[Plan], span: Span, out: BinaryIO) -> None:
    for chunk in chunks(span):
        nodes = {plan.options.node: PastNode(plan.options, plan.real, chunk, plan.energy)
                 for plan in plans}
        for at in range(chunk.begin, chunk.end):
            for name, node in nodes.items():
                for message in node.second(at):
                    body = msgspec.msgpack.encode((name, encode(message)))
                    out.write(LENGTH.pack(len(body)) + body)
        out.flush()


def main(words: Sequence[str]) -> int:
    """`NODES REAL BEGIN END OPTIONS`: the first REAL of the nodes have real processes, and with
    mps=on the last of these has MPS."""
    count, real, begin, end = map(int, words[:4])
    options, span = parse_options(words[4]), Span(begin, end)
    os.nice(19)  # nobody waits for it
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started us ends us
    plans = []
    for number in range(1, count + 1):
        mine = replace(options, node=node_name(number), mps=options.mps and number == real)
        jobs = None
        if number <= real and options.world is not None:
            lives = JobsFile(jobs_path(options.world, mine.node)).lives()
            jobs = () if lives is None else tuple(live.job for live in lives)
        plans.append(Plan(mine, jobs, Energy(mine, span)))
    tell(plans, span, sys.stdout.buffer)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
