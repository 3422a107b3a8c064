"""A board of AMD: its facts and its numbers, a file each."""

import re
from pathlib import Path

from msgspec import structs

from gpudeck.contract.vendors import AMD
from gpudeck.measures.metrics import SLOW, UNKNOWN, UNSUPPORTED, Absence

from ..metric_row import MetricRow
from ..sysfs import Answer, content, generation, text, word
from ..sysfs_board import SysfsBoard, whole
from .gpu_metrics import GpuMetrics, read_gpu_metrics

BLOCKS = ("umc", "sdma", "gfx", "mmhub", "xgmi_wafl", "pcie_bif", "hdp")
NOTHING = GpuMetrics((0, 0))  # of a board without that table
_LEVEL = re.compile(r"^\S+:\s*(\d+)Mhz\s*(\*?)", re.MULTILINE | re.IGNORECASE)
_BAD_PAGE = re.compile(r":\s*([RPF])\s*$", re.MULTILINE)
_ERRORS = re.compile(r"^(ue|ce):\s*(\d+)", re.MULTILINE)


class AmdBoard(SysfsBoard):
    VENDOR, DRIVER = AMD, "amdgpu"
    _table: GpuMetrics | None = None

    def _begin(self) -> None:
        self._table = _table(self._folder)

    def mem_used_now(self) -> float | None:
        usage = 0.0 if self.asleep else self._memory("used")
        return None if isinstance(usage, Absence) else usage

    def energy_now(self) -> float | None:
        table = None if self.asleep else _table(self._folder)
        return None if table is None else table.energy_j

    def _fast(self) -> MetricRow:
        row, table = MetricRow(), self._table or NOTHING
        row.put("util_pct", self._number("gpu_busy_percent"))
        row.put("mem_util_pct", self._number("mem_busy_percent"))
        row.put("sm_active_pct", UNSUPPORTED)
        row.put("mem_used_bytes", self._memory("used"))
        # MI300 has no sensor at the edge.
        edge = self._sensor("temp", "edge", "input")
        row.put("temp_c", edge if edge is not UNSUPPORTED
                else self._sensor("temp", "junction", "input"), 1e-3)
        row.put("mem_temp_c", self._sensor("temp", "mem", "input"), 1e-3)
        row.put("power_w", self._first("power1_average", "power1_input"), 1e-6)
        row.put("energy_j", _or_unsupported(table.energy_j))
        row.put("sm_clock_mhz", self._clock("sclk"))
        row.put("mem_clock_mhz", self._clock("mclk"))
        row.put("fan_pct", self._fan())
        row.put("throttle_bits", _or_unsupported(table.throttle_bits))
        for key in ("pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s", "util_max_pct", "power_max_w"):
            row.put(key, UNSUPPORTED)
        return row

    def _slow(self) -> MetricRow:
        row = MetricRow.slow()
        for reported in SLOW:
            row.put(reported.key, UNSUPPORTED)
        cap = self._first("power1_cap")
        row.put("power_limit_w", cap, 1e-6)
        row.put("power_limit_set_w", cap, 1e-6)
        row.put("graphics_clock_mhz", self._clock("sclk"))
        row.put("fan_rpm", self._first("fan1_input"))
        row.put("pcie_gen", generation(self._folder / "current_link_speed"))
        row.put("pcie_width", self._number("current_link_width"))
        row.put("pcie_replays", self._number("pcie_replay_count"))
        limit, temp = self._sensor("temp", "edge", "crit"), self._sensor("temp", "edge", "input")
        if not isinstance(limit, Absence) and not isinstance(temp, Absence):
            row.put("temp_margin_c", limit - temp, 1e-3)
        self._put_errors(row)
        return row

    def _put_errors(self, row: MetricRow) -> None:
        """Add up errors of all blocks; while the driver says "currently inaccessible", unknown."""
        read = [text(self._folder / f"ras/{block}_err_count") for block in BLOCKS]
        there = [dict(_ERRORS.findall(lines)) for lines in read if lines]
        for key, name in (("ecc_uncorrected", "ue"), ("ecc_corrected", "ce")):
            if there:
                row.put(key, UNKNOWN if any(name not in errors for errors in there)
                        else float(sum(int(errors[name]) for errors in there)))
        pages = content(self._folder / "ras/gpu_vram_bad_pages")
        if isinstance(pages, Absence):
            return
        states = _BAD_PAGE.findall(pages.decode(errors="replace"))
        row.put("pages_uncorrected", float(states.count("R")))
        row.put("pages_pending", float("P" in states))

    def _read_facts(self) -> None:
        limits = {name: self._watts(f"power1_cap{end}") for name, end in (
            ("power_limit_w", ""), ("power_limit_min_w", "_min"), ("power_limit_max_w", "_max"),
            ("power_limit_default_w", "_default"))}
        node = self._number("numa_node")
        memory = self._memory("total")
        self.facts = structs.replace(
            self.facts, **limits,
            mem_total_bytes=None if isinstance(memory, Absence) else memory,
            serial=word(self._folder / "serial_number")[:128] or None,
            vbios=word(self._folder / "vbios_version")[:128] or None,
            numa_node=None if isinstance(node, Absence) or node < 0 else int(node),
            pcie_gen_max=whole(generation(self._folder / "max_link_speed")),
            pcie_width_max=whole(self._number("max_link_width")),
            sm_clock_max_mhz=self._highest_clock("sclk"),
            mem_clock_max_mhz=self._highest_clock("mclk"),
            temp_slowdown_c=self._celsius("edge", "crit", "temp_c"),
            temp_shutdown_c=self._celsius("edge", "emergency", "temp_c"),
            mem_temp_max_c=self._celsius("mem", "crit", "mem_temp_c"))

    def _memory(self, which: str) -> Answer:
        """Return bytes. The chip that shares memory with the processor uses both kinds."""
        vram = self._number(f"mem_info_vram_{which}")
        if self._table is None or not self._table.is_apu or isinstance(vram, Absence):
            return vram
        gtt = self._number(f"mem_info_gtt_{which}")
        return vram if isinstance(gtt, Absence) else vram + gtt

    def _clock(self, name: str) -> Answer:
        hertz = self._sensor("freq", name, "input")
        if hertz is not UNSUPPORTED:
            return hertz if isinstance(hertz, Absence) else hertz * 1e-6
        now = [mhz for mhz, star in self._levels(name) if star]
        return float(now[0]) if now else UNSUPPORTED

    def _highest_clock(self, name: str) -> float | None:
        clocks = [float(mhz) for mhz, _ in self._levels(name)]
        return max(clocks, default=None)

    def _levels(self, name: str) -> list[tuple[str, str]]:
        return _LEVEL.findall(text(self._folder / f"pp_dpm_{name}"))

    def _fan(self) -> Answer:
        speed, most = self._first("pwm1"), self._first("pwm1_max")
        if isinstance(speed, Absence):
            return speed
        return UNKNOWN if isinstance(most, Absence) or most <= 0 else speed / most * 100

    def _asleep_row(self) -> MetricRow:
        """Return that nothing runs on it: the kernel lets no board sleep that a process uses. So it
        can be leased, which wakes it; all other numbers are unknown."""
        row = MetricRow()
        row.put("util_pct", 0.0)
        row.put("mem_used_bytes", 0.0)
        return row

    def _identity(self, machine_ids: tuple[Path, ...]) -> str:
        """Return the chip's own number, written as ROCm does, where it has one."""
        unique = word(self._folder / "unique_id")
        if re.fullmatch(r"(0x)?0*[1-9a-f][0-9a-f]*", unique):
            return f"GPU-{unique.removeprefix('0x').zfill(16)}"
        return super()._identity(machine_ids)

    def _name(self, lists: tuple[Path, ...]) -> str:
        if product := word(self._folder / "product_name"):
            return (product if product.startswith("AMD") else f"AMD {product}")[:128]
        return super()._name(lists)


def _table(folder: Path) -> GpuMetrics | None:
    table = content(folder / "gpu_metrics")
    return None if isinstance(table, Absence) else read_gpu_metrics(table)


def _or_unsupported(value: float | None) -> Answer:
    return UNSUPPORTED if value is None else float(value)
