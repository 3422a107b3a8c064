"""GPUs that are available, and why the others are not, by gpudeck.measures.availability. Pure."""

import numpy as np

from gpudeck.contract.pool_link import NodeMaintenance
from gpudeck.contract.repairs import of_gpu
from gpudeck.measures.availability import CHECKS, REASONS, GpuConditions, Reason, sentence
from gpudeck.measures.metrics import COLUMN, Absence

from .fleet import Fleet, GpuStatus
from .gpu_table import AVAILABLE, REASON_CODE, FleetMetricColumn
from .metric_table import Codes, Mask
from .mig import NO_PARENT


def reasons(fleet: Fleet, show: Codes, mono: float) -> Codes:
    """Return for each slot a code of why it is not available, or AVAILABLE."""
    size = len(fleet)
    codes = np.full(size, AVAILABLE, np.uint8)
    gpus = _conditions(fleet, show, mono)
    for reason in reversed(REASONS):
        codes[CHECKS[reason](gpus)] = REASON_CODE[reason]
    pool_codes = fleet.pool_reason[:size]  # by the node's own pool
    is_first = (pool_codes != AVAILABLE) & ((codes == AVAILABLE) | (pool_codes < codes))
    return np.where(is_first, pool_codes, codes)


def available(fleet: Fleet, show: Codes, mono: float) -> Mask:
    mask: Mask = reasons(fleet, show, mono) == AVAILABLE
    return mask


def _conditions(fleet: Fleet, show: Codes, mono: float) -> GpuConditions:
    size = len(fleet)
    mem, util, peak, rows = (fleet.column(key, mono) for key in (
        "mem_used_bytes", "util_pct", "util_max_pct", "rows_pending"))
    parent = fleet.parent[:size]
    is_board = parent == NO_PARENT  # a MIG instance has no utilization
    pending = _there(rows) & (rows.values > 0)
    waits = pending[np.where(is_board, np.arange(size), parent)]
    is_ours = ~fleet.viewed[:size]  # another site says itself which of its GPUs are available
    is_unread = is_ours & (
        ~fleet.are_users_known[:size] | ~_is_reported(mem)
        | (is_board & ~_there(peak) & ~_is_reported(util)))
    is_quiet = (show == GpuStatus.STALE) | (show == GpuStatus.OFFLINE)
    is_unheard = is_quiet & np.isneginf(fleet.sampled_mono[:size]) & (fleet.reported[:size] == 0)
    return GpuConditions(
        is_split=fleet.is_split(), is_lost=(show == GpuStatus.LOST) | (show == GpuStatus.RETIRED),
        is_error=show == GpuStatus.ERROR,
        is_stale=is_quiet & ~is_unheard, is_unheard=is_unheard,
        in_maintenance=_in_maintenance(fleet, mono), is_out_of_service=fleet.service[:size] != 0,
        waits_for_remap=waits, is_managed=np.zeros(size, bool),  # its node's pool says so
        # Where its node has a pool, that knows which tasks run with a lease.
        is_used=fleet.is_used[:size] & ~fleet.in_pool[:size], is_paused=fleet.is_paused[:size],
        is_leased=fleet.is_leased[:size],
        mem_used_bytes=np.where(is_ours & _there(mem), mem.values, np.nan),
        peak_pct=np.where(is_ours & _there(peak), peak.values,
                          np.where(is_ours & _there(util), util.values, np.nan)),
        is_unread=is_unread)


def _there(column: FleetMetricColumn) -> Mask:
    mask: Mask = column.absent == Absence.PRESENT
    return mask


def _is_reported(column: FleetMetricColumn) -> Mask:
    """Return where the metric is reported, or is known not to exist on the board."""
    mask: Mask = (column.absent == Absence.PRESENT) | (column.absent == Absence.UNSUPPORTED)
    return mask


def _in_maintenance(fleet: Fleet, mono: float) -> Mask:
    nodes = [fleet.all_nodes[node_id].at for node_id in fleet.maintenance
             if node_id in fleet.all_nodes and maintenance_of(fleet, node_id, mono) is not None]
    mask: Mask = np.isin(fleet.node_at[:len(fleet)], nodes) if nodes else (
        np.zeros(len(fleet), bool))
    return mask


def maintenance_of(fleet: Fleet, node_id: str, mono: float) -> NodeMaintenance | None:
    """Return the maintenance that the node is in; None: it is not, or not any more."""
    entry = fleet.maintenance.get(node_id)
    return None if entry is None or mono >= entry[1] else entry[0]


def why_not(fleet: Fleet, slot: int, code: int, mono: float) -> tuple[Reason, str] | None:
    """Return the reason of that code, and a sentence for people. None: it is available."""
    if code == AVAILABLE:
        return None
    reason, node = REASONS[code - 1], fleet.node_of(slot)
    uuid, board = fleet.uuids[slot], fleet.facts[slot].parent_uuid or fleet.uuids[slot]
    if reason == "maintenance" and (maintenance := maintenance_of(fleet, node.hello.node_id, mono)):
        return reason, maintenance.why
    if reason == "out_of_service" and node.repairs is not None and (
            repair := of_gpu(node.repairs.repairs, board)) is not None:
        return reason, repair.sentence
    if fleet.pool_reason[slot] == code and node.pool is not None:
        return reason, next((gpu.trouble for gpu in node.pool.gpus if gpu.uuid == uuid), "")
    return reason, sentence(reason, float(fleet.values[slot, COLUMN["mem_used_bytes"]]))
