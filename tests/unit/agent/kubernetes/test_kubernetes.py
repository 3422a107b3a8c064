"""Answers of a Kubernetes API server, over real HTTP, as an agent reports them to its hub."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.kubernetes import api_server, core
from agent.kubernetes.api_server import ApiServer
from agent.kubernetes.core import KubernetesError
from agent.kubernetes.reading import KubernetesReading
from gpudeck.contract.kubernetes import KubernetesNow, KubernetesPod
from tests.fakes.kube_api import KubeApi, a_node, a_pod


@pytest.fixture
def api() -> Iterator[KubeApi]:
    with KubeApi(nodes=[a_node("gpu01")]).running() as running:
        yield running


def read_now(api: KubeApi, token_file: Path | None = None) -> KubernetesNow:
    return KubernetesReading(ApiServer.of(api.url, token_file, None)).read()


def test_pods_that_hold_gpus_or_wait_for_some_are_told_and_no_others(api: KubeApi) -> None:
    gpus = random.randint(1, 8)
    api.pods = [a_pod("waits", 4, node=None, phase="Pending"), a_pod("holds", gpus),
                a_pod("web", None), a_pod("over", 8, phase="Succeeded"),
                a_pod("failed", 8, phase="Failed")]
    api.nodes.append(a_node("cpu01", gpus=0))
    report = read_now(api)
    assert (report.trouble, report.version) == ("", "v1.31.2")
    assert [(pod.name, pod.gpus, pod.node, pod.controller) for pod in report.pods] == [
        ("holds", gpus, "gpu01", "Job/train"), ("waits", 4, None, "Job/train")]
    assert report.pods[1].reason == "Unschedulable"
    [node] = report.nodes
    assert (node.name, node.gpus, node.allocated, node.is_ready) == ("gpu01", 8, gpus, True)


def container(gpus: int, **more: Any) -> dict[str, Any]:
    return {"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}} | more


@pytest.mark.parametrize(("before", "gpus"), [
    ([], 3), ([container(2)], 3), ([container(5)], 5),
    ([container(1, restartPolicy="Always")], 4),
    ([container(1, restartPolicy="Always"), container(5)], 6)])
def test_init_containers_count_as_the_scheduler_counts_them(
        api: KubeApi, before: list[Any], gpus: int) -> None:
    api.pods = [a_pod("p", None, containers=[container(1), container(2)], initContainers=before)]
    assert read_now(api).pods[0].gpus == gpus


@pytest.mark.parametrize(("resource", "is_gpu"), [
    ("nvidia.com/gpu", True), ("nvidia.com/mig-1g.10gb", True), ("nvidia.com/gpu.shared", True),
    ("amd.com/gpu", True), ("gpu.intel.com/xe", True), ("nvidia.com/gpumem", False),
    ("example.com/gpu", False)])
def test_which_resources_are_gpus(api: KubeApi, resource: str, is_gpu: bool) -> None:
    api.pods = [a_pod("p", 2, resource=resource)]
    assert [(pod.gpus, pod.is_shared) for pod in read_now(api).pods] == [
        (2, resource.endswith("shared"))] * is_gpu


def test_of_a_resource_claim_the_number_is_not_known(api: KubeApi) -> None:
    api.pods = [a_pod("p", None, resourceClaims=[{"name": "gpu"}]), a_pod("q", 2)]
    report = read_now(api)
    assert {pod.name: pod.gpus for pod in report.pods} == {"p": None, "q": 2}
    assert report.nodes[0].allocated is None, "a part of it would be a wrong number"


def test_all_pages_are_read(api: KubeApi) -> None:
    api.pods, api.page = [a_pod(f"p{at}", 1) for at in range(23)], 5
    assert len(read_now(api).pods) == 23
    assert sum(path.startswith("/api/v1/pods") for path in api.requests) == 5


def test_a_refusal_is_told_in_the_server_s_words(api: KubeApi, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("right\n")
    api.token, api.pods = "right", [a_pod("p", 1)]
    assert len(read_now(api, token).pods) == 1
    token.write_text("other")
    assert "cannot list resource" in read_now(api, token).trouble, "it is read anew each time"
    token.unlink()
    assert "token cannot be read" in read_now(api, token).trouble


@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b'{"items": [{}]}', b'{"items": "x"}',
                                 b"[" * 100_000, b'{"items": [{"metadata": {"name": 1}}]}'])
def test_what_is_not_understood_is_said(api: KubeApi, raw: bytes) -> None:
    api.raw = raw
    assert "is not understood" in read_now(api).trouble


def test_what_the_credential_may_do_is_told(api: KubeApi) -> None:
    assert read_now(api).rights == ("delete", "evict", "cordon")
    api.may = {("create", "pods/eviction")}
    assert read_now(api).rights == ("evict",)
    reading = KubernetesReading(ApiServer.of(api.url, None, None))
    assert reading.read().rights == ("evict",)
    api.may, before = set(), len(api.requests)
    assert reading.read().rights == ("evict",), "asked now and then"
    assert not any("reviews" in path for path in api.requests[before:])


def test_a_list_that_is_null_is_empty(api: KubeApi) -> None:
    api.raw = json.dumps({"items": [a_pod("p", 1) | {"spec": {"containers": [
        container(1)], "initContainers": None}}], "metadata": {"continue": None}}).encode()
    assert [pod.gpus for pod in core.pods_of(api.raw)[0]] == [1]


def test_a_server_that_lies_about_size_or_place_is_bounded(
        api: KubeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_server, "MOST_BYTES", 10_000)
    api.pods = [a_pod("p" * 5_000, 1)] * 4
    assert "more than" in read_now(api).trouble
    with KubeApi().running() as other:
        api.redirects_to = f"{other.url}/version"
        assert "302" in read_now(api).trouble
        assert other.requests == [], "the token goes to one server alone"


def test_a_server_that_never_ends_its_list_is_left(api: KubeApi,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_server, "MOST_PAGES", 3)
    api.raw = b'{"gitVersion": "v1", "items": [], "metadata": {"continue": "1"}}'
    assert "lists more than" in read_now(api).trouble


@pytest.mark.parametrize("url", ["http://10.0.0.1:8001", "ftp://127.0.0.1", "gpu01:6443", "https://",
                                 "cluster"])
def test_what_is_no_api_server_is_refused_at_the_start(url: str, monkeypatch: pytest.MonkeyPatch
                                                       ) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(KubernetesError):
        ApiServer.of(url, None, None)


def test_a_pod_asks_its_own_server_with_its_own_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    server = ApiServer.of("cluster", None, None)
    assert server.url == "https://[fd00::1]:443"
    assert (server.token_file, server.ca_file) == (
        api_server.ACCOUNT / "token", api_server.ACCOUNT / "ca.crt")


def test_as_much_as_a_message_holds_those_that_hold_first() -> None:
    pods = [KubernetesPod(f"u{at}", "n" * 100, "p" * 250, "Running", 1,
                          node=None if at % 2 else "gpu01", reason="r" * 250)
            for at in range(4_000)]
    report = core.report(pods, [], KubernetesNow(1.0))
    assert report.left_out == 4_000 - len(report.pods) > 0
    assert all(pod.node for pod in report.pods)
