"""What `nvidia-smi -q -x` says, as numbers by our keys. Pure."""

import xml.etree.ElementTree as Xml
from dataclasses import dataclass

ABSENT = ("N/A", "[N/A]", "Not Supported", "Requested functionality has been deprecated", "None",
          "")


@dataclass(frozen=True, slots=True)
class Said:
    """Where it says it, our key, its unit in ours, how far the two may be apart beside what the
    value itself moves in between."""

    paths: tuple[str, ...]  # names change with drivers
    key: str
    scale: float
    slack: float


TABLE = (
    Said(("fb_memory_usage/used",), "mem_used_bytes", 2**20, 2 * 2**20),
    Said(("utilization/gpu_util",), "util_pct", 1, 15),
    Said(("temperature/gpu_temp",), "temp_c", 1, 2),
    Said(("temperature/memory_temp",), "mem_temp_c", 1, 2),
    Said(("gpu_power_readings/average_power_draw", "gpu_power_readings/power_draw",
          "power_readings/power_draw"), "power_w", 1, 30),
    Said(("clocks/sm_clock",), "sm_clock_mhz", 1, 60),
    Said(("clocks/mem_clock",), "mem_clock_mhz", 1, 60),
    Said(("fan_speed",), "fan_pct", 1, 5),
)
FACTS = (
    Said(("fb_memory_usage/total",), "mem_total_bytes", 2**20, 2 * 2**20),
    Said(("gpu_power_readings/current_power_limit", "gpu_power_readings/enforced_power_limit",
          "power_readings/enforced_power_limit"), "power_limit_w", 1, 1),
)


def boards(text: str) -> dict[str, Xml.Element]:
    """By UUID."""
    return {_text(gpu, ("uuid",)): gpu for gpu in Xml.fromstring(text).iter("gpu")}


def number(gpu: Xml.Element, said: Said) -> float | None:
    """None: it says that it has no such."""
    text = _text(gpu, said.paths)
    return None if text in ABSENT else float(text.split()[0]) * said.scale


def _text(gpu: Xml.Element, paths: tuple[str, ...]) -> str:
    found = (gpu.findtext(path) for path in paths)
    there = [text.strip() for text in found if text is not None]
    return next((text for text in there if text not in ABSENT), "")
