import json
import random
from typing import Any

from msgspec import structs

from agent.readings import GpuReading, Reading
from agent.tasks.seen import GpuTask
from agent.telemetry.status_table import as_json, gpu_items, gpu_table, task_items, task_table
from gpudeck.contract.wire import GpuFacts, Task
from gpudeck.measures.metrics import COLUMN, WIDTH, Absence


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
        [GpuTask(task, "GPU-1", 5.0, 80.0, "running"),
         GpuTask(task, "GPU-2", 7.0, 30.0, "running")],
        "node-1",
    )
    assert (item["mem_used_bytes"], item["sm_pct"], len(item["gpus"])) == (12.0, 55.0, 2)
    [partly] = task_items([GpuTask(task, "GPU-1", 5.0, None, "running"),
                           GpuTask(task, "GPU-2", 7.0, 30.0, "running")], "node-1")
    assert partly["sm_pct"] is None, "as a hub says it"
    [unknown] = task_items([GpuTask(task, "GPU-1", None, None, None)], "node-1")
    assert (unknown["mem_used_bytes"], unknown["sm_pct"], unknown["state"]) == (None, None, None)


def test_a_task_cannot_write_to_the_terminal() -> None:
    items = task_items([GpuTask(a_task("\x1b]0;owned\x07\nx\u202e"), "GPU-1", 1.0, 2.0, None)], "n")
    table = task_table(items)
    assert len(table.splitlines()) == 2
    assert not set("\x1b\x07\u202e") & set(table)


def test_a_narrow_terminal_keeps_the_script_and_the_number_of_the_gpu() -> None:
    long = "/opt/conda/bin/python3.11 -u /home/alice/train.py --config a.yaml " + "--more " * 40
    items = task_items([GpuTask(a_task(long), "GPU-1", 1.0, 2.0, None)], "n")
    whole = task_table(items, places={"GPU-1": "5"})
    assert whole.splitlines()[1].endswith("--more")
    assert whole.splitlines()[1].split()[3] == "5"
    narrow = task_table(items, places={"GPU-1": "5"}, width=80).splitlines()[1]
    assert "train.py --config a.yaml" in narrow
    assert len(narrow) < len(whole.splitlines()[1])


def test_nothing_is_said_in_words() -> None:
    assert gpu_table([]) == "no GPU"
    assert task_table([]) == "no task on any GPU"


def test_a_mig_instance_is_named_by_its_board() -> None:
    board = a_reading(temp_c=50.0)
    facts = GpuFacts("MIG-1", 3, "a board MIG 1g.10gb", parent_uuid="GPU-1",
                     mig_profile="1g.10gb", gpu_instance=9, compute_instance=0)
    gpu = structs.replace(board.gpus[0], uuid="MIG-1")
    items = gpu_items(structs.replace(board, gpus=(*board.gpus, gpu),
                                      facts=(*board.facts, facts)), "n")
    assert [line.split()[1] for line in gpu_table(items).splitlines()[1:]] == ["3", "3/9"]
    assert [item["index"] for item in items] == [3, 3]
    assert (items[1]["facts"]["parent_uuid"], items[1]["facts"]["mig_profile"]) == (
        "GPU-1", "1g.10gb")


def test_a_column_of_sites_where_there_are_several() -> None:
    items: list[dict[str, Any]] = [
        {"uuid": f"{site}:GPU-1", "node": "n", "index": 0, "name": "H100", "state": "ok",
         "values": {}, "missing": {}, "facts": {}, "site": site} for site in ("lyon", "oslo")]
    titles, first, _ = gpu_table(items).splitlines()
    assert (titles.split()[0], first.split()[0]) == ("SITE", "lyon")
    assert not gpu_table(items[:1]).startswith("SITE")
