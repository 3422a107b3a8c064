"""Faults on demand and by the seed, beside what the world says: Xids and the driver's life.

A driver that goes takes what its boards count since it was loaded: see `Stage.driver`.
"""

from collections.abc import Sequence

from msgspec import structs

from gpudeck.wire import GpuFacts, GpuLink, GpuState

from ...readings import BackendEvent, GpuReading
from .. import ReaderUnavailableError
from .control import SimulationControl
from .faults import xids_between

DRIVER_VERSION = "580.95.05"
UPGRADED_VERSION = "580.105.08"
RELOAD_S = 4.0
OFF_THE_BUS = 79
# An entry that is older than this process by more was obeyed by the one before.
OLD_S = 5.0


class SimulatedFaults:
    """Of one node. `began_at`: when this process did."""

    def __init__(self, seed: int, node: str, gpus: int, odds: float, began_at: float) -> None:
        self._seeded = (seed, node, gpus)
        self._odds = odds
        self._node = node
        self._began_at = began_at
        self._at = began_at
        self._states: dict[str, GpuState] = {}
        self._xids: dict[str, tuple[int, ...]] | None = None
        self._loaded_at: float | None = None

    def driver(self, control: SimulationControl, at: float) -> tuple[str, bool]:
        """Its version, and whether it was loaded anew since the last call. Raises Unavailable."""
        fate = control.nodes[self._node].driver if self._node in control.nodes else None
        if fate is None:
            return DRIVER_VERSION, False
        away = fate == "gone" or 0 <= at - control.changed_at < RELOAD_S
        if away:
            raise ReaderUnavailableError("no_driver", "the NVIDIA kernel module is not loaded (by "
                                                      "control.json): run `sudo modprobe nvidia`.")
        is_fresh = self._loaded_at != control.changed_at
        self._loaded_at = control.changed_at
        return UPGRADED_VERSION if fate == "upgraded" else DRIVER_VERSION, is_fresh

    def happenings(
        self, gpus: Sequence[GpuReading], control: SimulationControl, at: float
    ) -> tuple[BackendEvent, ...]:
        found = [*self._told(control, at), *self._fallen(gpus, at)]
        there = {gpu.uuid for gpu in gpus if gpu.state == "ok"}
        boards = [gpu.uuid for gpu in gpus if not gpu.uuid.startswith("MIG-")]
        for index, code, when in xids_between(*self._seeded, self._at, at, self._odds):
            if boards[index] in there:
                found.append(_xid(code, boards[index], when))
        self._at = at
        return tuple(found)

    def _told(self, control: SimulationControl, at: float) -> list[BackendEvent]:
        """Each number once, when its entry comes."""
        wanted = {uuid: gpu.xids for uuid, gpu in control.gpus.items() if gpu.xids}
        was, self._xids = self._xids, wanted
        if was is None:
            was = wanted if control.changed_at < self._began_at - OLD_S else {}
        return [_xid(code, uuid, at) for uuid, codes in wanted.items() for code in codes
                if code not in was.get(uuid, ())]

    def _fallen(self, gpus: Sequence[GpuReading], at: float) -> list[BackendEvent]:
        was, self._states = self._states, {gpu.uuid: gpu.state for gpu in gpus}
        return [_xid(OFF_THE_BUS, gpu.uuid, at) for gpu in gpus
                if gpu.state == "lost" and was.get(gpu.uuid) == "ok"
                and not gpu.uuid.startswith("MIG-")]


def _xid(code: int, uuid: str, at: float) -> BackendEvent:
    return BackendEvent("xid", at, uuid, numbers={"xid": float(code)})


def renumbered(
    facts: Sequence[GpuFacts], gpus: Sequence[GpuReading], links: Sequence[GpuLink] = ()
) -> tuple[tuple[GpuFacts, ...], tuple[GpuReading, ...], tuple[GpuLink, ...]]:
    """As after a reload that found the boards in another order: the last is the first. Instances
    stay behind their board."""
    groups: list[list[int]] = []
    for at, each in enumerate(facts):
        if each.parent_uuid is None:
            groups.append([])
        groups[-1].append(at)
    order = [(at, index) for index, group in enumerate(reversed(groups)) for at in group]
    place = {at: now for now, (at, _) in enumerate(order)}
    return (
        tuple(structs.replace(facts[at], index=index) for at, index in order),
        tuple(gpus[at] for at, _ in order),
        tuple(structs.replace(link, a=place[link.a], b=place[link.b]) for link in links),
    )
