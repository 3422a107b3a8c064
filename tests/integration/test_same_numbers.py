"""Unmodified gpustat and nvitop and our own commands on one fake driver: all say what its file
says, each to the digits it prints. Where they cannot agree, it is written down here why."""

import json
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.demos import soon
from tests.fakes.nvml import FakeGpu, FakeNvml

MIB = 2**20
UNITS = {"": 1, "%": 1, "C": 1, "W": 1, "B": 1, "KiB": 2**10, "MiB": MIB, "GiB": 2**30,
         "TiB": 2**40}
NOTHING = "N/A"
PERSISTENCE = {0: "Off", 1: "On"}
COMPUTE_MODES = {0: "Default", 2: "Prohibited", 3: "E. Process"}
MAXIMUM = {"util": 100, "mem_util": 100, "enc": 100, "dec": 100, "temp": 149, "fan": 250,
           "power_mw": 4_999_000, "power_limit_mw": 5_000_000, "energy_mj": 2**53,
           "sm_clock": 9_999, "mem_clock": 9_999, "pstate": 15, "compute_mode": 3,
           "throttle": 2**40, "ecc_uncorrected_volatile": 2**31}


class Program(NamedTuple):
    """Output of a program: by GPU index, and by (GPU index, pid)."""

    gpus: dict[int, dict[str, Any]]
    processes: dict[tuple[int, int], dict[str, Any]]


class Row(NamedTuple):
    gpu: int
    pid: int
    mem_bytes: int | None
    sm_pct: int


@pytest.fixture
def children() -> "Iterator[list[subprocess.Popen[bytes]]]":
    started = [subprocess.Popen(["sleep", "600"]) for _ in range(6)]
    yield started
    for child in started:
        child.kill()
        child.wait()


@pytest.fixture
def nvml(tmp_path: Path) -> FakeNvml:
    """Boards: random, all zero, all maximal, one with a fan and odd modes, one that supports
    nothing but its name."""
    nvml = FakeNvml(tmp_path, gpus=1)
    nvml.gpu(**dict.fromkeys(MAXIMUM, 0), mem_used=0, persistence=0)
    top = nvml.gpu(**MAXIMUM, persistence=1)
    top["mem_used"] = top["mem_total"]
    nvml.gpu(fan=random.randint(1, 99), compute_mode=2, mem_reserved=random.randrange(2**29),
             mem_used=random.randrange(2**34))
    nvml.gpu().lack("name", "pci")
    nvml.save()
    return nvml


def run(nvml: FakeNvml, *command: str, warns: str = "") -> str:
    """Run a command in English, and wide enough that nothing is cut."""
    env = {**nvml.env(), "COLUMNS": "200", "LINES": "100", "LC_ALL": "C.UTF-8"}
    process = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60,
                             check=False)
    assert process.returncode == 0, process
    assert warns in process.stderr if warns else process.stderr == "", process
    return process.stdout


def gpustat(nvml: FakeNvml) -> Program:
    output = json.loads(run(nvml, sys.executable, "-m", "gpustat", "--json"))
    assert output["driver_version"] == nvml.driver
    return Program(
        {gpu["index"]: gpu for gpu in output["gpus"]},
        {(gpu["index"], process["pid"]): process
         for gpu in output["gpus"] for process in gpu["processes"] or ()},
    )


def nvitop(nvml: FakeNvml) -> Program:
    text = run(nvml, sys.executable, "-m", "nvitop", "--once", "--no-unicode")
    assert f"Driver Version: {nvml.driver} " in text
    lines = text.splitlines()
    gpus: dict[int, dict[str, Any]] = {}
    processes = {}
    for line, following in pairwise(lines):
        if re.match(r"\| +\d+  .*\| (\S+:\S+|N/A) ", line):
            gpus.update([nvitop_gpu(line, following)])
        elif match := re.match(r"\| +(\d+) +(\d+) ([CGX]) +\S+ +(\S+) +(\S+) ", line):
            index, pid, kind, memory, sm_pct = match.groups()
            processes[int(index), int(pid)] = {"kind": kind, "mem": memory, "sm_pct": sm_pct}
    return Program(gpus, processes)


def nvitop_gpu(upper: str, lower: str) -> tuple[int, dict[str, Any]]:
    name, bus, health = (cell.split() for cell in upper.split("|")[1:4])
    state, memory, use = (cell.split() for cell in lower.split("|")[1:4])
    bar = re.search(r"MBW: \|* *(\S+)", upper)
    assert bar is not None
    return int(name[0]), {
        "name": " ".join(name[1:-1]), "persistence": name[-1], "bus": bus[0], "ecc": health[-1],
        "fan": state[0], "temp": state[1], "pstate": state[2], "power": state[3],
        "limit": state[5], "mem_used": memory[0], "mem_total": memory[2], "util": use[0],
        "compute_mode": " ".join(use[1:]), "mem_util": bar[1],
    }


def gpudeck(nvml: FakeNvml, warns: str = "") -> Program:
    program = str(Path(sys.executable).with_name("gpudeck"))
    gpus, tasks = (
        json.loads(run(nvml, program, verb, "--json", "--backend", "nvml", warns=warns))["items"]
        for verb in ("status", "tasks")
    )
    index = {gpu["uuid"]: gpu["index"] for gpu in gpus}
    return Program(
        {gpu["index"]: gpu for gpu in gpus if gpu["facts"]["parent_uuid"] is None},
        {(index[use["uuid"]], task["pid"]): use for task in tasks for use in task["gpus"]},
    )


def agrees(printed: str, true: float | None) -> bool:
    """Return whether a figure with its unit is off by half of its last digit at most."""
    if printed == NOTHING or true is None:
        return printed == NOTHING and true is None
    if printed == "MAX":  # nvitop's word from 100 % on
        return true >= 100
    match = re.fullmatch(r"([\d.]+)(\D*)", printed)
    assert match is not None, printed
    step = 10.0 ** -len(match[1].partition(".")[2]) * UNITS[match[2]]
    return abs(float(match[1]) * UNITS[match[2]] - true) <= step / 2 * (1 + 1e-9)


def whole(value: int | None, unit: int) -> int | None:
    """Cut to whole units, as gpustat does."""
    return None if value is None else value // unit


def ours_of(gpu: FakeGpu) -> dict[str, float]:
    watts = {key: gpu[key] / 1_000 for key in ("power_mw",) if gpu[key] is not None}
    plain = {"util_pct": gpu["util"], "util_max_pct": gpu["util"], "mem_util_pct": gpu["mem_util"],
             "mem_used_bytes": gpu["mem_used"], "temp_c": gpu["temp"], "fan_pct": gpu.get("fan"),
             "power_w": watts.get("power_mw"), "power_max_w": watts.get("power_mw"),
             "sm_clock_mhz": gpu["sm_clock"], "mem_clock_mhz": gpu["mem_clock"],
             "throttle_bits": gpu["throttle"], "mem_temp_c": gpu["mem_temp"]}
    return {key: value for key, value in plain.items() if value is not None}


def test_every_number_of_every_board(nvml: FakeNvml) -> None:
    stats, table, deck = gpustat(nvml), nvitop(nvml), gpudeck(nvml)
    for index, gpu in enumerate(nvml.gpus):
        stat = stats.gpus[index]
        assert {key: stat[key] for key in stat if key != "processes"} == {
            "index": index, "uuid": gpu.uuid, "name": gpu["name"], "fan.speed": gpu.get("fan"),
            "temperature.gpu": gpu["temp"], "utilization.gpu": gpu["util"],
            "utilization.enc": gpu["enc"], "utilization.dec": gpu["dec"],
            "power.draw": whole(gpu["power_mw"], 1_000),
            "enforced.power.limit": whole(gpu["power_limit_mw"], 1_000),
            "memory.used": whole(gpu["mem_used"], MIB),
            "memory.total": whole(gpu["mem_total"], MIB),
        }
        view = deck.gpus[index]
        assert (view["uuid"], view["name"], view["state"]) == (gpu.uuid, gpu["name"], "ok")
        present = ours_of(gpu)
        assert {key: view["values"][key] for key in present} == pytest.approx(present)
        absent = {"util_pct", "mem_used_bytes", "temp_c", "power_w", "fan_pct"} - set(present)
        assert {key: view["missing"].get(key) for key in absent} == dict.fromkeys(
            absent, "unsupported")
        assert view["facts"]["mem_total_bytes"] == gpu["mem_total"]
        nvitop_agrees(table.gpus[index], gpu)
    assert set(stats.gpus) == set(table.gpus) == set(deck.gpus) == set(range(len(nvml.gpus)))


def nvitop_agrees(row: dict[str, Any], gpu: FakeGpu) -> None:
    assert row["name"] == gpu["name"].removeprefix("NVIDIA ")
    assert row["bus"] == gpu["pci"]
    assert row["persistence"] == PERSISTENCE.get(gpu["persistence"], NOTHING)
    assert row["compute_mode"] == COMPUTE_MODES.get(gpu["compute_mode"], NOTHING)
    assert row["pstate"] == (NOTHING if gpu["pstate"] is None else f"P{gpu['pstate']}")
    ecc = gpu["ecc_uncorrected_volatile"]
    assert row["ecc"] == (NOTHING if ecc is None else str(ecc))
    watts = {key: None if gpu[key] is None else gpu[key] / 1_000
             for key in ("power_mw", "power_limit_mw")}
    true = {"fan": gpu.get("fan"), "temp": gpu["temp"], "power": watts["power_mw"],
            "limit": watts["power_limit_mw"], "util": gpu["util"], "mem_util": gpu["mem_util"]}
    # A board that reports no memory is an integrated one to nvitop, which then shows the host's.
    if gpu["mem_total"] is not None:
        true |= {key: gpu[key] for key in ("mem_used", "mem_total")}
    assert [(key, row[key], value) for key, value in true.items()
            if not agrees(row[key], value)] == []


def test_every_process_on_every_board(
    nvml: FakeNvml, children: "list[subprocess.Popen[bytes]]"
) -> None:
    pids = [child.pid for child in children]
    rows = [
        Row(0, pids[0], random.randrange(MIB, 2**36), random.randint(1, 99)),
        Row(0, pids[1], 2**40 - 1, 100),
        Row(1, pids[0], random.randrange(MIB, 2**36), random.randint(1, 99)),
        Row(1, pids[2], 0, random.randint(1, 99)),
        Row(2, pids[3], random.randrange(MIB, 2**36), 0),
        Row(3, pids[4], None, random.randint(1, 99)),
    ]
    for row in rows:
        nvml.gpus[row.gpu].process(row.pid, row.mem_bytes, sm_pct=row.sm_pct)
    graphics_bytes = random.randrange(MIB, 2**30)
    nvml.gpus[0].process(pids[5], graphics_bytes, "graphics")
    nvml.gpus[2].process(pids[3], rows[4].mem_bytes, "mps")  # a client is in both lists
    nvml.save()
    stats, table, deck = gpustat(nvml), nvitop(nvml), gpudeck(nvml)
    rows.append(Row(0, pids[5], graphics_bytes, 0))
    keys = {(row.gpu, row.pid) for row in rows}
    assert set(stats.processes) == set(table.processes) == set(deck.processes) == keys
    for row in rows:
        key = row.gpu, row.pid
        # gpustat says null for 0 bytes as it does for unknown.
        assert stats.processes[key]["gpu_memory_usage"] == whole(row.mem_bytes or None, MIB)
        printed = table.processes[key]
        assert agrees(printed["mem"], row.mem_bytes), (row, printed)
        assert agrees(printed["sm_pct"], row.sm_pct), (row, printed)
        assert (deck.processes[key]["mem_used_bytes"], deck.processes[key]["sm_pct"]) == (
            row.mem_bytes, row.sm_pct), row
    assert table.processes[0, pids[5]]["kind"] == "G"


def test_a_process_that_exits_leaves_all_three(
    nvml: FakeNvml, children: "list[subprocess.Popen[bytes]]"
) -> None:
    victim, bystander, *_ = (child.pid for child in children)
    base, share = random.randrange(2**30), random.randrange(MIB, 2**30)
    gpu = nvml.gpus[0]
    gpu.update(mem_adds=1, mem_used=base)
    gpu.process(victim, share, sm_pct=10).process(bystander, MIB, sm_pct=20)
    nvml.save()
    assert gpudeck(nvml).gpus[0]["values"]["mem_used_bytes"] == base + share + MIB
    children[0].kill()
    assert soon(lambda: (0, victim) not in gpustat(nvml).processes)
    for program in (gpustat, nvitop, gpudeck):
        assert set(program(nvml).processes) == {(0, bystander)}, program
    assert gpudeck(nvml).gpus[0]["values"]["mem_used_bytes"] == base + MIB
    assert agrees(nvitop(nvml).gpus[0]["mem_used"], base + MIB)


def test_a_call_that_fails_takes_one_number_from_all_three(nvml: FakeNvml) -> None:
    whys = {0: (3, "unsupported"), 1: (4, "denied"), 3: (999, "unknown")}
    for index, (code, _) in whys.items():
        for call in ("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV"):
            nvml.gpus[index].error(call, code)
    nvml.save()
    stats, table, deck = gpustat(nvml), nvitop(nvml), gpudeck(nvml)
    for index, (_, why) in whys.items():
        stat, cells, mine = stats.gpus[index], table.gpus[index], deck.gpus[index]
        assert (stat["temperature.gpu"], cells["temp"]) == (None, NOTHING)
        assert mine["missing"]["temp_c"] == why
        util = nvml.gpus[index]["util"]
        assert stat["utilization.gpu"] == util == mine["values"]["util_pct"]
        assert agrees(cells["util"], util)


def test_one_lost_and_one_cut_in_two(
    nvml: FakeNvml, children: "list[subprocess.Popen[bytes]]"
) -> None:
    """A lost board takes no number from the others. Ours names it where the kernel's /proc does
    (test_agent_nvml), which no fake reaches. With MIG there is no utilization; the processes of
    its devices are the board's to all."""
    lost_gpu, cut = nvml.gpus[0], nvml.gpus[3]
    for device in (nvml.mig(cut), nvml.mig(cut)):
        device.process(children[0].pid, MIB)
    lost_gpu.lose()
    nvml.save()
    stats, table, deck = gpustat(nvml), nvitop(nvml), gpudeck(nvml, warns="GPU 0 is lost")
    assert stats.gpus[0]["name"] == "((GPU is lost))"
    assert table.gpus[0]["name"] == "ERROR: GPU is Lost"
    assert set(deck.gpus) == {1, 2, 3, 4}
    for index in (1, 2):
        gpu = nvml.gpus[index]
        assert stats.gpus[index]["utilization.gpu"] == gpu["util"]
        assert deck.gpus[index]["values"]["util_pct"] == gpu["util"]
        nvitop_agrees(table.gpus[index], gpu)
    assert stats.gpus[3]["utilization.gpu"] is None
    assert table.gpus[3]["util"] == NOTHING
    assert deck.gpus[3]["missing"]["util_pct"] == "unsupported"
    assert (3, children[0].pid) in stats.processes.keys() & deck.processes.keys()


@pytest.mark.parametrize(("printed", "true", "right"), [
    ("56.34GiB", 56.344 * 2**30, True), ("56.34GiB", 56.346 * 2**30, False),
    ("N/A", None, True), ("N/A", 0, False), ("0B", 0, True), ("0B", None, False),
    ("MAX", 250, True), ("MAX", 99, False), ("37", 38, False), ("445W", 445.4, True),
])
def test_the_comparison_can_fail(printed: str, true: float | None, right: bool) -> None:
    assert agrees(printed, true) is right
