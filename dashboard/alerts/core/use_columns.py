"""Numbers of every use of a GPU by a task, from the fleet as it is now."""

from collections.abc import Sequence
from operator import attrgetter

import numpy as np

from gpudeck.pool.core.claims import DEFAULT_PRIORITY

from ...fleet.fleet import HOST_STALE_AFTER_S
from ...fleet.sampled_tasks import (
    COLLECTIVE_NUMBERS,
    HOST_NUMBERS,
    LEASE_NUMBERS,
    SERVER_NUMBERS,
)
from .gpu_targets import EvaluationContext
from .numbers import NONE
from .rule_signal import Floats
from .state_machine import Mask, Rows


def number_of_each_use(moment: EvaluationContext, name: str) -> Floats:
    uses = moment.uses
    match name:
        case "age_s":
            return moment.now - uses.started_at[uses.row]
        case "is_foreign":
            return uses.is_foreign[uses.row]
        case "started_at":
            return uses.started_at[uses.row]
        case "is_outside_lease" | "lease_overdue_s" | "priority":
            return moment.cached("leases of tasks", lambda: _of_leases(moment))[name][uses.row]
        case "host_pressure_pct":
            return moment.cached(name, lambda: np.where(
                _is_old(moment), np.nan, moment.of_nodes("host_pressure_pct")))[
                    uses.node_at[uses.row]]
        case "host_cpu_pct" | "host_blocked" | "host_io_bytes_per_s":
            return moment.cached("host numbers of tasks", lambda: _of_hosts(moment))[name][uses.row]
        case "tokens_per_s" | "requests":
            return moment.cached("servers of tasks", lambda: _of_jobs(
                moment, SERVER_NUMBERS, "servers"))[name][uses.row]
        case "collective_still_s":
            return moment.cached("collectives of tasks", lambda: _of_jobs(
                moment, COLLECTIVE_NUMBERS, "collectives"))[name][uses.row]
    return uses.sm if name == "sm_pct" else uses.mem


def _of_hosts(moment: EvaluationContext) -> dict[str, Floats]:
    return _while_fresh(moment, moment.uses.sampled(HOST_NUMBERS, attrgetter("host_tasks")))


def _of_jobs(moment: EvaluationContext, names: Sequence[str], of: str) -> dict[str, Floats]:
    """Return what one task reports for all tasks of its job: a server's workers report nothing
    themselves."""
    own = _while_fresh(moment, moment.uses.sampled(names, attrgetter(of)))
    return {name: of_whole_jobs(values, moment.uses.job) for name, values in own.items()}


def _while_fresh(moment: EvaluationContext, numbers: dict[str, Floats]) -> dict[str, Floats]:
    of_old_nodes = _is_old(moment)[moment.uses.node_at]
    return {name: np.where(of_old_nodes, np.nan, values) for name, values in numbers.items()}


def _is_old(moment: EvaluationContext) -> Mask:
    """Return, for each node, whether its host sample is old."""
    return moment.cached("old host samples", lambda:
                         moment.mono - moment.of_nodes("host_mono") > HOST_STALE_AFTER_S)


def of_whole_jobs(values: Floats, job: Rows) -> Floats:
    """Spread the value of a job's task over all its tasks; a task whose job is not known keeps its
    own."""
    by_job = np.full(int(job.max(initial=0)) + 1, np.nan)
    speaks = ~np.isnan(values) & (job != NONE)
    by_job[job[speaks]] = values[speaks]
    return np.where(job == NONE, values, by_job[job])


def _of_leases(moment: EvaluationContext) -> dict[str, Floats]:
    """Return lease numbers as each node reported them; NaN where a node leases no GPUs, but for the
    priority, which has a default."""
    reported = moment.uses.sampled(LEASE_NUMBERS, attrgetter("leased_tasks"))
    at = moment.uses.node_at
    is_pool = moment.by_node(lambda node: float(node.pool is not None))[at] == 1.0
    node_now = moment.now + np.nan_to_num(moment.of_nodes("clock_offset_s"))[at]
    overdue_s = np.maximum(0.0, np.nan_to_num(node_now - reported["lease_until"]))
    return {
        "is_outside_lease": np.where(is_pool, np.nan_to_num(reported["is_outside_lease"]), np.nan),
        "lease_overdue_s": np.where(is_pool, overdue_s, np.nan),
        "priority": np.where(np.isnan(reported["priority"]), DEFAULT_PRIORITY,
                             reported["priority"]),
    }
