"""The hub's time, judged on our steady clock. Commands expire by it. Pure."""

from collections import deque
from dataclasses import dataclass

from gpudeck.contract.actions import (
    CLOCK_KNOWN_FOR_S,
    COMMAND_LASTS_S,
    SKEW_MAX_S,
    Command,
    Refusal,
)

ASK_EVERY_S = 10.0
SAMPLES = 8
WAITED_MAX_S = 10.0


@dataclass(frozen=True, slots=True)
class _ClockSample:
    trip_s: float
    ahead_s: float  # hub's clock minus our steady one
    at: float


class HubClock:
    """Estimate of the hub's time; `now` is always a monotonic clock."""

    def __init__(self) -> None:
        self._samples: deque[_ClockSample] = deque(maxlen=SAMPLES)
        self._questions: dict[int, float] = {}
        self._last_id = 0
        self._ask_at = 0.0

    def connected(self, now: float) -> None:
        """Forget all samples: another hub process has another clock."""
        self._samples.clear()
        self._questions.clear()
        self._ask_at = now

    def due_at(self) -> float:
        return self._ask_at

    def ask(self, now: float) -> int | None:
        """Return the id of the question to send, when it is time for one."""
        if now < self._ask_at:
            return None
        self._last_id += 1
        # The first few come faster: one slow answer alone is a bad measure.
        self._ask_at = now + (ASK_EVERY_S if len(self._samples) >= 3 else 1.0)
        self._questions = {clock_id: at for clock_id, at in self._questions.items()
                           if now - at < WAITED_MAX_S}
        self._questions[self._last_id] = now
        return self._last_id

    def receive(self, clock_id: int, hub_at: float, now: float) -> None:
        asked_at = self._questions.pop(clock_id, None)
        if asked_at is None:
            return
        trip_s = now - asked_at
        self._samples.append(_ClockSample(trip_s, hub_at - (asked_at + trip_s / 2), now))

    def at(self, now: float) -> float | None:
        """Return the hub's time; None: not known, or not lately."""
        fresh = [sample for sample in self._samples if now - sample.at <= CLOCK_KNOWN_FOR_S]
        if not fresh:
            return None
        return now + min(fresh, key=lambda sample: sample.trip_s).ahead_s

    def doubt(self, now: float, wall: float) -> str:
        """Return why the time is not good enough to act by; "": it is."""
        at = self.at(now)
        if at is None:
            return "the hub's time is not known here yet; try again in a few seconds"
        if abs(at - wall) > SKEW_MAX_S:
            return (f"this machine's clock and the hub's are {abs(at - wall):.0f} s apart; set "
                    "them right (chrony or systemd-timesyncd)")
        return ""


def late(command: Command, at: float | None) -> Refusal | None:
    """`at`: the hub's time now; None: it is not known."""
    lasts_s = command.expires_at - command.issued_at
    if at is None or at > command.expires_at or lasts_s > COMMAND_LASTS_S:
        return Refusal("expired", "the command came too late; nothing was touched")
    if command.issued_at > at + COMMAND_LASTS_S:
        return Refusal("skew", "the command is from the future; nothing was touched")
    return None
