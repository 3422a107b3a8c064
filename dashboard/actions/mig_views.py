"""The present and the desired MIG layout of each board, for everything that lists them. Pure."""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from gpudeck.contract.limits import ManagedMigLayout
from gpudeck.contract.repairs import ServiceState
from gpudeck.contract.wire import GpuFacts
from gpudeck.measures.metrics import SLOW_COLUMN, Absence
from gpudeck.mig.wishes import NOTHING, OFF, whole_profile

from ..fleet.fleet import Fleet, Node
from ..fleet.gpu_table import SERVICE_STATES
from ..fleet.visibility import VisibleFleet


class MigInstanceView(Struct):
    gpu: str
    place: str
    profile: str | None


class MigBoardView(Struct):
    """`is_on` and `now` null: not known. `wanted` null: gpudeck manages no layout there."""

    node: str
    host: str
    gpu: str
    index: int
    is_on: bool | None
    now: str | None  # as a layout is written: "1x 3g.40gb + 1x 4g.40gb", "none", "off"
    instances: list[MigInstanceView]
    wanted: ManagedMigLayout | None
    service: ServiceState


class MigList(Struct):
    items: list[MigBoardView]


def mig_list(fleet: Fleet, visible: VisibleFleet, node_id: str | None, mono: float) -> MigList:
    """Return the boards that MIG can split."""
    return MigList([board for node in visible.nodes(fleet, node_id)
                    for board in _boards(fleet, node, mono)])


def _boards(fleet: Fleet, node: Node, mono: float) -> Iterator[MigBoardView]:
    gpus = () if node.listing is None else node.listing.inventory.gpus
    managed = {} if node.limits is None else {
        layout.gpu_uuid: layout for layout in node.limits.layouts}
    for facts in gpus:
        slot = fleet.slot_on(node.hello.node_id, facts.uuid)
        if facts.parent_uuid is not None or slot is None:
            continue
        parts = [gpu for gpu in gpus if gpu.parent_uuid == facts.uuid]
        absent = int(fleet.slow.absent_at(slot, mono, SLOW_COLUMN["mig_on"]))
        layout = managed.get(facts.uuid)
        if absent == Absence.UNSUPPORTED and not parts and layout is None:
            continue
        is_on = (bool(fleet.slow.values[slot, SLOW_COLUMN["mig_on"]])
                 if absent == Absence.PRESENT else None)
        yield MigBoardView(
            node.hello.node_id, node.hello.host, facts.uuid, facts.index, is_on,
            _now(is_on, parts),
            [MigInstanceView(part.uuid, part.place, part.mig_profile) for part in parts], layout,
            SERVICE_STATES[int(fleet.service[slot])])


def _now(is_on: bool | None, parts: Iterable[GpuFacts]) -> str | None:
    """Return the layout, with profiles in the order in which drivers number them. Compute instances
    that share one GPU instance count once."""
    profiles: dict[int | None, str] = {}
    for part in parts:
        if part.mig_profile is None:
            return None
        profiles[part.gpu_instance] = whole_profile(part.mig_profile)
    if not profiles:
        return None if is_on is None else NOTHING if is_on else OFF
    names = sorted(profiles.values())
    return " + ".join(f"{names.count(name)}x {name}" for name in dict.fromkeys(names))
