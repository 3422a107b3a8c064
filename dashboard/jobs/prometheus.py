"""GPUs that schedulers have allocated, as Prometheus text. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpudeck.contract.slurm import HOLDING
from gpudeck.prometheus.text import family, labels

from .kubernetes_views import KubernetesList
from .slurm_views import SlurmList

STATES = ("used", "without_process", "unknown")
MOST_NAMED = 500  # jobs: those with the most GPUs without a process come first


@dataclass(frozen=True, slots=True)
class SchedulerAllocation:
    """Allocation of one job or pod: all the GPUs that it holds."""

    scheduler: str
    cluster: str
    job: str
    owner: str  # its user, or its namespace
    gpus: int
    without_process: int | None


def scheduler_families(slurm: SlurmList, kubernetes: KubernetesList) -> Iterator[str]:
    allocations = [*_of_slurm(slurm), *_of_kubernetes(kubernetes)]
    clusters = sorted({(allocation.scheduler, allocation.cluster) for allocation in allocations})
    rows = [(scheduler, cluster, state) for scheduler, cluster in clusters for state in STATES]
    yield family("gpudeck_scheduler_gpus", "gauge", "GPUs that a scheduler has allocated: used, "
                 "without a process of the job, or not known.", [
                     labels({"scheduler": scheduler, "cluster": cluster, "state": state})
                     for scheduler, cluster, state in rows], [
                     float(_sum(allocations, scheduler, cluster, state))
                     for scheduler, cluster, state in rows])
    idle = sorted((job for job in allocations if job.without_process),
                  key=lambda job: (-(job.without_process or 0), job.job))[:MOST_NAMED]
    yield family("gpudeck_scheduler_job_gpus_without_process", "gauge",
                 "GPUs that a job holds and that no process of it uses.", [
                     labels({"scheduler": job.scheduler, "cluster": job.cluster,
                             "job": job.job, "owner": job.owner}) for job in idle], [
                     float(job.without_process or 0) for job in idle])


def _sum(allocations: Sequence[SchedulerAllocation], scheduler: str, cluster: str, state: str
         ) -> int:
    return sum(_share(allocation, state) for allocation in allocations
               if (allocation.scheduler, allocation.cluster) == (scheduler, cluster))


def _share(of: SchedulerAllocation, state: str) -> int:
    if of.without_process is None:
        return of.gpus if state == "unknown" else 0
    return {"used": of.gpus - of.without_process, "without_process": of.without_process,
            "unknown": 0}[state]


def _of_slurm(slurm: SlurmList) -> Iterator[SchedulerAllocation]:
    for cluster in slurm.items:
        for job in [] if cluster.is_stale or cluster.trouble else cluster.jobs:
            if job.state in HOLDING and job.gpus is not None:
                yield SchedulerAllocation("slurm", cluster.cluster, job.id, job.user or "",
                                          job.gpus, job.without_process)


def _of_kubernetes(kubernetes: KubernetesList) -> Iterator[SchedulerAllocation]:
    for cluster in kubernetes.items:
        for pod in [] if cluster.is_stale or cluster.trouble else cluster.pods:
            if pod.node is not None and pod.gpus is not None:
                yield SchedulerAllocation("kubernetes", cluster.server, pod.name, pod.namespace,
                                          pod.gpus, pod.without_process)
