"""Reading of Kubernetes that an agent sends to the hub."""

import time
from typing import TYPE_CHECKING

from gpudeck.contract.kubernetes import KubernetesNow, KubernetesRight, PodGpusNow

from .core import KubernetesError, KubernetesTextError, report
from .kubelet import KubeletSocket
from .pod_resources import pods_with_gpus

if TYPE_CHECKING:
    from .api_server import ApiServer

RIGHTS_EVERY_S = 300.0


class KubernetesReading:
    """Reader of an API server. The rights of its credential are queried now and then."""

    def __init__(self, server: "ApiServer") -> None:
        self._server = server
        self._rights: tuple[KubernetesRight, ...] | None = None
        self._rights_at = -RIGHTS_EVERY_S

    def read(self) -> KubernetesNow:
        server = self._server
        now = KubernetesNow(time.time(), server=server.url[:256])
        try:
            now = KubernetesNow(time.time(), server=server.url[:256], version=server.version())
            pods, nodes = server.pods(), server.nodes()
            return report(pods, nodes, KubernetesNow(
                now.taken_at, server=now.server, version=now.version,
                rights=self._known_rights(time.monotonic())))
        except (KubernetesError, KubernetesTextError) as why:
            return KubernetesNow(time.time(), str(why)[:1_024], now.server, now.version)

    def _known_rights(self, mono: float) -> tuple[KubernetesRight, ...] | None:
        if mono - self._rights_at >= RIGHTS_EVERY_S:
            self._rights_at = mono
            try:
                self._rights = self._server.rights()
            except (KubernetesError, KubernetesTextError):
                self._rights = None  # pods are shown all the same
        return self._rights


def read_kubelet(kubelet: KubeletSocket) -> PodGpusNow:
    try:
        return PodGpusNow(time.time(), pods=pods_with_gpus(kubelet.pod_resources()))
    except (KubernetesError, KubernetesTextError) as why:
        return PodGpusNow(time.time(), str(why)[:1_024])
