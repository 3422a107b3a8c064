"""GPUs of the fleet by model and size, as the estimator tries them. Pure."""

from collections import Counter, defaultdict

from gpudeck.estimate.fit import FleetBoards

from ..fleet.available_gpus import available
from ..fleet.fleet import Fleet, GpuStatus
from ..fleet.visibility import VisibleFleet

KINDS_MOST = 40  # a hostile node may give each of its GPUs another name
WORKING = (GpuStatus.OK, GpuStatus.STALE)


def fleet_boards(fleet: Fleet, visible: VisibleFleet, mono: float) -> list[FleetBoards]:
    """Count GPUs that work and are visible. Of a board that MIG splits the instances count."""
    status, is_split = fleet.statuses(mono), fleet.is_split()
    free = available(fleet, status, mono)
    there: Counter[tuple[str, float | None, bool]] = Counter()
    unused: Counter[tuple[str, float | None, bool]] = Counter()
    on_nodes: defaultdict[tuple[str, float | None, bool], Counter[int]] = defaultdict(Counter)
    for slot in visible.slots.tolist():
        if status[slot] not in WORKING or is_split[slot]:
            continue
        facts = fleet.facts[slot]
        kind = (facts.name, facts.mem_total_bytes, facts.parent_uuid is not None)
        there[kind] += 1
        unused[kind] += bool(free[slot])
        on_nodes[kind][int(fleet.node_at[slot])] += 1
    return [FleetBoards(kind[0], kind[1], number, unused[kind], max(on_nodes[kind].values()),
                        kind[2])
            for kind, number in there.most_common(KINDS_MOST)]
