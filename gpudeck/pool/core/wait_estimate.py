"""What is said of a wait. Pure. Apart from how it is estimated: each agent and `gpudeck top` loads
this with the wire, and none of them plans.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WaitEstimate:
    """Half of such waits are between `low_s` and `high_s`. `runs`: earlier ones it comes from."""

    low_s: float
    likely_s: float
    high_s: float
    runs: int

    @property
    def words(self) -> str:
        return (f"about {self.likely_s / 60:.0f} min, 50 % between {self.low_s / 60:.0f} and "
                f"{self.high_s / 60:.0f}; from {self.runs} earlier runs")
