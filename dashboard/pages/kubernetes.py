"""The Kubernetes page: pods that hold GPUs or wait for some, and nodes, with what its API server
can be asked."""

from functools import partial

from dash.development.base_component import Component

from gpudeck.client.hub import Client, typed
from gpudeck.contract.kubernetes import MAX_GRACE_S, KubernetesRight
from gpudeck.markup import make

from ..jobs.kubernetes_views import (
    KubernetesClusterView,
    KubernetesList,
    KubernetesNodeView,
    KubernetesPodView,
    PodGpuView,
)
from .parts import READ_PAGE, Page
from .reading import Parts, Reading, View, Viewer, viewer
from .scheduler import (
    EVERY_S,
    SHOWN,
    ActionForm,
    ActionTarget,
    ClusterSection,
    Scheduler,
    actions_cell,
    cell,
    frame,
    node_cell,
    number_words,
    page_parts,
    soft_cell,
    table,
    unused_cell,
)
from .words import NONE, age

GRACE = ActionForm(
    ({"name": "pod_grace_s", "label": "Time of grace, in seconds (empty: the pod's own)",
      "type": "number", "traits": {"min": "1", "max": str(MAX_GRACE_S), "step": "1"}},),
    {"grace_s": "$pod_grace_s"})
KUBERNETES = Scheduler(
    "kubernetes", "Kubernetes", "pod", "No agent reports Kubernetes yet. Start one with "
    "--kubernetes, and name its host in the hub's setting kubernetes_nodes.",
    {"kubernetes_delete": GRACE})
POD_HEADS = ("Pod", "Of", "Phase", "Node", "GPUs", "Without process", "Time", "")
NODE_HEADS = ("Node", "State", "Allocated", "")
RIGHTS: dict[KubernetesRight, str] = {
    "delete": "delete pods", "evict": "evict pods", "cordon": "cordon nodes"}


def answer(client: Client, view: View, now: float) -> Parts:
    return parts_of(typed(KubernetesList, client.hub.get("kubernetes")), viewer(client), view.zone,
                    now)


def parts_of(listed: KubernetesList, person: Viewer, zone: str, now: float) -> Parts:
    """Return the parts of the page. Pure."""
    sections = [_section(cluster, person, now) for cluster in listed.items]
    return page_parts(KUBERNETES, sections, listed.ignored, zone)


def _section(cluster: KubernetesClusterView, person: Viewer, now: float) -> ClusterSection:
    pods = [_pod(cluster, pod, person, now) for pod in cluster.pods[:SHOWN]]
    nodes = [_node(cluster, node, person) for node in cluster.nodes]
    return ClusterSection(cluster, cluster.server, cluster.pods, notes(cluster), [
        table("Pods", POD_HEADS, pods), table("Nodes", NODE_HEADS, nodes)])


def notes(cluster: KubernetesClusterView) -> list[str]:
    rights = cluster.rights
    if rights is None or not cluster.actions:
        return []
    missing = [words for right, words in RIGHTS.items() if right not in rights]
    return [f"The API server does not let the agent's credential {', '.join(missing)} in all "
            "namespaces."] if missing else []


def _pod(cluster: KubernetesClusterView, pod: KubernetesPodView, person: Viewer, now: float
         ) -> Component:
    name = f"{pod.namespace}/{pod.name}"
    target = ActionTarget(
        f"pod {name}", {"namespace": pod.namespace, "pod": pod.name, "uid": pod.uid}, pod.may)
    return make("tr", [
        soft_cell(pod.name, pod.namespace, "strong"), cell(pod.controller or NONE),
        soft_cell("Terminating" if pod.is_leaving else pod.phase, pod.reason),
        cell(NONE) if pod.node is None else node_cell(pod.node, pod.host),
        soft_cell(number_words(pod.gpus), gpu_names(pod.given)), unused_cell(pod),
        cell("" if pod.started_at is None else age(now - pod.started_at)),
        actions_cell(KUBERNETES, cluster, target, person)], data_pod=name, data_key=pod.uid)


def gpu_names(pod_gpus: list[PodGpuView] | None) -> str:
    """Name the GPUs that its kubelet says it was given, as the node's page numbers them."""
    return "" if not pod_gpus else "GPU " + ", ".join(
        gpu.uuid if gpu.index is None else str(gpu.index) for gpu in pod_gpus)


def _node(cluster: KubernetesClusterView, node: KubernetesNodeView, person: Viewer
          ) -> Component:
    state = ["Ready" if node.is_ready else "NotReady",
             *(["SchedulingDisabled"] if node.is_cordoned else [])]
    target = ActionTarget(f"node {node.name}", {"node": node.name}, node.may)
    return make("tr", [
        node_cell(node.name, node.host), cell(", ".join(state)),
        cell(f"{number_words(node.allocated)} of {node.gpus}"),
        actions_cell(KUBERNETES, cluster, target, person)],
        data_key=node.name, **{"data-kubernetes-node": node.name})


PAGE = Page(
    "kubernetes", "Kubernetes", READ_PAGE, partial(frame, KUBERNETES),
    "What Kubernetes has allocated next to what its pods use. Pods that hold GPUs without a "
    "process are listed first. Actions are Kubernetes' own, asked of its API server by the agent "
    "that reads it, as far as its node and its credential permit them.",
    addresses=r"^/kubernetes$", under="/tasks", reading=Reading(View, answer, EVERY_S))
