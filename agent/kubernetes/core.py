"""What the API server of Kubernetes answers, as pods and nodes. Pure.

The server knows how many GPUs a pod has, never which: that is the kubelet's. Unknown fields are
passed over, since each version has more of them.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, field

from gpudeck.kubernetes import (
    MAX_NODES,
    MAX_PODS,
    KubernetesNode,
    KubernetesNow,
    KubernetesPod,
)

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
    """Why the server cannot be asked, in words."""


class KubernetesRefusedError(KubernetesError):
    """The server has answered, and done nothing of it."""

    def __init__(self, words: str, status: int) -> None:
        super().__init__(words)
        self.status = status


class KubernetesTextError(ValueError):
    """What the server answers is not what is known of it."""


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
    """One pod. `grace_s`: its own. `ends_by`: of one that was deleted, the end of its grace."""

    pod: KubernetesPod
    is_over: bool
    grace_s: int
    ends_by: float | None


L = TypeVar("L", _Pods, _Nodes, _Version, _Pod, _Node, _Review)


def _decoded(text: bytes, type: type[L]) -> L:
    try:
        # No shape is forced: `null` where a list is empty is what older servers write.
        return msgspec.convert(_without_nulls(msgspec.json.decode(text)), type)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise KubernetesTextError(
            f"the API server answers what is not understood: {error}"[:512]) from error


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


def pods_of(text: bytes) -> tuple[list[KubernetesPod], str]:
    """Those that hold GPUs or wait for some, and what is asked for to go on."""
    found = _decoded(text, _Pods)
    pods = [_pod(each) for each in found.items if each.status.phase not in _OVER]
    return [each for each in pods if each.gpus != 0], found.metadata.continue_


def nodes_of(text: bytes) -> tuple[list[KubernetesNode], str]:
    """Those that have GPUs."""
    found = _decoded(text, _Nodes)
    nodes = [_node(each) for each in found.items]
    return [each for each in nodes if each.gpus], found.metadata.continue_


def pod_of(text: bytes) -> PodNow:
    raw = _decoded(text, _Pod)
    return PodNow(_pod(raw), raw.status.phase in _OVER, raw.spec.termination_grace_period_seconds,
                  _seconds(raw.metadata.deletion_timestamp))


def node_of(text: bytes) -> KubernetesNode:
    return _node(_decoded(text, _Node))


def is_allowed(text: bytes) -> bool:
    return _decoded(text, _Review).status.allowed


def version_of(text: bytes) -> str:
    return _decoded(text, _Version).git_version[:256]


def _pod(raw: _Pod) -> KubernetesPod:
    meta, spec, status = raw.metadata, raw.spec, raw.status
    asked = asked_gpus(spec.containers, spec.init_containers)
    owner = next((each for each in meta.owner_references if each.controller), None)
    waits = next((each.reason for each in status.conditions
                  if each.type == "PodScheduled" and each.status == "False"), "")
    total = sum(asked.values())
    return KubernetesPod(
        uid=meta.uid[:128], namespace=meta.namespace[:128], name=_line(meta.name),
        phase=status.phase[:128], gpus=total if total or not spec.resource_claims else None,
        is_shared=asked.get(_SHARED, 0) > 0,
        node=_line(spec.node_name) if spec.node_name else None,
        controller="" if owner is None else _line(f"{owner.kind}/{owner.name}"),
        reason=_line(status.reason or waits), started_at=_seconds(status.start_time),
        is_leaving=meta.deletion_timestamp is not None, is_mirror=_MIRROR in meta.annotations)


def asked_gpus(containers: Sequence[_Container], before: Sequence[_Container]) -> dict[str, int]:
    """By resource. Those that run before the others get what these then get: the larger counts, but
    for those that go on beside them."""
    found: dict[str, int] = {}
    names = {name for each in (*containers, *before) for name in _counts(each)}
    for name in names:
        beside = highest = 0
        for each in before:
            count = _counts(each).get(name, 0)
            if each.restart_policy == "Always":
                beside += count
            highest = max(highest, beside + (0 if each.restart_policy == "Always" else count))
        found[name] = max(highest, beside + sum(_counts(each).get(name, 0) for each in containers))
    return found


def _counts(container: _Container) -> dict[str, int]:
    """Of devices request and limit are the same, and either may be left out."""
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
    ready = next((each.status for each in raw.status.conditions if each.type == "Ready"), "")
    return KubernetesNode(_line(raw.metadata.name), sum(_gpus(raw.status.allocatable).values()),
                          is_ready=ready == "True", is_cordoned=raw.spec.unschedulable)


def _seconds(text: str | None) -> float | None:
    try:
        return None if text is None else datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def _line(text: str) -> str:
    return "".join(each if each.isprintable() else " " for each in text[:256])


def report(pods: Iterable[KubernetesPod], nodes: Sequence[KubernetesNode], now: KubernetesNow
           ) -> KubernetesNow:
    """As much as a message holds: first what holds GPUs, then what waits for some."""
    there = sorted(pods, key=lambda pod: (pod.node is None, pod.namespace, pod.name))
    known = tuple(msgspec.structs.replace(each, allocated=_allocated(each, there))
                  for each in nodes[:MAX_NODES])
    most = MAX_PODS
    while True:
        made = msgspec.structs.replace(now, pods=tuple(there[:most]), nodes=known,
                                       left_out=max(len(there) - most, 0))
        encoded = msgspec.msgpack.encode(made)
        if len(encoded) <= REPORT_BYTES:
            return _checked(encoded)
        if most == 0:
            raise KubernetesTextError("its nodes are more than a message holds")
        most = min(most, len(there)) // 2


def _allocated(node: KubernetesNode, pods: Iterable[KubernetesPod]) -> int | None:
    """None: one of its pods asks by resource claims, of which it is not known how many GPUs."""
    counts = [pod.gpus for pod in pods if pod.node == node.name]
    return None if None in counts else sum(count or 0 for count in counts)


def _checked(encoded: bytes) -> KubernetesNow:
    """What the hub would refuse would end the connection."""
    try:
        return msgspec.msgpack.decode(encoded, type=KubernetesNow)
    except msgspec.MsgspecError as error:
        raise KubernetesTextError(
            f"the API server says what cannot be passed on: {error}"[:512]) from error
