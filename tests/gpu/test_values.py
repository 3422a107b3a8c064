"""Our numbers beside those of `nvidia-smi -q -x` of the same second, on a real card."""

import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.gpu.conftest import MIB, Busy, capture, gpudeck_json
from tests.gpu.smi import FACTS, TABLE, boards, number

SAMPLE = """<nvidia_smi_log><driver_version>580.159.03</driver_version><gpu id="00000000:01:00.0">
<uuid>GPU-1</uuid><fan_speed>N/A</fan_speed>
<fb_memory_usage><total>143771 MiB</total><used>12 MiB</used></fb_memory_usage>
<temperature><gpu_temp>31 C</gpu_temp></temperature>
<gpu_power_readings><average_power_draw>N/A</average_power_draw><power_draw>75.10 W</power_draw>
</gpu_power_readings></gpu></nvidia_smi_log>"""


@pytest.mark.anywhere
def test_what_nvidia_smi_writes_is_understood() -> None:
    """The sample has the form that NVIDIA prints; this needs no card."""
    gpu = boards(SAMPLE)["GPU-1"]
    values = {reading.key: number(gpu, reading) for reading in (*TABLE, *FACTS)}
    assert values["mem_used_bytes"] == 12 * 2**20
    assert (values["temp_c"], values["power_w"], values["fan_pct"]) == (31, 75.1, None)


def smi() -> str:
    return subprocess.run(["nvidia-smi", "-q", "-x"], capture_output=True, text=True, check=True,
                          timeout=60).stdout


def apart(before: Any, smi_gpu: Any, after: Any) -> list[str]:
    """List values of nvidia-smi that do not lie between ours of before and after, give or take."""
    wrong = []
    for reading in TABLE:
        smi_value = number(smi_gpu, reading)
        values = [gpu["values"].get(reading.key) for gpu in (before, after)]
        if smi_value is None or None in values:
            if (smi_value is None) != (values == [None, None]):
                wrong.append(f"{reading.key}: nvidia-smi {smi_value}, ours {values}, "
                             f"missing {before['missing'].get(reading.key)}")
        elif not min(values) - reading.slack <= smi_value <= max(values) + reading.slack:
            wrong.append(f"{reading.key}: nvidia-smi {smi_value}, ours {values}")
    return wrong


@pytest.mark.parametrize("mem_mib", [0, 4_096])
def test_values_of_the_same_second(busy: Callable[..., Busy], mem_mib: int) -> None:
    """Our values agree with nvidia-smi, idle and with a task at work."""
    if mem_mib:
        busy(mem_mib * MIB)
        time.sleep(3)  # until its utilization is that of whole periods
    before, text, after = gpudeck_json("status"), smi(), gpudeck_json("status")
    capture("status-busy" if mem_mib else "status-idle", {"nvidia-smi": text, "status": before})
    smi_gpus = boards(text)
    assert {gpu["uuid"] for gpu in before["items"]} == set(smi_gpus)
    for first, last in zip(before["items"], after["items"], strict=True):
        assert apart(first, smi_gpus[first["uuid"]], last) == []
        for fact in FACTS:
            assert first["facts"][fact.key] == pytest.approx(
                number(smi_gpus[first["uuid"]], fact), abs=fact.slack)
    if mem_mib:
        assert max(gpu["values"]["util_pct"] for gpu in after["items"]) > 50


def test_bursts_are_seen(busy: Callable[..., Busy]) -> None:
    """A task that works is never at 0, whichever moment is looked at."""
    busy(64 * MIB)
    time.sleep(3)
    for _ in range(3):
        assert max(gpu["values"].get("util_max_pct", 0)
                   for gpu in gpudeck_json("status")["items"]) > 0


def test_a_task_appears_with_owner_and_memory_and_leaves(busy: Callable[..., Busy]) -> None:
    bystander, task = busy(256 * MIB), busy(1_024 * MIB)
    tasks = {item["pid"]: item for item in gpudeck_json("tasks")["items"]}
    capture("tasks", list(tasks.values()))
    assert {bystander.pid, task.pid} <= set(tasks), "without the host's pid namespace: pitfall 8"
    mine = tasks[task.pid]
    assert mine["user"]
    assert "busy.py" in mine["command"]
    # Its own, and what a context takes beside it.
    assert task.mem_bytes <= mine["mem_used_bytes"] <= task.mem_bytes + 2_048 * MIB
    task.close()
    pids = {item["pid"] for item in gpudeck_json("tasks")["items"]}
    assert task.pid not in pids
    assert bystander.pid in pids
