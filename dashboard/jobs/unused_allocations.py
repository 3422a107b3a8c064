"""GPUs of each node that a scheduler has allocated and no process of the job uses, for rules."""

import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from ..fleet.fleet import Fleet, Node
from .kubernetes_views import left_of_pod, node_of
from .slurm_views import STALE_AFTER_S, by_host, by_slurm_name, speakers, used_of_share

EVERY_S = 15.0  # as often as agents say it


class UnusedAllocations:
    def __init__(self, fleet: Fleet, slurm_nodes: Collection[str],
                 kubernetes_nodes: Collection[str]) -> None:
        self._fleet = fleet
        self._named = slurm_nodes, kubernetes_nodes
        self._made_mono = -EVERY_S
        self._found: Mapping[str, float] = {}

    def by_node(self) -> Mapping[str, float]:
        """By id, nodes of which a scheduler says what it has allocated there."""
        mono = time.monotonic()
        if mono - self._made_mono >= EVERY_S:
            self._made_mono = mono
            self._found = unused_by_node(self._fleet, *self._named, mono)
        return self._found


def unused_by_node(fleet: Fleet, slurm_nodes: Collection[str], kubernetes_nodes: Collection[str],
                   mono: float) -> dict[str, float]:
    """Jobs of which it is not known add nothing: it is so at least."""
    nodes = [*fleet.nodes.values()]
    hosts = by_host(nodes)
    found: Counter[str] = Counter()
    for node, left in (*_of_slurm(nodes, hosts, slurm_nodes, mono),
                       *_of_kubernetes(nodes, hosts, kubernetes_nodes, mono)):
        found[node.hello.node_id] += left
    return {node_id: float(count) for node_id, count in found.items()}


def _of_slurm(nodes: Collection[Node], hosts: Mapping[str, Node | None], named: Collection[str],
              mono: float) -> Iterator[tuple[Node, int]]:
    for speaker, said in speakers(nodes, named, lambda node: node.slurm)[0]:
        if said.trouble or not speaker.connected or mono - speaker.slurm_mono > STALE_AFTER_S:
            continue
        at = by_slurm_name(said, hosts)
        yield from ((node, 0) for node in at.values() if node is not None)
        for job in said.jobs:
            for share in job.nodes if job.holds_gpus else ():
                node = at.get(share.node)
                used = used_of_share(job, share, node)[0]
                if node is not None and used is not None and share.gpus is not None:
                    yield node, max(share.gpus - used, 0)


def _of_kubernetes(nodes: Collection[Node], hosts: Mapping[str, Node | None],
                   named: Collection[str], mono: float) -> Iterator[tuple[Node, int]]:
    for speaker, said in speakers(nodes, named, lambda node: node.kubernetes)[0]:
        if said.trouble or not speaker.connected or mono - speaker.kubernetes_mono > STALE_AFTER_S:
            continue
        known = (node_of(each.name, hosts) for each in said.nodes)
        yield from ((node, 0) for node in known if node is not None)
        for pod in said.pods:
            node = node_of(pod.node, hosts)
            left = None if node is None else left_of_pod(pod, node, mono)
            if node is not None and left is not None:
                yield node, left
