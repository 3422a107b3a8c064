"""Readings of Slurm, Kubernetes and this node's kubelet, sent to the hub every 15 s."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from gpudeck.contract.kubernetes import KubernetesNow, PodGpusNow
from gpudeck.contract.slurm import SlurmNow

from ..kubernetes.kubelet import KubeletSocket
from ..kubernetes.reading import KubernetesReading, read_kubelet
from ..runtime.slow_reading import SlowReading
from ..slurm.programs import SlurmPrograms
from ..slurm.reading import SlurmReading

if TYPE_CHECKING:
    from ..kubernetes.api_server import ApiServer

log = logging.getLogger("gpudeck.agent.schedulers")

EVERY_S = 15.0
LOAD_SHARE = 20  # a reading that takes a second is not repeated for as many
N = TypeVar("N", SlurmNow, KubernetesNow, PodGpusNow)


@dataclass(frozen=True, slots=True)
class MadeUpSchedulers:
    """Made-up schedulers of a demo: they are shown, and take no requests."""

    slurm: Callable[[], SlurmNow]
    kubernetes: Callable[[], KubernetesNow]


@dataclass(frozen=True, slots=True)
class Schedulers:
    """Schedulers that this agent reports on; the kubelet is its node's."""

    slurm: SlurmPrograms | None = None
    kubernetes: "ApiServer | None" = None
    kubelet: KubeletSocket | None = None
    made_up: MadeUpSchedulers | None = None  # where there is no real one


class SchedulerReadings:
    def __init__(self, schedulers: Schedulers, wake: Callable[[], None]) -> None:
        made_up = schedulers.made_up
        slurm = None if made_up is None else made_up.slurm
        kubernetes = None if made_up is None else made_up.kubernetes
        if schedulers.slurm is not None:
            slurm = _with_log("slurm", SlurmReading(schedulers.slurm).read)
        if schedulers.kubernetes is not None:
            kubernetes = _with_log("kubernetes", KubernetesReading(schedulers.kubernetes).read)
        kubelet = None if schedulers.kubelet is None else _with_log(
            "kubelet", partial(read_kubelet, schedulers.kubelet))
        self._readings = (SlowReading("slurm", slurm, EVERY_S, LOAD_SHARE, wake),
                          SlowReading("kubernetes", kubernetes, EVERY_S, LOAD_SHARE, wake),
                          SlowReading("kubelet", kubelet, EVERY_S, LOAD_SHARE, wake))

    def changed(self) -> None:
        """Read all again: an action has just been done, or a hub is connected."""
        for reading in self._readings:
            reading.changed()

    def step(self, now: float, is_live: bool) -> Iterator[SlurmNow | KubernetesNow | PodGpusNow]:
        for reading in self._readings:
            yield from reading.step(now, is_live)

    def close(self) -> None:
        for reading in self._readings:
            reading.close()


def _with_log(name: str, read: Callable[[], N]) -> Callable[[], N]:
    """Wrap `read` so that each new trouble is logged once."""
    last = ""

    def reading() -> N:
        nonlocal last
        report = read()
        if report.trouble and report.trouble != last:
            log.warning("%s_unreadable why=%r", name, report.trouble)
        last = report.trouble
        return report

    return reading
