"""A board's answer to a load: power, heat, clocks, throttling, energy, and what it reports of
itself every 15 s. Pure but for its state."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from gpudeck.measures.metrics import SLOW

from .chance import between, roll, seed_of
from .load import SimulatedLoad, shares
from .profiles import MIB, BoardProfile
from .scenes import FOULED_BY, is_fouled

IDLE, POWER_CAP, HW_SLOWDOWN, SW_THERMAL, HW_THERMAL = 0x1, 0x4, 0x8, 0x20, 0x40
SLOWED_BY = {"slowed_power_pct": POWER_CAP, "slowed_soft_thermal_pct": SW_THERMAL,
             "slowed_hard_thermal_pct": HW_THERMAL}
CLOCK_STEP_MHZ = 15
CONTEXT_W = 0.035  # share of the limit that an open context costs, idle or not
NVLINK_BYTES_PER_S = 22e9  # of one link, one way, in practice
RPM_PER_PCT = 32


class SimulatedBoardLimits(msgspec.Struct, frozen=True):
    """Limits as somebody has set them on one board. None: as the board comes."""

    power_w: float | None = None
    locked_mhz: tuple[float, float] | None = None
    compute_mode: int | None = None


AS_IT_COMES = SimulatedBoardLimits()


@dataclass(frozen=True, slots=True)
class ChassisSlot:
    """Place in the chassis: the air that reaches it, and how well it is cooled."""

    seed: int
    air_c: float
    per_watt: float
    appetite: float  # no two chips draw the same

    @classmethod
    def of(cls, seed: int, node: str, index: int, profile: BoardProfile) -> "ChassisSlot":
        here = seed_of(seed, node, index, "place")
        rear = index % 8 / 7  # the rear breathes what the front has warmed
        # Dust, a dead fan wall, a badly seated heat sink: one board in four thousand runs hot.
        fouled = 1.65 if roll(here, 1) < 0.00025 else 1.0
        if is_fouled(node, index):
            fouled = FOULED_BY
        return cls(
            here,
            between(25, 29, roll(seed_of(seed, node), 2)) + 5.5 * rear,
            profile.temp_per_watt * between(0.94, 1.08, roll(here, 3)) * fouled,
            between(0.97, 1.03, roll(here, 4)),
        )


@dataclass(slots=True)
class SimulatedBoard:
    """Temperature and energy have a memory; all else follows from the load."""

    profile: BoardProfile
    place: ChassisSlot
    temp_c: float
    mem_temp_c: float
    is_split: bool = False  # by MIG
    energy_j: float = 0.0
    # By throttle bit, since somebody last looked; 0 stands for all of the time.
    slowed_s: dict[int, float] = field(default_factory=dict)
    limits: SimulatedBoardLimits = AS_IT_COMES

    @property
    def room_bytes(self) -> int:
        return self.profile.room_bytes

    @property
    def power_limit_w(self) -> float:
        cap_w = self.limits.power_w
        return self.profile.power_limit_w if cap_w is None else cap_w

    def step(self, load: SimulatedLoad, has_context: bool, at: float, seconds: float
             ) -> tuple[float, ...]:
        """Go on by one interval. Return the values in the order of metrics.COLUMNS."""
        profile = self.profile
        asked_w = self._locked_w(self._asked_w(load, has_context))
        speed, bits = self._speed(asked_w)
        power_w = profile.power_idle_w + (asked_w - profile.power_idle_w) * speed * speed
        power_w *= 1 + 0.01 * (roll(self.place.seed, int(at)) - 0.5)
        power_w = min(power_w, self.power_limit_w)
        self._warm(power_w, load.bandwidth, seconds)
        self.energy_j += power_w * seconds
        for bit in (0, *SLOWED_BY.values()):
            if bit == 0 or bits & bit:
                self.slowed_s[bit] = self.slowed_s.get(bit, 0.0) + seconds
        return self._values(load, has_context, power_w, speed, bits)

    def _asked_w(self, load: SimulatedLoad, has_context: bool) -> float:
        profile = self.profile
        span_w = profile.power_limit_w - profile.power_idle_w
        context_w = profile.power_limit_w * CONTEXT_W if has_context else 0.0
        return (profile.power_idle_w + context_w
                + span_w * load.busy * load.intensity * self.place.appetite)

    def _locked_w(self, asked_w: float) -> float:
        """Return the power under a lock: it goes with the square of the clock, which the lock keeps
        below the board's own."""
        if self.limits.locked_mhz is None:
            return asked_w
        share = min(1.0, self.limits.locked_mhz[1] / self.profile.sm_clock_max_mhz)
        idle_w = self.profile.power_idle_w
        return idle_w + (asked_w - idle_w) * share * share

    def _speed(self, asked_w: float) -> tuple[float, int]:
        """Return the share of the full clock, and why it is less. Power goes with its square."""
        profile = self.profile
        speed, bits = 1.0, 0
        if asked_w > self.power_limit_w:
            speed = math.sqrt((self.power_limit_w - profile.power_idle_w)
                              / (asked_w - profile.power_idle_w))
            bits |= POWER_CAP
        # The driver slows down gently from some degrees below the board's own slowdown.
        over_c = self.temp_c - (profile.temp_slowdown_c - 4)
        if over_c > 0:
            speed *= max(0.35, 1 - 0.09 * over_c)
            bits |= SW_THERMAL
        if self.temp_c >= profile.temp_slowdown_c:
            speed *= 0.5
            bits |= HW_SLOWDOWN | HW_THERMAL
        return speed, bits

    def _warm(self, power_w: float, bandwidth: float, seconds: float) -> None:
        settles_s = self.profile.temp_settles_s
        goal_c = self.place.air_c + power_w * self.place.per_watt
        self.temp_c += (goal_c - self.temp_c) * -math.expm1(-seconds / settles_s)
        goal_c = self.temp_c + 2 + 9 * bandwidth
        self.mem_temp_c += (goal_c - self.mem_temp_c) * -math.expm1(-seconds / settles_s)

    def settle(self, load: SimulatedLoad, has_context: bool) -> None:
        """Make it as warm as if it had gone on like this for long."""
        power_w = min(self._asked_w(load, has_context), self.profile.power_limit_w)
        self.temp_c = min(self.place.air_c + power_w * self.place.per_watt,
                          self.profile.temp_slowdown_c - 3)
        self.mem_temp_c = self.temp_c + 2 + 9 * load.bandwidth

    def _values(
        self, load: SimulatedLoad, has_context: bool, power_w: float, speed: float, bits: int
    ) -> tuple[float, ...]:
        profile = self.profile
        mem_used = int(load.mem_share * profile.room_bytes)
        awake = load.busy > 0
        peak_w = power_w + (load.peak - load.busy) * 0.35 * profile.power_limit_w
        return (
            round(load.busy * 100), round(load.bandwidth * 100), round(load.sm * 100, 1),
            float(min(mem_used, profile.room_bytes)),
            float(round(self.temp_c)), float(round(self.mem_temp_c)),
            round(power_w, 3), round(self.energy_j, 3),
            self._clock(awake, has_context, speed),
            float(profile.mem_clock_max_mhz if awake or has_context
                  else profile.mem_clock_idle_mhz),
            self._fan(), float(bits or (0 if awake else IDLE)),
            float(int(load.sent * profile.pcie_bytes_per_s)),
            float(int(load.received * profile.pcie_bytes_per_s)),
            round(max(load.busy, load.peak) * 100),
            round(max(power_w, min(peak_w, self.power_limit_w * 1.04)), 3),
        )

    def _clock(self, awake: bool, has_context: bool, speed: float) -> float:
        profile, locked_mhz = self.profile, self.limits.locked_mhz
        if not awake:
            # An open context keeps a data-centre board up; a bare board falls back.
            full = profile.sm_clock_max_mhz if has_context else profile.sm_clock_idle_mhz
            return float(full if locked_mhz is None else min(full, locked_mhz[1]))
        clock = profile.sm_clock_max_mhz * speed
        if locked_mhz is not None:
            clock = min(max(clock, locked_mhz[0]), locked_mhz[1])
        return float(max(profile.sm_clock_idle_mhz, clock // CLOCK_STEP_MHZ * CLOCK_STEP_MHZ))

    def _fan(self) -> float:
        """Below 45 °C the fans of a card stand still."""
        return 0.0 if self.temp_c < 45 else float(round(min(100, 30 + (self.temp_c - 45) * 1.7)))

    def slow_values(
        self, load: SimulatedLoad, has_context: bool, fast: Mapping[str, float], leaked_share: float
    ) -> tuple[float, ...]:
        """Return the values in the order of metrics.SLOW; `fast` by the keys of metrics.COLUMNS, as
        just read."""
        profile, seed = self.profile, self.place.seed
        rests = (bool(int(fast["throttle_bits"]) & IDLE) and not has_context
                 and not profile.keeps_link)
        moved = float(int(load.sm * load.intensity * 0.4 * profile.nvlinks * NVLINK_BYTES_PER_S))
        # Most boards have had a few errors in their lives; one in thirty a row replaced.
        errors_ever = int(60 * roll(seed, 21) ** 3)
        values = {
            "pstate": 8.0 if rests else 0.0,
            "graphics_clock_mhz": fast["sm_clock_mhz"],
            "video_clock_mhz": fast["sm_clock_mhz"] * 0.78 // 15 * 15,
            "temp_margin_c": profile.temp_slowdown_c - fast["temp_c"],
            "power_limit_w": self.power_limit_w, "power_limit_set_w": self.power_limit_w,
            "pcie_gen": float(1 if rests else profile.pcie_gen), "pcie_width": 16.0,
            "pcie_replays": float(int(20 * roll(seed, 24) ** 4)),
            "fan_rpm": fast["fan_pct"] * RPM_PER_PCT,
            "persistence": float(profile.keeps_link), "ecc_on": float(profile.has_ecc),
            "compute_mode": float(self.limits.compute_mode or 0), "mig_on": float(self.is_split),
            "mem_reserved_bytes": float(profile.mem_reserved_bytes),
            "mem_unseen_bytes": float(int(leaked_share * profile.room_bytes)),
            "bar1_used_bytes": float((1 + 4 * (load.mem_share > 0)) * MIB),
            "ecc_corrected": float(int(errors_ever * roll(seed, 22))),
            "ecc_corrected_ever": float(errors_ever),
            "rows_corrected": float(roll(seed, 23) < 1 / 30),
            "nvlinks_up": float(profile.nvlinks),
            "nvlink_tx_bytes_per_s": moved, "nvlink_rx_bytes_per_s": moved,
            **shares(load), **self._slowed(),
        }
        return tuple(values.get(metric.key, 0.0) for metric in SLOW)

    def _slowed(self) -> dict[str, float]:
        slowed_s, self.slowed_s = self.slowed_s, {}
        whole_s = slowed_s.get(0, 0.0)
        return {key: round(100 * slowed_s.get(bit, 0.0) / whole_s, 1) if whole_s else 0.0
                for key, bit in SLOWED_BY.items()}
