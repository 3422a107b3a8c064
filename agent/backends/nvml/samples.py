"""What the driver itself sampled between two readings: its ring buffers, so that bursts count."""

import struct
import time
from collections.abc import Iterator
from typing import Any

from gpudeck.metrics import Absence

from .ask import NvmlDevice
from .fields import NUMBERS

US = 1_000_000


class NvmlSampleBuffers:
    def __init__(self, asker: NvmlDevice) -> None:
        self._asker = asker
        self._read_to: dict[int, int] = {}  # by kind, in the driver's microseconds since 1970

    def mean_and_peak(self, kind: int, high: float) -> tuple[float, float] | None:
        """Since the last time. None: none are to be had, or none are new."""
        since = self._read_to.get(kind, 0)
        if since > (time.time() + 5) * US:
            since = 0  # the clock was set back: nothing would be new until it has caught up
        answer = self._asker.ask("nvmlDeviceGetSamples", kind, since, question=("samples", kind))
        if type(answer) is Absence or answer[0] not in NUMBERS or not answer[1]:
            return None
        fresh = [(at, value) for at, value in _unpacked(*answer) if at > since]
        if not fresh:
            return None
        newest = self._read_to[kind] = max(at for at, _ in fresh)
        # The first time the whole buffer comes, history and all.
        values = [value for at, value in fresh
                  if 0 <= value <= high and (since or at > newest - US)]
        return (sum(values) / len(values), max(values)) if values else None


def _unpacked(kind: int, samples: list[Any]) -> Iterator[tuple[int, float]]:
    """From the array below pynvml's list, 16 bytes each: a time, and a number of this kind. By
    its attributes a sample costs ten times as much, and there may be a hundred a second."""
    number = NUMBERS[kind][0].format.removeprefix("=")
    for at, value in struct.iter_unpack(f"=Q{number}", samples[0]._b_base_):
        yield at, float(value)
