"""Clock of a node as its answers to Probes show it. Pure."""

from dataclasses import dataclass

# By this a node's clock may go faster or slower than ours; crystals are some 20 to 100 ppm off.
DRIFT = 1e-4


@dataclass(slots=True)
class NodeClock:
    minus_mono_s: float | None = None  # it minus our monotonic clock; None: no answer yet
    _within_s: float = 0.0  # the most that this was wrong by when it was measured
    _measured_mono: float = 0.0

    def measure(self, agent_at: float, asked_mono: float, mono: float) -> float:
        """Take an answered Probe; return the clock minus our monotonic one. The agent looked at its
        clock in the middle of the round trip, give or take half of that. What is known better stays
        until an answer contradicts it: by one that took long, samples would move into seconds that
        others have, and be lost."""
        half = (mono - asked_mono) / 2
        answer, best = agent_at - (mono - half), self.minus_mono_s
        best_within_s = self._within_s + DRIFT * (mono - self._measured_mono)
        if best is None or half <= best_within_s or abs(answer - best) > half + best_within_s:
            self.minus_mono_s = best = answer
            self._within_s, self._measured_mono = half, mono
        return best
