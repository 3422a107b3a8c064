"""What schedulers have allocated, as Prometheus text. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpudeck.prometheus_text import family, labels
from gpudeck.slurm import HOLDING

from .kubernetes_views import KubernetesList
from .slurm_views import SlurmList

STATES = ("used", "without_process", "unknown")
MOST_NAMED = 500  # jobs, those first that hold the most for nothing


@dataclass(frozen=True, slots=True)
class SchedulerAllocation:
    """Of one job or pod, all the GPUs that it holds."""

    scheduler: str
    cluster: str
    job: str
    owner: str  # its user, or its namespace
    gpus: int
    without_process: int | None


def scheduler_families(slurm: SlurmList, kubernetes: KubernetesList) -> Iterator[str]:
    held = [*_of_slurm(slurm), *_of_kubernetes(kubernetes)]
    clusters = sorted({(each.scheduler, each.cluster) for each in held})
    rows = [(scheduler, cluster, state) for scheduler, cluster in clusters for state in STATES]
    yield family("gpudeck_scheduler_gpus", "gauge", "GPUs that a scheduler has allocated: used, "
                 "without a process of the job, or not known.", [
                     labels({"scheduler": scheduler, "cluster": cluster, "state": state})
                     for scheduler, cluster, state in rows], [
                     float(_sum(held, scheduler, cluster, state))
                     for scheduler, cluster, state in rows])
    idle = sorted((each for each in held if each.without_process),
                  key=lambda each: (-(each.without_process or 0), each.job))[:MOST_NAMED]
    yield family("gpudeck_scheduler_job_gpus_without_process", "gauge",
                 "GPUs that a job holds and that no process of it uses.", [
                     labels({"scheduler": each.scheduler, "cluster": each.cluster,
                             "job": each.job, "owner": each.owner}) for each in idle], [
                     float(each.without_process or 0) for each in idle])


def _sum(held: Sequence[SchedulerAllocation], scheduler: str, cluster: str, state: str) -> int:
    return sum(_share(each, state) for each in held
               if (each.scheduler, each.cluster) == (scheduler, cluster))


def _share(of: SchedulerAllocation, state: str) -> int:
    if of.without_process is None:
        return of.gpus if state == "unknown" else 0
    return {"used": of.gpus - of.without_process, "without_process": of.without_process,
            "unknown": 0}[state]


def _of_slurm(found: SlurmList) -> Iterator[SchedulerAllocation]:
    for cluster in found.items:
        for job in [] if cluster.is_stale or cluster.trouble else cluster.jobs:
            if job.state in HOLDING and job.gpus is not None:
                yield SchedulerAllocation("slurm", cluster.cluster, job.id, job.user or "",
                                          job.gpus, job.without_process)


def _of_kubernetes(found: KubernetesList) -> Iterator[SchedulerAllocation]:
    for cluster in found.items:
        for pod in [] if cluster.is_stale or cluster.trouble else cluster.pods:
            if pod.node is not None and pod.gpus is not None:
                yield SchedulerAllocation("kubernetes", cluster.server, pod.name, pod.namespace,
                                          pod.gpus, pod.without_process)
