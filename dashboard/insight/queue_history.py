"""GPUs that claims waited for, in each hour: recorded here, since history does not keep claims."""

from dataclasses import dataclass, field

import msgspec

from .advice_service import KeyValueStore
from .demand_history import HOUR_S, HOURS_KEPT, HourlyNumber

KEY = "forecasts.queue"
LEAST_NOTES = 180  # of an hour's 360, one every ten seconds: with fewer the hour is not known


@dataclass(slots=True)
class QueueHours(HourlyNumber):
    """Means of what was recorded. The hour in which a hub starts counts if half of it was
    recorded."""

    store: KeyValueStore
    _hour: int | None = field(default=None, init=False)
    _notes: int = field(default=0, init=False)
    _total: float = field(default=0.0, init=False)
    _is_news: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.by_hour = msgspec.json.decode(self.store.get(KEY) or "{}", type=dict[int, float])

    def note(self, gpus: int, now: float) -> None:
        """Record the number of GPUs; called on the hub's loop, every ten seconds."""
        hour = int(now // HOUR_S)
        if self._hour is not None and hour != self._hour:
            self._over(self._hour)
        if hour != self._hour:
            self._hour, self._notes, self._total = hour, 0, 0.0
        self._notes += 1
        self._total += gpus

    def step(self, now: float) -> bool:
        is_news, self._is_news = self._is_news, False
        return is_news

    def _over(self, hour: int) -> None:
        if self._notes < LEAST_NOTES:
            return
        # A new dict: a thread may be reading the previous one.
        recent = {past: value for past, value in self.by_hour.items() if past > hour - HOURS_KEPT}
        self.by_hour = recent | {hour: round(self._total / self._notes, 3)}
        self._is_news = True
        self.store.put(KEY, msgspec.json.encode(self.by_hour).decode())
