"""What Kubernetes has allocated beside what its pods use, as the API and the page show it. Pure.

As of Slurm, an agent is believed only where the hub's settings name its host.
"""

from collections.abc import Collection, Mapping

from msgspec import Struct

from gpudeck.kubernetes import KubernetesNode, KubernetesNow, KubernetesPod, KubernetesRight
from gpudeck.wire import Task

from ..fleet.fleet import Fleet, Node
from ..fleet.visibility import VisibleFleet
from .slurm_views import NOT_WATCHED, STALE_AFTER_S, by_host, speakers

NOT_READ = "the agent on {} does not see which pod a task belongs to"
BY_CLAIM = "it asks by resource claims, of which the number of GPUs is not known"
SHARED = "its GPUs are shared: how many it holds is not known, once a process uses one"


class PodGpuView(Struct):
    """`index`: as gpudeck numbers them; None: the node lists no such GPU. `has_process`: of the
    pod; None: not known."""

    uuid: str
    index: int | None
    has_process: bool | None


class KubernetesPodView(Struct):
    """`gpus`: allocated, or asked for while it waits. `without_process`: allocated GPUs that no
    process of the pod uses. None: not known; `unknown` says why. `given`: which GPUs, as the
    kubelet of its node says; None: it is not asked. `may`: what fits its state."""

    namespace: str
    name: str
    uid: str
    controller: str
    phase: str
    reason: str
    node: str | None
    host: str | None  # as gpudeck calls it; None: it has no agent
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
    """`node`: the agent that reads its API server, and the target of actions on it. `rights`: what
    the server lets its credential do; None: not known. `actions`: what its node permits."""

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
    """`ignored`: hosts whose agents speak for Kubernetes and that the setting kubernetes_nodes does
    not name."""

    items: list[KubernetesClusterView]
    ignored: list[str]


def kubernetes_list(fleet: Fleet, visible: VisibleFleet, named: Collection[str], mono: float
                    ) -> KubernetesList:
    believed, ignored = speakers(visible.nodes(fleet), named, lambda node: node.kubernetes)
    hosts = by_host(visible.ours(fleet).nodes(fleet))
    return KubernetesList([_cluster(visible, node, said, hosts, mono)
                           for node, said in believed], ignored)


def _cluster(visible: VisibleFleet, speaker: Node, said: KubernetesNow,
             hosts: Mapping[str, Node | None], mono: float) -> KubernetesClusterView:
    pods = [_pod(each, node_of(each.node, hosts), mono) for each in said.pods
            if visible.is_whole or node_of(each.node, hosts) is not None]
    pods.sort(key=lambda pod: (pod.node is None, -(pod.without_process or 0), pod.namespace,
                               pod.name))
    return KubernetesClusterView(
        speaker.hello.node_id, speaker.hello.host, said.server, said.version, said.trouble,
        said.taken_at, not speaker.connected or mono - speaker.kubernetes_mono > STALE_AFTER_S,
        None if said.rights is None else list(said.rights),
        [action for action in speaker.hello.actions if action.startswith("kubernetes_")],
        said.left_out, pods,
        [_node(each, node_of(each.name, hosts)) for each in said.nodes
         if visible.is_whole or node_of(each.name, hosts) is not None])


def node_of(name: str | None, hosts: Mapping[str, Node | None]) -> Node | None:
    return None if name is None else hosts.get(name.partition(".")[0])


def _pod(pod: KubernetesPod, node: Node | None, mono: float) -> KubernetesPodView:
    given = None if node is None else _given(pod, node, mono)
    used, left, unknown = _counts(pod, node, given)
    return KubernetesPodView(
        pod.namespace, pod.name, pod.uid, pod.controller, pod.phase, pod.reason, pod.node,
        None if node is None else node.hello.host, pod.started_at, pod.is_leaving, pod.gpus, used,
        left, unknown, given, _fitting(pod))


def left_of_pod(pod: KubernetesPod, node: Node, mono: float) -> int | None:
    """Its GPUs without a process."""
    return _counts(pod, node, _given(pod, node, mono))[1]


def _counts(pod: KubernetesPod, node: Node | None, given: Collection[PodGpuView] | None
            ) -> tuple[int | None, int | None, str]:
    if given is not None and all(each.index is not None for each in given):
        return _of_given(given, "" if pod.node is None else pod.node)
    return _of_processes(pod, node)


def _given(pod: KubernetesPod, node: Node, mono: float) -> list[PodGpuView] | None:
    said = node.pod_gpus
    if (said is None or said.trouble or mono - node.pod_gpus_mono > STALE_AFTER_S
            or node.state != "live" or node.listing is None):
        return None
    held = next((each.gpus for each in said.pods
                 if (each.namespace, each.pod) == (pod.namespace, pod.name)), None)
    if held is None:
        return None  # it asks by claims, or has just come
    at = {facts.uuid: (slot, facts.index) for slot, facts in enumerate(
        node.listing.inventory.gpus)}
    own = _own_tasks(pod, node)
    return [PodGpuView(uuid, at[uuid][1], _has_process(node, at[uuid][0], own)) if uuid in at
            else PodGpuView(uuid, None, None) for uuid in held]


def _has_process(node: Node, gpu: int, own: Collection[str]) -> bool | None:
    on_it = {use.task_id for use in node.uses if use.gpu == gpu}
    if on_it & {*own}:
        return True
    is_unread = any(_is_unread(node.tasks[each]) for each in on_it if each in node.tasks)
    return None if is_unread or not node.are_tasks_known else False


def _of_given(given: Collection[PodGpuView], name: str) -> tuple[int | None, int | None, str]:
    if any(each.has_process is None for each in given):
        return None, None, NOT_READ.format(name)
    used = sum(each.has_process is True for each in given)
    return used, len(given) - used, ""


def _of_processes(pod: KubernetesPod, node: Node | None
                  ) -> tuple[int | None, int | None, str]:
    """Where nobody says which GPUs it was given."""
    used, unknown = (None, "") if pod.node is None else _used(pod, pod.node, node)
    left = None if used is None or pod.gpus is None else max(pod.gpus - used, 0)
    if pod.gpus is None:
        unknown = BY_CLAIM
    elif pod.is_shared and used:
        left, unknown = None, SHARED
    return used, left, unknown


def _fitting(pod: KubernetesPod) -> list[str]:
    return [] if pod.is_mirror else ["delete"] if pod.is_leaving else ["evict", "delete"]


def _used(pod: KubernetesPod, name: str, node: Node | None) -> tuple[int | None, str]:
    """GPUs that its processes use."""
    if node is None or node.state != "live" or not node.are_tasks_known:
        return None, NOT_WATCHED.format(name)
    own = _own_tasks(pod, node)
    used = len({use.gpu for use in node.uses if use.task_id in own})
    unread = any(_is_unread(task) for task in node.tasks.values())
    if unread and (pod.gpus is None or used < pod.gpus):
        return None, NOT_READ.format(name)
    return used, ""


def _own_tasks(pod: KubernetesPod, node: Node) -> set[str]:
    return {task_id for task_id, task in node.tasks.items()
            if (task.namespace, task.pod) == (pod.namespace, pod.name)}


def _is_unread(task: Task) -> bool:
    """In a container without a known pod: it may be any pod's."""
    return task.pod is None and (task.container is not None or task.user is None)


def _node(node: KubernetesNode, known: Node | None) -> KubernetesNodeView:
    return KubernetesNodeView(
        node.name, None if known is None else known.hello.host, node.gpus, node.allocated,
        node.is_ready, node.is_cordoned, ["uncordon" if node.is_cordoned else "cordon"])
