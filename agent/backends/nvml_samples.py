"""What the driver itself sampled between two readings: its ring buffers, so that bursts count."""

import time
from typing import Any

from gpudeck.metrics import Absence

from .nvml_ask import Asker
from .nvml_fields import MEMBERS

US = 1_000_000


class Samples:
    def __init__(self, asker: Asker) -> None:
        self._asker = asker
        self._read_to: dict[int, int] = {}  # by kind, in the driver's microseconds since 1970

    def mean_and_peak(self, kind: int, high: float) -> tuple[float, float] | None:
        """Since the last time. None: none are to be had, or none are new."""
        since = self._read_to.get(kind, 0)
        if since > (time.time() + 5) * US:
            since = 0  # the clock was set back: nothing would be new until it has caught up
        answer = self._asker.ask("nvmlDeviceGetSamples", kind, since, question=("samples", kind))
        if isinstance(answer, Absence) or answer[0] not in MEMBERS:
            return None
        member = MEMBERS[answer[0]][0]
        fresh = [(each.timeStamp, _number(each, member))
                 for each in answer[1] if each.timeStamp > since]
        if not fresh:
            return None
        newest = self._read_to[kind] = max(at for at, _ in fresh)
        # The first time the whole buffer comes, history and all.
        values = [value for at, value in fresh
                  if 0 <= value <= high and (since or at > newest - US)]
        return (sum(values) / len(values), max(values)) if values else None


def _number(sample: Any, member: str) -> float:
    return float(getattr(sample.sampleValue, member))
