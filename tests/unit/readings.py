"""What the tests of the nvml backend share: a clock they turn, and how a value is looked up."""

from typing import Any

from agent.backends import GpuReading, Reading
from agent.backends.nvml import NvmlReader
from gpudeck.metrics import COLUMN, SLOW_COLUMN, Absence


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def read(reader: NvmlReader, clock: Clock, after_s: float = 1.0) -> Reading:
    clock.now += after_s
    return reader.read()


def value(gpu: GpuReading, key: str) -> Any:
    """The number, or the Absence."""
    if key in SLOW_COLUMN:
        values, absent, at = gpu.slow, gpu.slow_absent, SLOW_COLUMN[key]
    else:
        values, absent, at = gpu.values, gpu.absent, COLUMN[key]
    return values[at] if absent[at] == Absence.PRESENT else Absence(absent[at])
