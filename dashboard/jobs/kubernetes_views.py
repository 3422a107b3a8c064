"""GPUs that Kubernetes has allocated beside those that its pods use, as the API and the page show
them. Pure.

As for Slurm, an agent is believed only where the hub's settings name its host.
"""

from collections.abc import Collection, Mapping

from msgspec import Struct

from gpudeck.contract.kubernetes import (
    KubernetesNode,
    KubernetesNow,
    KubernetesPod,
    KubernetesRight,
)
from gpudeck.contract.wire import Task

from ..fleet.fleet import Fleet, Node
from ..fleet.visibility import VisibleFleet
from .slurm_views import NOT_WATCHED, STALE_AFTER_S, by_host, speakers

NOT_READ = "the agent on {} does not see which pod a task belongs to"
BY_CLAIM = "it asks by resource claims, of which the number of GPUs is not known"
SHARED = "its GPUs are shared: how many it holds is not known, once a process uses one"


class PodGpuView(Struct):
    """A GPU of a pod. `index`: as gpudeck numbers them; None: the node lists no such GPU.
    `has_process`: of the pod; None: not known."""

    uuid: str
    index: int | None
    has_process: bool | None


class KubernetesPodView(Struct):
    """A pod. `gpus`: allocated, or requested while it waits. `without_process`: allocated GPUs that
    no process of the pod uses. None: not known; `unknown` says why. `given`: which GPUs, as the
    kubelet of its node says; None: it is not asked. `may`: actions that fit its state."""

    namespace: str
    name: str
    uid: str
    controller: str
    phase: str
    reason: str
    node: str | None
    host: str | None  # its name in gpudeck; None: it has no agent
    started_at: float | None
    is_leaving: bool
    gpus: int | None
    used: int | None
    without_process: int | None
    unknown: str
    given: list[PodGpuView] | None
    may: list[str]


class KubernetesNodeView(Struct):
    name: str
    host: str | None
    gpus: int
    allocated: int | None
    is_ready: bool
    is_cordoned: bool
    may: list[str]


class KubernetesClusterView(Struct):
    """A cluster. `node`: the agent that reads its API server, and the target of actions on it.
    `rights`: what the server lets its credential do; None: not known. `actions`: what its node
    permits."""

    node: str
    host: str
    server: str
    version: str
    trouble: str
    taken_at: float
    is_stale: bool
    rights: list[KubernetesRight] | None
    actions: list[str]
    left_out: int
    pods: list[KubernetesPodView]
    nodes: list[KubernetesNodeView]


class KubernetesList(Struct):
    """The clusters that a user sees. `ignored`: hosts whose agents speak for Kubernetes and that
    the setting kubernetes_nodes does not name."""

    items: list[KubernetesClusterView]
    ignored: list[str]


def kubernetes_list(fleet: Fleet, visible: VisibleFleet, trusted_hosts: Collection[str], mono: float
                    ) -> KubernetesList:
    believed, ignored = speakers(visible.nodes(fleet), trusted_hosts, lambda node: node.kubernetes)
    hosts = by_host(visible.ours(fleet).nodes(fleet))
    return KubernetesList([_cluster(visible, node, report, hosts, mono)
                           for node, report in believed], ignored)


def _cluster(visible: VisibleFleet, speaker: Node, report: KubernetesNow,
             hosts: Mapping[str, Node | None], mono: float) -> KubernetesClusterView:
    pods = [_pod(pod, node_of(pod.node, hosts), mono) for pod in report.pods
            if visible.is_whole or node_of(pod.node, hosts) is not None]
    pods.sort(key=lambda pod: (pod.node is None, -(pod.without_process or 0), pod.namespace,
                               pod.name))
    return KubernetesClusterView(
        speaker.hello.node_id, speaker.hello.host, report.server, report.version, report.trouble,
        report.taken_at, not speaker.connected or mono - speaker.kubernetes_mono > STALE_AFTER_S,
        None if report.rights is None else list(report.rights),
        [action for action in speaker.permits if action.startswith("kubernetes_")],
        report.left_out, pods,
        [_node(listed, node_of(listed.name, hosts)) for listed in report.nodes
         if visible.is_whole or node_of(listed.name, hosts) is not None])


def node_of(name: str | None, hosts: Mapping[str, Node | None]) -> Node | None:
    return None if name is None else hosts.get(name.partition(".")[0])


def _pod(pod: KubernetesPod, node: Node | None, mono: float) -> KubernetesPodView:
    pod_gpus = None if node is None else _pod_gpus(pod, node, mono)
    in_use, unused, unknown = _counts(pod, node, pod_gpus)
    return KubernetesPodView(
        pod.namespace, pod.name, pod.uid, pod.controller, pod.phase, pod.reason, pod.node,
        None if node is None else node.hello.host, pod.started_at, pod.is_leaving, pod.gpus, in_use,
        unused, unknown, pod_gpus, _fitting(pod))


def left_of_pod(pod: KubernetesPod, node: Node, mono: float) -> int | None:
    """Return how many of its GPUs have no process."""
    return _counts(pod, node, _pod_gpus(pod, node, mono))[1]


def _counts(pod: KubernetesPod, node: Node | None, pod_gpus: Collection[PodGpuView] | None
            ) -> tuple[int | None, int | None, str]:
    if pod_gpus is not None and all(gpu.index is not None for gpu in pod_gpus):
        return _of_given(pod_gpus, "" if pod.node is None else pod.node)
    return _of_processes(pod, node)


def _pod_gpus(pod: KubernetesPod, node: Node, mono: float) -> list[PodGpuView] | None:
    report = node.pod_gpus
    if (report is None or report.trouble or mono - node.pod_gpus_mono > STALE_AFTER_S
            or node.state != "live" or node.listing is None):
        return None
    uuids = next((assigned.gpus for assigned in report.pods
                  if (assigned.namespace, assigned.pod) == (pod.namespace, pod.name)), None)
    if uuids is None:
        return None  # it asks by claims, or has just come
    at = {facts.uuid: (slot, facts.index) for slot, facts in enumerate(
        node.listing.inventory.gpus)}
    own = _own_tasks(pod, node)
    return [PodGpuView(uuid, at[uuid][1], _has_process(node, at[uuid][0], own)) if uuid in at
            else PodGpuView(uuid, None, None) for uuid in uuids]


def _has_process(node: Node, gpu: int, own: Collection[str]) -> bool | None:
    on_it = {use.task_id for use in node.uses if use.gpu == gpu}
    if on_it & {*own}:
        return True
    is_unread = any(_is_unread(node.tasks[task_id]) for task_id in on_it if task_id in node.tasks)
    return None if is_unread or not node.are_tasks_known else False


def _of_given(pod_gpus: Collection[PodGpuView], name: str) -> tuple[int | None, int | None, str]:
    if any(gpu.has_process is None for gpu in pod_gpus):
        return None, None, NOT_READ.format(name)
    in_use = sum(gpu.has_process is True for gpu in pod_gpus)
    return in_use, len(pod_gpus) - in_use, ""


def _of_processes(pod: KubernetesPod, node: Node | None
                  ) -> tuple[int | None, int | None, str]:
    """Count by processes, where the GPUs that it was given are not known."""
    in_use, unknown = (None, "") if pod.node is None else _gpus_in_use(pod, pod.node, node)
    unused = None if in_use is None or pod.gpus is None else max(pod.gpus - in_use, 0)
    if pod.gpus is None:
        unknown = BY_CLAIM
    elif pod.is_shared and in_use:
        unused, unknown = None, SHARED
    return in_use, unused, unknown


def _fitting(pod: KubernetesPod) -> list[str]:
    return [] if pod.is_mirror else ["delete"] if pod.is_leaving else ["evict", "delete"]


def _gpus_in_use(pod: KubernetesPod, name: str, node: Node | None) -> tuple[int | None, str]:
    """Return how many GPUs its processes use, or why that is not known."""
    if node is None or node.state != "live" or not node.are_tasks_known:
        return None, NOT_WATCHED.format(name)
    own = _own_tasks(pod, node)
    in_use = len({use.gpu for use in node.uses if use.task_id in own})
    unread = any(_is_unread(task) for task in node.tasks.values())
    if unread and (pod.gpus is None or in_use < pod.gpus):
        return None, NOT_READ.format(name)
    return in_use, ""


def _own_tasks(pod: KubernetesPod, node: Node) -> set[str]:
    return {task_id for task_id, task in node.tasks.items()
            if (task.namespace, task.pod) == (pod.namespace, pod.name)}


def _is_unread(task: Task) -> bool:
    """Return whether it may be any pod's: its pod is not known, and it is in a container, or its
    user is not known either."""
    return task.pod is None and (task.container is not None or task.user is None)


def _node(node: KubernetesNode, agent: Node | None) -> KubernetesNodeView:
    return KubernetesNodeView(
        node.name, None if agent is None else agent.hello.host, node.gpus, node.allocated,
        node.is_ready, node.is_cordoned, ["uncordon" if node.is_cordoned else "cordon"])
