"""Wiring of samples and of the metrics page into the node."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..capability import Capability, NodeCore, NodeObservation
from ..limits.mps import LocalMpsDaemons, MpsClientCache
from ..tasks.name_cache import WorkloadNameCache
from ..tasks.people import TaskUsers
from ..tasks.processes import namespace_trouble
from ..tasks.task_table import Suspended, TaskTable
from .latest_sample import LatestSample
from .node_sampler import HostSampling, NodeSampler
from .prometheus import MetricsPage
from .recent_tasks import RecentTasks


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingCapability(Capability):
    read: Callable[[float], None]  # first in each turn, so that all else sees what is new
    send_all_again: Callable[[], None]  # the hub may know nothing of what was sent


def build(core: NodeCore, latest: LatestSample, recent: RecentTasks, mps: LocalMpsDaemons,
          with_host: HostSampling, observers: Sequence[Callable[[NodeObservation], None]],
          suspended: Suspended) -> SamplingCapability:
    tasks = TaskTable(core.boot_id, names=WorkloadNameCache(), clients=MpsClientCache(mps),
                      users=TaskUsers(), suspended=suspended)
    sampler = NodeSampler(core, latest, recent, tasks, with_host, observers)
    unseen = namespace_trouble() if core.backend.capabilities.pids == "host" else ""
    return SamplingCapability(name="sampling", read=sampler.step, trouble=lambda: unseen,
                              send_all_again=sampler.send_all_again)


def build_page(core: NodeCore, page: MetricsPage | None) -> Capability:
    """`page`: of metrics for Prometheus; None: nobody asked for it."""
    if page is None:
        return Capability(name="metrics page")

    def observe(observation: NodeObservation) -> None:
        if observation.reading is None:
            page.beside(observation.events)
        else:
            page.put(observation.reading, observation.events, observation.gpu_tasks,
                     (core.outbox.pending, core.outbox.dropped))

    return Capability(name="metrics page", observe=observe)
