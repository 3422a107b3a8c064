"""Estimate of a wait, in numbers and words. Pure. In its own module, apart from how it is
estimated: each agent and `gpudeck top` loads this with the wire, and none of them plans."""

from dataclasses import dataclass

from gpudeck.language.times import minute_words

BOUND_MOST_S = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class WaitEstimate:
    """Range of a wait: half of such waits are between `low_s` and `high_s`. `runs`: earlier ones it
    comes from."""

    low_s: float
    likely_s: float
    high_s: float
    runs: int

    @property
    def words(self) -> str:
        return (f"about {minute_words(self.likely_s)}, 50 % between {minute_words(self.low_s)} and "
                f"{minute_words(self.high_s)}; from {self.runs} earlier runs")


def known_bound(wait_s: float) -> float | None:
    """Return the longest wait, while terms are honoured. One of weeks says nothing that helps."""
    return wait_s if wait_s <= BOUND_MOST_S else None
