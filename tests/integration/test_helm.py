"""The chart of docs/kubernetes-install.md, by Helm's own library: it is the manifests."""

import json
from typing import Any

import pytest
import yaml

from docs.make_chart import CHART, SOURCE
from tests.machine import required_module

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def helm() -> Any:
    return required_module("helm_python")


def sources() -> list[dict[str, Any]]:
    """Return the objects of the manifests, without their namespace."""
    return [item for path in SOURCE.glob("*.yaml") if path.stem != "kustomization"
            for item in yaml.safe_load_all(path.read_text()) if item["kind"] != "Namespace"]


def name_of(item: dict[str, Any]) -> tuple[str, str]:
    return item["kind"], item["metadata"]["name"]


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
    # Without NVIDIA's operator, as the page says.
    [agent] = [item for item in objects(runtimeClassName="", nodeSelector="")
               if item["kind"] == "DaemonSet"]
    pod = agent["spec"]["template"]["spec"]
    assert not pod["runtimeClassName"]
    assert pod["nodeSelector"] == {}
    [scrape] = [item for item in objects(prometheusOperator=True) if item["kind"] == "ScrapeConfig"]
    assert scrape == yaml.safe_load((SOURCE / "monitoring/scrape.yaml").read_text())
