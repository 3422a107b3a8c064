"""GPUs that claims waited for, in each hour: noted here, since history does not keep claims."""

from dataclasses import dataclass, field

import msgspec

from .advice_service import KeptWords
from .demand_history import HOUR_S, HOURS_KEPT, HourlyNumber

KEY = "forecasts.queue"
LEAST_NOTES = 180  # of an hour, of one each ten seconds: less of it is not known


@dataclass(slots=True)
class QueueHours(HourlyNumber):
    """Means of what was noted. The hour in which a hub starts counts if half of it was seen."""

    kept: KeptWords
    _hour: int | None = field(default=None, init=False)
    _notes: int = field(default=0, init=False)
    _total: float = field(default=0.0, init=False)
    _is_news: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.known = msgspec.json.decode(self.kept.get(KEY) or "{}", type=dict[int, float])

    def note(self, gpus: int, now: float) -> None:
        """On the hub's loop, each ten seconds."""
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
        # Another one: a thread may read the one before.
        self.known = {each: value for each, value in self.known.items()
                      if each > hour - HOURS_KEPT} | {hour: round(self._total / self._notes, 3)}
        self._is_news = True
        self.kept.put(KEY, msgspec.json.encode(self.known).decode())
