"""The newest seconds of the GPUs that are watched as lines: what a timeline grows by. Pure.

The heatmap is sent the latest and may skip; a line may not, so each Sample of a watched Node is
kept until every viewer that reads in time has had it.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .fleet import Fleet

MOST_GPUS = 64
KEPT = 64  # Samples of a Node: a viewer more than a minute behind asks the API for the hole


@dataclass(frozen=True, slots=True)
class TimelineSample:
    number: int  # of all moments, counted by the hub
    seq: tuple[str, int]
    at: float  # by the hub's clock
    hands: int  # of the fleet then: a slot may have become another GPU's since
    slots: npt.NDArray[np.intp]
    values: npt.NDArray[np.float64]
    absent: npt.NDArray[np.uint8]
    states: npt.NDArray[np.uint8]


class TimelineBuffer:
    def __init__(self, fleet: Fleet) -> None:
        self.number = 0
        self._fleet = fleet
        self._moments: dict[str, deque[TimelineSample]] = {}

    def watch(self, node_ids: Iterable[str]) -> None:
        """Watch these and no others; of a new Node, what is known now is the first sample."""
        watched_ids = set(node_ids)
        for node_id in self._moments.keys() - watched_ids:
            del self._moments[node_id]
        for node_id in watched_ids - self._moments.keys():
            self._moments[node_id] = deque(maxlen=KEPT)
            self.note(node_id)

    def note(self, node_id: str) -> None:
        """Note that a Frame of this Node was applied."""
        moments = self._moments.get(node_id)
        if moments is None:
            return
        node = self._fleet.nodes[node_id]
        if node.frame is None or node.listing is None:
            return
        if moments and moments[-1].seq == node.newest:
            return
        self.number += 1
        slots, fleet = np.array(node.listing.order, np.intp), self._fleet
        moments.append(TimelineSample(
            self.number, node.newest, node.frame_at, fleet.hands, slots,
            fleet.numbers(slots).astype("<f8"), fleet.absent[slots].copy(),
            fleet.reported[slots].copy()))

    def since(self, slots: Iterable[int], number: int) -> list[dict[str, Any]]:
        """Return per GPU all that came after this number, oldest first."""
        return [self._of(slot, number) for slot in slots]

    def _of(self, slot: int, number: int) -> dict[str, Any]:
        fleet = self._fleet
        node_id = fleet.node_ids[fleet.node_at[slot]]
        rows = [(moment, int(place)) for moment in self._moments.get(node_id, ())
                if moment.number > number and moment.hands >= fleet.hand[slot]
                for place in np.flatnonzero(moment.slots == slot)]
        return {
            "uuid": fleet.uuids[slot],
            "at": np.array([moment.at for moment, _ in rows], "<f8").tobytes(),
            "values": b"".join(moment.values[place].tobytes() for moment, place in rows),
            "absent": b"".join(moment.absent[place].tobytes() for moment, place in rows),
            "states": bytes(int(moment.states[place]) for moment, place in rows),
        }
