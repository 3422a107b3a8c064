"""GPUs that are shared and nearly full, of which no more is given out.

It takes much more to open one again than memory moves by itself, so that it does not flap; and what
is not known changes nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from gpudeck.measures.metrics import Absence

from ..fleet.fleet import Fleet
from .plan import PoolNode

CLOSED_AT, OPEN_AT = 0.85, 0.75  # of its memory in use


def closed(before: Iterable[str], shared: Iterable[str], mem_share: Mapping[str, float]
           ) -> frozenset[str]:
    """Return the shared GPUs that are full. `mem_share`: of each GPU whose memory is known now."""
    was = frozenset(before)
    return frozenset(uuid for uuid in shared if _is_closed(uuid in was, mem_share.get(uuid)))


def _is_closed(was: bool, share: float | None) -> bool:
    if share is None:
        return was
    return share > OPEN_AT if was else share >= CLOSED_AT


def under_pressure(nodes: Iterable[PoolNode], fleet: Fleet, mono: float) -> list[PoolNode]:
    """Return the nodes whose full GPUs have changed, as they are now."""
    sharing = [node for node in nodes if node.shared or node.full]
    if not sharing:
        return []
    column = fleet.column("mem_used_bytes", mono)

    def share(node: PoolNode, uuid: str) -> float | None:
        slot = fleet.slot_on(node.id, uuid)
        total = None if slot is None else fleet.facts[slot].mem_total_bytes
        if slot is None or not total or column.absent[slot] != Absence.PRESENT:
            return None
        return float(column.values[slot]) / total

    changed = []
    for node in sharing:
        shares = {uuid: value for uuid in node.shared
                  if (value := share(node, uuid)) is not None}
        full = closed(node.full, node.shared, shares)
        if full != node.full:
            changed.append(replace(node, full=full))
    return changed
