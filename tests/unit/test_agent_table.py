import json
import random

from agent.backends import GpuReading, Reading
from agent.sampler import Seen
from agent.table import as_json, gpu_items, gpu_table, task_items, task_table
from gpudeck.metrics import COLUMN, WIDTH, Absence
from gpudeck.wire import GpuFacts, Task


def a_reading(**values: float) -> Reading:
    row, absent = [0.0] * WIDTH, bytearray([Absence.UNSUPPORTED]) * WIDTH
    for key, value in values.items():
        row[COLUMN[key]], absent[COLUMN[key]] = value, Absence.PRESENT
    facts = GpuFacts(uuid="GPU-1", index=3, name="a board", mem_total_bytes=80 * 2**30)
    return Reading(100.0, 1.0, (GpuReading("GPU-1", "ok", tuple(row), bytes(absent)),), (facts,),
                   None)


def test_a_gpu_is_shaped_like_the_rest_interface_shapes_it() -> None:
    util = random.uniform(0, 100)
    [item] = gpu_items(a_reading(util_pct=util, temp_c=999.0, fan_pct=0.0), "node-1")
    assert item["values"] == {"util_pct": util, "fan_pct": 0.0}
    assert item["missing"]["power_w"] == "unsupported"
    assert item["missing"]["temp_c"] == "unknown"  # no board is that hot: a sentinel
    assert (item["uuid"], item["node"], item["index"], item["state"], item["sampled_at"]) == (
        "GPU-1", "node-1", 3, "ok", 100.0)
    assert json.loads(as_json([item])) == {"items": [item], "next": None}


def test_absent_is_a_dash_and_zero_is_zero() -> None:
    items = gpu_items(a_reading(util_pct=0.0, mem_used_bytes=2**30), "id-1")
    titles, row = gpu_table(items, {"id-1": "node-1"}).splitlines()
    assert titles.split("  ")[0].strip() == "NODE"
    assert row.split() == ["node-1", "3", "a", "board", "0", "-", "1.0", "/", "80.0", "-", "-",
                           "ok", "GPU-1"]


def a_task(command: str) -> Task:
    return Task("id-1", 4711, 1, 2.0, "alice", command)


def test_a_task_on_two_gpus_is_one_item() -> None:
    task = a_task("python")
    [item] = task_items(
        [Seen(task, "GPU-1", 5.0, None, "running"), Seen(task, "GPU-2", 7.0, 30.0, "running")],
        "node-1",
    )
    assert (item["mem_used_bytes"], item["sm_pct"], len(item["gpus"])) == (12.0, 30.0, 2)
    [unknown] = task_items([Seen(task, "GPU-1", None, None, None)], "node-1")
    assert (unknown["mem_used_bytes"], unknown["sm_pct"], unknown["state"]) == (None, None, None)


def test_a_task_cannot_write_to_the_terminal() -> None:
    items = task_items([Seen(a_task("\x1b]0;owned\x07\nx\u202e"), "GPU-1", 1.0, 2.0, None)], "n")
    table = task_table(items)
    assert len(table.splitlines()) == 2
    assert not set("\x1b\x07\u202e") & set(table)


def test_nothing_is_said_in_words() -> None:
    assert gpu_table([]) == "no GPU"
    assert task_table([]) == "no task on any GPU"
