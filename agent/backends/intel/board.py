"""A board of Intel: its facts and its numbers, a file each.

Kernel: Documentation/ABI/testing/sysfs-driver-intel-{xe,i915}-hwmon, xe_gt_freq.c,
xe_gt_throttle.c, intel_gt_sysfs_pm.c.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from msgspec import structs

from gpudeck.contract.vendors import INTEL, PCI
from gpudeck.measures.metrics import DENIED, SLOW, UNKNOWN, UNSUPPORTED, Absence

from ..metric_row import HARD_THERMAL, POWER_CAP, SOFT_THERMAL, MetricRow, MonotonicCounter
from ..sysfs import Answer, generation, number, word
from ..sysfs_board import MACHINE_IDS, NAMES, SysfsBoard, whole
from .processes import BoardUse

# Of the card where the board counts that, else of the chip alone.
ENERGY = ("energy1_input", "energy2_input")
# What the board keeps to on the average, then in bursts; of the card, then of the chip.
CAPS = ("power1_max", "power2_max", "power1_cap", "power2_cap")
RATED = ("power1_rated_max", "power2_rated_max")
BRIDGE = "0x0604"
_HARD_HEAT, _HEAT = re.compile("prochot|alert"), re.compile("therm|ratl")
_MEDIA = "-mc"  # end of the name of a GT of video engines


class IntelBoard(SysfsBoard):
    VENDOR, DRIVER = INTEL, "xe"

    def __init__(self, folder: Path, index: int, machine_ids: tuple[Path, ...] = MACHINE_IDS,
                 names: tuple[Path, ...] = NAMES) -> None:
        super().__init__(folder, index, machine_ids, names)
        self.use = BoardUse(UNKNOWN, UNKNOWN)  # as its clients were listed last
        self._energy_file = ""
        self._energy: Answer = UNKNOWN  # in microjoules
        self._power = MonotonicCounter()

    def _begin(self) -> None:
        self._energy = self._read_energy()

    def mem_used_now(self) -> float | None:
        usage = self.use.mem_used_bytes
        return None if isinstance(usage, Absence) else usage

    def energy_now(self) -> float | None:
        energy = UNKNOWN if self.asleep else self._read_energy()
        return None if isinstance(energy, Absence) else energy * 1e-6

    def note(self) -> str:
        if (fault := super().note()) or self.use.mem_used_bytes != DENIED:
            return fault
        return ("shows neither utilization nor memory, the sum of all processes, since some cannot "
                "be looked at: that takes CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH (the grant "
                "`owners`), in the machine's own PID namespace.")

    def devices(self) -> tuple[str, ...]:
        """Return its device files: programs have these open."""
        return tuple(f"/dev/dri/{path.name}" for pattern in ("card*", "renderD*")
                     for path in (self._folder / "drm").glob(pattern))

    def _fast(self) -> MetricRow:
        row, energy = MetricRow(), self._energy
        row.put("util_pct", self.use.util_pct)
        row.put("mem_used_bytes", self.use.mem_used_bytes)
        # i915 has one sensor, without a label.
        chip = self._sensor("temp", "pkg", "input")
        row.put("temp_c", chip if chip is not UNSUPPORTED else self._first("temp1_input"), 1e-3)
        row.put("mem_temp_c", self._sensor("temp", "vram", "input"), 1e-3)
        row.put("energy_j", energy, 1e-6)
        row.put("power_w", energy if isinstance(energy, Absence)
                else self._power.rate(int(energy), 64, self._now), 1e-6)
        row.put("sm_clock_mhz", _highest(self._clocks("act")))
        row.put("fan_pct", self._fan())
        row.put("throttle_bits", self._throttling())
        for key in ("mem_util_pct", "sm_active_pct", "mem_clock_mhz", "pcie_tx_bytes_per_s",
                    "pcie_rx_bytes_per_s", "util_max_pct", "power_max_w"):
            row.put(key, UNSUPPORTED)
        return row

    def _slow(self) -> MetricRow:
        row = MetricRow.slow()
        for reported in SLOW:
            row.put(reported.key, UNSUPPORTED)
        cap = self._cap(CAPS)
        row.put("power_limit_w", cap, 1e-6)
        row.put("power_limit_set_w", cap, 1e-6)
        row.put("graphics_clock_mhz", _highest(self._clocks("act")))
        row.put("fan_rpm", self._first("fan1_input"))
        if link := self._link():
            row.put("pcie_gen", generation(link / "current_link_speed"))
            row.put("pcie_width", number(link / "current_link_width"))
        limit, temp = (self._sensor("temp", "pkg", ending) for ending in ("crit", "input"))
        if not isinstance(limit, Absence) and not isinstance(temp, Absence):
            row.put("temp_margin_c", limit - temp, 1e-3)
        return row

    def _asleep_row(self) -> MetricRow:
        """Return what is known without waking it. Its clients keep their memory while it sleeps."""
        row = MetricRow()
        row.put("util_pct", self.use.util_pct)
        row.put("mem_used_bytes", self.use.mem_used_bytes)
        return row

    def _read_facts(self) -> None:
        node, link = self._number("numa_node"), self._link()
        cap, rated = self._cap(CAPS), self._cap(RATED)
        self.facts = structs.replace(
            self.facts, mem_total_bytes=self._mem_total(),
            power_limit_w=None if isinstance(cap, Absence) else cap * 1e-6,
            power_limit_max_w=None if isinstance(rated, Absence) else rated * 1e-6,
            numa_node=None if isinstance(node, Absence) or node < 0 else int(node),
            pcie_gen_max=link and whole(generation(link / "max_link_speed")),
            pcie_width_max=link and whole(number(link / "max_link_width")),
            sm_clock_max_mhz=_present(_highest(self._clocks("rp0"))),
            temp_slowdown_c=self._celsius("pkg", "crit", "temp_c"),
            temp_shutdown_c=self._celsius("pkg", "emergency", "temp_c"),
            mem_temp_max_c=self._celsius("vram", "crit", "mem_temp_c"))

    def _read_energy(self) -> Answer:
        """Return microjoules, of the first counter that counts, and then of that one: between two
        there is no difference."""
        if self._energy_file:
            return self._first(self._energy_file)
        answers = {name: self._first(name) for name in ENERGY}
        self._energy_file = next((name for name, answer in answers.items()
                                  if not isinstance(answer, Absence) and answer > 0), "")
        if self._energy_file:
            return answers[self._energy_file]
        return UNSUPPORTED if set(answers.values()) == {UNSUPPORTED} else UNKNOWN

    def _cap(self, names: tuple[str, ...]) -> Answer:
        """Return the first of these limits that limits: 0 is none."""
        answers = [self._first(name) for name in names]
        return next((answer for answer in answers if answer is not UNSUPPORTED and answer != 0),
                    UNSUPPORTED)

    def _fan(self) -> Answer:
        speed, most = self._first("fan1_input"), self._first("fan1_max")
        if isinstance(speed, Absence) or isinstance(most, Absence):
            return UNSUPPORTED
        return UNKNOWN if most <= 0 else speed / most * 100

    def _mem_total(self) -> float | None:
        """Return the memory of all tiles; i915 shows it with Intel's own kernels alone."""
        card = self._folder.parent
        sizes = [number(path) for path in (
            *self._folder.glob("tile*/physical_vram_size_bytes"), card / "lmem_total_bytes")]
        there = [size for size in sizes if not isinstance(size, Absence)]
        return sum(there) or None

    def _clocks(self, name: str) -> Iterator[Answer]:
        """Yield clocks of the parts that compute. An idle one has none: 0."""
        for folder in self._parts():
            yield number(folder / f"freq0/{name}_freq")
        i915 = "RP0" if name == "rp0" else name
        for folder in self._folder.parent.glob("gt/gt*"):
            yield number(folder / f"rps_{i915}_freq_mhz")

    def _parts(self) -> list[Path]:
        return [folder for folder in sorted(self._folder.glob("tile*/gt*"))
                if not word(folder / "gtidle/name").endswith(_MEDIA)]

    def _throttling(self) -> Answer:
        """Return why the clocks are low, in our bits. The single reasons are read only while there
        is one."""
        answers = [*(_reasons(folder / "freq0/throttle", "status", "reason_")
                     for folder in self._parts()),
                   *(_reasons(folder, "throttle_reason_status", "throttle_reason_")
                     for folder in self._folder.parent.glob("gt/gt*"))]
        there = [answer for answer in answers if not isinstance(answer, Absence)]
        bits = 0
        for answer in there:
            bits |= int(answer)
        return float(bits) if there else next(iter(answers), UNSUPPORTED)

    def _link(self) -> Path | None:
        """Return the folder whose link to the machine counts; None: it cannot be seen. A board
        sits behind a switch on its card; the link behind that always reads as one lane of
        2.5 GT/s."""
        port = self._folder.resolve().parent.parent
        if word(port / "vendor") == PCI[INTEL] and word(port / "class").startswith(BRIDGE):
            return port
        own = generation(self._folder / "current_link_speed"), self._number("current_link_width")
        return None if own == (1.0, 1.0) else self._folder


def _reasons(folder: Path, status: str, prefix: str) -> Answer:
    is_throttled = number(folder / status)
    if isinstance(is_throttled, Absence) or not is_throttled:
        return is_throttled
    names = [path.name.removeprefix(prefix) for path in folder.glob(f"{prefix}*")
             if path.name != status and number(path) == 1]
    return float(sum({_bit(name) for name in names}))


def _bit(reason: str) -> int:
    if _HARD_HEAT.search(reason):
        return HARD_THERMAL
    return SOFT_THERMAL if _HEAT.search(reason) else POWER_CAP


def _highest(clocks: Iterator[Answer]) -> Answer:
    answers = list(clocks)
    there = [clock for clock in answers if not isinstance(clock, Absence)]
    return max(there) if there else next(iter(answers), UNSUPPORTED)


def _present(value: Answer) -> float | None:
    return None if isinstance(value, Absence) or value <= 0 else value
