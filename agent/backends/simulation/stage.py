"""Faults on demand and by the seed, in addition to the world: Xids and the driver's life.

A driver that goes takes what its boards count since it was loaded: see `SimulatedFaults.driver`.
"""

from collections.abc import Collection, Sequence

from msgspec import structs

from gpudeck.contract.wire import GpuFacts, GpuLink, GpuState

from ...readings import BackendEvent, GpuReading
from .. import ReaderUnavailableError
from ..nvml.xids import explain
from .chance import between, roll, seed_of
from .control import SimulationControl
from .jobs import node_number

DRIVER_VERSION = "580.95.05"
UPGRADED_VERSION = "580.105.08"
CUDA_VERSION = "13.0"  # of all of 580
RELOAD_S = 4.0
OFF_THE_BUS = 79
# An entry that is older than this process by more was obeyed by the one before.
OLD_S = 5.0


class SimulatedFaults:
    """Faults of one node. `began_at`: when this process did."""

    def __init__(self, seed: int, node: str, gpus: int, odds: float, began_at: float) -> None:
        self._seeded = (seed, node, gpus)
        self._odds, self._node = odds, node
        self._began_at = self._at = began_at
        self._states: dict[str, GpuState] = {}
        self._xids: dict[str, tuple[int, ...]] | None = None
        self._loaded_at: float | None = None

    def driver(self, control: SimulationControl, at: float) -> tuple[str, bool]:
        """Return the driver version, and whether it was reloaded since the last call.
        Raises ReaderUnavailableError."""
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
        events = [*self._controlled_xids({gpu.uuid for gpu in gpus}, control, at),
                  *self._fallen(gpus, at)]
        there = {gpu.uuid for gpu in gpus if gpu.state == "ok"}
        boards = [gpu.uuid for gpu in gpus if not gpu.uuid.startswith("MIG-")]
        for index, code, when in xids_between(*self._seeded, self._at, at, self._odds):
            if boards[index] in there:
                events.append(_xid(code, boards[index], when))
        self._at = at
        return tuple(events)

    def _controlled_xids(self, mine: Collection[str], control: SimulationControl, at: float
              ) -> list[BackendEvent]:
        """Return each Xid once, when its entry comes. All nodes read the same file."""
        xids = {uuid: gpu.xids for uuid, gpu in control.gpus.items() if gpu.xids and uuid in mine}
        was, self._xids = self._xids, xids
        if was is None:
            was = xids if control.changed_at < self._began_at - OLD_S else {}
        return [_xid(code, uuid, at) for uuid, codes in xids.items() for code in codes
                if code not in was.get(uuid, ())]

    def _fallen(self, gpus: Sequence[GpuReading], at: float) -> list[BackendEvent]:
        was, self._states = self._states, {gpu.uuid: gpu.state for gpu in gpus}
        return [_xid(OFF_THE_BUS, gpu.uuid, at) for gpu in gpus
                if gpu.state == "lost" and was.get(gpu.uuid) == "ok"
                and not gpu.uuid.startswith("MIG-")]


def _xid(code: int, uuid: str, at: float) -> BackendEvent:
    return explain(BackendEvent("xid", at, uuid, numbers={"xid": float(code)}), ())


def renumber(
    facts: Sequence[GpuFacts], gpus: Sequence[GpuReading], links: Sequence[GpuLink] = ()
) -> tuple[tuple[GpuFacts, ...], tuple[GpuReading, ...], tuple[GpuLink, ...]]:
    """Return them as after a reload that found the boards in another order: the last is the first.
    Instances stay behind their board."""
    groups: list[list[int]] = []
    for at, gpu in enumerate(facts):
        if gpu.parent_uuid is None:
            groups.append([])
        groups[-1].append(at)
    order = [(at, index) for index, group in enumerate(reversed(groups)) for at in group]
    place = {at: now for now, (at, _) in enumerate(order)}
    return (
        tuple(structs.replace(facts[at], index=index) for at, index in order),
        tuple(gpus[at] for at, _ in order),
        tuple(structs.replace(link, a=place[link.a], b=place[link.b]) for link in links),
    )


WINDOW_S = 900.0


def lost_gpu(seed: int, node: str, gpus: int, at: float, odds: float) -> int | None:
    """Return the index of the GPU of this node that is lost at this moment, if one is. `odds` is
    the chance that a quarter of an hour takes one from this node; numbered nodes take turns, so
    that a fleet whose odds add up to one has one at a time."""
    if gpus == 0 or odds <= 0:
        return None
    window, turns = int(at // WINDOW_S), round(1 / odds)
    if (node_number(node) + seed_of(seed, "turn", window)) % turns:
        return None
    here = seed_of(seed, node, "faults", window)
    begins_s = between(120, 420, roll(here, 1))
    lasts_s = between(120, 450, roll(here, 2))
    if not begins_s <= at % WINDOW_S < begins_s + lasts_s:
        return None
    return int(roll(here, 3) * gpus)


# What is seen most: a task's own faults, now and then a board's. 79 comes with a lost GPU.
XIDS = (31, 13, 43, 31, 45, 13, 109, 63, 94, 48)
XID_SLOT_S = 60.0


def xids_between(
    seed: int, node: str, gpus: int, after: float, until: float, odds: float
) -> list[tuple[int, int, float]]:
    """Return (index of the GPU, Xid, when) of this stretch of time. `odds` as above; this node
    reports an Xid twice as often as it loses a GPU."""
    xids: list[tuple[int, int, float]] = []
    if gpus == 0 or odds <= 0 or until - after > WINDOW_S:
        return xids
    for slot in range(int(after // XID_SLOT_S), int(until // XID_SLOT_S) + 1):
        here = seed_of(seed, node, "xid", slot)
        when = (slot + roll(here, 1)) * XID_SLOT_S
        if roll(here, 0) < 2 * odds * XID_SLOT_S / WINDOW_S and after < when <= until:
            xids.append((int(roll(here, 2) * gpus), XIDS[int(roll(here, 3) * len(XIDS))], when))
    return xids
