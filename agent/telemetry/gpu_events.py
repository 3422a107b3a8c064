"""Events of a GPU, from one reading to the next. Pure.

A counter's first value is where counting begins; a fault that stands is reported when it is first
seen, and again only after it was gone. Both outlive the agent: see events.NodeEventState.
"""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct, field

from gpudeck.contract.wire import Event, GpuFacts
from gpudeck.measures.events import kind_of
from gpudeck.measures.metrics import COLUMN, SLOW, SLOW_WIDTH, Absence, metric, throttle_words
from gpudeck.rate import RateLimiter

from ..readings import GpuReading
from .event_text import duration, event_of

THROTTLE = COLUMN["throttle_bits"]
# Chosen or harmless: idle, application clocks, sync boost, display clocks.
CALM_BITS = 0x1 | 0x2 | 0x10 | 0x100
SLOWED_FOR_S = 3.0
CALM_FOR_S = 10.0
# Errors that the driver reports ahead of the counter that also holds them: slow readings come
# every 15 s.
AHEAD_FOR_S = 60.0

# kind -> the counter; the second where the board does not have the first. Both at once would count
# an error twice, as they are not written at the same moment.
COUNTERS = {
    "ecc_corrected": ("ecc_corrected", "ecc_corrected_ever"),
    "ecc_uncorrected": ("ecc_uncorrected", "ecc_uncorrected_ever"),
}
STANDING = ("rows_pending", "rows_failed", "pages_pending")


class GpuEventState(Struct):
    """Reports made of a GPU, by metric key or Event kind. Stored under these names."""

    told: dict[str, float] = field(default_factory=dict)
    ahead: dict[str, float] = field(default_factory=dict)
    is_lost: bool = False
    is_failing: bool = False  # it fails every driver call
    is_instance: bool = False  # a part of a board, which people make and delete
    slowed_by: int = 0  # 0: not reported as slow
    slowed_at: float = 0.0  # UTC


class GpuEventDetector:
    """Detects the Events of a GPU. `state` outlives us; all else starts fresh with the agent."""

    def __init__(self, uuid: str, state: GpuEventState, pace: RateLimiter,
                 errors: RateLimiter) -> None:
        self._uuid, self.state = uuid, state
        self._pace, self._errors = pace, errors
        self._bits_since: float | None = None
        self._calm_since: float | None = None
        self._bits = 0
        self._ahead_at = 0.0
        self._name = "GPU"

    def read(self, gpu: GpuReading, facts: GpuFacts, at: float, now: float) -> list[Event]:
        self._name = f"GPU {facts.index}"
        events = self._state(gpu, at, now)
        if gpu.state != "ok" or facts.parent_uuid is not None:
            return events  # what a MIG instance reports of health is its board's
        if gpu.absent[THROTTLE:THROTTLE + 1] == b"\0":
            events += self._throttle(int(gpu.values[THROTTLE]), at, now)
        if len(gpu.slow) == SLOW_WIDTH:
            events += self._slow(_slow_values(gpu), facts, at, now)
        return events

    def disappeared(self, at: float) -> list[Event]:
        return self._report_lost("the driver no longer lists it", at)

    def note_ahead(self, kind: str, times: int, now: float) -> None:
        """Note an error that the driver has just reported, and that its counter will show too."""
        if COUNTERS[kind][0] in self.state.told or COUNTERS[kind][1] in self.state.told:
            self.state.ahead[kind] = self.state.ahead.get(kind, 0.0) + times
            self._ahead_at = now

    def event(
        self, kind: str, at: float, what: str, numbers: Mapping[str, float] | None = None
    ) -> Event:
        return event_of(kind, at, f"{self._name}: {what}", numbers, self._uuid)

    def _state(self, gpu: GpuReading, at: float, now: float) -> list[Event]:
        if gpu.state == "lost":
            return self._report_lost("the driver has lost it", at)
        if gpu.state == "error" and not self.state.is_failing:
            self.state.is_failing = True
            return [self.event("gpu_error", at, "every driver call for it fails")]
        # A loose contact is reported some times, then now and then: the last report is always true.
        is_away = self.state.is_lost or self.state.is_failing
        if gpu.state == "ok" and is_away and self._pace.may((self._uuid, "back"), now):
            self.state.is_lost = self.state.is_failing = False
            return [self.event("gpu_back", at, "it answers again")]
        return []

    def _report_lost(self, why: str, at: float) -> list[Event]:
        if self.state.is_lost:
            return []
        self.state.is_lost = True
        return [self.event("gpu_lost", at, why)]

    def _throttle(self, bits: int, at: float, now: float) -> list[Event]:
        bits &= ~CALM_BITS
        if not bits:
            self._bits, self._bits_since = 0, None
            return self._calm(at, now)
        self._calm_since = None
        if not bits & ~self.state.slowed_by:
            self._bits, self._bits_since = 0, None
            return []
        # Reasons come and go within seconds: it is slow as long as there is any.
        self._bits |= bits
        if self._bits_since is None:
            self._bits_since = now
        if now - self._bits_since < SLOWED_FOR_S:
            return []
        return self._slowed(at, now)

    def _slowed(self, at: float, now: float) -> list[Event]:
        fresh = self._bits & ~self.state.slowed_by
        if not fresh or not self._pace.may((self._uuid, "throttle"), now):
            return []
        also = "also " if self.state.slowed_by else ""
        if not self.state.slowed_by:
            self.state.slowed_at = at
        self.state.slowed_by |= fresh
        self._bits, self._bits_since = 0, None
        return [self.event("throttle_began", at,
                           f"{also}{', '.join(throttle_words(fresh))}", {"bits": float(fresh)})]

    def _calm(self, at: float, now: float) -> list[Event]:
        if not self.state.slowed_by:
            return []
        if self._calm_since is None:
            self._calm_since = now
        if now - self._calm_since < CALM_FOR_S:
            return []
        bits, self.state.slowed_by = self.state.slowed_by, 0
        slow_s = max(0.0, at - self.state.slowed_at - CALM_FOR_S)
        return [self.event("throttle_ended", at, f"after {duration(slow_s)} of "
                           f"{', '.join(throttle_words(bits))}",
                           {"bits": float(bits), "seconds": slow_s})]

    def _slow(self, slow: Mapping[str, float], facts: GpuFacts, at: float,
              now: float) -> Iterator[Event]:
        for kind, keys in COUNTERS.items():
            yield from self._counter(kind, keys, slow, at, now)
        for kind in STANDING:
            if self._is_fresh_fault(kind, slow.get(kind)):
                yield self.event(kind, at, kind_of(kind).label.lower())
        action = slow.get("recovery_action")
        if action is not None and self._is_fresh_fault("recovery_action", action):
            words = (metric("recovery_action").words or {}).get(int(action), f"action {action:.0f}")
            yield self.event("recovery_advised", at, f"the driver advises: {words}",
                             {"action": action})
        yield from self._nvlinks(slow.get("nvlinks_up"), at, now)
        yield from self._pcie(slow.get("pcie_width"), facts.pcie_width_max, at)

    def _counter(
        self, kind: str, keys: Sequence[str], slow: Mapping[str, float], at: float, now: float
    ) -> Iterator[Event]:
        key = next((key for key in keys if key in slow), None)
        if key is None:
            return
        value = slow[key]
        reported = self.state.told.get(key)
        if reported is None or value <= reported:
            # Lower: the driver was loaded again, and counting begins again.
            self.state.told[key] = value
            self._settle_ahead(kind, 0.0, now)
            return
        if not self._errors.may((self._uuid, kind), now):
            return  # what came meanwhile is reported together
        self.state.told[key] = value
        count = value - reported - self._settle_ahead(kind, value - reported, now)
        if count > 0:
            yield self.error(kind, count, at, value)

    def _settle_ahead(self, kind: str, increase: float, now: float) -> float:
        """Return how many of these were reported already. What no counter ever showed is
        forgotten."""
        ahead = self.state.ahead.pop(kind, 0.0)
        settled = min(ahead, increase)
        if ahead > settled and now - self._ahead_at < AHEAD_FOR_S:
            self.state.ahead[kind] = ahead - settled
        return settled

    def error(self, kind: str, count: float, at: float, total: float | None = None) -> Event:
        was = "were" if count != 1 else "was"
        which = f"{was} corrected" if kind == "ecc_corrected" else "could not be corrected"
        what = f"{count:.0f} memory error{'s' * (count != 1)} {which}"
        numbers = {"count": count}
        if total is not None:
            what += f" ({total:.0f} so far)"
            numbers["total"] = total
        return self.event(kind, at, what, numbers)

    def _is_fresh_fault(self, name: str, value: float | None) -> bool:
        """Return whether it is a fault that was not reported last; it becomes the last report."""
        if value is None or value == self.state.told.get(name, 0.0):
            return False
        self.state.told[name] = value
        return bool(value)

    def _nvlinks(self, value: float | None, at: float, now: float) -> Iterator[Event]:
        reported = self.state.told.get("nvlinks_up")
        if value is None or value == reported:
            return
        if reported is None:
            self.state.told["nvlinks_up"] = value
        elif self._pace.may((self._uuid, "nvlink"), now):
            self.state.told["nvlinks_up"] = value
            kind = "nvlink_down" if value < reported else "nvlink_up"
            yield self.event(kind, at, f"{value:.0f} NVLinks are up, {reported:.0f} were",
                             {"up": value, "before": reported})

    def _pcie(self, width: float | None, most: float | None, at: float) -> Iterator[Event]:
        """The width only: the generation drops whenever a GPU is idle."""
        if width is None or most is None or not width:
            return
        reported = self.state.told.get("pcie_width", most)
        if width == reported:
            return
        self.state.told["pcie_width"] = width
        if width < reported:
            yield self.event("pcie_degraded", at, f"{width:.0f} PCIe lanes of {most:.0f}",
                             {"lanes": width, "lanes_max": most})


def _slow_values(gpu: GpuReading) -> dict[str, float]:
    """Return the slow values that are there and in range."""
    columns = zip(SLOW, gpu.slow, gpu.slow_absent, strict=False)
    return {column.key: value for column, value, why in columns
            if why == Absence.PRESENT and column.low <= value <= column.high}
