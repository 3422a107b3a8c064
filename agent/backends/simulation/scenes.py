"""Faults of every simulated fleet, so that there is something to find: in the launch over
two nodes one rank is slower than its peers, because its board is badly cooled, and a job on the
fourth node hangs in a collective. Pure."""

from .jobs import SimulatedJob, node_number, twin_of
from .load import SimulatedLoad

SLOW_RANK = 5  # of the launch's second node, and the index of its board there
FOULED_BY = 2.8  # degrees per watt over a clean board's: a third of its power is lost to heat
STUCK_NODE = 4
STUCK_AFTER_S = 600.0


def is_fouled(node: str, index: int) -> bool:
    """The others of its launch spin while they wait for it, at full utilization."""
    return twin_of(node) == 1 and index == SLOW_RANK


def stuck_for_s(node: str, job: SimulatedJob, at: float) -> float:
    """Return for how long the job has hung; 0: it does not."""
    hangs = node_number(node) == STUCK_NODE and job.kind == "train"
    return max(0.0, at - job.working_since - STUCK_AFTER_S) if hangs else 0.0


def on_stage(node: str, job: SimulatedJob, at: float, load: SimulatedLoad) -> SimulatedLoad:
    if stuck_for_s(node, job, at) > 0:
        return SimulatedLoad(busy=1.0, peak=1.0, bandwidth=0.01, sm=0.05, intensity=0.06,
                             mem_share=load.mem_share)
    return load
