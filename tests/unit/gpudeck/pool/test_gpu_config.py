"""`gpudeck pool import`: what a resource manager's configuration means here."""

import contextlib
import random
import tomllib
from pathlib import Path

import pytest
import yaml

from agent.cli.pool_import import import_config
from agent.cli.pool_manifest import manifest
from gpudeck.contract.pool_messages import SOCKET_ENV
from gpudeck.errors import CommandError
from gpudeck.pool.gpu_config import Board, GpuConfigError, read

CONFIG = """\
gpu_resource:
  gpu: "nvidia.com/gpu"
  nvidia: "nvidia.com/gpu"
  amd: "amd.com/gpu"
  intel: "intel.com/gpu"
  npu: "huawei.com/npu"
default_gpu_resource_name: "amd.com/gpu"
gpu_memory_specs:
  T4: 16
  V100: 32
  A100: 80
  RTX3090: 24
  A40: 48
  L4: 24
monitor_update_interval: 30
resource_change_threshold: 0.05
log_level: INFO
colour: red
"""
MIB = 2**20
BOARDS: list[Board] = [
    ("Tesla T4", 15_360 * MIB), ("NVIDIA A100-SXM4-40GB", 40_960 * MIB),
    ("NVIDIA GeForce RTX 3090", 24_576 * MIB), ("NVIDIA RTX A4000", 16_376 * MIB),
    ("NVIDIA L40S", 46_068 * MIB), ("Tesla V100-SXM2-32GB", None)]


def test_each_key_says_what_it_means_here() -> None:
    by_path = {key.path: key for key in read(CONFIG, BOARDS)}
    lines = CONFIG.splitlines()
    assert all(key.path.rpartition(".")[2] in lines[key.line - 1] for key in by_path.values())
    assert len(by_path) == sum(not line.endswith(":") for line in lines)
    assert {key.setting for key in by_path.values()} - {None} == {
        ("resource", "amd.com/gpu"), ("nvidia_resource", "nvidia.com/gpu"),
        ("amd_resource", "amd.com/gpu"), ("intel_resource", "gpu.intel.com/i915"),
        ("npu_resource", "huawei.com/Ascend910")}
    assert "no device plugin registers intel.com/gpu" in by_path["gpu_resource.intel"].means
    memory = {path.partition(".")[2]: key.means for path, key in by_path.items() if "specs" in path}
    assert memory["T4"].endswith("those here have 15.0 GiB, as the table says")
    assert memory["RTX3090"].endswith("24.0 GiB, as the table says")
    assert memory["A100"].endswith("40.0 GiB, not what the table says")
    for other in ("V100", "A40", "L4"):  # of unknown size, an A4000, an L40S
        assert memory[other].endswith("no such board is here")
    for path in ("monitor_update_interval", "resource_change_threshold", "log_level"):
        assert by_path[path].means.startswith("nothing here: ")
    assert by_path["colour"].means == "nothing here"
    assert "boards report" in read("gpu_memory_specs: {T4: 16}", None)[0].means


@pytest.mark.parametrize(("text", "setting"), [
    ("default_gpu_resource_name: amd", ("resource", "amd")),
    ("gpu_resource: {gpu: amd.com/gpu}", ("resource", "amd.com/gpu")),
    ("default_gpu_resource_name: intel.com/gpu", ("resource", "gpu.intel.com/i915")),
])
def test_what_a_job_asks_for_by_default(text: str, setting: tuple[str, str]) -> None:
    assert [key.setting for key in read(text, None)] == [setting]


@pytest.mark.parametrize(("text", "problems"), [
    ("a: [", ["line 1: this is not YAML"]), ("- a", ["it has no keys"]), ("", ["it has no keys"]),
    ("a: 1\na: 2", ["line 2: this is not YAML: 'a' is here twice"]), ("1: a", ["the key 1"]),
    ("a: &x 1\nb: *x", ["line 2: this is not YAML: aliases"]),
    ("gpu_resource: 3", ["line 1: gpu_resource: lines of"]),
    ("gpu_resource:\n  nvidia: 3\n  amd: a b\nlog_level: loud",
     ["line 2: gpu_resource.nvidia: a text", "line 3: gpu_resource.amd: 'a b' is no name",
      "line 4: log_level: one of DEBUG"]),
    ("gpu_memory_specs:\n  T4: -1\n  V100: yes\n  A40: true",
     [f"line {line}: gpu_memory_specs.{name}: a number" for line, name in (
         (2, "T4"), (3, "V100"), (4, "A40"))]),
    ("monitor_update_interval: 0\nresource_change_threshold: 2",
     ["line 1: monitor_update_interval: a number", "line 2: resource_change_threshold: a number"]),
    ("x: " + "y" * 1_000_000, ["it has more than"]),
])
def test_what_is_wrong_is_named_by_line_and_key(text: str, problems: list[str]) -> None:
    with pytest.raises(GpuConfigError) as error:
        read(text, None)
    assert len(error.value.args) == len(problems)
    for problem, begins in zip(error.value.args, problems, strict=True):
        assert problem.startswith(begins)


def test_whatever_is_in_it_nothing_but_a_sentence_comes_of_it() -> None:
    values = ["a", "", "a\nb", 1, -1, 0.5, None, True, [1], {"a": 1}, "nvidia.com/gpu", "1e400"]
    names = ["gpu_resource", "gpu_memory_specs", "log_level", "monitor_update_interval", "x",
             "default_gpu_resource_name", "a\nb"]
    for _ in range(300):
        below = {name: random.choice(values) for name in ("gpu", "T4")}
        data = {name: random.choice([*values, below]) for name in random.sample(names, 3)}
        with contextlib.suppress(GpuConfigError):
            assert read(yaml.safe_dump(data), BOARDS)


def test_what_it_prints_is_what_a_manifest_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SOCKET_ENV, str(tmp_path / "none.sock"))
    monkeypatch.delenv("GPUDECK_HUB", raising=False)
    (tmp_path / "gpu_config.yaml").write_text(CONFIG + '"evil\\nkey": "a\\nresource = 1"\n')
    assert import_config([str(tmp_path / "gpu_config.yaml")]) == 0
    output = capsys.readouterr()
    assert "no agent answers" in output.err
    assert tomllib.loads(output.out)["pool"] == {
        "resource": "amd.com/gpu", "nvidia_resource": "nvidia.com/gpu",
        "amd_resource": "amd.com/gpu", "intel_resource": "gpu.intel.com/i915",
        "npu_resource": "huawei.com/Ascend910"}
    (tmp_path / "gpudeck.toml").write_text(output.out)
    assert manifest(["--config", str(tmp_path / "gpudeck.toml"), "--", "x"]) == 0
    assert '"amd.com/gpu": 1' in capsys.readouterr().out
    (tmp_path / "gpu_config.yaml").write_text("log_level: loud\ngpu_resource: 1\n")
    with pytest.raises(CommandError) as error:
        import_config([str(tmp_path / "gpu_config.yaml")])
    assert [line.partition(": ")[2][:8] for line in str(error.value).splitlines()] == [
        "line 1: ", "line 2: "]
