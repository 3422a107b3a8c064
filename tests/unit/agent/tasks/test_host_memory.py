"""Room in host memory: the machine's and that of each cgroup; what cannot be read is no room."""

import random
from pathlib import Path

import pytest

from agent.tasks.host_memory import rooms

MIB = 2**20


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9 kB\nMemAvailable:  2048 kB\n")
    (tmp_path / "cgroups").mkdir()
    return tmp_path


def a_level(folder: Path, limit: str, usage: int, cache: int, names: tuple[str, str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in zip(names, (limit, str(usage), f"anon 5\n{names[2]} {cache}\n"), strict=True):
        (folder / name if name is not names[2] else folder / "memory.stat").write_text(text + "\n")


SECOND = ("memory.max", "memory.current", "inactive_file")
FIRST = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def free(machine: Path, cgroups: str) -> dict[str, float] | None:
    read = rooms(cgroups, machine / "cgroups", machine / "proc")
    return None if read is None else {room.cgroup: room.free_bytes for room in read}


def test_each_level_of_cgroup_v2_counts(machine: Path) -> None:
    limit, usage, cache = sorted(random.sample(range(10 * MIB, 90 * MIB), 3), reverse=True)
    a_level(machine / "cgroups/a", str(limit), usage, cache, SECOND)
    a_level(machine / "cgroups/a/b", "max", usage, cache, SECOND)
    (machine / "cgroups/a/b/c").mkdir()
    assert free(machine, "1:name=x:/z\n0::/a/b/c\n") == {"": 2 * MIB, "/a": limit - usage + cache}


def test_cgroup_v1_where_it_has_the_memory(machine: Path) -> None:
    a_level(machine / "cgroups/memory", str(2**63 - 4_096), 7, 0, FIRST)
    a_level(machine / "cgroups/memory/a", str(50 * MIB), 40 * MIB, 15 * MIB, FIRST)
    levels = free(machine, "4:cpu,memory:/a\n0::/\n")
    assert levels is not None
    assert (levels[""], levels["/a"]) == (2 * MIB, 25 * MIB)
    assert levels["/"] > 2**60


@pytest.mark.parametrize("cgroups", ["0::/elsewhere\n", "0::/../other\n", "2:cpu:/a\n", "", "x\n"])
def test_what_cannot_be_read_is_not_known(machine: Path, cgroups: str) -> None:
    assert free(machine, cgroups) is None


def test_a_machine_that_does_not_say(machine: Path) -> None:
    (machine / "proc/meminfo").write_text("MemTotal: 9 kB\n")
    assert free(machine, "0::/\n") is None
