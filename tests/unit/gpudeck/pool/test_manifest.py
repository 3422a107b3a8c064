"""`gpudeck pool manifest`: against the schema of Kubernetes, and with any user input."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from agent.cli.pool_manifest import manifest
from gpudeck.errors import CommandError
from gpudeck.pool.manifest import PRODUCTS, yaml_text

SCHEMA = Path(__file__).parents[3] / "captures/kubernetes/job.json"


@cache
def schema() -> Any:
    import jsonschema  # a second or more, and each worker imports this file

    return jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()))


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert manifest([*words, *([] if "--" in words else ["--", "python", "train.py"])]) == 0
    job: dict[str, Any] = yaml.safe_load(capsys.readouterr().out)
    schema().validate(job)
    pod = job["spec"]["template"]["spec"]
    assert pod["restartPolicy"] == "Never"  # the schema takes any word, and none
    [container] = pod["containers"]
    assert container["image"]
    assert all(type(count) is int for name, count in container["resources"]["limits"].items()
               if name != "memory")
    return job


def pod_of(job: dict[str, Any]) -> tuple[dict[str, int | str], dict[str, str], list[Any]]:
    """Limits, selector, and what a node has to match."""
    pod = job["spec"]["template"]["spec"]
    terms = pod.get("affinity", {}).get("nodeAffinity", {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [])
    return (pod["containers"][0]["resources"]["limits"], pod.get("nodeSelector", {}),
            [(match["key"], match["operator"], match["values"])
             for term in terms for match in term["matchExpressions"]])


V100S = [product for product in PRODUCTS if "V100" in product]


@pytest.mark.parametrize(("words", "limits", "selector", "terms"), [
    ("--gpus 2", {"nvidia.com/gpu": 2}, {}, []),
    ("--gpus 2 --model v100", {"nvidia.com/gpu": 2}, {"nvidia.com/gpu.present": "true"},
     [("nvidia.com/gpu.product", "In", V100S)]),
    ("--model h200-nvl|t4 --mem 40G", {"nvidia.com/gpu": 1}, {"nvidia.com/gpu.present": "true"},
     [("nvidia.com/gpu.product", "In", ["Tesla-T4", "NVIDIA-H200-NVL"]),
      ("nvidia.com/gpu.memory", "Gt", ["38145"])]),
    ("--model t4", {"nvidia.com/gpu": 1}, {"nvidia.com/gpu.product": "Tesla-T4"}, []),
    ("--node-label zone=a --node-label example.org/b=C_1", {"nvidia.com/gpu": 1},
     {"zone": "a", "example.org/b": "C_1"}, []),
    ("--resource amd --gpus 8 --model AMD_Instinct_MI300X_OAM", {"amd.com/gpu": 8},
     {"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"}, []),
    ("--resource intel --model Max_1550", {"gpu.intel.com/i915": 1},
     {"gpu.intel.com/product": "Max_1550"}, []),
    ("--resource gpu.intel.com/xe", {"gpu.intel.com/xe": 1}, {}, []),
    ("--resource npu", {"huawei.com/Ascend910": 1}, {"accelerator": "huawei-Ascend910"}, []),
    ("--resource nvidia.com/mig-3g.40gb", {"nvidia.com/mig-3g.40gb": 1}, {}, []),
    ("--share 30 --mem 12G",
     {"nvidia.com/gpu": 1, "nvidia.com/gpucores": 30, "nvidia.com/gpumem": 12_288}, {}, []),
    ("--share 60", {"nvidia.com/gpu": 1, "nvidia.com/gpucores": 60,
                    "nvidia.com/gpumem-percentage": 60}, {}, []),
    ("--gpus 2 --cpus 16 --ram 64G", {"nvidia.com/gpu": 2, "cpu": 16, "memory": "64Gi"}, {}, []),
    ("--resource amd --ram 1.5G", {"amd.com/gpu": 1, "memory": "1536Mi"}, {}, []),
    ("--ram 64GB", {"nvidia.com/gpu": 1, "memory": "61036Mi"}, {}, []),  # no less than was asked
    ("--resource amd --amd-resource example.org/gpu", {"example.org/gpu": 1}, {}, []),
])
def test_what_is_asked_for(words: str, limits: dict[str, int | str], selector: dict[str, str],
                           terms: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert pod_of(printed(capsys, *words.split())) == (limits, selector, terms)


def test_the_rest_of_a_job(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    job = printed(capsys, "--name", "train-1", "--namespace", "lab", "--for", "90m", "--image",
                  "registry.example.org:5000/a/b@sha256:0f", "--share", "10", "--model",
                  "a100|h100")
    assert job["metadata"] == {"name": "train-1", "namespace": "lab"}
    assert (job["spec"]["activeDeadlineSeconds"], job["spec"]["backoffLimit"]) == (5_400, 0)
    assert job["spec"]["template"]["metadata"]["annotations"] == {
        "nvidia.com/use-gputype": "a100,h100"}
    settings = tmp_path / "gpudeck.toml"
    settings.write_text('[pool]\nresource = "intel"\nintel_resource = "gpu.intel.com/xe"\n')
    assert pod_of(printed(capsys, "--config", str(settings)))[0] == {"gpu.intel.com/xe": 1}
    manifest(["--gpus", "3", "--", "x"])
    pools, image, _ = capsys.readouterr().out.split("\n", 2)
    assert pools == ("# Node pool: machines with 3 GPUs or more; of these jobs one with 8 runs 2, "
                     "one with 4 runs 1 at a time.")
    assert "--image" in image


@pytest.mark.parametrize(("words", "why"), [
    ("--model v999", "no board that is known here"), ("--share 30 --gpus 2", "--share"),
    ("--resource amd --mem 40G", "--mem"), ("--resource amd --model a|b", "--node-label"),
    ("--resource example.org/x --model a", "--node-label KEY"),
    ("--resource amd --share 30", "HAMi"), ("--ram 64", "'64' is not a size"),
    ("--cpus 0", "a number from 1 to 4096"),
])
def test_what_cannot_be_written_is_refused(words: str, why: str) -> None:
    with pytest.raises(CommandError, match=why):
        manifest([*words.split(), "--", "x"])


@pytest.mark.parametrize(("flag", "value"), [
    ("--name", "Train"), ("--name", "a b"), ("--name", "a\nb: c"), ("--name", "x" * 64),
    ("--namespace", "-a"), ("--image", "a b"), ("--image", 'a"\n'), ("--node-label", "a"),
    ("--node-label", "a=b c"), ("--node-label", "a b=c"), ("--node-label", "a=\n"),
    ("--resource", "gpu"), ("--resource", "a/b: c"), ("--resource", "A.b/c"),
])
def test_names_are_names(flag: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CommandError):
        manifest([flag, value, "--", "x"])
    assert capsys.readouterr().out == ""


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=4))
def test_a_command_is_what_was_written_whatever_that_is(words: list[str]) -> None:
    assert yaml.safe_load(yaml_text({"command": words, "kind": "Job"})) == {
        "command": words, "kind": "Job"}


def test_kubernetes_puts_nothing_into_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    job = printed(capsys, "--", "sh", "-c", "echo $HOME $(hostname) $$ 100$")
    [container] = job["spec"]["template"]["spec"]["containers"]
    assert container["command"][2] == "echo $$HOME $$(hostname) $$$$ 100$$"
    with pytest.raises(CommandError, match="UTF-8"):
        manifest(["--", "\udcff"])


def test_the_schema_can_fail(capsys: pytest.CaptureFixture[str]) -> None:
    job = printed(capsys)
    for path, key, value in (((), "sepc", {}), (("spec",), "backoffLimit", "0"),
                             (("spec", "template", "spec"), "containers", None),
                             (("spec", "template", "spec"), "nodeSelector", {"a": 1})):
        wrong = json.loads(json.dumps(job))
        at = wrong
        for step in path:
            at = at[step]
        at[key] = value
        assert not schema().is_valid(wrong), key
