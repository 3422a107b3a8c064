"""Environment of a leased command: which GPUs it has, which part of one, and by whom."""

import os
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpudeck.contract.pool_messages import Leased, LeasedGpu
from gpudeck.pool.boards import boards_seen
from gpudeck.pool.environment import (
    RendezvousAddress,
    container_words,
    environment,
    rendezvous,
)
from gpudeck.pool.frameworks import Framework, framework_keys
from gpudeck.pool.hami import CACHE, LIBRARY_ENV, hami_library, hami_variables

GIB = 2**30
A, B, C = (LeasedGpu(f"GPU-{name}", "NVIDIA H100", index, False, f"0000:{bus}:00.0", 80.0 * GIB)
           for name, index, bus in (("a", 0, "1b"), ("b", 1, "43"), ("c", 2, "89")))
ALL = ("GPU-a", "GPU-b", "GPU-c")


def leased(*gpus: LeasedGpu, share: int = 1_000, mem: float | None = None, pipes: str = ""
           ) -> Leased:
    return Leased("lease-1", "n1", gpus, 0.0, share, mem, 30.0, ALL, pipes)


MIG = replace(B, uuid="MIG-1", is_mig=True)
SHARE = leased(B, share=300, mem=12.0 * GIB, pipes="/tmp/mps")


@pytest.mark.parametrize(("lease", "ids", "boards", "devices"), [
    (leased(C, A), "auto", ALL, "0,2"),
    (leased(C, A), "auto", ("GPU-b", "GPU-c", "GPU-a"), "2,1"),  # by the order of PCI addresses
    (leased(C, A), "auto", (), "GPU-c,GPU-a"),  # a container
    (leased(C, A), "auto", ("GPU-a", "GPU-c"), "GPU-c,GPU-a"),  # one is hidden, or lost
    (leased(C), "auto", (*ALL, "GPU-split"), "GPU-c"),
    (leased(C, A), "uuid", ALL, "GPU-c,GPU-a"),
    (leased(C, A), "index", (), "0,2"),
    (leased(MIG), "auto", ALL, "MIG-1"),
    (leased(MIG), "index", ALL, "MIG-1"),
    (SHARE, "auto", ALL, "GPU-b"),  # a daemon of MPS may count otherwise
    (SHARE, "index", ALL, "1"),
])
def test_how_it_is_told_its_gpus(lease: Leased, ids: str, boards: tuple[str, ...], devices: str
                                 ) -> None:
    env = environment(lease, ids, boards)  # type: ignore[arg-type]
    assert env.set["CUDA_VISIBLE_DEVICES"] == devices
    assert ("CUDA_DEVICE_ORDER" in env.set) != devices.startswith("MIG")
    assert env.set["GPUDECK_GPU_UUIDS"] == ",".join(gpu.uuid for gpu in lease.gpus)
    assert env.unset == ()


@pytest.mark.parametrize(("uuids", "ids", "devices"), [
    (("GPU-60e5a3f1b2c4d6e8", "GPU-60e5a3f1b2c4d6e9"), "auto", "GPU-60e5a3f1b2c4d6e8,"
                                                              "GPU-60e5a3f1b2c4d6e9"),
    (("GPU-60e5a3f1b2c4d6e8", "GPU-60e5a3f1b2c4d6e9"), "index", "0,2"),
    (("2eff74a1-0000-1000-80ab", "2fff74a1-0000-1000-80ac"), "auto", "0,2"),
])
def test_amd_boards_are_told_below_hip_alone(uuids: tuple[str, str], ids: str, devices: str
                                             ) -> None:
    gpus = [replace(gpu, uuid=uuid, name="AMD Instinct MI300X")
            for gpu, uuid in zip((A, C), uuids, strict=True)]
    env = environment(leased(*gpus), ids, ())  # type: ignore[arg-type]
    assert env.set["ROCR_VISIBLE_DEVICES"] == devices
    assert "CUDA_VISIBLE_DEVICES" not in env.set
    environ = env.applied({"HIP_VISIBLE_DEVICES": "3", "CUDA_VISIBLE_DEVICES": "3", "PATH": "/bin"})
    assert {name for name in environ if "VISIBLE" in name} == {"ROCR_VISIBLE_DEVICES"}
    assert environ["PATH"] == "/bin"
    shell = subprocess.run(["sh", "-c", f"{env.shell()}\nenv"], text=True, check=True,
                           capture_output=True, env={"HIP_VISIBLE_DEVICES": "3"})
    assert "HIP_VISIBLE_DEVICES" not in shell.stdout
    assert f"ROCR_VISIBLE_DEVICES={devices}" in shell.stdout


def test_a_share_is_what_mps_holds_it_to() -> None:
    variables = environment(SHARE, "auto", ALL).set
    assert variables["CUDA_MPS_PIPE_DIRECTORY"] == "/tmp/mps"
    assert variables["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "30"
    assert variables["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=12288M"
    assert not any("MPS" in name for name in environment(leased(B), "auto", ALL).set)


def test_boards_are_counted_as_pci_does_and_not_in_a_container(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for bus, uuid in (("0000:89:00.0", "GPU-c"), ("0000:1b:00.0", "GPU-a"),
                      ("0000:43:00.0", "GPU-b")):
        (tmp_path / bus).mkdir()
        (tmp_path / bus / "information").write_text(f"Model: \tH100\nGPU UUID: \t {uuid}\n")
    monkeypatch.setattr("gpudeck.pool.boards.CONTAINER_FILES", ())
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert boards_seen(tmp_path) == ALL
    assert boards_seen(tmp_path / "none") == ()
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert boards_seen(tmp_path) == ()


def test_ranks_find_each_other_and_nothing_that_waits_for_ranks_is_set() -> None:
    env = rendezvous(leased(A, B), RendezvousAddress("127.0.0.1", 29_500))
    assert env["PET_NPROC_PER_NODE"] == "2"
    assert env["MASTER_PORT"] == env["PET_MASTER_PORT"] == "29500"
    assert not {"WORLD_SIZE", "RANK", "LOCAL_RANK", "NODE_RANK"} & env.keys()
    assert (env["PET_NNODES"], env["PET_NODE_RANK"]) == ("1", "0")
    second = replace(leased(A), hosts=("n0", "n1"))
    env = rendezvous(second, RendezvousAddress("n0", 29_500))
    assert (env["PET_NNODES"], env["PET_NODE_RANK"], env["MASTER_ADDR"]) == ("2", "1", "n0")


@pytest.mark.parametrize(("command", "words"), [
    ("docker run --rm image", "--gpus '\"device=GPU-a,GPU-b\"' --label gpudeck.lease=lease-1 "
                              "-e GPUDECK_LEASE=lease-1"),
    ("/usr/bin/podman run image", "--device=nvidia.com/gpu=GPU-a --device=nvidia.com/gpu=GPU-b "
                                  "--label gpudeck.lease=lease-1 -e GPUDECK_LEASE=lease-1"),
    ("docker run -e GPUDECK_LEASE image", ""), ("docker ps", ""), ("python run", ""),
])
def test_what_a_container_has_to_be_told(command: str, words: str) -> None:
    assert container_words(leased(A, B), command.split()) == words


@pytest.mark.parametrize(("framework", "version", "lease", "env", "keys", "note"), [
    ("pytorch", "2.10.0+cu128", SHARE, {}, {"PYTORCH_ALLOC_CONF":
                                           "per_process_memory_fraction:0.15"}, ""),
    ("pytorch", "2.9.1", SHARE, {}, {}, "torch 2.9.1 reads no limit"),
    ("pytorch", "1.13.1", SHARE, {}, {}, "set_per_process_memory_fraction(0.15)"),
    ("pytorch", "2.11.0", SHARE, {"PYTORCH_CUDA_ALLOC_CONF": "x:1"}, {}, "is set already"),
    ("pytorch", "git-1a2b", SHARE, {}, {}, "reads no limit"),
    ("pytorch", "2.10.0", leased(A), {}, {}, ""),
    ("tensorflow", "2.17.0", leased(A), {}, {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}, ""),
    ("tensorflow", "2.17.0", SHARE, {}, {"TF_FORCE_GPU_ALLOW_GROWTH": "true"},
     "LogicalDeviceConfiguration(memory_limit=12288)"),
    ("jax", "0.4.30", SHARE, {}, {"XLA_CLIENT_MEM_FRACTION": "0.15",
                                  "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.15"}, ""),
    ("jax", "0.4.30", leased(A, share=250, pipes="/p"), {},
     {"XLA_CLIENT_MEM_FRACTION": "0.25", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.25"}, ""),
    ("jax", "0.4.30", leased(A), {}, {}, ""),
])
def test_a_framework_is_told_what_its_version_knows(
        framework: Framework, version: str, lease: Leased, env: dict[str, str],
        keys: dict[str, str], note: str) -> None:
    answer = framework_keys(framework, version, lease, env)
    assert (answer.set, note in answer.note) == (keys, True)
    assert bool(note) == bool(answer.note)


def library(folder: Path, code: str) -> str:
    (folder / "hami.c").write_text(code)
    path = folder / "libvgpu.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(path), str(folder / "hami.c")],
                   check=True)
    return str(path)


@pytest.mark.parametrize(("code", "is_taken"), [
    ("int nothing;", True),
    ("#include <stdio.h>\n__attribute__((constructor)) void f() { fputs(\"[HAMI]\", stderr); }",
     False),
    ("#include <stdlib.h>\n__attribute__((constructor)) void f() { _Exit(3); }", False),
])
def test_hami_is_used_where_it_behaves(tmp_path: Path, code: str, is_taken: bool) -> None:
    path = library(tmp_path, code)
    env = {**os.environ, LIBRARY_ENV: path}
    assert hami_library(env, tmp_path) == (path if is_taken else "")
    assert hami_library(env, tmp_path / "no-locks") == ""
    (tmp_path / "libvgpu.so").write_text("no library")
    assert hami_library(env, tmp_path) == ""


def test_each_lease_has_its_own_limits_under_hami() -> None:
    variables = hami_variables(leased(B, share=300, mem=12.0 * GIB), "/l.so",
                               {"XDG_RUNTIME_DIR": "/run/user/1", "LD_PRELOAD": "/x"})
    assert variables == {
        "LD_PRELOAD": "/l.so /x", "CUDA_DEVICE_SM_LIMIT": "30",
        "CUDA_DEVICE_MEMORY_LIMIT": "12288m", CACHE: "/run/user/1/gpudeck-lease-1.cache"}


def test_boards_of_one_vendor_are_counted_without_those_of_another() -> None:
    """Count as CUDA and ROCm do on a node that has both: neither sees the other's boards, and
    NVIDIA's come first."""
    chip = LeasedGpu("AMD-5f0e", "AMD Radeon", 3, False, "0000:c1:00.0", 8.0 * GIB)
    lease = replace(leased(chip), node_uuids=(*ALL, "GPU-60e5a3f1b2c4d6e8", chip.uuid))
    assert environment(lease, "auto", ALL).set["ROCR_VISIBLE_DEVICES"] == "1"
    lease = replace(leased(C, A), node_uuids=(*ALL, chip.uuid))
    assert environment(lease, "auto", ALL).set["CUDA_VISIBLE_DEVICES"] == "0,2"
