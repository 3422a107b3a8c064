"""docs/kubernetes-install.md at a real API server: the manifests by kubectl, the chart by Helm's
own library; both leave the same objects there."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.make_chart import CHART, SOURCE
from tests.demos import ROOT
from tests.kubernetes_server import KubernetesServer, a_kubernetes_server
from tests.machine import required_module

pytestmark = pytest.mark.soak
PAGE = (ROOT / "docs/kubernetes-install.md").read_text()
KINDS = ("deployments", "daemonsets", "services", "ingresses.v1.networking.k8s.io", "configmaps",
         "persistentvolumeclaims", "networkpolicies.v1.networking.k8s.io")


def line_of_page(start: str, page: str = PAGE) -> str:
    [line] = re.findall(rf"^{re.escape(start)}.*$", page, re.M)
    return str(line)


@pytest.fixture(scope="module")
def helm() -> Any:
    return required_module("helm_python")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesServer]:
    with a_kubernetes_server(tmp_path_factory.mktemp("kubernetes")) as kubernetes:
        yield kubernetes


def sources() -> list[dict[str, Any]]:
    """Return the objects of the manifests, without their namespace."""
    return [item for path in SOURCE.glob("*.yaml") if path.stem != "kustomization"
            for item in yaml.safe_load_all(path.read_text()) if item["kind"] != "Namespace"]


def name_of(item: dict[str, Any]) -> tuple[str, str]:
    return item["kind"], item["metadata"]["name"]


def stored(server: KubernetesServer, namespace: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the objects that are there, without those that only wait for a controller to go."""
    listed = server.run(f"kubectl -n {namespace} get {','.join(KINDS)} -o json")
    return {name_of(item): item for item in json.loads(listed)["items"]
            if item["metadata"]["name"].startswith("gpudeck")
            and "deletionTimestamp" not in item["metadata"]}


def missing(source: Any, there: Any, path: str = "") -> list[str]:
    """Return what an object was to have and does not; a server adds much of its own."""
    if isinstance(source, dict):
        return [gap for key, value in source.items() for gap in (
            missing(value, there[key], f"{path}.{key}") if key in there else [f"{path}.{key}"])]
    if isinstance(source, list):
        return [f"{path}: {len(there)}"] if len(source) != len(there) else [
            gap for at, value in enumerate(source) for gap in missing(value, there[at],
                                                                      f"{path}[{at}]")]
    return [] if source == there else [f"{path}: {there!r}"]


def gaps(server: KubernetesServer, namespace: str) -> list[str]:
    there = stored(server, namespace)
    by_name = {name_of(item): item for item in sources()}
    assert there.keys() == by_name.keys()
    return [gap for name, item in by_name.items() for gap in missing(
        {**item, "metadata": {**item["metadata"], "namespace": namespace}}, there[name],
        "/".join(name))]


def test_kubectl_applies_the_manifests_and_takes_them_away(server: KubernetesServer) -> None:
    server.run(line_of_page("kubectl apply -k packaging/kubernetes"))
    assert gaps(server, "gpudeck") == []
    [secret] = re.findall(r"^kubectl .*create secret generic gpudeck-enrolment.*$", PAGE, re.M)
    server.run(secret)
    assert server.run("kubectl -n gpudeck get secret gpudeck-enrolment -o name")
    label = server.run("kubectl get namespace gpudeck -o json")
    assert json.loads(label)["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == (
        "privileged")
    # No controller ends the namespace here, so nobody waits for that.
    remove = line_of_page("kubectl delete -k", (ROOT / "docs/uninstall.md").read_text())
    server.run(f"{remove} --wait=false")
    assert stored(server, "gpudeck") == {}


def test_a_field_that_it_does_not_know_is_refused(server: KubernetesServer, tmp_path: Path) -> None:
    agent = (SOURCE / "agent.yaml").read_text().replace("hostPID:", "hostPid:")
    (tmp_path / "agent.yaml").write_text(agent)
    attempt = server.try_to(f"kubectl -n default apply -f {tmp_path}/agent.yaml --dry-run=server "
                            "--namespace=gpudeck")
    assert attempt.returncode != 0
    assert 'unknown field "hostPid"' in attempt.stderr


def test_helm_finds_nothing_to_mend(helm: Any) -> None:
    report = helm.lint(str(CHART), strict=True)
    assert report["errors"] == []
    # Only that it has no icon.
    assert [message for message in report["messages"] if message["severity"] > 1] == []


def test_rendered_by_helm_the_chart_is_the_manifests(helm: Any) -> None:
    def objects(**values: Any) -> list[dict[str, Any]]:
        with helm.Chart.load(str(CHART)) as chart:
            rendered = chart.render(values, name="gpudeck", namespace="gpudeck")
        return [item for text in rendered.values() for item in yaml.safe_load_all(text) if item]

    assert sorted(objects(), key=name_of) == sorted(sources(), key=name_of)
    changed = json.dumps(objects(host="gpus.lab.example"))
    assert "deck.example.org" not in changed
    assert changed.count("gpus.lab.example") == json.dumps(sources()).count("deck.example.org")
    [scrape] = [item for item in objects(prometheusOperator=True) if item["kind"] == "ScrapeConfig"]
    assert scrape == yaml.safe_load((SOURCE / "monitoring/scrape.yaml").read_text())


def test_helm_installs_the_chart_and_takes_it_away(server: KubernetesServer, helm: Any) -> None:
    """Install by the words of `helm install` on the page, in another namespace."""
    words = line_of_page("helm install").split()
    name, chart = words[2:4]
    assert "--create-namespace" in words
    with helm.Config(kubeconfig_path=str(server.kubeconfig), namespace="lab") as cluster:
        cluster.install(str(ROOT / chart), name, {}, namespace="lab", create_namespace=True)
        assert gaps(server, "lab") == []
        cluster.uninstall(name)
    assert stored(server, "lab") == {}
