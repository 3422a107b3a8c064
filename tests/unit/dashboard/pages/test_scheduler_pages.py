"""Pages of Slurm and Kubernetes, from the hub's answers alone."""

from typing import Any

import pytest
from dash.development.base_component import Component

from dashboard.access.policy import Role
from dashboard.jobs.kubernetes_views import (
    KubernetesClusterView,
    KubernetesList,
    KubernetesNodeView,
    KubernetesPodView,
    PodGpuView,
)
from dashboard.jobs.slurm_views import SlurmClusterView, SlurmJobView, SlurmList, SlurmNodeView
from dashboard.pages import kubernetes, slurm
from dashboard.pages.parts import Page
from dashboard.pages.reading import Parts, Viewer
from dashboard.pages.scheduler import SHOWN
from gpudeck.markup import markup

from .read_parts import wire_parts

NOW = 1_764_417_600.0
EVIL = "<img src=x onerror=alert(1)>"
SLURM_ACTIONS = ["slurm_cancel", "slurm_requeue", "slurm_hold", "slurm_drain"]


def viewer(role: Role = Role.OPERATOR, *unix_names: str) -> Viewer:
    return Viewer(role, [*unix_names])


OPERATOR = viewer()


def slurm_parts(listed: SlurmList, person: Viewer = OPERATOR) -> Parts:
    return slurm.parts_of(listed, person, "UTC", NOW)


def kubernetes_parts(listed: KubernetesList, person: Viewer = OPERATOR) -> Parts:
    return kubernetes.parts_of(listed, person, "UTC", NOW)


def a_job(ident: str = "12", **fields: Any) -> SlurmJobView:
    return SlurmJobView(**{
        "id": ident, "number": 12, "submitted_at": NOW - 7_000.4, "state": "RUNNING",
        "user": "carol", "name": "train", "reason": "", "partition": "gpu",
        "started_at": NOW - 600, "limit_s": 7_200.0, "gpus": 4, "used": 2, "without_process": 2,
        "unknown": "", "nodes": ["n1", "n2"], "may": ["requeue", "cancel"], **fields})


def slurm_list(*jobs: SlurmJobView, **fields: Any) -> SlurmList:
    return SlurmList([SlurmClusterView(**{
        "node": "ID1", "host": "controller", "cluster": "c1", "version": "23.02",
        "account": "gpudeck", "rights": "all", "hidden": "", "trouble": "", "taken_at": NOW - 3_600,
        "is_stale": False, "actions": SLURM_ACTIONS, "left_out": 0, "jobs": [*jobs],
        "nodes": [SlurmNodeView("n1", "n1.example", ["MIXED", "DRAIN"], 4, None, "gpu", "fans",
                                ["drain"])], **fields})], [])


def a_pod(**fields: Any) -> KubernetesPodView:
    return KubernetesPodView(**{
        "namespace": "research", "name": "train-0", "uid": "u-1", "controller": "", "phase":
        "Running", "reason": "", "node": "gpu01", "host": None, "started_at": None, "is_leaving":
        False, "gpus": 2, "used": 2, "without_process": 0, "unknown": "", "given": None,
        "may": ["evict", "delete"], **fields})


def kubernetes_list(*pods: KubernetesPodView, **fields: Any) -> KubernetesList:
    return KubernetesList([KubernetesClusterView(**{
        "node": "ID1", "host": "controller", "server": "https://api", "version": "1.30",
        "trouble": "", "taken_at": NOW, "is_stale": False, "rights": None,
        "actions": ["kubernetes_delete", "kubernetes_evict"], "left_out": 0, "pods": [*pods],
        "nodes": [KubernetesNodeView("gpu01", None, 8, 2, True, True, ["uncordon"])],
        **fields})], [])


def buttons(parts: Parts, key: str) -> list[Component]:
    return [part for section in parts[f"{key}-place"] for part in section._traverse()
            if type(part).__name__ == "Button"]


def labels(parts: Parts, key: str) -> list[str]:
    return [getattr(button, "aria-label") for button in buttons(parts, key)]


def test_without_an_agent_that_speaks_the_page_says_what_to_start() -> None:
    parts = slurm_parts(SlurmList([], ["other"]))
    assert parts["slurm-none"].startswith("No agent reports Slurm yet. Start one with --slurm")
    assert parts["slurm-none"].endswith(
        "Ignored: other, since the hub's setting slurm_nodes does not name it.")
    assert (parts["slurm-words"], parts["slurm-place"]) == ("", [])
    slurm_page = slurm_parts(slurm_list())
    assert slurm_page["slurm-none"] is None
    assert "Jobs: none." in markup(slurm_page["slurm-place"])


def test_gpus_without_a_process_are_summed_and_unknown_ones_are_not_counted_as_none() -> None:
    unknown = a_job("13", without_process=None, gpus=None, unknown="no live agent on n3",
                    user=None, partition=None, started_at=None)
    parts = slurm_parts(slurm_list(a_job(), unknown))
    assert parts["slurm-words"] == (
        "2 jobs with GPUs or waiting for some; 2 GPUs allocated without a process.")
    text = markup(parts["slurm-place"])
    assert 'class="slurm-left"><strong>2</strong>' in text
    assert 'title="No live agent on n3."><span>–</span>' in text  # noqa: RUF001
    assert "10 min of 2 h" in text
    assert "MIXED + DRAIN" in text
    assert "– of 4" in text  # noqa: RUF001
    assert 'href="/node/n1.example"' in text


def test_a_stale_cluster_and_what_is_wrong_with_it_stand_above_its_tables() -> None:
    text = markup(slurm_parts(slurm_list(
        a_job(), is_stale=True, trouble="squeue failed", hidden="jobs of others are hidden",
        rights="own", actions=[], left_out=3))["slurm-place"])
    assert "Not up to date: the last answer is of 29 Nov 2025" in text
    for words in ("Slurm cannot be read: Squeue failed.", "Jobs of others are hidden.",
                  "Slurm lets the account gpudeck act on its own jobs alone.",
                  "Read only: the ceiling of controller permits no action on Slurm.",
                  "Not shown: 3 jobs more."):
        assert f'<p class="act-warning">{words}</p>' in text
    assert "<button" not in text


def test_a_list_is_cut_and_says_so() -> None:
    text = markup(slurm_parts(slurm_list(*(a_job(str(at)) for at in range(SHOWN + 2))))[
        "slurm-place"])
    assert text.count("data-job=") == SHOWN
    assert f"The first {SHOWN} of {SHOWN + 2} jobs." in text


@pytest.mark.parametrize(("person", "names"), [
    (viewer(), ["Requeue job 12", "Cancel job 12", "Hold job 12", "Drain node n1"]),
    (viewer(Role.ADMIN), ["Requeue job 12", "Cancel job 12", "Hold job 12", "Drain node n1"]),
    (viewer(Role.USER, "carol"), ["Requeue job 12", "Cancel job 12"]),
    (viewer(Role.USER, "dave"), []), (viewer(Role.USER), []), (viewer(Role.VIEWER, "carol"), [])])
def test_buttons_are_those_that_the_viewer_may_use(person: Viewer, names: list[str]
                                                   ) -> None:
    job = a_job(may=["requeue", "cancel", "hold", "suspend"])
    assert labels(slurm_parts(slurm_list(job), person), "slurm") == names


def test_a_job_of_nobody_is_nobodys_own() -> None:
    job = a_job(user=None)
    assert labels(slurm_parts(slurm_list(job), viewer(Role.USER, "")), "slurm") == []


def test_an_order_names_what_cannot_be_another_one() -> None:
    [*_, cancel, _drain] = buttons(slurm_parts(slurm_list(a_job())), "slurm")
    assert getattr(cancel, "data-setting") == {
        "type": "slurm_cancel", "job": "12", "submitted_at": round(NOW - 7_000.4)}
    assert (getattr(cancel, "data-act"), getattr(cancel, "data-targets")) == (
        "slurm_cancel", ["ID1"])
    assert getattr(cancel, "data-title") == "Cancel job 12 of Slurm"
    assert 'class="button small danger"' in markup(cancel)
    evict, delete = buttons(kubernetes_parts(kubernetes_list(a_pod())), "kubernetes")
    pod = {"namespace": "research", "pod": "train-0", "uid": "u-1"}
    assert getattr(evict, "data-setting") == {"type": "kubernetes_evict", **pod}
    assert getattr(evict, "data-fields") == []
    assert getattr(delete, "data-setting") == {
        "type": "kubernetes_delete", **pod, "grace_s": "$pod_grace_s"}
    assert [field["name"] for field in getattr(delete, "data-fields")] == ["pod_grace_s"]


def test_owners_of_pods_have_no_buttons() -> None:
    assert labels(kubernetes_parts(kubernetes_list(a_pod()), viewer(Role.USER, "carol")),
                  "kubernetes") == []


def test_what_the_api_server_forbids_is_said_where_something_may_be_done() -> None:
    def text(**fields: Any) -> str:
        return markup(kubernetes_parts(kubernetes_list(a_pod(), **fields))[
            "kubernetes-place"])

    words = "does not let the agent&#x27;s credential"
    assert f"{words} evict pods, cordon nodes in all" in text(rights=["delete"])
    assert words not in text(rights=["delete", "evict", "cordon"])
    assert words not in text(rights=None)
    assert words not in text(rights=[], actions=[])


def test_a_pod_shows_its_gpus_and_that_it_ends() -> None:
    pod = a_pod(is_leaving=True, node=None, gpus=None, given=[
        PodGpuView("GPU-a", 3, None), PodGpuView("GPU-b", None, None)])
    text = markup(kubernetes_parts(kubernetes_list(pod))["kubernetes-place"])
    assert "Terminating" in text
    assert " GPU 3, GPU-b</span>" in text
    assert "Ready, SchedulingDisabled" in text
    assert "2 of 8" in text


def test_names_of_others_are_text() -> None:
    texts = [
        markup(slurm_parts(slurm_list(a_job(
            EVIL, name=EVIL, user=EVIL, reason=EVIL, nodes=[EVIL], unknown=EVIL), cluster=EVIL,
            host=EVIL, version=EVIL, trouble=EVIL))["slurm-place"]),
        markup(kubernetes_parts(kubernetes_list(a_pod(
            namespace=EVIL, name=EVIL, controller=EVIL, phase=EVIL, node=EVIL, host=EVIL),
            server=EVIL))["kubernetes-place"])]
    for text in texts:
        assert "<img" not in text
        assert "&lt;img" in text
    assert 'href="/node/%3Cimg' in texts[1]


@pytest.mark.parametrize(("page", "parts"), [
    (slurm.PAGE, slurm_parts(slurm_list(a_job()))),
    (kubernetes.PAGE, kubernetes_parts(kubernetes_list(a_pod())))], ids=["slurm", "kubernetes"])
def test_all_parts_have_a_place_in_the_frame(page: Page, parts: Parts) -> None:
    assert wire_parts(page, parts)[f"{page.key}-place"]
