"""Table of all faults, and the row of each in the docs."""

from dataclasses import dataclass
from pathlib import Path

from tests.faults.matrix.faults import OF_NODES, ON
from tests.faults.matrix.hub_faults import HUBS
from tests.faults.matrix.observation import Observation

MEASURED = Path(__file__).resolve().parents[3] / "docs" / "fault_matrix.json"
FAULTS = (*OF_NODES, *HUBS)
ROUND_S = 5


@dataclass(frozen=True)
class Measured:
    """A row of the table in the docs. Seconds: from the fault, and from its end."""

    fault: str
    on: str
    lasts_s: int
    alert: str | None
    notifications: int
    firing_sent_s: int | None
    resolved_sent_s: int | None
    title: str


def measured(observation: Observation) -> Measured:
    fault, notices = observation.fault, observation.notices
    firing = [notice for notice in notices if notice.status == "firing"]
    resolved = [notice for notice in notices if notice.status == "resolved"]
    return Measured(
        fault.name, ON[fault.where], fault.lasts_s,
        " ".join(sorted({notice.rule for notice in firing})) or None, len(firing),
        _seconds(observation.begun_at, firing[0].at if firing else None),
        _seconds(observation.ended_at, resolved[0].at if resolved else None),
        firing[0].title if firing else "")


def _seconds(start: float | None, end: float | None) -> int | None:
    return None if start is None or end is None else ROUND_S * round((end - start) / ROUND_S)
