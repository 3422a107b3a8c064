"""Actions by the verbs of Kubernetes' API server, read back afterwards: a pod that was deleted
lives on for its time of grace, and where its kubelet is away, for longer.

What the server would refuse is known before: a dry run meets the same rights, disruption budgets
and preconditions.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from gpudeck.contract.actions import Refusal, RefusalCode
from gpudeck.contract.kubernetes import (
    KubernetesCordon,
    KubernetesDelete,
    KubernetesEvict,
    KubernetesNode,
    KubernetesPodRequest,
    KubernetesSetting,
    KubernetesUncordon,
)
from gpudeck.contract.limits import SettingChange

from ...kubernetes.core import (
    KubernetesError,
    KubernetesRefusedError,
    KubernetesTextError,
    PodNow,
)
from .execution import ActionExecution, ActionRefusedError
from .setting_kind import Applied, SettingKind, many

if TYPE_CHECKING:
    from ...kubernetes.api_server import ApiServer

GRACE_WAITED_S = 60.0  # of a pod's time of grace, which may be hours
READ_BACK_S = 20.0
LOOK_EVERY_S = 0.5
NOT_HERE = ("this agent does not speak for Kubernetes: start it with --kubernetes and the address "
            "of the API server")
_CODES: dict[int, RefusalCode] = {403: "permission", 404: "gone", 409: "gone", 429: "budget"}


@dataclass(frozen=True, slots=True)
class KubernetesPreview:
    """State of a pod or node as the API server reports it. `trouble`: why it cannot be asked.
    `refusal`: of a dry run."""

    trouble: str
    pod: PodNow | None = None
    node: KubernetesNode | None = None
    refusal: Refusal | None = None


def preview_of(server: "ApiServer | None", setting: KubernetesSetting) -> KubernetesPreview:
    if server is None:
        return KubernetesPreview(NOT_HERE)
    try:
        if not isinstance(setting, KubernetesPodRequest):
            return _with_dry_run(server, setting, KubernetesPreview("", node=server.node(
                setting.node)))
        now = server.pod(setting.namespace, setting.pod)
        is_meant = now is not None and now.pod.uid == setting.uid and not now.is_over
        return _with_dry_run(server, setting, KubernetesPreview(
            "", pod=now if is_meant else None))
    except (KubernetesError, KubernetesTextError) as why:
        return KubernetesPreview(str(why))


def _with_dry_run(server: "ApiServer", setting: KubernetesSetting, preview: KubernetesPreview
                  ) -> KubernetesPreview:
    if any(_own_flaws(setting, preview)):
        return preview
    try:
        _ask(server, setting, is_dry=True)
    except KubernetesRefusedError as why:
        return KubernetesPreview("", preview.pod, preview.node, _refusal_of(why))
    return preview


def _ask(server: "ApiServer", setting: KubernetesSetting, is_dry: bool) -> None:
    if isinstance(setting, KubernetesDelete | KubernetesEvict):
        server.end(setting, is_dry)
    else:
        server.cordon(setting.node, isinstance(setting, KubernetesCordon), is_dry)


def _refusal_of(why: KubernetesRefusedError) -> Refusal:
    return Refusal(_CODES.get(why.status, "setting"), f"{why}; nothing was touched"[:1_024])


def flaws(setting: KubernetesSetting, preview: KubernetesPreview) -> Iterator[Refusal]:
    if preview.trouble:
        yield Refusal("unreadable", f"{preview.trouble}; nothing was touched"[:1_024])
        return
    yield from _own_flaws(setting, preview)
    if preview.refusal is not None:
        yield preview.refusal


def _own_flaws(setting: KubernetesSetting, preview: KubernetesPreview) -> Iterator[Refusal]:
    if not isinstance(setting, KubernetesPodRequest):
        yield from _node_flaws(setting, preview.node)
        return
    now = preview.pod
    if now is None:
        yield Refusal("gone", f"Kubernetes has no pod {setting.namespace}/{setting.pod} of this "
                              "uid that runs or waits any more")
    elif now.pod.gpus == 0:
        yield Refusal("setting", "it asks for no GPUs, and gpudeck acts on no other pods")
    elif now.pod.is_mirror:
        yield Refusal("setting", "it is a static pod, which its node runs whatever the API server "
                                 "is asked: remove its manifest there")
    elif now.ends_by is not None and (isinstance(setting, KubernetesEvict)
                                      or setting.grace_s is None):
        yield Refusal("setting", f"it is being ended already, and has until {_clock(now.ends_by)}")


def _node_flaws(setting: KubernetesSetting, node: KubernetesNode | None) -> Iterator[Refusal]:
    if node is None:
        yield Refusal("gone", "Kubernetes has no node of this name")
    elif isinstance(setting, KubernetesCordon) == node.is_cordoned:
        yield Refusal("setting", "it is cordoned already" if node.is_cordoned
                      else "it is not cordoned")


def _clock(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%H:%M:%S} UTC"


def _grace_s(setting: KubernetesSetting, now: PodNow) -> int:
    own = setting.grace_s if isinstance(setting, KubernetesDelete) else None
    return now.grace_s if own is None else own


def changes(setting: KubernetesSetting, preview: KubernetesPreview) -> tuple[SettingChange, ...]:
    now, node = preview.pod, preview.node
    if now is not None:
        pod = now.pod
        of = f" of {pod.controller}" if pod.controller else ""
        where = f" on {pod.node}" if pod.node else ""
        verb = "evicted" if isinstance(setting, KubernetesEvict) else "deleted"
        return (SettingChange(
            f"pod {pod.namespace}/{pod.name}{of}"[:1_024], f"{pod.phase}{where}"[:1_024],
            f"{verb}, with {_grace_s(setting, now)} s of grace"),)
    if node is not None:
        return (SettingChange(
            f"node {node.name}", "cordoned" if node.is_cordoned else "schedulable",
            "cordoned" if isinstance(setting, KubernetesCordon) else "schedulable"),)
    return ()


def warnings(setting: KubernetesSetting, preview: KubernetesPreview) -> Iterator[str]:
    if preview.pod is None:
        return
    pod = preview.pod.pod
    if pod.node is not None:
        yield ("How many GPUs it holds is not known." if pod.gpus is None else
               f"It holds {many(pod.gpus, 'GPU')}.")
    yield (f"{pod.controller} may start another pod in its place." if pod.controller else
           "Nothing starts another pod in its place.")


def do(act: ActionExecution, setting: KubernetesSetting) -> Applied:
    server = act.context.schedulers.kubernetes
    assert server is not None  # a fresh preview has just refused otherwise
    try:
        before = server.pod(setting.namespace, setting.pod) if isinstance(
            setting, KubernetesPodRequest) else None
        _ask(server, setting, is_dry=False)
        act.report("reading back what Kubernetes says")
        wait_s = READ_BACK_S
        if before is not None:
            wait_s += min(_grace_s(setting, before), GRACE_WAITED_S)
        return True, *_read_back(lambda: _observe(server, setting), wait_s)
    except KubernetesRefusedError as why:
        raise ActionRefusedError(_refusal_of(why)) from why
    except (KubernetesError, KubernetesTextError) as why:
        # Whether it was taken is not known: neither done nor refused.
        return False, None, f"{why}. What became of it is not known: look at Kubernetes."


Observation = tuple[bool | None, str]


def _read_back(observe: Callable[[], Observation], within_s: float) -> Observation:
    until = time.monotonic() + within_s
    while True:
        is_done, words = observe()
        if is_done or time.monotonic() >= until:
            return is_done, words
        time.sleep(LOOK_EVERY_S)


def _observe(server: "ApiServer", setting: KubernetesSetting) -> Observation:
    if not isinstance(setting, KubernetesPodRequest):
        node = server.node(setting.node)
        if node is None:
            return False, "Kubernetes has no node of this name any more"
        return node.is_cordoned == isinstance(setting, KubernetesCordon), (
            f"Kubernetes says {'cordoned' if node.is_cordoned else 'schedulable'}")
    return deletion_state(server.pod(setting.namespace, setting.pod), setting.uid, time.time())


def deletion_state(now: PodNow | None, uid: str, at: float) -> Observation:
    """Return whether the pod has ended, and words; None: it is being ended, and has time left."""
    if now is None or now.pod.uid != uid:
        return True, "Kubernetes has it no more"
    if now.is_over:
        return True, f"Kubernetes says {now.pod.phase}"
    if now.ends_by is None:
        return False, f"Kubernetes says {now.pod.phase}"
    if at < now.ends_by:
        return None, f"Kubernetes ends it: it has until {_clock(now.ends_by)}"
    return False, (f"Kubernetes was to end it by {_clock(now.ends_by)}, and it is still there: is "
                   "the kubelet of its node up?")


KUBERNETES_KINDS = tuple(SettingKind(kind, flaws, changes, warnings, do) for kind in (
    KubernetesDelete, KubernetesEvict, KubernetesCordon, KubernetesUncordon))
