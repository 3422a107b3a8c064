"""Numbers that a node reports of its tasks besides their GPUs, as columns. They are made once,
when they are reported: rules look at all of them every second. Pure."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from msgspec import UNSET

from gpudeck.contract.hosts import HostSample
from gpudeck.contract.pool_link import PoolReport

HOST_NUMBERS = ("host_cpu_pct", "host_blocked", "host_io_bytes_per_s")
SERVER_NUMBERS = ("tokens_per_s", "requests")
COLLECTIVE_NUMBERS = ("collective_still_s",)
LEASE_NUMBERS = ("is_outside_lease", "lease_until", "priority")


@dataclass(frozen=True, slots=True)
class SampledTasks:
    """`values`: a row per number, a column per task of `ids`. NaN: not known."""

    ids: tuple[str, ...]
    values: npt.NDArray[np.float64]


NO_TASKS = SampledTasks((), np.empty((0, 0)))


def host_numbers(sample: HostSample) -> SampledTasks:
    cpu, blocked, read_rate, write_rate = np.array(
        [(task.cpu_pct, task.blocked, task.read_bytes_per_s, task.write_bytes_per_s)
         for task in sample.tasks], float).reshape(-1, 4).T
    return SampledTasks(tuple(task.task_id for task in sample.tasks),
                        np.array((cpu, blocked, read_rate + write_rate)))


def server_numbers(sample: HostSample) -> SampledTasks:
    """Return the numbers of servers. An engine that reports no queue has none."""
    if not sample.serving:
        return NO_TASKS
    tokens, running, waiting = np.array(
        [(server.generated_tokens_per_s, server.running, server.waiting)
         for server in sample.serving], float).reshape(-1, 3).T
    return SampledTasks(tuple(server.task_id for server in sample.serving),
                        np.array((tokens, running + np.nan_to_num(waiting))))


def collective_numbers(sample: HostSample) -> SampledTasks:
    """Return for how long the collectives of jobs have stood still, as far as NCCL says that."""
    reports = () if sample.collectives is UNSET else sample.collectives
    rows = [(report.task_id, report.still_s) for report in reports if not report.trouble]
    return SampledTasks(tuple(task_id for task_id, _ in rows), np.array(
        [still_s for _, still_s in rows], float).reshape(1, -1)) if rows else NO_TASKS


def lease_numbers(report: PoolReport) -> SampledTasks:
    """`lease_until`: by the node's clock; of a task with two leases, the end of the first."""
    leased = {uuid for lease in report.leases for uuid in lease.uuids}
    rows = [(use.task_id, 1.0, np.nan, np.nan) for use in report.outside if use.gpu in leased]
    rows += [(task_id, np.nan, lease.until, lease.claim.priority)
             for lease in sorted(report.leases, key=lambda lease: -lease.until)
             for task_id in lease.task_ids]
    return SampledTasks(tuple(task_id for task_id, *_ in rows),
                        np.array([numbers for _, *numbers in rows], float).reshape(-1, 3).T)


def host_pressure_pct(sample: HostSample) -> float | None:
    """Return the highest pressure that is known, of disks and processors."""
    pressures = [value for key in ("io_pressure_pct", "cpu_pressure_pct")
                 if (value := sample.number(key)) is not None]
    return max(pressures, default=None)
