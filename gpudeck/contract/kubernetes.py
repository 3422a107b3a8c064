"""Pods that request GPUs, and nodes that have some, as one agent reads them from the API server of
Kubernetes, and requests to it. Pure.

A pod's name comes back, in a StatefulSet each time, so a pod is identified by its uid as well.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from gpudeck.contract.message_limits import Number, Seconds, Text, Word

MAX_PODS = 4_000
MAX_NODES = 4_000
MAX_PODS_WITH_GPUS = 512  # of one node
MAX_POD_GPUS = 256
MAX_GRACE_S = 3_600
ShortText = Annotated[str, Meta(max_length=256)]
# They become a part of a path of the API server.
Namespace = Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
ObjectName = Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")]
PodUid = Annotated[str, Meta(pattern=r"^[A-Za-z0-9-]{1,128}$")]

# What a credential may be allowed: to delete pods, to evict them, to change nodes.
KubernetesRight = Literal["delete", "evict", "cordon"]


class KubernetesPod(Struct, frozen=True, omit_defaults=True):
    """A pod that requests GPUs. `gpus`: as its containers request them, which is what they are
    given; None: it requests them by resource claims. `is_shared`: its GPUs are given out several
    times. `node` None: it waits. `controller`: what made it, such as "Job/train"."""

    uid: Word
    namespace: Word
    name: ShortText
    phase: Word
    gpus: Number | None = None
    is_shared: bool = False
    node: ShortText | None = None
    controller: ShortText = ""
    reason: ShortText = ""
    started_at: Seconds | None = None
    is_leaving: bool = False  # deleted, and in its time of grace
    is_mirror: bool = False  # of a static pod: its node runs it, whatever the server is asked


class KubernetesNode(Struct, frozen=True, omit_defaults=True):
    """A node with GPUs. `gpus`: those that may be given out. `allocated`: those of them given to
    pods of all namespaces."""

    name: ShortText
    gpus: Number
    allocated: Number | None = None
    is_ready: bool = True
    is_cordoned: bool = False


class KubernetesNow(Struct, frozen=True, tag="kubernetes_now"):
    """Kubernetes as an agent reads it. `trouble`: why nothing can be read. `left_out`: pods beyond
    what one message holds. `rights`: what the server lets the agent's credential do; None: it does
    not say."""

    taken_at: Seconds
    trouble: Text = ""
    server: ShortText = ""
    version: ShortText = ""
    pods: Annotated[tuple[KubernetesPod, ...], Meta(max_length=MAX_PODS)] = ()
    nodes: Annotated[tuple[KubernetesNode, ...], Meta(max_length=MAX_NODES)] = ()
    left_out: Number = 0
    rights: Annotated[tuple[KubernetesRight, ...], Meta(max_length=3)] | None = None


class PodGpus(Struct, frozen=True, array_like=True):
    """Devices that one pod on one node was given, by the names of their plugin; NVIDIA's are UUIDs
    of GPUs and of MIG instances."""

    namespace: Word
    pod: ShortText
    gpus: Annotated[tuple[Word, ...], Meta(max_length=MAX_POD_GPUS)]


class PodGpusNow(Struct, frozen=True, tag="pod_gpus_now"):
    """Report of the kubelet on an agent's own node. `trouble`: why it cannot be asked."""

    taken_at: Seconds
    trouble: Text = ""
    pods: Annotated[tuple[PodGpus, ...], Meta(max_length=MAX_PODS_WITH_GPUS)] = ()


# Requests to Kubernetes: settings as in gpudeck/contract/limits.py, whose target is the agent that
# reads its API server.


class KubernetesPodRequest(Struct, frozen=True, forbid_unknown_fields=True):
    namespace: Namespace
    pod: ObjectName
    uid: PodUid


class KubernetesDelete(KubernetesPodRequest, frozen=True, tag="kubernetes_delete"):
    """Delete a pod. `grace_s` None: the pod's own. Never 0: the server then forgets a pod that may
    still run."""

    grace_s: Annotated[int, Meta(ge=1, le=MAX_GRACE_S)] | None = None


class KubernetesEvict(KubernetesPodRequest, frozen=True, tag="kubernetes_evict"):
    """Delete a pod where its PodDisruptionBudget permits that."""


class KubernetesCordon(Struct, frozen=True, forbid_unknown_fields=True, tag="kubernetes_cordon"):
    node: ObjectName


class KubernetesUncordon(Struct, frozen=True, forbid_unknown_fields=True,
                         tag="kubernetes_uncordon"):
    node: ObjectName


KubernetesSetting = KubernetesDelete | KubernetesEvict | KubernetesCordon | KubernetesUncordon
