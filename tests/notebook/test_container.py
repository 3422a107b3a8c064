"""Containers, in which the driver's process ids mean nothing: the output says so, with what is
known of the whole GPUs; and no process is taken for another of the same pid."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent.tasks.privileges import HOST_PID_NAMESPACE
from tests.fakes.nvml import FakeNvml
from tests.machine import required
from tests.notebook.boards import Meter

ROOT = Path(__file__).parents[2]
GIB = 2**30
INTO = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
# Its kernel is process 1 there, and the driver says that a process 1 is on GPU 0.
SCRIPT = """
import json, os, sys, time
from widget import measure
from widget.live_widget import watch_here
told = {}
for asked in json.loads(sys.argv[1]):
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    if asked is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = asked
    with measure() as m:
        time.sleep(2.2)
    told[str(asked)] = {"words": repr(m), "html": m._repr_html_(), "columns": len(m.frame),
                        "gpus": [[g.uuid, g.is_mine, g.util_peak_pct, g.used_peak_bytes, g.energy_j,
                                  g.mem_peak_bytes] for g in m.cost.gpus]}
shown = watch_here(None)
while not shown.picture.get("gpus"):
    time.sleep(0.1)
told["picture"], told["still"] = shown.picture, repr(shown)
print(json.dumps(told))
"""


def in_a_container(folder: Path, nvml: FakeNvml, *arguments: str) -> str:
    required("unshare")
    probe = subprocess.run([*INTO, "true"], capture_output=True, text=True, check=False)
    if probe.returncode:
        pytest.skip(f"no PID namespace here: {probe.stderr.strip()}")
    result = subprocess.run(
        [*INTO, sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=90,
        env={**nvml.env(), "GPUDECK_DATA": str(folder / "data"),
             "GPUDECK_CEILING": str(_ceiling(folder))}, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def _ceiling(folder: Path) -> Path:
    path = folder / "ceiling.toml"
    path.write_text("")
    path.chmod(0o600)
    return path


@pytest.fixture(name="nvml")
def _nvml(tmp_path: Path) -> FakeNvml:
    nvml = FakeNvml(tmp_path, gpus=0)
    for at, util in enumerate((77, 33)):
        gpu = nvml.gpu(util=util, power_mw=300_000, energy_mj=10**9, mem_total=80 * GIB,
                       mem_used=(40 + at) * GIB, name="NVIDIA H100")
        gpu.lines.append(f"process {gpu.number} compute 1 {30 * GIB}")
    nvml.save()
    return nvml


def test_a_notebook_gives_the_whole_gpus_and_says_why(nvml: FakeNvml, tmp_path: Path) -> None:
    first, second = nvml.gpus
    devices = [None, "1", first.uuid, ""]
    with Meter(nvml, second):
        answers = json.loads(in_a_container(tmp_path, nvml, "-c", SCRIPT, json.dumps(devices)))
    for words, gpus in (("None", [first, second]), ("1", [second]), (first.uuid, [first]),
                        ("", [])):
        answer = answers[words]
        assert [gpu[0] for gpu in answer["gpus"]] == [gpu.uuid for gpu in gpus]
        for (_, is_mine, util, total, energy_j, own), gpu in zip(answer["gpus"], gpus, strict=True):
            assert (is_mine, own) == (None, None)
            assert (util, total) == (gpu["util"], gpu["mem_used"])
            assert energy_j > 300 if gpu is second else energy_j == 0.0  # its counter stands
        for text in (answer["words"], answer["html"]):
            assert "PID namespace" in text
            assert text.count("whose share is not known") == len(gpus)
            assert "on no GPU" not in text
        assert bool(answer["columns"]) == bool(gpus)
    picture = answers["picture"]
    assert "--pid=host" in picture["unseen"]
    assert "PID namespace" in answers["still"]
    assert picture["tasks"] == []
    assert [part["who"] for part in picture["gpus"][0]["held"]] == ["owner unknown here"]


def test_tasks_says_so(nvml: FakeNvml, tmp_path: Path) -> None:
    run = ("-c", "import sys; from agent.cli.main import tasks; tasks(sys.argv[1:])")
    text = in_a_container(tmp_path, nvml, *run)
    assert "PID namespace" in text
    assert "no task on any GPU" not in text
    document = json.loads(in_a_container(tmp_path, nvml, *run, "--json"))
    assert document["items"] == []
    assert "PID namespace" in document["unseen"]
    control = subprocess.run([sys.executable, *run, "--json"], cwd=ROOT, capture_output=True,
                             text=True, env=nvml.env(), check=True)
    if os.stat("/proc/self/ns/pid").st_ino == HOST_PID_NAMESPACE:
        assert json.loads(control.stdout)["unseen"] == ""
        assert json.loads(control.stdout)["items"]
