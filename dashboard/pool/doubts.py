"""GPUs that their hub does not call available although their node would lease them: the hub learns
of readings, repairs and maintenance separately. Pure."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from gpudeck.measures.availability import Reason

from ..fleet.available_gpus import maintenance_of, reasons, why_not
from ..fleet.fleet import Fleet
from ..fleet.gpu_table import AVAILABLE, REASON_CODE
from .plan import PoolNode


def in_doubt(nodes: Iterable[PoolNode], fleet: Fleet, mono: float) -> list[PoolNode]:
    """Return the nodes whose doubts or maintenance have changed, as they are now."""
    changed = []
    doubts = _doubts(fleet, mono)
    for node in nodes:
        now, maintenance = doubts.get(node.id, {}), maintenance_of(fleet, node.id, mono)
        if now != node.doubts or maintenance != node.maintenance:
            changed.append(replace(node, doubts=now, maintenance=maintenance))
    return changed


def _doubts(fleet: Fleet, mono: float) -> dict[str, dict[str, tuple[Reason, str]]]:
    """Return why GPUs are in doubt, by node and GPU: the reason, and a sentence for people."""
    size, codes = len(fleet), reasons(fleet, fleet.statuses(mono), mono)
    is_doubtful = fleet.in_pool[:size] & (fleet.pool_reason[:size] == AVAILABLE) & ~np.isin(
        codes, (AVAILABLE, REASON_CODE["leased"]))
    by_node: dict[str, dict[str, tuple[Reason, str]]] = {}
    for slot in np.flatnonzero(is_doubtful).tolist():
        why = why_not(fleet, slot, int(codes[slot]), mono)
        if why is not None:
            node_id = fleet.node_ids[fleet.node_at[slot]]
            by_node.setdefault(node_id, {})[fleet.uuids[slot]] = why
    return by_node
