"""Acts on Kubernetes, over real HTTP, by a node at its terminal."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec.structs import replace as changed

from agent.actions.kinds.kubernetes import (
    KubernetesPreview,
    deletion_state,
    flaws,
    preview_of,
    warnings,
)
from agent.kubernetes.api_server import ApiServer
from agent.kubernetes.core import KubernetesRefusedError, PodNow
from gpudeck.contract.kubernetes import (
    KubernetesCordon,
    KubernetesDelete,
    KubernetesEvict,
    KubernetesPod,
    KubernetesSetting,
    KubernetesUncordon,
)
from tests.fakes.kube_api import KubeApi, a_node, a_pod

DELETE = KubernetesDelete("research", "train-0", "uid-train-0")
EVICT = KubernetesEvict("research", "train-0", "uid-train-0")
POD = PodNow(KubernetesPod("u", "research", "train-0", "Running", 2, node="gpu01"), False, 30, None)


@pytest.fixture
def api() -> Iterator[KubeApi]:
    with KubeApi([a_pod("train-0", 2)], [a_node("gpu01")]).running() as running:
        yield running


def take_preview(api: KubeApi, setting: KubernetesSetting,
                 token: Path | None = None) -> KubernetesPreview:
    return preview_of(ApiServer.of(api.url, token, None), setting)


def refusals(api: KubeApi, setting: KubernetesSetting) -> list[tuple[str, str]]:
    codes_and_sentences: list[tuple[str, str]] = [
        (flaw.code, flaw.sentence) for flaw in flaws(setting, take_preview(api, setting))]
    assert api.changed == [], "looking changes nothing"
    return codes_and_sentences


@pytest.mark.parametrize("setting", [DELETE, EVICT, KubernetesCordon("gpu01")])
def test_what_may_be_done_is_not_refused_and_not_done(api: KubeApi, setting: KubernetesSetting
                                                      ) -> None:
    assert refusals(api, setting) == []


@pytest.mark.parametrize("kind", [KubernetesDelete, KubernetesEvict])
def test_a_name_that_came_back_is_another_pod(
        api: KubeApi, kind: type[KubernetesDelete | KubernetesEvict]) -> None:
    setting = kind("research", "train-0", "uid-of-before")
    assert [code for code, _ in refusals(api, setting)] == ["gone"]
    assert [code for code, _ in refusals(api, kind("other", "train-0", "uid-train-0"))] == ["gone"]
    # Between the look and the act: the server compares the uid itself.
    with pytest.raises(KubernetesRefusedError, match="UID in precondition") as error:
        ApiServer.of(api.url, None, None).end(setting, is_dry=False)
    assert (error.value.status, api.changed) == (409, [])


def test_a_disruption_budget_is_respected(api: KubeApi) -> None:
    api.budgeted = {"train-0"}
    [(code, words)] = refusals(api, EVICT)
    assert (code, "disruption budget" in words) == ("budget", True)
    assert refusals(api, DELETE) == [], "kubectl delete knows no budgets either"


def test_without_rights_it_is_refused_in_the_server_s_words(api: KubeApi) -> None:
    api.may = set()
    for setting, verb in ((DELETE, "delete"), (EVICT, "create"),
                          (KubernetesCordon("gpu01"), "patch")):
        [(code, words)] = refusals(api, setting)
        assert code == "permission"
        assert f"cannot {verb} resource" in words


def test_what_would_have_no_effect_is_refused(api: KubeApi) -> None:
    assert [code for code, _ in refusals(api, KubernetesUncordon("gpu01"))] == ["setting"]
    assert [code for code, _ in refusals(api, KubernetesCordon("gpu09"))] == ["gone"]
    api.nodes[0]["spec"] = {"unschedulable": True}
    assert [code for code, _ in refusals(api, KubernetesCordon("gpu01"))] == ["setting"]
    assert refusals(api, KubernetesUncordon("gpu01")) == []
    api.pods[0]["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    assert "static pod" in refusals(api, DELETE)[0][1]
    api.pods = [a_pod("train-0", None)]
    assert "no GPUs" in refusals(api, DELETE)[0][1]
    api.pods = [a_pod("train-0", 2, phase="Succeeded")]
    assert refusals(api, DELETE)[0][0] == "gone"


def test_one_that_is_being_ended_gets_a_shorter_grace_only(api: KubeApi) -> None:
    api.pods[0]["metadata"]["deletionTimestamp"] = "2030-01-01T10:20:30Z"
    assert "10:20:30 UTC" in refusals(api, DELETE)[0][1]
    assert refusals(api, EVICT)[0][0] == "setting"
    assert refusals(api, changed(DELETE, grace_s=1)) == []


def test_what_cannot_be_asked_is_refused(api: KubeApi, tmp_path: Path) -> None:
    assert [flaw.code for flaw in flaws(DELETE, preview_of(None, DELETE))] == ["unreadable"]
    api.raw = b"{"
    assert refusals(api, DELETE)[0][0] == "unreadable"
    preview = take_preview(api, DELETE, tmp_path / "nothing")
    assert [flaw.code for flaw in flaws(DELETE, preview)] == ["unreadable"]


def test_accepted_is_not_gone() -> None:
    now, leaving = time.time(), replace_ends(time.time() + 20)
    assert deletion_state(None, "u", now)[0] is True
    assert deletion_state(POD, "another", now)[0] is True
    assert deletion_state(changed(POD, is_over=True), "u", now)[0] is True
    assert deletion_state(POD, "u", now)[0] is False
    assert deletion_state(leaving, "u", now)[0] is None
    is_deleted, words = deletion_state(leaving, "u", now + 60)
    assert (is_deleted, "kubelet" in words) == (False, True)


def replace_ends(at: float) -> PodNow:
    return changed(POD, ends_by=at)


def test_what_it_costs_is_said_before() -> None:
    preview = KubernetesPreview("", POD)
    assert [*warnings(DELETE, preview)] == ["It holds 2 GPUs.",
                                            "Nothing starts another pod in its place."]
    pod = changed(POD.pod, gpus=None, controller="Job/train")
    assert [*warnings(EVICT, replace(preview, pod=changed(POD, pod=pod)))] == [
        "How many GPUs it holds is not known.", "Job/train may start another pod in its place."]
