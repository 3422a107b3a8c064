"""Manifests that run gpudeck in a cluster: against Kubernetes' schema, and against our own
settings; the Helm chart is the manifests."""

import json
import re
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from agent.settings import read
from dashboard.settings import hub_settings
from dashboard.web.tls_policy import check_bind
from docs.make_chart import CHART, RELEASE, SOURCE, VALUES, chart
from gpudeck import __version__
from tests.machine import required

ROOT = Path(__file__).resolve().parents[2]
DEFINITIONS = json.loads((ROOT / "tests/captures/kubernetes/workloads.json").read_text())
KINDS = {"apps/v1": "apps.v1", "v1": "core.v1", "networking.k8s.io/v1": "networking.v1"}


def objects() -> list[dict[str, Any]]:
    return [item for path in sorted(SOURCE.glob("*.yaml")) if path.stem != "kustomization"
            for item in yaml.safe_load_all(path.read_text())]


def find(kind: str, name: str) -> Any:
    [match] = [item for item in objects() if (item["kind"], item["metadata"]["name"]) == (kind,
                                                                                         name)]
    return match


def validate(item: dict[str, Any]) -> None:
    kind = f"io.k8s.api.{KINDS[item['apiVersion']]}.{item['kind']}"
    jsonschema.Draft202012Validator({**DEFINITIONS, "$ref": f"#/$defs/{kind}"}).validate(item)


@pytest.mark.parametrize("item", objects(),
                         ids=lambda item: f"{item['kind']} {item['metadata']['name']}")
def test_kubernetes_knows_every_field(item: dict[str, Any]) -> None:
    validate(item)
    assert item["metadata"].get("namespace", "gpudeck") == "gpudeck"


def test_a_field_that_it_does_not_know_is_found() -> None:
    agent = find("DaemonSet", "gpudeck-agent")
    agent["spec"]["template"]["spec"]["hostPid"] = True
    with pytest.raises(jsonschema.ValidationError, match="hostPid"):
        validate(agent)


def test_kustomize_names_every_file() -> None:
    listed = yaml.safe_load((SOURCE / "kustomization.yaml").read_text())["resources"]
    assert sorted([*listed, "kustomization.yaml"]) == sorted(
        path.name for path in SOURCE.glob("*.yaml"))


@pytest.mark.parametrize("folder", ["", "monitoring"])
def test_kustomize_itself_makes_what_was_checked(folder: str) -> None:
    source = SOURCE / folder
    run = subprocess.run([required("kubectl"), "kustomize", source], capture_output=True, text=True,
                         check=True)
    own = [item for path in source.glob("*.yaml") if path.stem != "kustomization"
           for item in yaml.safe_load_all(path.read_text())]

    def by_name(item: dict[str, Any]) -> tuple[str, str]:
        return item["kind"], item["metadata"]["name"]

    assert sorted(yaml.safe_load_all(run.stdout), key=by_name) == sorted(own, key=by_name)


def test_a_hub_starts_with_its_settings(tmp_path: Path) -> None:
    config = tmp_path / "hub.toml"
    config.write_text(find("ConfigMap", "gpudeck-hub")["data"]["hub.toml"])
    [container] = find("Deployment", "gpudeck-hub")["spec"]["template"]["spec"]["containers"]
    assert container["args"][:2] == ["hub", "--config"]
    settings = hub_settings(["--config", str(config)], {})
    check_bind(settings)
    [port] = container["ports"]
    assert settings.bind == ("0.0.0.0", port["containerPort"])
    # Below it: with an fsGroup the volume itself is open to the group, which a hub refuses.
    assert str(settings.data.parent) in {mount["mountPath"] for mount in container["volumeMounts"]}
    [rule] = find("Ingress", "gpudeck-hub")["spec"]["rules"]
    assert settings.public_url == f"https://{rule['host']}"
    assert settings.cluster == rule["host"], "not the name of a pod, which changes in all history"


def test_an_agent_starts_with_its_arguments() -> None:
    spec = find("DaemonSet", "gpudeck-agent")["spec"]["template"]["spec"]
    [container] = spec["containers"]
    settings = read(container["args"][1:], {"GPUDECK_HOST": "n1"})
    assert settings.hub == (f"https://{VALUES[2][0]}",)
    assert spec["hostPID"] is True
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    [folder] = [item for item in spec["volumes"] if item["name"] == mounts[str(settings.data)]]
    assert "hostPath" in folder  # its key must outlive the pod
    assert str(settings.token_file).startswith(next(
        path for path, name in mounts.items() if name == "enrolment"))


def container(name: str) -> tuple[list[str], list[str]]:
    """Return the flags of `podman run` on the page, and the words behind the image."""
    page = (ROOT / "docs/containers.md").read_text().replace("\\\n", " ")
    [command] = [words for words in map(shlex.split, re.findall(r"^podman run .*", page, re.M))
                 if f"{name}:{RELEASE}" in words]
    at = command.index(f"{name}:{RELEASE}")
    return command[2:at], command[at + 1:]


def test_the_containers_of_the_page_start_with_their_words() -> None:
    flags, [first, *words] = container("gpudeck-hub")
    hub = hub_settings(words, {})
    check_bind(hub)
    assert (first, hub.bind) == ("hub", ("127.0.0.1", 8050))
    assert "gpudeck-hub:/var/lib/gpudeck-hub" in flags
    assert str(hub.data).startswith("/var/lib/gpudeck-hub/"), "of a volume's root it cannot"
    flags, [first, *words] = container("gpudeck-agent")
    agent = read(words, {})
    assert (first, agent.hub) == ("agent", ("https://deck.example.org",))
    for path in (agent.data, agent.token_file):
        assert any(str(path).startswith(flag.split(":")[1]) for flag in flags if ":/" in flag)
    # As in a cluster: no more, and what the tables promise.
    pod = find("DaemonSet", "gpudeck-agent")["spec"]["template"]["spec"]
    [of_pod] = pod["containers"]
    capabilities = of_pod["securityContext"]["capabilities"]["add"]
    assert flags[flags.index("--cap-add") + 1].split(",") == capabilities
    assert flags[flags.index("--pid") + 1] == "host"
    assert {"--read-only", "--cap-drop"} < {*flags}


def test_the_chart_is_made_from_the_manifests() -> None:
    assert {path.relative_to(CHART).as_posix(): path.read_text()
            for path in CHART.rglob("*.yaml")} == chart(), "run: make docs"


def test_all_name_one_version() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == __version__
    for place, count in (("packaging/container/Containerfile", 2), ("docs/containers.md", 4)):
        tags = re.findall(r"gpudeck-(?:hub|agent):(\d[\w.]+)", (ROOT / place).read_text())
        assert len(tags) == count, place
        assert set(tags) == {RELEASE}, place
    released = re.findall(r"^## \[([\d.]+)\] - ", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert (RELEASE in released) is (__version__ == RELEASE), "what is in work is not released"


def test_the_wheel_names_addresses_as_soon_as_there_are_some() -> None:
    """An index shows them beside the name. Before there is one, an address could only be made up;
    with the release the page on installing changes, and they are due."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    is_public = "is not on PyPI yet" not in (ROOT / "docs/install.md").read_text()
    urls = project.get("urls", {})
    assert urls.keys() == ({"Changelog", "Documentation", "Issues", "Source"} if is_public
                           else set())
    assert [url for url in urls.values() if not re.match(r"https://(?!.*example\.)", url)] == []
    # What it has without them, in every wheel: the text itself.
    assert (project["readme"], project["license"]) == ("README.md", "Apache-2.0")


def test_with_its_default_values_the_chart_is_the_manifests() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())

    def value(match: re.Match[str]) -> str:
        if match[1] == "Release.Namespace":
            return "gpudeck"
        current = values
        for part in match[1].removeprefix("Values.").split("."):
            current = current[part]
        return str(current)

    sources = {path.name: path for path in SOURCE.rglob("*.yaml")}
    for path in (CHART / "templates").iterdir():
        text = re.sub(r"\{\{ \.([\w.]+) \}\}", value, path.read_text())
        guarded = re.fullmatch(r"\{\{- if \.Values\.(\w+) \}\}\n(.*)\{\{- end \}\}\n", text, re.S)
        assert (text if guarded is None else guarded[2]) == sources[path.name].read_text()
        assert guarded is None or values[guarded[1]] is False, "off unless it is asked for"
    for literal, name, template in VALUES:
        assert any(literal in path.read_text() for path in SOURCE.glob("*.yaml")), name
        assert name == "namespace" or f".Values.{name} " in template


def test_prometheus_scrapes_the_hub_by_the_name_that_it_answers_to() -> None:
    [scrape] = yaml.safe_load_all((SOURCE / "monitoring/scrape.yaml").read_text())
    settings = tomllib.loads(find("ConfigMap", "gpudeck-hub")["data"]["hub.toml"])["hub"]
    [static] = scrape["spec"]["staticConfigs"]
    assert static["targets"] == [settings["public_url"].removeprefix("https://") + ":443"]
    assert (scrape["spec"]["scheme"], scrape["spec"]["honorLabels"]) == ("HTTPS", True)
    assert yaml.safe_load((SOURCE / "monitoring/kustomization.yaml").read_text())["resources"] == [
        "scrape.yaml"]
