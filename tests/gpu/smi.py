"""Output of `nvidia-smi -q -x` as numbers by our keys. Pure."""

import xml.etree.ElementTree as Xml
from dataclasses import dataclass

ABSENT = ("N/A", "[N/A]", "Not Supported", "Requested functionality has been deprecated", "None",
          "")


@dataclass(frozen=True, slots=True)
class SmiReading:
    """Place of a value in the XML, our key, its unit in ours, and how far the two may be apart
    beside what the value itself moves in between."""

    paths: tuple[str, ...]  # names change with drivers
    key: str
    scale: float
    slack: float


TABLE = (
    SmiReading(("fb_memory_usage/used",), "mem_used_bytes", 2**20, 2 * 2**20),
    SmiReading(("utilization/gpu_util",), "util_pct", 1, 15),
    SmiReading(("temperature/gpu_temp",), "temp_c", 1, 2),
    SmiReading(("temperature/memory_temp",), "mem_temp_c", 1, 2),
    SmiReading(("gpu_power_readings/average_power_draw", "gpu_power_readings/power_draw",
                "power_readings/power_draw"), "power_w", 1, 30),
    SmiReading(("clocks/sm_clock",), "sm_clock_mhz", 1, 60),
    SmiReading(("clocks/mem_clock",), "mem_clock_mhz", 1, 60),
    SmiReading(("fan_speed",), "fan_pct", 1, 5),
)
FACTS = (
    SmiReading(("fb_memory_usage/total",), "mem_total_bytes", 2**20, 2 * 2**20),
    SmiReading(("gpu_power_readings/current_power_limit", "gpu_power_readings/enforced_power_limit",
                "power_readings/enforced_power_limit"), "power_limit_w", 1, 1),
)


def boards(text: str) -> dict[str, Xml.Element]:
    """Return the boards by UUID."""
    return {_text(gpu, ("uuid",)): gpu for gpu in Xml.fromstring(text).iter("gpu")}


def number(gpu: Xml.Element, reading: SmiReading) -> float | None:
    """Return a reading in our unit; None: nvidia-smi says that the board has none."""
    text = _text(gpu, reading.paths)
    return None if text in ABSENT else float(text.split()[0]) * reading.scale


def _text(gpu: Xml.Element, paths: tuple[str, ...]) -> str:
    texts = (gpu.findtext(path) for path in paths)
    stripped = [text.strip() for text in texts if text is not None]
    return next((text for text in stripped if text not in ABSENT), "")
