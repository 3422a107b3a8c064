"""One simulated node: jobs load boards, boards answer, control has the last word."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from msgspec import structs

from gpudeck.metrics import COLUMN, COLUMNS, WIDTH, Absence
from gpudeck.wire import GpuFacts

from .. import GpuReading, ProcessReading
from .board import Board, Place
from .chance import roll, seed_of
from .control import Control, GpuControl
from .faults import lost_gpu
from .jobs import Job
from .load import Load, load_of, paused
from .owned import owner_of
from .profiles import Profile
from .slow import HALF, absences, links, slow_values

BUSES = ("1B", "43", "52", "61", "9D", "C3", "D1", "DF")
WARM_UP_S = 240
WARM_UP_FINE_S, WARM_UP_STEPS_S = 75, (12.0, 3.0)  # what is longest ago matters least
RUNNING = "running"
LOST = bytes([Absence.LOST]) * WIDTH
NOTHING = (0.0,) * WIDTH
NOT_TOLD = GpuControl()

Kept = tuple[float, list[float]]  # an energy counter's last known state: when, joules by index
TaskState = Literal["running", "paused", "uninterruptible", "zombie"]


@dataclass(frozen=True, slots=True)
class Live:
    """A job that is there now, in which state its process is."""

    job: Job
    state: TaskState = "running"


@dataclass(frozen=True, slots=True)
class Setup:
    node: str
    profile: Profile
    gpus: int
    seed: int
    fault_odds: float = 0.0


def uuid_of(seed: int, node: str, index: int) -> str:
    digits = f"{seed_of(seed, node, index, 'a'):016x}{seed_of(seed, node, index, 'b'):016x}"
    parts = digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]
    return "GPU-" + "-".join(parts)


def facts_of(setup: Setup) -> tuple[GpuFacts, ...]:
    profile = setup.profile
    return tuple(
        GpuFacts(
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
        for index in range(setup.gpus)
    )


class World:
    """Moves forward by `advance`; begins believably warm at any moment."""

    def __init__(
        self, setup: Setup, lives: Sequence[Live], at: float, kept: Kept | None = None
    ) -> None:
        self.setup = setup
        self.facts = facts_of(setup)
        self.uuids = tuple(facts.uuid for facts in self.facts)
        self.at = at - WARM_UP_S
        profile = setup.profile
        places = (Place.of(setup.seed, setup.node, facts.index, profile) for facts in self.facts)
        self._boards = {uuid: Board(profile, place, place.air_c, place.air_c, 0.0)
                        for uuid, place in zip(self.uuids, places, strict=True)}
        self._absent = bytes(Absence.UNSUPPORTED if column.key in setup.profile.unsupported
                             else Absence.PRESENT for column in COLUMNS)
        self._absent_slow = absences(profile)
        self.links = links(profile, setup.gpus)
        self._warm_up(lives, at, kept)

    @property
    def energy_j(self) -> list[float]:
        return [board.energy_j for board in self._boards.values()]

    def reload(self) -> None:
        """What is counted since the driver was loaded begins anew."""
        for board in self._boards.values():
            board.energy_j = 0.0

    def _warm_up(self, lives: Sequence[Live], at: float, kept: Kept | None) -> None:
        for uuid, (load, held) in self._loads(lives, self.at, {}).items():
            self._boards[uuid].settle(load, held)
        while self.at < at:
            step_s = WARM_UP_STEPS_S[at - self.at <= WARM_UP_FINE_S]
            self.advance(min(at, self.at + step_s), lives, {}, Control())
        for index, board in enumerate(self._boards.values()):
            mean_w = board.energy_j / WARM_UP_S
            if kept is None or index >= len(kept[1]):
                board.energy_j = _energy_since_boot(self.setup, board, at)
            else:
                board.energy_j = kept[1][index] + mean_w * max(0.0, at - kept[0])

    def advance(
        self, at: float, lives: Sequence[Live], leaked: dict[str, float], control: Control,
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
        for number, (uuid, board) in enumerate(self._boards.items()):
            load, held = loads[uuid]
            values = board.step(load, held, at, seconds)
            told = control.gpus.get(uuid, NOT_TOLD)
            reading = self._reading(uuid, values, number == lost, told)
            if slow and reading.state != "lost":
                reading = self._slowly(reading, board, load, held, leaked.get(uuid, 0.0), told)
            readings.append(reading)
        return tuple(readings)

    def _loads(
        self, lives: Sequence[Live], at: float, leaked: dict[str, float]
    ) -> dict[str, tuple[Load, bool]]:
        """Per Gpu its load, and whether any process holds a context there."""
        loads = {uuid: (Load(mem_share=leaked.get(uuid, 0.0)), False)
                 for uuid in self.uuids}
        for live in lives:
            asked = load_of(live.job, at) if live.state == RUNNING else paused(live.job, at)
            for number, uuid in enumerate(live.job.gpus, start=live.job.rank):
                if uuid in loads:
                    loads[uuid] = (_sum(loads[uuid][0], _own(asked, live.job, number, at)), True)
        return loads

    def _reading(
        self, uuid: str, values: tuple[float, ...], lost: bool, control: GpuControl
    ) -> GpuReading:
        state = "lost" if lost else "ok"
        state = state if control.state is None else control.state
        values, absent = _controlled(values, self._absent, control.values, control.unsupported)
        if state == "lost":
            return GpuReading(uuid, "lost", NOTHING, LOST)
        return GpuReading(uuid, "stale" if state == "stale" else "ok", values, absent)

    def _slowly(
        self, reading: GpuReading, board: Board, load: Load, held: bool, leaked_share: float,
        control: GpuControl,
    ) -> GpuReading:
        fast = {key: reading.values[at] for key, at in COLUMN.items()}
        values, absent = _controlled(
            slow_values(board, load, held, fast, leaked_share), self._absent_slow,
            control.slow_values, control.slow_unsupported)
        return structs.replace(reading, slow=values, slow_absent=absent)

    def processes(
        self, lives: Iterable[Live], readings: Sequence[GpuReading]
    ) -> tuple[ProcessReading, ...]:
        """What the driver would list: nothing on a Gpu that it has lost."""
        there = {reading.uuid: reading for reading in readings if reading.state != "lost"}
        return tuple(self._process(live, there[uuid])
                     for live in lives for uuid in live.job.gpus if uuid in there)

    def _process(self, live: Live, reading: GpuReading) -> ProcessReading:
        job = live.job
        profile = self.setup.profile
        room = profile.mem_total_bytes - profile.mem_reserved_bytes
        load = load_of(job, self.at)
        return ProcessReading(
            pid=job.pid,
            gpu_uuid=reading.uuid,
            mem_used_bytes=float(int(load.mem_share * room)),
            sm_pct=float(round(load.sm * 100)) if live.state == RUNNING else 0.0,
            user=job.user,
            command=job.command,
            started_at=job.started_at,
            start_ticks=job.start_ticks,
            state=live.state,
            owner=owner_of(self.setup.node, job),
        )


def _own(load: Load, job: Job, number: int, at: float) -> Load:
    """The Gpus of one job run in step, each with a little of its own."""
    if number == 0 or load.busy == 0:
        return load
    jitter = 0.97 + 0.03 * roll(job.seed + number, int(at))
    return Load(load.busy * jitter, load.peak, load.bandwidth * jitter, load.sm * jitter,
                load.intensity, load.mem_share, load.sent * jitter, load.received * jitter)


def _sum(one: Load, other: Load) -> Load:
    """Two processes on one Gpu: they share what there is."""
    busy = min(1.0, one.busy + other.busy)
    drawn = one.busy * one.intensity + other.busy * other.intensity
    return Load(
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


def _energy_since_boot(setup: Setup, board: Board, at: float) -> float:
    """A counter that nobody kept goes on from an estimate: half load since the month began."""
    profile = setup.profile
    mean_w = profile.power_idle_w + 0.5 * (profile.power_limit_w - profile.power_idle_w)
    uptime_s = math.fmod(at, 30 * 86_400) + 86_400 * roll(board.place.seed, 5)
    return round(mean_w * uptime_s)
