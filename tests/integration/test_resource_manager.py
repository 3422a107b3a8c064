"""The resource manager's API on a real hub, a real agent and the C fake of NVML."""

import getpass
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from gpudeck.contract.pool_link import OfferedGpu, PoolReport
from tests.fakes.hub import wait_for
from tests.integration.hubs import Answer, HubProcess, WireAgent
from tests.integration.pools import WAITS, PoolBed
from tests.integration.visitors import add_program

ME = getpass.getuser()
H100 = "NVIDIA H100 80GB HBM3"
PAGE = Path(__file__).parents[2] / "docs" / "resource-manager.md"
# After what the page prints: what it promises besides.
MORE = """
import os, sys
from dataclasses import replace
from gpudeck.pool.source import get_gpu_resource_manager as again

assert again() is manager
assert sys.modules[again.__module__].log.name == "gpudeck.pool.source"
assert os.environ["CUDA_VISIBLE_DEVICES"] == ",".join(node.gpu_uuids) == ",".join(setup.gpu_uuids)
assert "torchrun --nproc-per-node=2" in "".join(setup.code)
assert get_pytorch_gpu_integration().setup_pytorch_gpu(config).success is False, "it was given back"
one, two = replace(config, gpu_count=1), manager.allocate_gpu_resources(config)
node = manager.allocate_gpu_resources(one)
made = get_tensorflow_gpu_integration().setup_tensorflow_gpu(one)
assert made.gpu_uuids == node.gpu_uuids and "memory_limit" in "".join(made.code)
assert manager.cleanup_gpu_resources(node.node_name, 2) is False, "leases are of 1 and 2"
assert [each.available_gpus for each in manager.get_available_gpu_nodes()] == [2]
assert manager.cleanup_gpu_resources(two, 2) is True
assert manager.allocate_gpu_resources(replace(config, gpu_count=9)) is None
assert manager.validate_gpu_requirements(replace(config, gpu_type="V100")) is False
assert manager.cleanup_gpu_resources(None, 2) is False, "none was had"
config.memory_gb, config.mixed_precision, config.gpu_count = config.memory_gb * 0.8, True, 4
node = manager.allocate_gpu_resources(config)
assert len(node.gpu_uuids) == 4
config.gpu_count = 3
assert get_pytorch_gpu_integration().setup_pytorch_gpu(config).gpu_uuids == node.gpu_uuids, "suits"
assert manager.cleanup_gpu_resources(node, 4) is True
for absent in ("create_pytorch_model_with_gpu", "AlgorithmTrainingEngine"):
    try:
        exec(f"from gpudeck.pool.source import {absent}")
    except ImportError as error:
        assert f"gpudeck has no {absent}: " in str(error), error
    else:
        raise AssertionError(absent)
try:
    get_tensorflow_gpu_integration().create_tensorflow_model_with_gpu
except AttributeError as error:
    assert "build the model yourself" in str(error)
"""


@pytest.fixture(name="hub")
def _hub(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[HubProcess]:
    waits_s = getattr(request, "param", 30.0)
    with HubProcess(tmp_path / "hub", 0, "--pool", "on", constants={
            "dashboard.pool.source_api.ALLOCATE_WITHIN_S": waits_s,
            "dashboard.pool.source_api.RELEASE_WITHIN_S": 3.0}) as hub:
        yield hub


@pytest.fixture
def bed(hub: HubProcess, tmp_path: Path) -> Iterator[PoolBed]:
    assert hub.ask("/api/v1/gpu/status").status == 503
    bed = PoolBed(hub, tmp_path)
    with bed.agent():
        # Its report and its readings come by different ways.
        wait_for(lambda: (answer := hub.ask("/api/v1/gpu/status")).status == 200
                 and answer.json["utilization"]["gpu_utilization"] is not None)
        yield bed
    bed.close()


def post(hub: HubProcess, path: str, what: dict[str, Any], token: str = "api") -> Answer:
    return hub.ask(f"/api/v1/gpu/{path}", "POST", token, json.dumps(what).encode(),
                   Content_Type="application/json")


def call(hub: HubProcess, path: str, **what: Any) -> dict[str, Any]:
    answer = post(hub, path, what)
    assert answer.status == 200, answer.body
    return answer.json  # type: ignore[no-any-return]


@contextmanager
def gpus_in_use(bed: PoolBed, gpus: int) -> Iterator[None]:
    run = bed.start("run", "--gpus", str(gpus), "--", sys.executable, "-c", WAITS)
    try:
        assert run.stdout is not None
        assert run.stdout.readline() == "on\n"
        yield
    finally:
        run.terminate()
        run.communicate(timeout=60)


def test_from_status_to_release(hub: HubProcess, bed: PoolBed) -> None:
    def status() -> Any:
        return hub.get("/api/v1/gpu/status")

    view = wait_for(lambda: status()["utilization"]["gpu_utilization"] is not None and status())
    assert set(view) == {"utilization", "available_nodes", "total_nodes", "timestamp"}
    assert datetime.fromisoformat(view["timestamp"])
    [node] = view["available_nodes"]
    assert (node["gpu_type"], node["available_gpus"], node["memory_per_gpu"]) == (H100, 4, 80.0)
    assert node["utilization"] == view["utilization"]["gpu_utilization"] == 0.0
    assert 0 < view["utilization"]["gpu_memory_usage"] < 1
    for query, count in (("gpu_type=h100&min_memory_gb=80", 1), ("gpu_type=V100", 0),
                         ("min_memory_gb=90", 0)):
        assert len(hub.get(f"/api/v1/gpu/nodes?{query}")["nodes"]) == count
    for wrong in ("much", "", "nan", "-1"):
        assert hub.ask(f"/api/v1/gpu/nodes?min_memory_gb={wrong}").status == 400
    assert hub.get("/api/v1/gpu/health")["status"] == "healthy"
    request = {"gpu_count": 2, "gpu_type": "H100", "memory_gb": 80.0}
    assert call(hub, "validate", **request)["available_nodes"] == [node["node_name"]]

    got = call(hub, "allocate", **request, owner=ME, distributed_training=True)
    assert got["success"]
    assert got["node_name"] == node["node_name"]
    assert got["gpu_config"] == request | {"distributed_training": True}
    assert got["environment"]["CUDA_VISIBLE_DEVICES"] == ",".join(got["gpu_uuids"])
    assert datetime.fromisoformat(got["expires_at"]) > datetime.fromisoformat(view["timestamp"])
    assert bed.free() == 2
    [usage] = hub.get("/api/v1/gpu/monitoring")["nodes"]
    assert (usage["available_gpus"], usage["leased_gpus"], usage["total_gpus"]) == (2, 2, 4)
    for framework in ("tensorflow", "pytorch"):
        setup = call(hub, f"setup-{framework}", **request, lease_id=got["lease_id"])
        assert setup["environment"] == got["environment"]
        assert got["gpu_uuids"][0] in "".join(setup["code"])
        assert call(hub, f"setup-{framework}", **request, owner=ME) == setup
        for other in ({"owner": "somebody-else"}, {"gpu_count": 3, "owner": ME},
                      {"gpu_type": "V100", "owner": ME}, {"memory_gb": 90, "owner": ME}, {}):
            first = call(hub, f"setup-{framework}", **request | other)
            assert (first["success"], first["code"]) == (False, []), other
            assert "gpu/allocate" in first["reason"]

    assert call(hub, "release", lease_id=got["lease_id"])["success"]
    assert bed.free() == 4
    for path in ("release", "setup-pytorch"):
        assert post(hub, path, {"lease_id": got["lease_id"]}).status == 404


def test_one_that_waits_keeps_nobody_else_waiting(hub: HubProcess, bed: PoolBed) -> None:
    with ThreadPoolExecutor(1) as pool:
        with gpus_in_use(bed, 3):
            future = pool.submit(call, hub, "allocate", gpu_count=4, owner=ME)
            wait_for(lambda: hub.get("/api/v1/claims")["items"])
            assert not future.done()
        assert future.result(60)["success"]


@pytest.mark.parametrize("hub", [0.2], indirect=True)
def test_cpus_and_memory_of_the_node_are_counted_and_said(hub: HubProcess, bed: PoolBed) -> None:
    cpus = os.cpu_count() or 1
    assert call(hub, "validate", cpus=cpus, ram_bytes="1M")["available_now"]
    got = call(hub, "allocate", owner=ME, cpus=cpus, ram_bytes="1M")
    assert got["success"], got
    assert got["host_words"] == (f"{cpus} CPU{'s' * (cpus > 1)} (only counted), "
                                 "1 MiB of memory (only counted)")
    setup = call(hub, "setup-pytorch", owner=ME, cpus=cpus, ram_bytes=2**20)
    assert (setup["lease_id"], setup["host_words"]) == (got["lease_id"], got["host_words"])
    lacking = call(hub, "setup-pytorch", owner=ME, ram_bytes="2M")
    assert (lacking["success"], "has 1 GPU, 2 MiB of memory: POST" in lacking["reason"]) == (
        False, True)
    # Nobody waits for any now, and still they are counted.
    later = wait_for(lambda: (check := call(hub, "validate", cpus=1))
                     and f"0 of {cpus} are not allocated" in check["reason"] and check)
    assert (later["valid"], later["available_now"]) == (True, False)
    never = call(hub, "allocate", owner=ME, ram_bytes="900T")
    assert "9.216e+05 GiB of memory; the largest has" in never["reason"]
    for wrong in ({"ram_bytes": "900"}, {"ram_bytes": 0}, {"cpus": 0}):
        assert post(hub, "validate", wrong).status == 400
    run = python(hub, bed, "from gpudeck.pool.source import *; import logging\n"
                 "manager = get_gpu_resource_manager()\n"
                 "config = TrainingGPUConfig(1, None, None, cpus=1, ram='1M')\n"
                 "print(manager.allocate_gpu_resources(config))")
    assert (run.returncode, run.stdout) == (0, "None\n"), run.stderr
    assert f"0 of {cpus} are not allocated" in run.stderr


@pytest.mark.parametrize("hub", [0.2], indirect=True)
def test_what_cannot_be_had_says_why_and_waits_for_nothing(hub: HubProcess, bed: PoolBed) -> None:
    with gpus_in_use(bed, 3):
        later = call(hub, "validate", gpu_count=2)
        assert (later["valid"], later["available_now"], later["available_nodes"]) == (
            True, False, [])
        for request, why in (({"gpu_count": 2}, "1 of 4 matching are free"),
                             ({"gpu_count": 9}, "the largest has 4"),
                             ({"gpu_type": "V100"}, "no GPU of model V100"),
                             ({"memory_gb": 200}, "no GPU here has this much memory")):
            answer = call(hub, "allocate", owner=ME, **request)
            assert (answer["success"], answer["lease_id"]) == (False, None)
            assert why in answer["reason"], request
            assert call(hub, "validate", **request)["valid"] == (request == {"gpu_count": 2})
        stranger = call(hub, "allocate", owner="no-such-user")
        assert "no user no-such-user" in stranger["reason"]
        assert hub.get("/api/v1/claims")["items"] == []
        assert bed.free() == 1
    whose = post(hub, "allocate", {"gpu_count": 1})
    assert (whose.status, "--unix-name" in whose.body.decode()) == (400, True)
    assert post(hub, "allocate", {"gpu_count": 0}).status == 400


def test_a_lease_that_a_command_holds_is_not_said_to_be_given_back(hub: HubProcess, bed: PoolBed
                                                                  ) -> None:
    with gpus_in_use(bed, 2):
        [lease] = wait_for(lambda: hub.get("/api/v1/leases")["items"])
        answer = call(hub, "release", lease_id=lease["id"])
        assert (answer["success"], "running command" in answer["reason"]) == (False, True)
        assert bed.free() == 2


def test_a_lease_is_its_owners(hub: HubProcess, bed: PoolBed) -> None:
    mine, stranger = (add_program(hub, "user", unix_names=[name]) for name in (ME, "somebody-else"))
    got = post(hub, "allocate", {}, mine).json
    assert got["success"]
    for path in ("release", "setup-pytorch", "setup-tensorflow"):
        assert post(hub, path, {"lease_id": got["lease_id"]}, stranger).status == 404
    assert post(hub, "allocate", {"owner": ME}, stranger).status == 404
    assert bed.free() == 3
    assert post(hub, "release", {"lease_id": got["lease_id"]}, mine).json["success"]


def curls(page: str) -> str:
    """Return the requests of the page, for the boards that are here."""
    [printed] = re.findall(r"```sh\n(.*?)```", page, re.S)
    return str(printed).replace("V100", "H100")


def test_every_request_runs_as_printed_with_a_token(hub: HubProcess, bed: PoolBed) -> None:
    """Send them as the source material has them: the owner comes from the token, and what is set
    up is the newest lease of theirs that suits."""
    token = add_program(hub, "user", unix_names=[ME])
    played = subprocess.run(
        ["bash", "-ec", curls(PAGE.read_text()).replace('"\n', '"; echo\n')], text=True,
        capture_output=True, timeout=120, check=False,
        env={**bed.env, "GPUDECK_URL": hub.url, "GPUDECK_TOKEN": token})
    assert played.returncode == 0, played.stderr
    status, nodes, valid, got, tensorflow, pytorch, health, monitoring = map(
        json.loads, filter(None, played.stdout.splitlines()))
    assert set(status) == {"utilization", "available_nodes", "total_nodes", "timestamp"}
    assert set(status["available_nodes"][0]) == {
        "node_name", "gpu_type", "available_gpus", "memory_per_gpu", "utilization"}
    assert nodes["nodes"][0]["available_gpus"] == 4
    assert valid["available_now"]
    assert got["success"]
    assert got["gpu_config"] == {"gpu_count": 2, "gpu_type": "H100", "memory_gb": 32.0,
                                 "distributed_training": True}
    for setup in (tensorflow, pytorch):
        assert (setup["success"], setup["lease_id"]) == (True, got["lease_id"])
        assert setup["environment"] == got["environment"]
    assert health["status"] == "healthy"
    assert monitoring["leases"] == 1
    stranger = add_program(hub, "user", unix_names=["somebody-else"])
    assert not post(hub, "setup-pytorch", {}, stranger).json["success"]
    assert not post(hub, "setup-pytorch", {"owner": ME}, stranger).json.get("success")


def test_nobody_gets_gpus_of_a_node_that_they_do_not_see(hub: HubProcess) -> None:
    for name, gpus in (("seen", 1), ("hidden", 2)):
        agent = WireAgent(name, gpus)
        agent.connect(hub)
        agent.say(PoolReport(tuple(OfferedGpu(f"GPU-{name}-{at}", "H100", at)
                                   for at in range(gpus)), (), ()))
        if name == "seen":
            assert hub.ask(f"/api/v1/nodes/{agent.node_id}", "PATCH", body=b'{"group": "lab"}',
                           Content_Type="application/json").status == 200
    wait_for(lambda: hub.ask("/api/v1/gpu/health").status == 200
             and hub.get("/api/v1/gpu/health")["total_nodes"] == 2)
    token = add_program(hub, "user", ["lab"], [ME])
    assert hub.ask("/api/v1/gpu/nodes", token=token).json["total_nodes"] == 1
    assert not post(hub, "validate", {"gpu_count": 2}, token).json["valid"]
    answer = post(hub, "allocate", {"gpu_count": 2}, token).json
    assert (answer["success"], "the largest has 1" in answer["reason"]) == (False, True)


def python(hub: HubProcess, bed: PoolBed, code: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", code], text=True, capture_output=True, timeout=120, check=False,
        env=bed.env | {"GPUDECK_HUB": hub.url, "GPUDECK_TOKEN": hub.api_token})


def test_the_calls_from_python_run_as_the_page_prints_them(hub: HubProcess, bed: PoolBed) -> None:
    [printed] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    on_h100 = printed.replace('"V100"', '"H100"').replace("memory_gb=32.0", "memory_gb=80.0")
    assert on_h100 != printed
    run = python(hub, bed, on_h100 + MORE)
    assert run.returncode == 0, run.stderr
    first, *code, last = run.stdout.splitlines()
    assert f"{H100} 4 80.0" in first
    assert "import torch" in code
    assert "gpu_utilization" in last
    assert "the largest has 4" in run.stderr
    assert bed.free() == 4
    run = python(hub, bed, printed)  # no V100 here
    assert (run.returncode, "training on the CPU" in run.stdout) == (0, True), run.stderr
    assert "there is no GPU of model V100 here" in run.stderr


def test_its_memory_table_is_compared_with_the_boards_that_are_here(
    hub: HubProcess, bed: PoolBed, tmp_path: Path
) -> None:
    config = tmp_path / "gpu_config.yaml"
    config.write_text("gpu_memory_specs: {H100: 80, V100: 32}\n")
    bed.env |= {"GPUDECK_TOKEN": hub.api_token}
    for where in ((), ("--hub", hub.url)):
        run = bed.run("pool", "import", str(config), *where)
        assert run.returncode == 0, run.stderr
        assert "those here have 80.0 GiB, as the table says" in run.stdout
        assert "no such board is here" in run.stdout
