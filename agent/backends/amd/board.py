"""A board of AMD: its facts and its numbers, a file each."""

import os
import re
import uuid
from collections.abc import Mapping
from pathlib import Path

from msgspec import structs

from gpudeck.contract.wire import GpuFacts
from gpudeck.measures.metrics import LOST, SLOW, UNKNOWN, UNSUPPORTED, WIDTH, Absence, metric

from ...readings import GpuReading
from ..metric_row import MetricRow
from .gpu_metrics import GpuMetrics, read_gpu_metrics
from .sysfs import content, is_asleep, number, pci_address, properties, text, word

MACHINE_ID = Path("/etc/machine-id")
NAMES = (Path("/usr/share/misc/pci.ids"), Path("/usr/share/hwdata/pci.ids"))
FAILED_READS_MAX = 5
# Transfers per second and lane, of each generation of PCIe.
GENERATIONS = {"2.5": 1, "5.0": 2, "5": 2, "8.0": 3, "8": 3, "16.0": 4, "32.0": 5, "64.0": 6}
BLOCKS = ("umc", "sdma", "gfx", "mmhub", "xgmi_wafl", "pcie_bif", "hdp")
NOTHING = GpuMetrics((0, 0))  # of a board without that table
_LEVEL = re.compile(r"^\S+:\s*(\d+)Mhz\s*(\*?)", re.MULTILINE | re.IGNORECASE)
_BAD_PAGE = re.compile(r":\s*([RPF])\s*$", re.MULTILINE)
_ERRORS = re.compile(r"^(ue|ce):\s*(\d+)", re.MULTILINE)

Answer = float | Absence


class AmdBoard:
    def __init__(self, folder: Path, index: int, machine_id: Path = MACHINE_ID,
                 names: tuple[Path, ...] = NAMES) -> None:
        self._folder = folder
        self.address = pci_address(folder)
        self.asleep = is_asleep(folder)
        self._sensors = _sensors(folder)
        self._table: GpuMetrics | None = None
        self._failed_reads = 0  # in a row
        self._missing_fast: Mapping[str, str] = {}
        self._missing_slow: Mapping[str, str] = {}
        self.facts = GpuFacts(
            uuid=_identity(folder, self.address, machine_id), index=index,
            name=_name(folder, names), pci_bus_id=self.address or None)
        self._has_facts = False

    def read(self, slow: bool) -> GpuReading:
        if not self._folder.is_dir():
            return GpuReading(self.facts.uuid, "lost", (0.0,) * WIDTH, bytes([LOST]) * WIDTH)
        self.asleep = is_asleep(self._folder)
        if self.asleep:
            return _asleep_reading(self.facts.uuid)
        if not os.path.isdir(self._sensors.get("", "")):  # a driver that came again renumbers them
            self._sensors = _sensors(self._folder)
        self._table = _table(self._folder)
        slow = slow or not self._has_facts
        if slow:
            self._read_facts()
        row, slow_row = self._fast(), self._slow() if slow else None
        self._note_missing(row, slow_row)
        fails = UNKNOWN in row.absent and not any(
            why == Absence.PRESENT for why in row.absent)
        self._failed_reads = self._failed_reads + 1 if fails else 0
        return GpuReading(
            self.facts.uuid, "error" if self._failed_reads >= FAILED_READS_MAX else "ok",
            tuple(row.values), bytes(row.absent),
            slow=() if slow_row is None else tuple(slow_row.values),
            slow_absent=b"" if slow_row is None else bytes(slow_row.absent))

    def mem_used_now(self) -> float | None:
        usage = 0.0 if self.asleep else self._memory("used")
        return None if isinstance(usage, Absence) else usage

    def energy_now(self) -> float | None:
        table = None if self.asleep else _table(self._folder)
        return None if table is None else table.energy_j

    def note(self) -> str:
        """Return what is wrong with it, and what to do; it comes after its name."""
        if self.asleep:
            return "is asleep (powered down) and was not woken to be read."
        if self._failed_reads >= FAILED_READS_MAX:
            return "answers nothing: look for amdgpu in `dmesg`; it may be in a reset."
        return ""

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
        row.put("pcie_gen", _generation(self._folder / "current_link_speed"))
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
            pcie_gen_max=_whole(_generation(self._folder / "max_link_speed")),
            pcie_width_max=_whole(self._number("max_link_width")),
            sm_clock_max_mhz=self._highest_clock("sclk"),
            mem_clock_max_mhz=self._highest_clock("mclk"),
            temp_slowdown_c=self._celsius("edge", "crit", "temp_c"),
            temp_shutdown_c=self._celsius("edge", "emergency", "temp_c"),
            mem_temp_max_c=self._celsius("mem", "crit", "mem_temp_c"))
        self._has_facts = True

    def _note_missing(self, row: MetricRow, slow_row: MetricRow | None) -> None:
        fast = row.missing()
        if slow_row is not None:
            self._missing_slow = slow_row.missing()
        if slow_row is not None or fast is not self._missing_fast:
            self._missing_fast, missing = fast, {**fast, **self._missing_slow}
            if missing != self.facts.missing:
                self.facts = structs.replace(self.facts, missing=missing)

    def _number(self, name: str) -> Answer:
        return number(f"{self._folder}/{name}")

    def _first(self, *names: str) -> Answer:
        """Return the first of these sensors' files that is there."""
        folder = self._sensors.get("")
        answer: Answer = UNSUPPORTED
        for name in names:
            answer = UNSUPPORTED if folder is None else number(f"{folder}{name}")
            if answer is not UNSUPPORTED:
                break
        return answer

    def _sensor(self, kind: str, label: str, ending: str) -> Answer:
        """Return a sensor's number by its label: its place differs between boards."""
        path = self._sensors.get(f"{kind} {label}")
        return UNSUPPORTED if path is None else number(f"{path}_{ending}")

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

    def _watts(self, name: str) -> float | None:
        value = self._first(name)
        sane = not isinstance(value, Absence) and 0 <= value * 1e-6 <= metric("power_w").high
        return value * 1e-6 if sane and not isinstance(value, Absence) else None

    def _celsius(self, label: str, ending: str, key: str) -> float | None:
        value = self._sensor("temp", label, ending)
        if isinstance(value, Absence) or not 0 < value * 1e-3 <= metric(key).high:
            return None
        return value * 1e-3


def _asleep_reading(uuid_of_board: str) -> GpuReading:
    """Return that nothing runs on it: the kernel lets no board sleep that a process uses. So it
    can be leased, which wakes it; all other numbers are unknown."""
    row = MetricRow()
    row.put("util_pct", 0.0)
    row.put("mem_used_bytes", 0.0)
    return GpuReading(uuid_of_board, "ok", tuple(row.values), bytes(row.absent))


def _table(folder: Path) -> GpuMetrics | None:
    table = content(folder / "gpu_metrics")
    return None if isinstance(table, Absence) else read_gpu_metrics(table)


def _identity(folder: Path, address: str, machine_id: Path) -> str:
    """Return the chip's own number, written as ROCm does; where it has none, one of this machine
    and its place in it."""
    unique = word(folder / "unique_id")
    if re.fullmatch(r"(0x)?0*[1-9a-f][0-9a-f]*", unique):
        return f"GPU-{unique.removeprefix('0x').zfill(16)}"
    return f"AMD-{uuid.uuid5(uuid.NAMESPACE_OID, f'{word(machine_id)} {address}')}"


def _name(folder: Path, lists: tuple[Path, ...]) -> str:
    """Return the product's name, or the chip's of the machine's list of PCI devices."""
    if product := word(folder / "product_name"):
        return (product if product.startswith("AMD") else f"AMD {product}")[:128]
    pci = properties(text(folder / "uevent")).get("PCI_ID", "").lower()
    chip = pci.partition(":")[2]
    for path in lists:
        if chip and (name := _listed(path, chip)):
            return f"AMD {name}"[:128]
    return f"AMD GPU {pci}".strip()


def _listed(path: Path, chip: str) -> str:
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    is_amd = False
    for line in lines:
        if line[:1] not in ("\t", "#", ""):
            is_amd = line.startswith("1002 ")
        elif is_amd and line.startswith(f"\t{chip} "):
            return line.split(None, 1)[1].strip()
    return ""


def _sensors(folder: Path) -> dict[str, str]:
    """Return paths of sensors without their ending, by kind and label; "": of them all."""
    for monitor in sorted((folder / "hwmon").glob("hwmon*")):
        if word(monitor / "name") == "amdgpu":
            return {"": f"{monitor}/"} | {
                f"{path.name[:4]} {word(path)}": str(path).removesuffix("_label")
                for kind in ("temp", "freq") for path in monitor.glob(f"{kind}*_label")}
    return {}


def _generation(path: Path) -> Answer:
    speed = word(path)
    return float(GENERATIONS[rate]) if (rate := speed.split(" ")[0]) in GENERATIONS else (
        UNKNOWN if speed else UNSUPPORTED)


def _whole(value: Answer) -> int | None:
    return None if isinstance(value, Absence) or value <= 0 else int(value)


def _or_unsupported(value: float | None) -> Answer:
    return UNSUPPORTED if value is None else float(value)
