"""Which column of a recording is which of our numbers, in which unit. Pure."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from gpudeck.dcgm import FREE, TOTAL, divisor
from gpudeck.metrics import COLUMN, COLUMNS, SLOW, SLOW_COLUMN
from gpudeck.metrics import metric as metric_of

MIB = 2.0**20
# Who a row is of, best first: an index changes with the next boot.
KEYS = ("uuid", "serial", "pci", "gpu", "index")
MEMORY_TOTAL = "mem_total_bytes"
ROLES = frozenset({"time", "name", "host", MEMORY_TOTAL, *KEYS})

_BYTES = {"B": 1.0, "BYTE": 1.0, "BYTES": 1.0, "KIB": 2.0**10, "MIB": MIB, "GIB": 2.0**30,
          "KB": 1e3, "MB": 1e6, "GB": 1e9}
# Of each of our units, what its values may be written in.
UNITS: Mapping[str, Mapping[str, float]] = {
    "B": _BYTES,
    "B/s": {f"{unit}/S": factor for unit, factor in _BYTES.items()},
    "%": {"%": 1.0, "PCT": 1.0, "RATIO": 100.0},
    "W": {"W": 1.0, "MW": 1e-3, "KW": 1e3},
    "J": {"J": 1.0, "MJ": 1e-3, "KJ": 1e3, "WH": 3.6e3, "KWH": 3.6e6},
    "MHz": {"HZ": 1e-6, "KHZ": 1e-3, "MHZ": 1.0, "GHZ": 1e3},
    "°C": {"C": 1.0, "°C": 1.0},
}

# nvidia-smi's names for --query-gpu; memory is in MiB there. What it prints in the header is often
# another name than what was asked for: `clocks.sm` gives `clocks.current.sm [MHz]`.
_SMI = {
    "timestamp": "time", "uuid": "uuid", "gpu_uuid": "uuid", "serial": "serial",
    "gpu_serial": "serial", "pci.bus_id": "pci", "gpu_bus_id": "pci", "index": "index",
    "name": "name", "gpu_name": "name", "memory.total": MEMORY_TOTAL,
    "utilization.gpu": "util_pct", "utilization.memory": "mem_util_pct",
    "utilization.encoder": "enc_util_pct", "utilization.decoder": "dec_util_pct",
    "utilization.jpeg": "jpg_util_pct", "utilization.ofa": "ofa_util_pct",
    "memory.used": "mem_used_bytes", "memory.reserved": "mem_reserved_bytes",
    "temperature.gpu": "temp_c", "temperature.memory": "mem_temp_c",
    "power.draw": "power_w", "power.draw.average": "power_w",
    "power.limit": "power_limit_set_w", "enforced.power.limit": "power_limit_w",
    "clocks.sm": "sm_clock_mhz", "clocks.current.sm": "sm_clock_mhz",
    "clocks.mem": "mem_clock_mhz", "clocks.current.memory": "mem_clock_mhz",
    "clocks.gr": "graphics_clock_mhz", "clocks.current.graphics": "graphics_clock_mhz",
    "clocks.video": "video_clock_mhz", "clocks.current.video": "video_clock_mhz",
    "fan.speed": "fan_pct", "pstate": "pstate",
    "clocks_throttle_reasons.active": "throttle_bits",
    "clocks_event_reasons.active": "throttle_bits",
    "pcie.link.gen.current": "pcie_gen", "pcie.link.gen.gpucurrent": "pcie_gen",
    "pcie.link.width.current": "pcie_width",
    "ecc.errors.corrected.volatile.total": "ecc_corrected",
    "ecc.errors.uncorrected.volatile.total": "ecc_uncorrected",
    "ecc.errors.corrected.aggregate.total": "ecc_corrected_ever",
    "ecc.errors.uncorrected.aggregate.total": "ecc_uncorrected_ever",
}
_OTHERS = {"time": "time", "t": "time", "ts": "time", "datetime": "time", "_timestamp": "time",
           "wall time": "time", "gpu": "gpu", "gpu_id": "index", "gpu_index": "index",
           "place": "index", "host": "host", "hostname": "host", "modelname": "name",
           "gpu_model": "name"}
# What Weights & Biases writes: a column for each GPU.
_WANDB = {"gpu": "util_pct", "memory": "mem_util_pct", "temp": "temp_c", "powerwatts": "power_w",
          "memoryallocatedbytes": "mem_used_bytes", "smclock": "sm_clock_mhz",
          "memoryclock": "mem_clock_mhz"}


@dataclass(frozen=True, slots=True)
class RecordedColumn:
    """`factor`: from its unit to ours. `gpu`: the one that all of it is of, where the column's
    name says so."""

    name: str
    target: str
    factor: float = 1.0
    gpu: str | None = None

    @property
    def is_metric(self) -> bool:
        return self.target in COLUMN or self.target in SLOW_COLUMN

    @property
    def unit(self) -> str:
        if self.target == MEMORY_TOTAL:
            return "B"
        return metric_of(self.target).unit if self.is_metric else ""


class ColumnMapError(ValueError):
    """Says what is wrong with `--map`."""


def unit_factor(of: str, unit: str) -> float | None:
    """None: no such unit of it is known."""
    if unit in ("mW", "mJ"):
        return 1e-3
    return UNITS.get(of, {}).get(unit.strip().upper())


@cache
def _dcgm() -> dict[str, tuple[str, float]]:
    """By name of dcgm-exporter: our metric, and the factor to its unit."""
    found = {each.prometheus: (each.key, 1e-3 if each.unit == "J" else divisor(each))
             for each in COLUMNS + SLOW if each.prometheus}
    return found | {TOTAL: (MEMORY_TOTAL, MIB)}


# dcgm-exporter has these too; what they say is in others.
DERIVED = frozenset({FREE})


def recognised(header: str) -> RecordedColumn | None:
    """None: it is not known what it is."""
    name, unit = _split(header)
    known = _dcgm().get(name)
    if known is not None:
        return RecordedColumn(header, *known)
    plain = name.lower()
    if match := re.fullmatch(r"system\.gpu\.(?:process\.)?(\d+)\.(\w+)", plain):
        target = _WANDB.get(match[2])
        return None if target is None else RecordedColumn(header, target, 1.0, match[1])
    ours = name.removesuffix("_mean")  # an export of series
    if ours in COLUMN or ours in SLOW_COLUMN or ours == MEMORY_TOTAL:
        return _in_unit(RecordedColumn(header, ours), unit)
    target = _SMI.get(plain) or _OTHERS.get(plain)
    if target is None:
        return None
    in_mib = plain in _SMI and target.endswith("_bytes")
    return _in_unit(RecordedColumn(header, target, MIB if in_mib else 1.0), unit)


def _split(header: str) -> tuple[str, str]:
    match = re.fullmatch(r"(.*?)\s*\[([^\]]*)\]", header.strip())
    return (match[1], match[2]) if match else (header.strip(), "")


def _in_unit(column: RecordedColumn, unit: str) -> RecordedColumn | None:
    if not unit or not column.unit:
        return column
    factor = unit_factor(column.unit, unit)
    return None if factor is None else RecordedColumn(column.name, column.target, factor)


def mapped(words: Iterable[str]) -> dict[str, tuple[str, str]]:
    """`COLUMN=NUMBER[:UNIT]` -> column: (number, unit)."""
    found: dict[str, tuple[str, str]] = {}
    for word in words:
        column, is_given, rest = word.rpartition("=")
        target, _, unit = rest.partition(":")
        if not is_given or not column.strip():
            raise ColumnMapError(f"{word!r} maps nothing; write for example 'watts=power_w' or "
                                 "'mem=mem_used_bytes:MiB'")
        one = RecordedColumn(column, target)
        if not one.is_metric and target not in ROLES:
            raise ColumnMapError(
                f"unknown metric {target!r}; docs/metrics.md lists them, and there "
                f"are also {', '.join(sorted(ROLES))}")
        if unit and unit_factor(one.unit, unit) is None:
            known = ", ".join(UNITS.get(one.unit, {})) or "none"
            raise ColumnMapError(f"{unit!r} is not a unit of {target}; known are: {known}")
        found[column.strip()] = target, unit
    return found


def column_of(header: str, given: Mapping[str, tuple[str, str]]) -> RecordedColumn | None:
    """As `--map` says, by the whole header or by its name without the unit; else by its name."""
    name, unit = _split(header)
    asked = given.get(header.strip()) or given.get(name)
    if asked is None:
        return recognised(header)
    target, own_unit = asked
    found = RecordedColumn(header, target)
    factor = unit_factor(found.unit, own_unit or unit) if own_unit or unit else 1.0
    return RecordedColumn(header, target, 1.0 if factor is None else factor)
