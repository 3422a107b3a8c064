"""Mechanisms that hold a quota on a machine are looked for, and never taken on trust."""

import os
import random
import struct
from pathlib import Path

import pytest
from msgspec.structs import replace

from agent.limits import hami
from agent.quotas.mechanisms import hami_file, mechanisms, memory_limit, mig, mps
from gpudeck.contract.limits import MpsClient, MpsDaemon, MpsLimit, MpsServer
from gpudeck.contract.wire import GpuFacts

FACTS = (GpuFacts("GPU-1", 0, "H100"),)
SPLIT = (*FACTS, GpuFacts("MIG-1", 0, "1g.10gb", parent_uuid="GPU-1"))


def shared_file(limits: dict[str, int], magic: int = hami.MAGIC, major: int = 1,
                size: int = hami.SIZE) -> bytes:
    """Return a shared file as HAMi-core lays it out."""
    data = bytearray(size)
    struct.pack_into("<ii", data, 0, magic, major)
    struct.pack_into("<Q", data, 56, len(limits))
    for at, (uuid, limit) in enumerate(limits.items()):
        data[64 + 96 * at : 64 + 96 * at + len(uuid)] = uuid.encode()
        struct.pack_into("<Q", data, 1_600 + 8 * at, limit)
    return bytes(data)


def test_the_limits_in_a_shared_file_are_read_and_shown(tmp_path: Path) -> None:
    limit = random.randint(1, 80) * 2**30
    path = tmp_path / "x.cache"
    path.write_bytes(shared_file({"GPU-a": limit, "GPU-b": 0}))
    mechanism = hami_file([str(tmp_path / "*.cache")])
    assert mechanism.state == "there"
    assert f"GPU-a {limit / 2**30:.1f} GiB" in mechanism.proof
    assert "GPU-b" not in mechanism.proof
    assert "edit its own limit" in mechanism.proof


@pytest.mark.parametrize("data", [
    b"", b"\0" * hami.SIZE, shared_file({"GPU-a": 1}, magic=7), shared_file({"GPU-a": 1}, major=0),
    shared_file({"GPU-a": 1})[:-1], shared_file({f"GPU-{at}": 1 for at in range(16)})[:1_000],
])
def test_what_is_no_such_file_is_not_read(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.cache"
    path.write_bytes(data)
    assert hami_file([str(path)]).state == "not_there"


def test_a_link_or_a_pipe_in_its_place_is_let_be(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.write_bytes(shared_file({"GPU-a": 1}))
    (tmp_path / "a.cache").symlink_to(real)
    os.mkfifo(tmp_path / "b.cache")
    assert hami_file([str(tmp_path / "*.cache")]).state == "not_there"


def test_memory_limits_need_the_driver_and_cgroup_v2_and_no_mig(tmp_path: Path) -> None:
    assert memory_limit(None, FACTS, tmp_path, True).state == "unknown"
    assert "older than 615" in memory_limit("550.54.15", FACTS, tmp_path, True).proof
    assert "cgroup v2" in memory_limit("615.10", FACTS, tmp_path, True).proof
    (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    assert memory_limit("615.10", FACTS, tmp_path, True).state == "there"
    (tmp_path / "dmem.capacity").write_text("")
    assert "dmem" in memory_limit("620.1", FACTS, tmp_path, True).proof
    assert "MIG" in memory_limit("620.1", SPLIT, tmp_path, True).proof
    whole = GpuFacts("GPU-2", 1, "H100")
    assert memory_limit("620.1", (*SPLIT, whole), tmp_path, True).state == "there"


def test_memory_limits_that_the_agent_does_not_set_are_not_claimed(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    for is_enabled, state in ((False, "not_there"), (None, "unknown")):
        mechanism = memory_limit("615.10", FACTS, tmp_path, is_enabled)
        assert (mechanism.state, "--memory-limits" in mechanism.proof) == (state, True)


def test_mig_is_counted_and_the_ladder_is_always_there() -> None:
    assert mig(FACTS).state == "not_there"
    assert "1 instance" in mig(SPLIT).proof
    states = {row.name: row.state for row in mechanisms("550.1", FACTS, False, ())}
    assert states["ladder"] == "there"


def test_what_mps_gives_is_said_with_what_it_cannot_hold() -> None:
    pct = random.randint(1, 76)
    one, other = (MpsServer(pid, 0, "root", "ACTIVE", float(pct), (MpsLimit(0, "2G"),),
                            (MpsClient(pid + 1, 0, "alice", None, None),)) for pid in (10, 20))
    daemon = MpsDaemon("/run/mps", 0, "root", True, default_pct=77.0, servers=(one, other))
    mechanism = mps((daemon, MpsDaemon("/run/dead", 0, "root", False)))
    assert (mechanism.name, mechanism.state) == ("mps", "there")
    assert f"2 clients; new ones of /run/mps: {pct} % of the threads and 2G on device 0." in (
        mechanism.proof)
    assert "77" not in mechanism.proof, "that is of the next server"
    assert "can shed" in mechanism.proof
    assert "77 %" in mps((replace(daemon, servers=()),)).proof
    assert mps((MpsDaemon("/run/dead", 0, "root", False),)).state == "not_there"
    assert (mps(()).state, mps(None).state) == ("not_there", "unknown")
