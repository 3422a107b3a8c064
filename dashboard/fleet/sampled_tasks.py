"""What a node says of its tasks beside their GPUs, as columns of numbers. They are made once, when
it says so: rules look at all of them every second. Pure."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpudeck.hosts import HostSample
from gpudeck.pool.link import PoolReport

HOST_NUMBERS = ("host_cpu_pct", "host_blocked", "host_io_bytes_per_s")
SERVER_NUMBERS = ("tokens_per_s", "requests")
LEASE_NUMBERS = ("is_outside_lease", "lease_until", "priority")


@dataclass(frozen=True, slots=True)
class SampledTasks:
    """`values`: a row per number, a column per task of `ids`. NaN: not known."""

    ids: tuple[str, ...]
    values: npt.NDArray[np.float64]


NO_TASKS = SampledTasks((), np.empty((0, 0)))


def host_numbers(sample: HostSample) -> SampledTasks:
    cpu, blocked, read, written = np.array(
        [(task.cpu_pct, task.blocked, task.read_bytes_per_s, task.write_bytes_per_s)
         for task in sample.tasks], float).reshape(-1, 4).T
    return SampledTasks(tuple(task.task_id for task in sample.tasks),
                        np.array((cpu, blocked, read + written)))


def server_numbers(sample: HostSample) -> SampledTasks:
    """An engine that tells of no queue has none."""
    if not sample.serving:
        return NO_TASKS
    tokens, running, waiting = np.array(
        [(server.generated_tokens_per_s, server.running, server.waiting)
         for server in sample.serving], float).reshape(-1, 3).T
    return SampledTasks(tuple(server.task_id for server in sample.serving),
                        np.array((tokens, running + np.nan_to_num(waiting))))


def lease_numbers(report: PoolReport) -> SampledTasks:
    """`lease_until`: by the node's clock; of a task with two leases, the end of the first."""
    leased = {uuid for lease in report.leases for uuid in lease.uuids}
    said = [(use.task_id, 1.0, np.nan, np.nan) for use in report.outside if use.gpu in leased]
    said += [(task_id, np.nan, lease.until, lease.claim.priority)
             for lease in sorted(report.leases, key=lambda lease: -lease.until)
             for task_id in lease.task_ids]
    return SampledTasks(tuple(task_id for task_id, *_ in said),
                        np.array([numbers for _, *numbers in said], float).reshape(-1, 3).T)


def host_pressure_pct(sample: HostSample) -> float | None:
    """The most that is known of disks and processors."""
    known = [value for key in ("io_pressure_pct", "cpu_pressure_pct")
             if (value := sample.number(key)) is not None]
    return max(known, default=None)
