"""What this agent tells the hub of Slurm, of Kubernetes and of its node's kubelet, every 15 s."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from gpudeck.kubernetes import KubernetesNow, PodGpusNow
from gpudeck.slurm import SlurmNow

from .kubernetes.kubelet import KubeletSocket
from .kubernetes.reading import KubernetesReading, read_kubelet
from .runtime.slow_reading import SlowReading
from .slurm.programs import SlurmPrograms
from .slurm.reading import SlurmReading

if TYPE_CHECKING:
    from .kubernetes.api_server import ApiServer

log = logging.getLogger("gpudeck.agent.schedulers")

EVERY_S = 15.0
LOAD_SHARE = 20  # a reading that takes a second is not repeated for as many
N = TypeVar("N", SlurmNow, KubernetesNow, PodGpusNow)


@dataclass(frozen=True, slots=True)
class MadeUpSchedulers:
    """Of a demo: they are shown, and nothing can be asked of them."""

    slurm: Callable[[], SlurmNow]
    kubernetes: Callable[[], KubernetesNow]


@dataclass(frozen=True, slots=True)
class Schedulers:
    """Those for which this agent speaks; the kubelet is its own node's."""

    slurm: SlurmPrograms | None = None
    kubernetes: "ApiServer | None" = None
    kubelet: KubeletSocket | None = None
    made_up: MadeUpSchedulers | None = None  # where there is no real one


class SchedulerReadings:
    def __init__(self, of: Schedulers, wake: Callable[[], None]) -> None:
        made_up = of.made_up
        slurm = None if made_up is None else made_up.slurm
        kubernetes = None if made_up is None else made_up.kubernetes
        if of.slurm is not None:
            slurm = _logged("slurm", SlurmReading(of.slurm).read)
        if of.kubernetes is not None:
            kubernetes = _logged("kubernetes", KubernetesReading(of.kubernetes).read)
        kubelet = None if of.kubelet is None else _logged(
            "kubelet", partial(read_kubelet, of.kubelet))
        self._readings = (SlowReading("slurm", slurm, EVERY_S, LOAD_SHARE, wake),
                          SlowReading("kubernetes", kubernetes, EVERY_S, LOAD_SHARE, wake),
                          SlowReading("kubelet", kubelet, EVERY_S, LOAD_SHARE, wake))

    def changed(self) -> None:
        """An act has just been done, or there is a hub to tell."""
        for each in self._readings:
            each.changed()

    def step(self, now: float, is_live: bool) -> Iterator[SlurmNow | KubernetesNow | PodGpusNow]:
        for each in self._readings:
            yield from each.step(now, is_live)

    def close(self) -> None:
        for each in self._readings:
            each.close()


def _logged(name: str, read: Callable[[], N]) -> Callable[[], N]:
    """Each trouble once."""
    last = ""

    def reading() -> N:
        nonlocal last
        news = read()
        if news.trouble and news.trouble != last:
            log.warning("%s_unreadable why=%r", name, news.trouble)
        last = news.trouble
        return news

    return reading
