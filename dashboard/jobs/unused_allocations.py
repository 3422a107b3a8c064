"""GPUs of each node that a scheduler has allocated and no process of the job uses, for rules."""

import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from ..fleet.fleet import Fleet, Node
from .kubernetes_views import left_of_pod, node_of
from .slurm_views import STALE_AFTER_S, by_host, by_slurm_name, speakers, used_of_share

EVERY_S = 15.0  # as often as agents report it


class UnusedAllocations:
    def __init__(self, fleet: Fleet, slurm_nodes: Collection[str],
                 kubernetes_nodes: Collection[str]) -> None:
        self._fleet = fleet
        self._trusted_hosts = slurm_nodes, kubernetes_nodes
        self._made_mono = -EVERY_S
        self._unused: Mapping[str, float] = {}

    def by_node(self) -> Mapping[str, float]:
        """Return the count by node id, for nodes on which a scheduler reports its allocations."""
        mono = time.monotonic()
        if mono - self._made_mono >= EVERY_S:
            self._made_mono = mono
            self._unused = unused_by_node(self._fleet, *self._trusted_hosts, mono)
        return self._unused


def unused_by_node(fleet: Fleet, slurm_nodes: Collection[str], kubernetes_nodes: Collection[str],
                   mono: float) -> dict[str, float]:
    """Count unused GPUs. Jobs for which it is not known add nothing: there are at least so many."""
    nodes = [*fleet.nodes.values()]
    hosts = by_host(nodes)
    counts: Counter[str] = Counter()
    for node, unused in (*_of_slurm(nodes, hosts, slurm_nodes, mono),
                         *_of_kubernetes(nodes, hosts, kubernetes_nodes, mono)):
        counts[node.hello.node_id] += unused
    return {node_id: float(count) for node_id, count in counts.items()}


def _of_slurm(nodes: Collection[Node], hosts: Mapping[str, Node | None],
              trusted_hosts: Collection[str], mono: float) -> Iterator[tuple[Node, int]]:
    for speaker, report in speakers(nodes, trusted_hosts, lambda node: node.slurm)[0]:
        if report.trouble or not speaker.connected or mono - speaker.slurm_mono > STALE_AFTER_S:
            continue
        at = by_slurm_name(report, hosts)
        yield from ((node, 0) for node in at.values() if node is not None)
        for job in report.jobs:
            for share in job.nodes if job.holds_gpus else ():
                node = at.get(share.node)
                in_use = used_of_share(job, share, node)[0]
                if node is not None and in_use is not None and share.gpus is not None:
                    yield node, max(share.gpus - in_use, 0)


def _of_kubernetes(nodes: Collection[Node], hosts: Mapping[str, Node | None],
                   trusted_hosts: Collection[str], mono: float) -> Iterator[tuple[Node, int]]:
    for speaker, report in speakers(nodes, trusted_hosts, lambda node: node.kubernetes)[0]:
        if (report.trouble or not speaker.connected
                or mono - speaker.kubernetes_mono > STALE_AFTER_S):
            continue
        agents = (node_of(listed.name, hosts) for listed in report.nodes)
        yield from ((node, 0) for node in agents if node is not None)
        for pod in report.pods:
            node = node_of(pod.node, hosts)
            unused = None if node is None else left_of_pod(pod, node, mono)
            if node is not None and unused is not None:
                yield node, unused
