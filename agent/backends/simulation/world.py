"""One simulated node: jobs load boards, boards answer, control has the last word."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from msgspec import structs

from gpudeck.metrics import COLUMN, COLUMNS, WIDTH, Absence
from gpudeck.wire import GpuFacts

from ...readings import GpuReading, ProcessReading
from .board import ChassisSlot, SimulatedBoard, SimulatedBoardLimits
from .chance import roll, seed_of
from .control import SimulatedGpuControl, SimulationControl
from .faults import lost_gpu
from .job_owners import owner_of
from .jobs import SimulatedJob
from .load import SimulatedLoad, load_of, paused
from .mig import (
    MISSING,
    NOT_OF_BOARD,
    MigSlice,
    slices_of,
    slow_values_of,
    together,
    uuid_of_slice,
    values_of,
)
from .profiles import BoardProfile
from .slow import HALF, absences, links, slow_values

BUSES = ("1B", "43", "52", "61", "9D", "C3", "D1", "DF")
WARM_UP_S = 240
WARM_UP_FINE_S, WARM_UP_STEPS_S = 75, (12.0, 3.0)  # what is longest ago matters least
RUNNING = "running"
LOST = bytes([Absence.LOST]) * WIDTH
NOTHING = (0.0,) * WIDTH
NOT_TOLD = SimulatedGpuControl()

Kept = tuple[float, list[float]]  # an energy counter's last known state: when, joules by index
TaskState = Literal["running", "paused", "uninterruptible", "zombie"]


@dataclass(frozen=True, slots=True)
class LiveJob:
    """A job that is there now, in which state its process is."""

    job: SimulatedJob
    state: TaskState = "running"
    is_client: bool = False  # of MPS


@dataclass(frozen=True, slots=True)
class SimulatedNodeSetup:
    node: str
    profile: BoardProfile
    gpus: int
    seed: int
    fault_odds: float = 0.0


def uuid_of(seed: int, node: str, index: int) -> str:
    digits = f"{seed_of(seed, node, index, 'a'):016x}{seed_of(seed, node, index, 'b'):016x}"
    parts = digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]
    return "GPU-" + "-".join(parts)


@dataclass(frozen=True, slots=True)
class SimulatedMigInstance:
    uuid: str
    board: str  # its UUID
    slice: MigSlice


def instances_of(setup: SimulatedNodeSetup) -> tuple[SimulatedMigInstance, ...]:
    if not setup.profile.is_split:
        return ()
    seed, node = setup.seed, setup.node
    return tuple(
        SimulatedMigInstance(uuid_of_slice(seed, node, index, slice_), uuid_of(seed, node, index),
                             slice_)
        for index in range(setup.gpus) for slice_ in slices_of(index, setup.gpus))


def units_of(setup: SimulatedNodeSetup) -> tuple[tuple[str, ...], int]:
    """What jobs are given: the boards that are not split, then the MIG instances; and how many
    of them are instances."""
    instances = instances_of(setup)
    split = {instance.board for instance in instances}
    boards = (uuid_of(setup.seed, setup.node, index) for index in range(setup.gpus))
    wholes = tuple(uuid for uuid in boards if uuid not in split)
    return wholes + tuple(instance.uuid for instance in instances), len(instances)


def facts_of(setup: SimulatedNodeSetup) -> tuple[GpuFacts, ...]:
    """A board's instances follow it."""
    instances = instances_of(setup)
    found: list[GpuFacts] = []
    for index in range(setup.gpus):
        board = _board_facts(setup, index)
        mine = [instance for instance in instances if instance.board == board.uuid]
        if mine:
            board = structs.replace(
                board, missing=board.missing | dict.fromkeys(NOT_OF_BOARD, "unsupported"))
        found += [board, *(_instance_facts(board, instance) for instance in mine)]
    return tuple(found)


def _board_facts(setup: SimulatedNodeSetup, index: int) -> GpuFacts:
    profile = setup.profile
    return GpuFacts(
        uuid=uuid_of(setup.seed, setup.node, index),
        index=index,
        name=profile.name,
        minor=index,
        serial=f"{seed_of(setup.seed, setup.node, index, 'serial') % 10**13:013d}",
        vbios=profile.vbios,
        compute_capability=profile.capability,
        numa_node=index // HALF % 2,
        pcie_gen_max=profile.pcie_gen,
        pcie_width_max=16,
        power_limit_min_w=profile.power_limit_min_w,
        power_limit_max_w=profile.power_limit_max_w,
        power_limit_default_w=profile.power_limit_w,
        pci_bus_id=f"{index // 8:08x}:{BUSES[index % 8]}:00.0",
        mem_total_bytes=float(profile.mem_total_bytes),
        power_limit_w=profile.power_limit_w,
        sm_clock_max_mhz=float(profile.sm_clock_max_mhz),
        mem_clock_max_mhz=float(profile.mem_clock_max_mhz),
        temp_slowdown_c=profile.temp_slowdown_c,
        temp_shutdown_c=profile.temp_shutdown_c,
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
        self, setup: SimulatedNodeSetup, lives: Sequence[LiveJob], at: float,
        kept: Kept | None = None
    ) -> None:
        self.setup = setup
        self.facts = facts_of(setup)
        self._instances = {each.uuid: each for each in instances_of(setup)}
        self._split = {each.board for each in self._instances.values()}
        self.uuids = tuple(facts.uuid for facts in self.facts)
        self.at = at - WARM_UP_S
        profile = setup.profile
        self._boards = {
            facts.uuid: SimulatedBoard(profile, place, place.air_c, place.air_c, 0.0)
            for facts in self.facts if facts.parent_uuid is None
            for place in [ChassisSlot.of(setup.seed, setup.node, facts.index, profile)]}
        self._absent = {facts.uuid: bytes(
            Absence.UNSUPPORTED if column.key in facts.missing else Absence.PRESENT
            for column in COLUMNS) for facts in self.facts}
        self._absent_slow = {facts.uuid: absences(facts.missing) for facts in self.facts}
        boards = [at for at, facts in enumerate(self.facts) if facts.parent_uuid is None]
        self.links = tuple(structs.replace(link, a=boards[link.a], b=boards[link.b])
                           for link in links(profile, setup.gpus))
        self._warm_up(lives, at, kept)

    @property
    def boards(self) -> tuple[SimulatedBoard, ...]:
        return tuple(self._boards.values())

    @property
    def energy_j(self) -> list[float]:
        return [board.energy_j for board in self._boards.values()]

    def limit(self, limits: Mapping[str, SimulatedBoardLimits]) -> None:
        for uuid, board in self._boards.items():
            told = limits.get(uuid)
            board.power_cap_w = None if told is None else told.power_w
            board.locked_mhz = None if told is None else told.locked_mhz
            board.compute_mode = 0 if told is None else told.compute_mode or 0

    def reload(self) -> None:
        """What is counted since the driver was loaded begins anew."""
        for board in self._boards.values():
            board.energy_j = 0.0

    def _warm_up(self, lives: Sequence[LiveJob], at: float, kept: Kept | None) -> None:
        loads = self._loads(lives, self.at, {})
        for uuid, board in self._boards.items():
            board.settle(*loads[uuid])
        while self.at < at:
            step_s = WARM_UP_STEPS_S[at - self.at <= WARM_UP_FINE_S]
            self.advance(min(at, self.at + step_s), lives, {}, SimulationControl())
        for index, board in enumerate(self._boards.values()):
            mean_w = board.energy_j / WARM_UP_S
            if kept is None or index >= len(kept[1]):
                board.energy_j = energy_since_boot(self.setup, board, at)
            else:
                board.energy_j = kept[1][index] + mean_w * max(0.0, at - kept[0])

    def advance(
        self, at: float, lives: Sequence[LiveJob], leaked: dict[str, float],
        control: SimulationControl,
        slow: bool = False,
    ) -> tuple[GpuReading, ...]:
        """To `at`, which may lie any time ahead. `leaked`: share of a Gpu's memory nobody owns.
        `slow`: with what is read every 15 s."""
        seconds = max(1e-3, at - self.at)
        self.at = at
        loads = self._loads(lives, at, leaked)
        setup = self.setup
        lost = lost_gpu(setup.seed, setup.node, setup.gpus, at, setup.fault_odds)
        readings = []
        for facts in self.facts:
            load, held = loads[facts.uuid]
            told = control.gpus.get(facts.uuid, NOT_TOLD)
            is_lost = facts.index == lost or self._is_lost_with_its_board(facts, control)
            board = self._boards.get(facts.uuid)
            if board is None:
                values = values_of(self._instances[facts.uuid].slice, load)
            else:
                values = board.step(load, held, at, seconds)
            reading = self._reading(facts.uuid, values, is_lost, told)
            if slow and reading.state != "lost":
                reading = self._slowly(reading, load, held, leaked.get(facts.uuid, 0.0), told)
            readings.append(reading)
        return tuple(readings)

    def _is_lost_with_its_board(self, facts: GpuFacts, control: SimulationControl) -> bool:
        board = control.gpus.get(facts.parent_uuid or "")
        return board is not None and board.state == "lost"

    def _loads(
        self, lives: Sequence[LiveJob], at: float, leaked: dict[str, float]
    ) -> dict[str, tuple[SimulatedLoad, bool]]:
        """Per Gpu its load, and whether any process holds a context there. A split board has that
        of its instances."""
        loads = {uuid: (SimulatedLoad(mem_share=leaked.get(uuid, 0.0)), False)
                 for uuid in self.uuids}
        for live in lives:
            asked = load_of(live.job, at) if live.state == RUNNING else paused(live.job, at)
            for number, uuid in enumerate(live.job.gpus, start=live.job.rank):
                if uuid in loads:
                    loads[uuid] = (_sum(loads[uuid][0], _own(asked, live.job, number, at)), True)
        for board in self._split:
            mine = [each for each in self._instances.values() if each.board == board]
            whole = together([(each.slice, loads[each.uuid][0]) for each in mine],
                             self._room_bytes(board))
            loads[board] = whole, any(loads[each.uuid][1] for each in mine)
        return loads

    def _room_bytes(self, uuid: str) -> int:
        """What processes may have of it."""
        if uuid in self._instances:
            return self._instances[uuid].slice.room_bytes
        return self.setup.profile.mem_total_bytes - self.setup.profile.mem_reserved_bytes

    def _reading(
        self, uuid: str, values: tuple[float, ...], lost: bool, control: SimulatedGpuControl
    ) -> GpuReading:
        state = "lost" if lost else "ok"
        state = state if control.state is None else control.state
        values, absent = _controlled(values, self._absent[uuid],
                                     control.values, control.unsupported)
        if state == "lost":
            return GpuReading(uuid, "lost", NOTHING, LOST)
        return GpuReading(uuid, "stale" if state == "stale" else "ok", values, absent)

    def _slowly(
        self, reading: GpuReading, load: SimulatedLoad, held: bool, leaked_share: float,
        control: SimulatedGpuControl
    ) -> GpuReading:
        uuid = reading.uuid
        if uuid in self._instances:
            slow = slow_values_of(self._instances[uuid].slice, load, leaked_share)
        else:
            fast = {key: reading.values[at] for key, at in COLUMN.items()}
            slow = slow_values(self._boards[uuid], load, held, fast, leaked_share,
                               uuid in self._split)
        values, absent = _controlled(
            slow, self._absent_slow[uuid], control.slow_values, control.slow_unsupported)
        return structs.replace(reading, slow=values, slow_absent=absent)

    def processes(
        self, lives: Iterable[LiveJob], readings: Sequence[GpuReading]
    ) -> tuple[ProcessReading, ...]:
        """What the driver would list: nothing on a Gpu that it has lost."""
        there = {reading.uuid: reading for reading in readings if reading.state != "lost"}
        return tuple(self._process(live, there[uuid])
                     for live in lives for uuid in live.job.gpus if uuid in there)

    def _process(self, live: LiveJob, reading: GpuReading) -> ProcessReading:
        job = live.job
        room = self._room_bytes(reading.uuid)
        load = load_of(job, self.at)
        return ProcessReading(
            pid=job.pid,
            gpu_uuid=reading.uuid,
            mem_used_bytes=float(int(load.mem_share * room)),
            sm_pct=self._sm_pct(reading.uuid, live, load),
            user=job.user,
            command=job.command,
            started_at=job.started_at,
            start_ticks=job.start_ticks,
            state=live.state,
            owner=owner_of(self.setup.node, job),
            kind="mps_client" if live.is_client else "compute",
        )

    def _sm_pct(self, uuid: str, live: LiveJob, load: SimulatedLoad) -> float | None:
        """No driver tells the share of a process under MIG."""
        if uuid in self._instances:
            return None
        return float(round(load.sm * 100)) if live.state == RUNNING else 0.0


def _own(load: SimulatedLoad, job: SimulatedJob, number: int, at: float) -> SimulatedLoad:
    """The Gpus of one job run in step, each with a little of its own."""
    if number == 0 or load.busy == 0:
        return load
    jitter = 0.97 + 0.03 * roll(job.seed + number, int(at))
    return SimulatedLoad(load.busy * jitter, load.peak, load.bandwidth * jitter, load.sm * jitter,
                         load.intensity, load.mem_share, load.sent * jitter, load.received * jitter)


def _sum(one: SimulatedLoad, other: SimulatedLoad) -> SimulatedLoad:
    """Two processes on one Gpu: they share what there is."""
    busy = min(1.0, one.busy + other.busy)
    drawn = one.busy * one.intensity + other.busy * other.intensity
    return SimulatedLoad(
        busy, min(1.0, max(busy, one.peak, other.peak)),
        min(1.0, one.bandwidth + other.bandwidth), min(1.0, one.sm + other.sm),
        drawn / (one.busy + other.busy) if busy > 0 else 0.0,
        min(1.0, one.mem_share + other.mem_share),
        min(1.0, one.sent + other.sent), min(1.0, one.received + other.received),
    )


def _controlled(
    values: tuple[float, ...], absent: bytes, told: Mapping[int, float],
    unsupported: frozenset[int],
) -> tuple[tuple[float, ...], bytes]:
    said, marks = list(values), bytearray(absent)
    for column, value in told.items():
        said[column] = value
        marks[column] = Absence.PRESENT
    for column in unsupported:
        marks[column] = Absence.UNSUPPORTED
    if any(marks):
        said = [0.0 if gone else value for value, gone in zip(said, marks, strict=True)]
    return tuple(said), bytes(marks)


def energy_since_boot(setup: SimulatedNodeSetup, board: SimulatedBoard, at: float) -> float:
    """A counter that nobody kept goes on from an estimate: half load since the month began."""
    profile = setup.profile
    mean_w = profile.power_idle_w + 0.5 * (profile.power_limit_w - profile.power_idle_w)
    uptime_s = math.fmod(at, 30 * 86_400) + 86_400 * roll(board.place.seed, 5)
    return round(mean_w * uptime_s)
