"""Pods and nodes in the answers of the Kubernetes API server. Pure.

The server knows how many GPUs a pod has, but not which: only the kubelet does. Unknown fields are
ignored, since each version has more of them.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, field

from gpudeck.contract.kubernetes import (
    MAX_NODES,
    MAX_PODS,
    KubernetesNode,
    KubernetesNow,
    KubernetesPod,
)
from gpudeck.language.printable import printable

REPORT_BYTES = 900_000  # of the 1 MB of a message
MOST_GPUS = 10**6
# What device plugins of the vendors offer; MIG instances by their profile.
_GPU = re.compile(r"nvidia\.com/(?:gpu|gpu\.shared|mig-[A-Za-z0-9_.+-]{1,64})|amd\.com/gpu|"
                  r"gpu\.intel\.com/(?:i915|xe)|habana\.ai/gaudi")
_SHARED = "nvidia.com/gpu.shared"
_OVER = ("Succeeded", "Failed")
_MIRROR = "kubernetes.io/config.mirror"
DEFAULT_GRACE_S = 30


class KubernetesError(Exception):
    """Failure to query the server, with the reason as a sentence."""


class KubernetesRefusedError(KubernetesError):
    """Refusal by the server: it has answered, and done nothing."""

    def __init__(self, words: str, status: int) -> None:
        super().__init__(words)
        self.status = status


class KubernetesTextError(ValueError):
    """Answer of the server in a form that is not known."""


class _Owner(Struct):
    kind: str = ""
    name: str = ""
    controller: bool = False


class _Meta(Struct, rename="camel"):
    name: str
    namespace: str = ""
    uid: str = ""
    deletion_timestamp: str | None = None
    annotations: dict[str, Any] = {}
    owner_references: list[_Owner] = []


class _Resources(Struct):
    requests: dict[str, Any] = {}
    limits: dict[str, Any] = {}


class _Container(Struct, rename="camel"):
    resources: _Resources = field(default_factory=_Resources)
    restart_policy: str | None = None


class _PodSpec(Struct, rename="camel"):
    node_name: str | None = None
    containers: list[_Container] = []
    init_containers: list[_Container] = []
    resource_claims: list[Any] = []
    termination_grace_period_seconds: int = DEFAULT_GRACE_S


class _Condition(Struct):
    type: str = ""
    status: str = ""
    reason: str = ""


class _PodStatus(Struct, rename="camel"):
    phase: str = "Unknown"
    reason: str = ""
    start_time: str | None = None
    conditions: list[_Condition] = []


class _Pod(Struct):
    metadata: _Meta
    spec: _PodSpec = field(default_factory=_PodSpec)
    status: _PodStatus = field(default_factory=_PodStatus)


class _NodeSpec(Struct):
    unschedulable: bool = False


class _NodeStatus(Struct):
    allocatable: dict[str, Any] = {}
    conditions: list[_Condition] = []


class _Node(Struct):
    metadata: _Meta
    spec: _NodeSpec = field(default_factory=_NodeSpec)
    status: _NodeStatus = field(default_factory=_NodeStatus)


class _ListMeta(Struct):
    continue_: str = field(default="", name="continue")


class _Pods(Struct):
    items: list[_Pod]
    metadata: _ListMeta = field(default_factory=_ListMeta)


class _Nodes(Struct):
    items: list[_Node]
    metadata: _ListMeta = field(default_factory=_ListMeta)


class _Version(Struct, rename="camel"):
    git_version: str = ""


class _ReviewStatus(Struct):
    allowed: bool = False


class _Review(Struct):
    status: _ReviewStatus


class PodNow(Struct, frozen=True):
    """State of a pod. `grace_s`: its own grace period. `ends_by`: for a deleted pod, the end of its
    grace period."""

    pod: KubernetesPod
    is_over: bool
    grace_s: int
    ends_by: float | None


L = TypeVar("L", _Pods, _Nodes, _Version, _Pod, _Node, _Review)


def _decode(text: bytes, type: type[L]) -> L:
    try:
        # Older servers write `null` where a list is empty.
        return msgspec.convert(_without_nulls(msgspec.json.decode(text)), type)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise KubernetesTextError(
            f"the API server answers what is not understood: {error}"[:512]) from error


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(part) for name, part in value.items() if part is not None}
    return [_without_nulls(part) for part in value] if isinstance(value, list) else value


def pods_of(text: bytes) -> tuple[list[KubernetesPod], str]:
    """Return the pods that hold GPUs or wait for some, and the token of the next page."""
    pod_list = _decode(text, _Pods)
    pods = [_pod(raw) for raw in pod_list.items if raw.status.phase not in _OVER]
    return [pod for pod in pods if pod.gpus != 0], pod_list.metadata.continue_


def nodes_of(text: bytes) -> tuple[list[KubernetesNode], str]:
    """Return the nodes that have GPUs, and the token of the next page."""
    node_list = _decode(text, _Nodes)
    nodes = [_node(raw) for raw in node_list.items]
    return [node for node in nodes if node.gpus], node_list.metadata.continue_


def pod_of(text: bytes) -> PodNow:
    raw = _decode(text, _Pod)
    return PodNow(_pod(raw), raw.status.phase in _OVER, raw.spec.termination_grace_period_seconds,
                  _seconds(raw.metadata.deletion_timestamp))


def node_of(text: bytes) -> KubernetesNode:
    return _node(_decode(text, _Node))


def is_allowed(text: bytes) -> bool:
    return _decode(text, _Review).status.allowed


def version_of(text: bytes) -> str:
    return _decode(text, _Version).git_version[:256]


def _pod(raw: _Pod) -> KubernetesPod:
    meta, spec, status = raw.metadata, raw.spec, raw.status
    gpu_counts = requested_gpus(spec.containers, spec.init_containers)
    owner = next((reference for reference in meta.owner_references if reference.controller), None)
    waits = next((condition.reason for condition in status.conditions
                  if condition.type == "PodScheduled" and condition.status == "False"), "")
    total = sum(gpu_counts.values())
    return KubernetesPod(
        uid=meta.uid[:128], namespace=meta.namespace[:128], name=_line(meta.name),
        phase=status.phase[:128], gpus=total if total or not spec.resource_claims else None,
        is_shared=gpu_counts.get(_SHARED, 0) > 0,
        node=_line(spec.node_name) if spec.node_name else None,
        controller="" if owner is None else _line(f"{owner.kind}/{owner.name}"),
        reason=_line(status.reason or waits), started_at=_seconds(status.start_time),
        is_leaving=meta.deletion_timestamp is not None, is_mirror=_MIRROR in meta.annotations)


def requested_gpus(containers: Sequence[_Container], init_containers: Sequence[_Container]
                   ) -> dict[str, int]:
    """Return the GPUs that a pod requests, by resource. Init containers run before the others,
    which then get the same devices: the larger count matters. Those that keep running beside the
    others (sidecars) are added."""
    counts: dict[str, int] = {}
    names = {name for container in (*containers, *init_containers) for name in _counts(container)}
    for name in names:
        sidecars = highest = 0
        for container in init_containers:
            count = _counts(container).get(name, 0)
            if container.restart_policy == "Always":
                sidecars += count
            highest = max(
                highest, sidecars + (0 if container.restart_policy == "Always" else count))
        counts[name] = max(highest, sidecars + sum(
            _counts(container).get(name, 0) for container in containers))
    return counts


def _counts(container: _Container) -> dict[str, int]:
    """Return the GPUs of a container, by resource. For devices, request and limit are the same, and
    either may be left out."""
    return _gpus({**container.resources.limits, **container.resources.requests})


def _gpus(amounts: Mapping[str, Any]) -> dict[str, int]:
    return {name: count for name, amount in amounts.items()
            if is_gpu(name) and (count := _whole(amount)) > 0}


def is_gpu(resource: str) -> bool:
    return _GPU.fullmatch(resource) is not None


def _whole(amount: Any) -> int:
    """Devices are whole numbers; the server writes them as text."""
    text = str(amount)
    return min(int(text), MOST_GPUS) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _node(raw: _Node) -> KubernetesNode:
    ready = next((condition.status for condition in raw.status.conditions
                  if condition.type == "Ready"), "")
    return KubernetesNode(_line(raw.metadata.name), sum(_gpus(raw.status.allocatable).values()),
                          is_ready=ready == "True", is_cordoned=raw.spec.unschedulable)


def _seconds(text: str | None) -> float | None:
    try:
        return None if text is None else datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def _line(text: str) -> str:
    return printable(text[:256], " ")


def report(pods: Iterable[KubernetesPod], nodes: Sequence[KubernetesNode], now: KubernetesNow
           ) -> KubernetesNow:
    """Return as much as a message holds: first the pods that hold GPUs, then those that wait for
    some."""
    sorted_pods = sorted(pods, key=lambda pod: (pod.node is None, pod.namespace, pod.name))
    counted_nodes = tuple(msgspec.structs.replace(node, allocated=_allocated(node, sorted_pods))
                          for node in nodes[:MAX_NODES])
    most = MAX_PODS
    while True:
        message = msgspec.structs.replace(now, pods=tuple(sorted_pods[:most]), nodes=counted_nodes,
                                          left_out=max(len(sorted_pods) - most, 0))
        encoded = msgspec.msgpack.encode(message)
        if len(encoded) <= REPORT_BYTES:
            return _check(encoded)
        if most == 0:
            raise KubernetesTextError("its nodes are more than a message holds")
        most = min(most, len(sorted_pods)) // 2


def _allocated(node: KubernetesNode, pods: Iterable[KubernetesPod]) -> int | None:
    """Return the GPUs allocated on a node. None: one of its pods has resource claims, for which the
    number of GPUs is not known."""
    counts = [pod.gpus for pod in pods if pod.node == node.name]
    return None if None in counts else sum(count or 0 for count in counts)


def _check(encoded: bytes) -> KubernetesNow:
    """Check the report by decoding it: a report that the hub refuses would end the connection."""
    try:
        return msgspec.msgpack.decode(encoded, type=KubernetesNow)
    except msgspec.MsgspecError as error:
        raise KubernetesTextError(
            f"the API server says what cannot be passed on: {error}"[:512]) from error
