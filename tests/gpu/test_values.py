"""Our numbers beside those of `nvidia-smi -q -x` of the same second, on a real card."""

import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.gpu.conftest import MIB, Busy, capture, told
from tests.gpu.smi import FACTS, TABLE, boards, number

SAMPLE = """<nvidia_smi_log><driver_version>580.159.03</driver_version><gpu id="00000000:01:00.0">
<uuid>GPU-1</uuid><fan_speed>N/A</fan_speed>
<fb_memory_usage><total>143771 MiB</total><used>12 MiB</used></fb_memory_usage>
<temperature><gpu_temp>31 C</gpu_temp></temperature>
<gpu_power_readings><average_power_draw>N/A</average_power_draw><power_draw>75.10 W</power_draw>
</gpu_power_readings></gpu></nvidia_smi_log>"""


@pytest.mark.anywhere
def test_what_nvidia_smi_writes_is_understood() -> None:
    """Its form as NVIDIA prints it; this needs no card."""
    gpu = boards(SAMPLE)["GPU-1"]
    found = {said.key: number(gpu, said) for said in (*TABLE, *FACTS)}
    assert found["mem_used_bytes"] == 12 * 2**20
    assert (found["temp_c"], found["power_w"], found["fan_pct"]) == (31, 75.1, None)


def smi() -> str:
    return subprocess.run(["nvidia-smi", "-q", "-x"], capture_output=True, text=True, check=True,
                          timeout=60).stdout


def apart(before: Any, said_gpu: Any, after: Any) -> list[str]:
    """Ours from before and after; theirs must lie between, give or take."""
    wrong = []
    for said in TABLE:
        theirs = number(said_gpu, said)
        ours = [gpu["values"].get(said.key) for gpu in (before, after)]
        if theirs is None or None in ours:
            if (theirs is None) != (ours == [None, None]):
                wrong.append(f"{said.key}: nvidia-smi {theirs}, ours {ours}, "
                             f"missing {before['missing'].get(said.key)}")
        elif not min(ours) - said.slack <= theirs <= max(ours) + said.slack:
            wrong.append(f"{said.key}: nvidia-smi {theirs}, ours {ours}")
    return wrong


@pytest.mark.parametrize("mem_mib", [0, 4_096])
def test_values_of_the_same_second(busy: Callable[..., Busy], mem_mib: int) -> None:
    """Idle, and with a task at work."""
    if mem_mib:
        busy(mem_mib * MIB)
        time.sleep(3)  # until its utilization is that of whole periods
    before, text, after = told("status"), smi(), told("status")
    capture("status-busy" if mem_mib else "status-idle", {"nvidia-smi": text, "status": before})
    said = boards(text)
    assert {gpu["uuid"] for gpu in before["items"]} == set(said)
    for first, last in zip(before["items"], after["items"], strict=True):
        assert apart(first, said[first["uuid"]], last) == []
        for fact in FACTS:
            assert first["facts"][fact.key] == pytest.approx(
                number(said[first["uuid"]], fact), abs=fact.slack)
    if mem_mib:
        assert max(gpu["values"]["util_pct"] for gpu in after["items"]) > 50


def test_bursts_are_seen(busy: Callable[..., Busy]) -> None:
    """A task that works is never at 0, whichever moment is looked at."""
    busy(64 * MIB)
    time.sleep(3)
    for _ in range(3):
        assert max(gpu["values"].get("util_max_pct", 0) for gpu in told("status")["items"]) > 0


def test_a_task_appears_with_owner_and_memory_and_leaves(busy: Callable[..., Busy]) -> None:
    bystander, task = busy(256 * MIB), busy(1_024 * MIB)
    found = {item["pid"]: item for item in told("tasks")["items"]}
    capture("tasks", list(found.values()))
    assert {bystander.pid, task.pid} <= set(found), "without the host's pid namespace: pitfall 8"
    mine = found[task.pid]
    assert mine["user"]
    assert "busy.py" in mine["command"]
    # Its own, and what a context takes beside it.
    assert task.mem_bytes <= mine["mem_used_bytes"] <= task.mem_bytes + 2_048 * MIB
    task.close()
    left = {item["pid"] for item in told("tasks")["items"]}
    assert task.pid not in left
    assert bystander.pid in left
