"""GPUs that Slurm and Kubernetes have allocated, as far as a user sees them."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

from ..fleet.fleet import Fleet
from ..fleet.visibility import VisibleFleet
from .kubernetes_views import KubernetesList, kubernetes_list
from .prometheus import scheduler_families
from .slurm_views import SlurmList, slurm_list


@dataclass(frozen=True, slots=True)
class SchedulerQueries:
    """Queries about schedulers. `…_nodes`: hosts whose agents may speak for them."""

    fleet: Fleet
    slurm_nodes: frozenset[str]
    kubernetes_nodes: frozenset[str]

    def slurm(self, visible: VisibleFleet) -> SlurmList:
        return slurm_list(self.fleet, visible, self.slurm_nodes, time.monotonic())

    def kubernetes(self, visible: VisibleFleet) -> KubernetesList:
        return kubernetes_list(self.fleet, visible, self.kubernetes_nodes, time.monotonic())

    def texts(self, visible: VisibleFleet) -> Iterator[str]:
        """Yield text for Prometheus."""
        return scheduler_families(self.slurm(visible), self.kubernetes(visible))
