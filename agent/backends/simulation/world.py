"""A simulated node: jobs load boards, boards answer, control has the last word."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Literal
from uuid import UUID

from msgspec import structs

from gpudeck.contract.wire import MAX_LINKS, GpuFacts, GpuLink
from gpudeck.measures.metrics import COLUMN, SLOW_COLUMN, WIDTH, Absence

from ...readings import GpuReading, ProcessReading
from .board import AS_IT_COMES, ChassisSlot, SimulatedBoard, SimulatedBoardLimits
from .chance import roll, seed_of
from .control import SimulatedGpuControl, SimulationControl
from .job_owners import owner_of
from .jobs import SimulatedJob, node_number
from .load import SimulatedLoad, load_of, paused
from .mig import MISSING, NOT_OF_BOARD, MigSlice, slices_of, together, uuid_of_slice
from .profiles import BoardProfile, profile_of
from .scenes import on_stage
from .stage import lost_gpu

HALF = 4  # GPUs that share a socket
BUSES = ("1B", "43", "52", "61", "9D", "C3", "D1", "DF")
WARM_UP_S = 240
WARM_UP_FINE_S, WARM_UP_STEPS_S = 75, (12.0, 3.0)  # what is longest ago matters least
RUNNING = "running"
LOST = bytes([Absence.LOST]) * WIDTH
NOTHING = (0.0,) * WIDTH
NOT_TOLD = SimulatedGpuControl()

# An energy counter's last known state: when, joules by index.
StoredEnergy = tuple[float, list[float]]
TaskState = Literal["running", "paused", "uninterruptible", "zombie"]


@dataclass(frozen=True, slots=True)
class LiveJob:
    """A job that is there now, in which state its process is."""

    job: SimulatedJob
    state: TaskState = "running"
    is_client: bool = False  # of MPS


@dataclass(frozen=True, slots=True)
class SimulationOptions:
    """Options of one node."""

    node: str
    profile: str = "h100"
    gpus: int = 8
    seed: int = 1
    world: Path | None = None
    fault_odds: float = 0.0
    mps: bool = False
    cluster: tuple[str, ...] = ()  # nodes of the schedulers for which it speaks

    @property
    def board(self) -> BoardProfile:
        return profile_of(self.profile, node_number(self.node))


def uuid_of(seed: int, node: str, index: int) -> str:
    words = (seed, node, index)
    return f"GPU-{UUID(int=seed_of(*words, 'a') << 64 | seed_of(*words, 'b'))}"


@dataclass(frozen=True, slots=True)
class SimulatedMigInstance:
    uuid: str
    board: str  # its UUID
    slice: MigSlice


def instances_of(setup: SimulationOptions) -> tuple[SimulatedMigInstance, ...]:
    if not setup.board.is_split:
        return ()
    seed, node = setup.seed, setup.node
    return tuple(
        SimulatedMigInstance(uuid_of_slice(seed, node, index, slice_), uuid_of(seed, node, index),
                             slice_)
        for index in range(setup.gpus) for slice_ in slices_of(index, setup.gpus))


def units_of(setup: SimulationOptions) -> tuple[tuple[str, ...], int]:
    """Return what jobs are given: the boards that are not split, then the MIG instances; and how
    many of them are instances."""
    instances = instances_of(setup)
    split = {instance.board for instance in instances}
    boards = (uuid_of(setup.seed, setup.node, index) for index in range(setup.gpus))
    wholes = tuple(uuid for uuid in boards if uuid not in split)
    return wholes + tuple(instance.uuid for instance in instances), len(instances)


def facts_of(setup: SimulationOptions) -> tuple[GpuFacts, ...]:
    """Return the facts; a board's instances follow it."""
    instances = instances_of(setup)
    facts: list[GpuFacts] = []
    for index in range(setup.gpus):
        board = _board_facts(setup, index)
        mine = [instance for instance in instances if instance.board == board.uuid]
        if mine:
            board = structs.replace(
                board, missing=board.missing | dict.fromkeys(NOT_OF_BOARD, "unsupported"))
        facts += [board, *(_instance_facts(board, instance) for instance in mine)]
    return tuple(facts)


def _board_facts(setup: SimulationOptions, index: int) -> GpuFacts:
    profile = setup.board
    serial = seed_of(setup.seed, setup.node, index, "serial") % 10**13
    return GpuFacts(
        uuid=uuid_of(setup.seed, setup.node, index), index=index, name=profile.name, minor=index,
        serial=f"{serial:013d}", vbios=profile.vbios, compute_capability=profile.capability,
        numa_node=index // HALF % 2, pcie_gen_max=profile.pcie_gen, pcie_width_max=16,
        power_limit_min_w=profile.power_limit_min_w, power_limit_max_w=profile.power_limit_max_w,
        power_limit_default_w=profile.power_limit_w, power_limit_w=profile.power_limit_w,
        pci_bus_id=f"{index // 8:08x}:{BUSES[index % 8]}:00.0",
        mem_total_bytes=float(profile.mem_total_bytes),
        sm_clock_max_mhz=float(profile.sm_clock_max_mhz),
        mem_clock_max_mhz=float(profile.mem_clock_max_mhz),
        temp_slowdown_c=profile.temp_slowdown_c, temp_shutdown_c=profile.temp_shutdown_c,
        missing=dict.fromkeys(profile.unsupported, "unsupported"),
    )


def _instance_facts(board: GpuFacts, instance: SimulatedMigInstance) -> GpuFacts:
    slice_ = instance.slice
    return GpuFacts(
        uuid=instance.uuid, index=board.index, name=f"{board.name} MIG {slice_.profile}",
        parent_uuid=board.uuid, mig_profile=slice_.profile, gpu_instance=slice_.gpu_instance,
        compute_instance=0, pci_bus_id=board.pci_bus_id, minor=board.minor, serial=board.serial,
        compute_capability=board.compute_capability, numa_node=board.numa_node,
        mem_total_bytes=float(slice_.mem_total_bytes), missing=dict(MISSING),
    )


class SimulatedNode:
    """Moves forward by `advance`; begins believably warm at any moment."""

    def __init__(
        self, setup: SimulationOptions, lives: Sequence[LiveJob], at: float,
        stored: StoredEnergy | None = None
    ) -> None:
        self.setup = setup
        self.facts = facts_of(setup)
        self.links = _links(self.facts, setup.board.nvlinks)
        self.at = at - WARM_UP_S
        instances = instances_of(setup)
        self._split = {board: [instance for instance in instances if instance.board == board]
                       for board in {instance.board for instance in instances}}
        self._boards = {facts.uuid: self._board(facts) for facts in self.facts
                        if facts.parent_uuid is None}
        # Of each GPU what makes its values of a load: a board, or a part of one.
        self._sources: dict[str, SimulatedBoard | MigSlice] = {
            **self._boards, **{instance.uuid: instance.slice for instance in instances}}
        self._absent = {facts.uuid: (_absent(facts, COLUMN), _absent(facts, SLOW_COLUMN))
                        for facts in self.facts}
        self._warm_up(lives, at, stored)

    def _board(self, facts: GpuFacts) -> SimulatedBoard:
        setup = self.setup
        place = ChassisSlot.of(setup.seed, setup.node, facts.index, setup.board)
        return SimulatedBoard(setup.board, place, place.air_c, place.air_c,
                              facts.uuid in self._split)

    @property
    def boards(self) -> tuple[SimulatedBoard, ...]:
        return tuple(self._boards.values())

    @property
    def energy_j(self) -> list[float]:
        return [board.energy_j for board in self._boards.values()]

    def limit(self, limits: Mapping[str, SimulatedBoardLimits]) -> None:
        for uuid, board in self._boards.items():
            board.limits = limits.get(uuid, AS_IT_COMES)

    def reload(self) -> None:
        """Reset the counters that start when the driver is loaded."""
        for board in self._boards.values():
            board.energy_j = 0.0

    def _warm_up(self, lives: Sequence[LiveJob], at: float, stored: StoredEnergy | None) -> None:
        loads = self._loads(lives, self.at, {})
        for uuid, board in self._boards.items():
            board.settle(*loads[uuid])
        while self.at < at:
            step_s = WARM_UP_STEPS_S[at - self.at <= WARM_UP_FINE_S]
            self.advance(min(at, self.at + step_s), lives, {}, SimulationControl())
        for index, board in enumerate(self._boards.values()):
            mean_w = board.energy_j / WARM_UP_S
            if stored is None or index >= len(stored[1]):
                board.energy_j = energy_since_boot(self.setup, board, at)
            else:
                board.energy_j = stored[1][index] + mean_w * max(0.0, at - stored[0])

    def advance(
        self, at: float, lives: Sequence[LiveJob], leaked: dict[str, float],
        control: SimulationControl, slow: bool = False,
    ) -> tuple[GpuReading, ...]:
        """Advance to `at`, which may lie any time ahead. `leaked`: share of a GPU's memory nobody
        owns. `slow`: with what is read every 15 s."""
        seconds = max(1e-3, at - self.at)
        self.at = at
        loads = self._loads(lives, at, leaked)
        setup = self.setup
        lost_index = lost_gpu(setup.seed, setup.node, setup.gpus, at, setup.fault_odds)
        readings = []
        for facts in self.facts:
            uuid, (load, has_context) = facts.uuid, loads[facts.uuid]
            source, gpu_control = self._sources[uuid], control.gpus.get(uuid, NOT_TOLD)
            values = source.step(load, has_context, at, seconds)  # of a lost one too: it cools down
            is_lost = facts.index == lost_index or (
                control.gpus.get(facts.parent_uuid or "", NOT_TOLD).state == "lost")
            state = gpu_control.state or ("lost" if is_lost else "ok")
            if state == "lost":
                readings.append(GpuReading(uuid, "lost", NOTHING, LOST))
                continue
            absent, absent_slow = self._absent[uuid]
            reading = GpuReading(uuid, state, *_apply_control(values, absent, gpu_control, COLUMN))
            if slow:
                slow_row = source.slow_values(
                    load, has_context, dict(zip(COLUMN, reading.values, strict=True)),
                    leaked.get(uuid, 0.0))
                slow_row, absent = _apply_control(slow_row, absent_slow, gpu_control, SLOW_COLUMN)
                reading = structs.replace(reading, slow=slow_row, slow_absent=absent)
            readings.append(reading)
        return tuple(readings)

    def _loads(
        self, lives: Sequence[LiveJob], at: float, leaked: dict[str, float]
    ) -> dict[str, tuple[SimulatedLoad, bool]]:
        """Return per GPU its load, and whether any process holds a context there. A split board has
        that of its instances."""
        loads = {facts.uuid: (SimulatedLoad(mem_share=leaked.get(facts.uuid, 0.0)), False)
                 for facts in self.facts}
        for live in lives:
            load = load_of(live.job, at) if live.state == RUNNING else paused(live.job, at)
            for number, uuid in enumerate(live.job.gpus, start=live.job.rank):
                if uuid in loads:
                    own = _own(load, live.job, number, at)
                    if live.state == RUNNING:
                        own = on_stage(self.setup.node, live.job, at, own)
                    loads[uuid] = (_sum(loads[uuid][0], own), True)
        for board, mine in self._split.items():
            whole = together([(instance.slice, loads[instance.uuid][0]) for instance in mine],
                             self.setup.board.room_bytes)
            loads[board] = whole, any(loads[instance.uuid][1] for instance in mine)
        return loads

    def processes(
        self, lives: Iterable[LiveJob], readings: Sequence[GpuReading]
    ) -> tuple[ProcessReading, ...]:
        """Return what the driver would list: nothing on a GPU that it has lost."""
        there = {reading.uuid for reading in readings if reading.state != "lost"}
        return tuple(self._process(live, uuid)
                     for live in lives for uuid in live.job.gpus if uuid in there)

    def _process(self, live: LiveJob, uuid: str) -> ProcessReading:
        job, load = live.job, load_of(live.job, self.at)
        sm_pct: float | None = float(round(load.sm * 100)) if live.state == RUNNING else 0.0
        if uuid not in self._boards:
            sm_pct = None  # no driver tells the share of a process under MIG
        return ProcessReading(
            pid=job.pid, gpu_uuid=uuid, sm_pct=sm_pct,
            mem_used_bytes=float(int(load.mem_share * self._sources[uuid].room_bytes)),
            user=job.user, command=job.command, started_at=job.started_at,
            start_ticks=job.start_ticks, state=live.state, owner=owner_of(self.setup.node, job),
            kind="mps_client" if live.is_client else "compute",
        )


def _links(facts: Sequence[GpuFacts], nvlinks: int) -> tuple[GpuLink, ...]:
    """Return a link for each pair of boards, by their places among all GPUs."""
    boards = [(place, gpu.index // HALF) for place, gpu in enumerate(facts)
              if gpu.parent_uuid is None]
    pairs = (GpuLink(a, b, "numa node" if half == other else "system", nvlinks)
             for (a, half), (b, other) in combinations(boards, 2))
    return tuple(pairs)[:MAX_LINKS]


def _absent(facts: GpuFacts, keys: Iterable[str]) -> bytes:
    return bytes(Absence.UNSUPPORTED if key in facts.missing else Absence.PRESENT for key in keys)


def _own(load: SimulatedLoad, job: SimulatedJob, number: int, at: float) -> SimulatedLoad:
    """Return its share of a job's load: GPUs run in step, each a little off it."""
    if number == 0 or load.busy == 0:
        return load
    jitter = 0.97 + 0.03 * roll(job.seed + number, int(at))
    return SimulatedLoad(load.busy * jitter, load.peak, load.bandwidth * jitter, load.sm * jitter,
                         load.intensity, load.mem_share, load.sent * jitter, load.received * jitter)


def _sum(one: SimulatedLoad, other: SimulatedLoad) -> SimulatedLoad:
    """Add two processes on one GPU: they share what there is."""
    busy = min(1.0, one.busy + other.busy)
    draw = one.busy * one.intensity + other.busy * other.intensity
    return SimulatedLoad(
        busy, min(1.0, max(busy, one.peak, other.peak)),
        min(1.0, one.bandwidth + other.bandwidth), min(1.0, one.sm + other.sm),
        draw / (one.busy + other.busy) if busy > 0 else 0.0,
        min(1.0, one.mem_share + other.mem_share),
        min(1.0, one.sent + other.sent), min(1.0, one.received + other.received),
    )


def _apply_control(
    values: tuple[float, ...], absent: bytes, control: SimulatedGpuControl,
    columns: Mapping[str, int],
) -> tuple[tuple[float, ...], bytes]:
    numbers, marks = list(values), bytearray(absent)
    for key, value in control.values.items():
        if key in columns:
            numbers[columns[key]], marks[columns[key]] = value, Absence.PRESENT
    for key in control.unsupported:
        if key in columns:
            marks[columns[key]] = Absence.UNSUPPORTED
    if any(marks):
        numbers = [0.0 if mark else value for value, mark in zip(numbers, marks, strict=True)]
    return tuple(numbers), bytes(marks)


def energy_since_boot(setup: SimulationOptions, board: SimulatedBoard, at: float) -> float:
    """Return an estimate for a counter that nobody kept: half load since the month began, and for
    a day and more before it."""
    profile = setup.board
    mean_w = profile.power_idle_w + 0.5 * (profile.power_limit_w - profile.power_idle_w)
    uptime_s = math.fmod(at, 30 * 86_400) + 86_400 * (1 + roll(board.place.seed, 5))
    return round(mean_w * uptime_s)
