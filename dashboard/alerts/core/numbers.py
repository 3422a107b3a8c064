"""Every number that a rule can read, with its unit and, where history keeps its parts, its one
definition: over columns from the fleet as it is now, or from history in a rehearsal. Pure.
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from gpudeck.contract.hosts import HOST
from gpudeck.measures.metrics import COLUMNS, SLOW
from gpudeck.measures.waste import LOADS

from ...insight.core.order import distinct_values, is_first_to_go
from ...insight.core.progress import no_progress
from ...jobs.core import signs
from .rule_signal import Floats
from .state_machine import Mask, Rows
from .xid_counts import COUNTERS

T = TypeVar("T")
Join = Literal["total", "mean_per_gpu", "most", "mean_of_gpus", "distinct"]
NONE = -1  # in a column of keys: not known
LASTING_KEYS = ("task", "job", "gpu")  # of a use, for as long as its task is there
FACTS = {"mem_total_bytes": "B", "power_limit_max_w": "W", "temp_slowdown_c": "°C",
         "temp_shutdown_c": "°C", "pcie_width_max": ""}


# -- tasks, jobs and owners


class UseColumns(Protocol):
    """One row per use of a GPU by a task: each use now, or each use in every minute of a span. A
    cell is a target at one such moment; `gpu` numbers each GPU at one such moment."""

    @property
    def size(self) -> int:
        """Number of cells."""

    @property
    def cell(self) -> Rows:
        """Cell of each use, or NONE."""

    @property
    def gpu(self) -> Rows:
        """GPU of each use."""

    def keys(self, what: str) -> Rows:
        """Return a number per use: equal for the same task, job, node or GPU; NONE does not
        count."""

    def reuse(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return a value that depends on `cell`, `gpu` and LASTING_KEYS alone. It may be made once
        for as long as these stay."""

    def of_uses(self, name: str) -> Floats: ...

    def of_gpus(self, name: str) -> Floats:
        """Return, by GPU, a metric, a fact of its board, or how many `jobs` are on it."""


@dataclass(frozen=True, slots=True)
class UseNumber:
    """Definition of a number made of uses. `column`: the joined values, made by DERIVED or by the
    source."""

    unit: str
    join: Join
    column: str
    of: tuple[str, ...]
    is_recorded: bool = True


_WORK = ("task", "job")
_ALL = (*_WORK, "owner")

USES: dict[str, UseNumber] = {
    "mem_used_bytes": UseNumber("B", "total", "mem_used_bytes", _ALL),
    "sm_pct": UseNumber("%", "mean_per_gpu", "sm_pct", _WORK),
    "util_pct": UseNumber("%", "mean_of_gpus", "util_pct", _ALL),
    "power_w": UseNumber("W", "mean_of_gpus", "power_w", _WORK),
    "util_max_pct": UseNumber("%", "most", "util_max_pct", _WORK),
    "busy_pct": UseNumber("%", "most", "busy_pct", _WORK),
    "mem_share": UseNumber("", "most", "mem_share", _WORK),
    "gpu_mem_share": UseNumber("", "most", "gpu_mem_share", _WORK),
    "gpu_jobs": UseNumber("", "most", "gpu_jobs", _WORK),
    "gpus": UseNumber("", "distinct", "gpu", _ALL),
    "tasks": UseNumber("", "distinct", "task", ("job", "owner")),
    "jobs": UseNumber("", "distinct", "job", ("owner",)),
    "gpus_faulty": UseNumber("", "distinct", "faulty_gpu", ("owner",)),
    "gpus_stuck": UseNumber("", "distinct", "stuck_gpu", ("job",)),
    "rank_lag_pct": UseNumber("%", "most", "rank_lag_pct", ("job",)),
    "host_cpu_pct": UseNumber("%", "most", "host_cpu_pct", _WORK),
    "works_on_host": UseNumber("", "most", "works_on_host", _WORK),
    "starved_pct": UseNumber("%", "most", "starved_pct", _WORK, is_recorded=False),
    "host_blocked": UseNumber("", "most", "host_blocked", _WORK, is_recorded=False),
    "host_io_bytes_per_s": UseNumber("B/s", "most", "host_io_bytes_per_s", _WORK,
                                     is_recorded=False),
    "tokens_per_s": UseNumber("", "most", "tokens_per_s", _WORK, is_recorded=False),
    "requests": UseNumber("", "most", "requests", _WORK, is_recorded=False),
    "collective_still_s": UseNumber("s", "most", "collective_still_s", _WORK, is_recorded=False),
    "nodes": UseNumber("", "distinct", "node", ("job",), is_recorded=False),
    "age_s": UseNumber("s", "most", "age_s", _WORK, is_recorded=False),
    "is_youngest": UseNumber("", "most", "is_youngest", _WORK, is_recorded=False),
    "first_to_go_mem_share": UseNumber("", "most", "first_to_go_mem_share", _WORK,
                                       is_recorded=False),
    "is_foreign": UseNumber("", "most", "is_foreign", _WORK, is_recorded=False),
    "is_outside_lease": UseNumber("", "most", "is_outside_lease", _WORK, is_recorded=False),
    "lease_overdue_s": UseNumber("s", "most", "lease_overdue_s", _WORK, is_recorded=False),
}


def number_of_uses(name: str, uses: UseColumns) -> Floats:
    """Return a number by cell; NaN where a part of it is not known, and for a cell without a
    use."""
    number = USES[name]
    match number.join:
        case "distinct":
            derive_keys = DERIVED_KEYS.get(number.column)
            return (_distinct_of(uses, number.column) if derive_keys is None
                    else distinct(uses, derive_keys(uses)))
        case "mean_of_gpus":
            return _mean_of_gpus(uses, uses.of_gpus(number.column))
    derive = DERIVED.get(number.column)
    values = uses.of_uses(number.column) if derive is None else derive(uses)
    match number.join:
        case "total":
            return total(uses, values)
        case "mean_per_gpu":  # as gpudeck.measures.jobs.average_sm_pct
            return total(uses, values) / _distinct_of(uses, "gpu")
    return reduce_uses(uses, values, np.maximum)


def total(uses: UseColumns, values: Floats) -> Floats:
    has_cell = uses.cell != NONE
    cell = uses.cell[has_cell]
    sums = np.bincount(cell, values[has_cell], uses.size)
    return np.where(np.bincount(cell, minlength=uses.size) > 0, sums, np.nan)


def reduce_uses(uses: UseColumns, values: Floats, join: np.ufunc) -> Floats:
    nothing = np.inf if join is np.minimum else -np.inf
    extremes, has_cell = np.full(uses.size, nothing), uses.cell != NONE
    with np.errstate(invalid="ignore"):
        join.at(extremes, uses.cell[has_cell], values[has_cell])
    return np.where(np.isinf(extremes), np.nan, extremes)


def distinct(uses: UseColumns, keys: Rows) -> Floats:
    """Return how many different keys there are in each cell."""
    is_known = (uses.cell != NONE) & (keys != NONE)
    base = int(keys.max(initial=0)) + 1
    pairs = distinct_values(uses.cell[is_known] * base + keys[is_known])
    return np.bincount(pairs // base, minlength=uses.size).astype(float)


def _distinct_of(uses: UseColumns, column: str) -> Floats:
    if column not in LASTING_KEYS:
        return distinct(uses, uses.keys(column))
    return uses.reuse(column, lambda: distinct(uses, uses.keys(column)))


def _gpus_of_cells(uses: UseColumns) -> tuple[Rows, Rows]:
    """Return the cell and the GPU of each pair of them, once."""
    has_cell, base = uses.cell != NONE, int(uses.gpu.max(initial=0)) + 1
    pairs = distinct_values(uses.cell[has_cell] * base + uses.gpu[has_cell])
    return pairs // base, pairs % base


def _mean_of_gpus(uses: UseColumns, by_gpu: Floats) -> Floats:
    """Return the mean over GPUs, each counted once however many of the target's tasks are on it."""
    cells, gpus = uses.reuse("gpus of cells", lambda: _gpus_of_cells(uses))
    count = np.bincount(cells, minlength=uses.size)
    sums = np.bincount(cells, by_gpu[gpus], uses.size)
    return np.where(count > 0, sums / np.maximum(count, 1), np.nan)


def distinct_on_gpus(gpu: Rows, key: Rows, gpus: int) -> Floats:
    """Return how many jobs, or owners, are on each GPU; NaN where one of them is not known."""
    base = int(key.max(initial=0)) + 2
    pairs = distinct_values(gpu * base + key + 1)
    count = np.bincount(pairs // base, minlength=gpus).astype(float)
    count[gpu[key == NONE]] = np.nan
    return count


def _busy_pct(uses: UseColumns) -> Floats:
    """Return the highest of all signs of work: the task's own share of the multiprocessors, and the
    load of its GPU where no other job is on it. NaN where the only sign is missing."""
    load, is_alone = np.full(len(uses.gpu), np.nan), uses.of_gpus("jobs")[uses.gpu] == 1
    for name in LOADS:
        load = np.where(np.isnan(load), uses.of_gpus(name)[uses.gpu], load)
    return np.fmax(uses.of_uses("sm_pct"), np.where(is_alone, load, np.nan))


def _is_youngest(uses: UseColumns) -> Floats:
    """Return whether a job started last of those that share a GPU. A job starts with its first
    task."""
    job, jobs = uses.keys("job"), uses.of_gpus("jobs")
    is_known, started_at = job != NONE, np.full(int(job.max(initial=0)) + 1, np.inf)
    last = np.full(len(jobs), -np.inf)
    with np.errstate(invalid="ignore"):
        np.minimum.at(started_at, job[is_known], uses.of_uses("started_at")[is_known])
        mine = np.where(is_known, started_at[job], np.nan)
        np.maximum.at(last, uses.gpu, mine)
    is_last = (mine == last[uses.gpu]) & (jobs[uses.gpu] > 1)
    return np.where(np.isnan(mine) | np.isnan(last[uses.gpu]), np.nan, is_last.astype(float))


def _first_to_go_mem_share(uses: UseColumns) -> Floats:
    """Return how full a GPU is, for the one job on it that goes first; 0 for the others, and on a
    GPU that nobody shares. By GPU, not by job: the job that goes first on one GPU may come last on
    a full one."""
    share = (uses.of_gpus("mem_used_bytes") / uses.of_gpus("mem_total_bytes"))[uses.gpu]
    is_first = is_first_to_go(uses.keys("job"), uses.gpu, uses.of_uses("priority"),
                              uses.of_uses("started_at"), len(uses.of_gpus("jobs")))
    return np.where(np.isnan(is_first), np.nan, np.where(is_first == 1, share, 0.0))


def _stuck_gpu(uses: UseColumns) -> Rows:
    is_stuck = signs.stuck(*(uses.of_gpus(name) for name in (
        "util_pct", "mem_util_pct", "power_w", "power_limit_max_w")))
    return np.where(is_stuck[uses.gpu], uses.keys("gpu"), NONE)


def _rank_lag_pct(uses: UseColumns) -> Floats:
    """Return how far each GPU lags behind its peers: the GPUs of the same job on the same node, at
    the same moment. NaN while all of the job rests: a pause for a checkpoint proves nothing."""
    nodes = int(uses.keys("node").max(initial=0)) + 1
    util, power, limit = (uses.of_gpus(name)[uses.gpu] for name in (
        "util_pct", "power_w", "power_limit_max_w"))
    lag = signs.rank_lag(util, power, limit, np.where(
        uses.cell == NONE, NONE, uses.cell * nodes + uses.keys("node")))
    rests = _is_any_in_cell(uses, lag.rests) & ~_is_any_in_cell(uses, lag.is_compared)
    # A shared board may be slow because of another job: nobody knows which.
    pct = np.where(uses.of_gpus("jobs")[uses.gpu] == 1, lag.pct, 0.0)
    return np.where(rests, np.nan, pct)


def _is_any_in_cell(uses: UseColumns, mask: Mask) -> Mask:
    """Return, for each use, whether any use of its cell is in the mask."""
    are_in = np.bincount(uses.cell[mask & (uses.cell != NONE)], minlength=uses.size) > 0
    in_cell: Mask = np.append(are_in, False)[uses.cell]  # NONE is the last
    return in_cell


DERIVED_KEYS: dict[str, Callable[[UseColumns], Rows]] = {"stuck_gpu": _stuck_gpu}
DERIVED: dict[str, Callable[[UseColumns], Floats]] = {
    "is_youngest": _is_youngest,
    "first_to_go_mem_share": _first_to_go_mem_share,
    "rank_lag_pct": _rank_lag_pct,
    "works_on_host": lambda uses: signs.works_on_host(uses.of_uses("host_cpu_pct")),
    "starved_pct": lambda uses: signs.starved_pct(
        uses.of_gpus("util_pct")[uses.gpu], uses.of_uses("host_pressure_pct")),
    "busy_pct": _busy_pct,
    "util_max_pct": lambda uses: uses.of_gpus("util_max_pct")[uses.gpu],
    "mem_share": lambda uses: (
        uses.of_uses("mem_used_bytes") / uses.of_gpus("mem_total_bytes")[uses.gpu]),
    "gpu_mem_share": lambda uses: (
        uses.of_gpus("mem_used_bytes") / uses.of_gpus("mem_total_bytes"))[uses.gpu],
    "gpu_jobs": lambda uses: uses.of_gpus("jobs")[uses.gpu],
}


# -- GPUs


@dataclass(frozen=True, slots=True)
class GpuNumber:
    """A number of one second of a GPU, made of what was measured in it. `needs`: the parts without
    which it is not known."""

    unit: str
    of: tuple[str, ...]
    compute: Callable[..., Floats]
    needs: tuple[str, ...]


GPU: dict[str, GpuNumber] = {
    "no_progress": GpuNumber(
        "", ("util_pct", "power_w", "power_limit_w", "power_limit_max_w", "mem_util_pct",
             "pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s",
             "nvlink_tx_bytes_per_s", "nvlink_rx_bytes_per_s"),
        no_progress, ("util_pct", "power_w")),
}


def number_of_gpus(name: str, column: Callable[[str], Floats]) -> Floats:
    number = GPU[name]
    return number.compute(*map(column, number.of))


# -- nodes and the fleet


@dataclass(frozen=True, slots=True)
class GpuGroups:
    """GPUs that are counted together. `order`: their rows, group by group."""

    groups: int
    order: Rows
    starts: Rows
    group: Rows  # of each start

    def join(self, join: np.ufunc, values: npt.NDArray[Any], nothing: float) -> Floats:
        """Return groups x moments, out of GPUs x moments."""
        by_group = np.full((self.groups, values.shape[1]), nothing)
        mine = values[self.order].astype(np.float64, copy=False)
        if len(self.starts) == 1:  # ten times as fast
            by_group[self.group[0]] = join.reduce(mine, axis=0)
        elif len(self.starts):
            by_group[self.group] = join.reduceat(mine, self.starts, axis=0)
        return by_group


def grouped(group_of: Rows, counts: Mask, groups: int) -> GpuGroups:
    """Group GPUs. `counts`: whether each GPU counts. They stay in the given order, so that sums are
    the same to the last bit."""
    order = np.flatnonzero(counts)
    order = order[np.argsort(group_of[order], kind="stable")]
    starts = np.flatnonzero(np.append(True, np.diff(group_of[order]) != 0)[: len(order)])
    return GpuGroups(groups, order, starts, group_of[order][starts])


def _whole(values: Floats, groups: GpuGroups) -> Floats:
    """Return the sum; NaN where one of them does not report the metric."""
    return groups.join(np.add, values, np.nan)


def _total(values: Floats, groups: GpuGroups) -> Floats:
    """Return the sum of those that report the metric."""
    count = _count(values, groups)
    return np.where(count > 0, groups.join(np.add, np.nan_to_num(values), 0.0), np.nan)


def _mean(values: Floats, groups: GpuGroups) -> Floats:
    return _total(values, groups) / np.maximum(_count(values, groups), 1)


def _count(values: Floats, groups: GpuGroups) -> Floats:
    return groups.join(np.add, ~np.isnan(values), 0.0)


def _most(values: Floats, groups: GpuGroups) -> Floats:
    return groups.join(np.fmax, values, np.nan)


JoinGpus = Callable[[Floats, GpuGroups], Floats]
# Made of its GPUs' metric; for heat and power, MIG instances count with their board.
NODE: dict[str, tuple[str, JoinGpus, bool]] = {
    "util_pct": ("%", _mean, False), "power_w": ("W", _whole, True), "temp_c": ("°C", _most, True)}


def number_of_nodes(name: str, values: Floats, node_at: Rows, counts: Mask, is_board: Mask,
                    nodes: int) -> Floats:
    """Return nodes x moments. `values`: GPUs x moments; the other arrays have one entry per GPU."""
    _, compute, of_boards = NODE[name]
    return compute(values, grouped(node_at, counts & is_board if of_boards else counts, nodes))


class FleetColumns(Protocol):
    """Nodes, boards or GPUs x moments; the fleet now is one moment."""

    def is_there(self) -> Mask:
        """Return, for each node, whether it belongs to the fleet."""

    def is_silent(self) -> Mask: ...

    def boards(self) -> Floats:
        """Return the number of boards."""

    def is_lost(self) -> Mask:
        """Return, for each board, whether it is lost."""

    def live(self, name: str) -> Floats:
        """Return a metric where its sample is shown as live."""


def _of_live(compute: JoinGpus, values: Floats) -> Floats:
    size = len(values)
    groups = grouped(np.zeros(size, np.intp), np.ones(size, bool), 1)
    return np.asarray(compute(values, groups)[0])


FLEET: dict[str, tuple[str, Callable[[FleetColumns], Floats]]] = {
    "nodes": ("", lambda columns: columns.is_there().sum(axis=0).astype(float)),
    "nodes_silent": ("", lambda columns: columns.is_silent().sum(axis=0).astype(float)),
    "gpus": ("", lambda columns: columns.boards()),
    "gpus_lost": ("", lambda columns: columns.is_lost().sum(axis=0).astype(float)),
    "util_pct": ("%", lambda columns: _of_live(_mean, columns.live("util_pct"))),
    "power_w": ("W", lambda columns: _of_live(_total, columns.live("power_w"))),
}


def number_of_fleet(name: str, columns: FleetColumns) -> Floats:
    return FLEET[name][1](columns)


# -- all of them, by name

# Known for the fleet now, but not kept in history.
_NOW: dict[str, dict[str, str]] = {
    "gpu": {"tasks": "", "jobs": "", "owners": "", "lost": "", "error": "", "sample_age_s": "s",
            "is_board": "", "node_silent_s": "s", "node_reading_age_s": "s",
            **dict.fromkeys(COUNTERS, ""), "power_cap_drift_w": "W", "clock_lock_drifted": ""},
    "node": {"silent_s": "s", "clock_offset_s": "s", "clock_skew_s": "s", "gpus": "",
             "gpus_lost": "", "tasks": "", "reading_age_s": "s", "driver_gone": "",
             "driver_released": "", "pending": "", "dropped": "", "outbox_bytes": "B",
             "outbox_in_memory": "",
             "refused_s": "s", "gpus_without_process": "",
             **{f"host_{metric.key}": metric.unit for metric in HOST}},
    "fleet": {"gpus_free": "", "rules_failing": "", "blind_s": "s", "brakes_on": "",
              "is_unrecorded": "", "disk_refuses": "", "hub_clock_skew_s": "s"},
}


def _uses(of: str, is_recorded: bool) -> dict[str, str]:
    return {name: number.unit for name, number in USES.items()
            if of in number.of and (number.is_recorded or not is_recorded)}


RECORDED: dict[str, dict[str, str]] = {
    "gpu": {metric.key: metric.unit for metric in (*COLUMNS, *SLOW)} | FACTS | {
        name: number.unit for name, number in GPU.items()},
    "node": {name: number[0] for name, number in NODE.items()},
    "fleet": {name: number[0] for name, number in FLEET.items()},
    **{of: _uses(of, is_recorded=True) for of in _ALL},
}
NAMES: dict[str, dict[str, str]] = {
    **{of: RECORDED[of] | now for of, now in _NOW.items()},
    **{of: _uses(of, is_recorded=False) for of in _ALL},
}


def unrecorded(of: str, names: Iterable[str]) -> list[str]:
    """Return the names that only a live rule can read."""
    return sorted(name for name in names if name not in RECORDED[of])
