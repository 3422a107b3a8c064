"""Mapping of a recording's columns to our metrics and units. Pure."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from gpudeck.measures.metrics import COLUMN, COLUMNS, SLOW, SLOW_COLUMN
from gpudeck.measures.metrics import metric as metric_of
from gpudeck.prometheus.dcgm import FREE, TOTAL, divisor

MIB = 2.0**20
# Columns that identify a row's GPU, best first: an index may change at the next boot.
KEYS = ("uuid", "serial", "pci", "gpu", "index")
MEMORY_TOTAL = "mem_total_bytes"
ROLES = frozenset({"time", "name", "host", MEMORY_TOTAL, *KEYS})

_BYTES = {"B": 1.0, "BYTE": 1.0, "BYTES": 1.0, "KIB": 2.0**10, "MIB": MIB, "GIB": 2.0**30,
          "KB": 1e3, "MB": 1e6, "GB": 1e9}
# Units in which a recording may give values, by our unit, and the factor to it.
UNITS: Mapping[str, Mapping[str, float]] = {
    "B": _BYTES,
    "B/s": {f"{unit}/S": factor for unit, factor in _BYTES.items()},
    "%": {"%": 1.0, "PCT": 1.0, "RATIO": 100.0},
    "W": {"W": 1.0, "MW": 1e-3, "KW": 1e3},
    "J": {"J": 1.0, "MJ": 1e-3, "KJ": 1e3, "WH": 3.6e3, "KWH": 3.6e6},
    "MHz": {"HZ": 1e-6, "KHZ": 1e-3, "MHZ": 1.0, "GHZ": 1e3},
    "°C": {"C": 1.0, "°C": 1.0},
}

# nvidia-smi's names for --query-gpu; memory is in MiB there. The header often has another name than
# the query: `clocks.sm` gives `clocks.current.sm [MHz]`.
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
# Columns of Weights & Biases, one for each GPU.
_WANDB = {"gpu": "util_pct", "memory": "mem_util_pct", "temp": "temp_c", "powerwatts": "power_w",
          "memoryallocatedbytes": "mem_used_bytes", "smclock": "sm_clock_mhz",
          "memoryclock": "mem_clock_mhz"}


@dataclass(frozen=True, slots=True)
class RecordedColumn:
    """A column. `factor`: from its unit to ours. `gpu`: the GPU of all its values, if the column's
    name gives one."""

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
    """`--map` is wrong; the message says why."""


def unit_factor(our_unit: str, unit: str) -> float | None:
    """Return the factor from `unit` to our unit; None: it is not a known unit."""
    if unit in ("mW", "mJ"):
        return 1e-3
    return UNITS.get(our_unit, {}).get(unit.strip().upper())


@cache
def _dcgm() -> dict[str, tuple[str, float]]:
    """Return our metric and the factor to its unit by dcgm-exporter's name."""
    by_name = {metric.prometheus: (metric.key, 1e-3 if metric.unit == "J" else divisor(metric))
               for metric in COLUMNS + SLOW if metric.prometheus}
    return by_name | {TOTAL: (MEMORY_TOTAL, MIB)}


# Metrics of dcgm-exporter that follow from others.
DERIVED = frozenset({FREE})


def recognise(header: str) -> RecordedColumn | None:
    """Return the column for a header; None: it is not known."""
    name, unit = _split(header)
    target_and_factor = _dcgm().get(name)
    if target_and_factor is not None:
        return RecordedColumn(header, *target_and_factor)
    plain = name.lower()
    if match := re.fullmatch(r"system\.gpu\.(?:process\.)?(\d+)\.(\w+)", plain):
        target = _WANDB.get(match[2])
        return None if target is None else RecordedColumn(header, target, 1.0, match[1])
    our_name = name.removesuffix("_mean")  # an export of series
    if our_name in COLUMN or our_name in SLOW_COLUMN or our_name == MEMORY_TOTAL:
        return _in_unit(RecordedColumn(header, our_name), unit)
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


def parse_map(words: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Parse `COLUMN=NUMBER[:UNIT]` into column: (number, unit). Raises ColumnMapError."""
    mapping: dict[str, tuple[str, str]] = {}
    for word in words:
        column, is_given, rest = word.rpartition("=")
        target, _, unit = rest.partition(":")
        if not is_given or not column.strip():
            raise ColumnMapError(f"{word!r} maps nothing; write for example 'watts=power_w' or "
                                 "'mem=mem_used_bytes:MiB'")
        mapped_column = RecordedColumn(column, target)
        if not mapped_column.is_metric and target not in ROLES:
            raise ColumnMapError(
                f"unknown metric {target!r}; docs/metrics.md lists them, and there "
                f"are also {', '.join(sorted(ROLES))}")
        if unit and unit_factor(mapped_column.unit, unit) is None:
            units = ", ".join(UNITS.get(mapped_column.unit, {})) or "none"
            raise ColumnMapError(f"{unit!r} is not a unit of {target}; known are: {units}")
        mapping[column.strip()] = target, unit
    return mapping


def column_of(header: str, mapping: Mapping[str, tuple[str, str]]) -> RecordedColumn | None:
    """Return the column for a header: by `--map`, with the whole header or its name without the
    unit, else by the name itself."""
    name, unit = _split(header)
    target_and_unit = mapping.get(header.strip()) or mapping.get(name)
    if target_and_unit is None:
        return recognise(header)
    target, own_unit = target_and_unit
    column = RecordedColumn(header, target)
    factor = unit_factor(column.unit, own_unit or unit) if own_unit or unit else 1.0
    return RecordedColumn(header, target, 1.0 if factor is None else factor)
