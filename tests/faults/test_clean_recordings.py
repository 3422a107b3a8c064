"""Recordings of real boards at work, each as one job over its eight, under all rules that come with
gpudeck: nothing is wrong with them, and no alert may fire.

They are not ours to give on (their repository names no licence), so they are not here: fetch
github.com/atharvanihalani/gpu-telemetry-exploration at the commit below, and say where its `data`
is by GPUDECK_RECORDINGS. Eight H100 each, ten rows a second, five minutes; read as seconds.
"""

import csv
import hashlib
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from dashboard.jobs.core.job_minutes import OF_GPUS, OF_HOSTS, JobMinutes, JobRank, Matrix
from dashboard.jobs.core.phases import PhaseWitnesses, phases_of
from gpudeck.contract.wire import Tasks, Use
from gpudeck.measures.metrics import COLUMN
from tests.unit import fleets
from tests.unit.climbing import PATCHED, Clock
from tests.unit.dashboard.automation.hand_turned_fleet import Bench

COMMIT = "e7e6625b67a6e00eafea7066464b9c5f82070761"
# What ran: the name of the file without "_telemetry.csv", and its SHA-256.
RUNS = {
    "b1": "32114c8d1a3be64f8cd492a5ad05070ee3a86340768e9027bde81f9dab88d54e",  # loaded, then idle
    "e2": "c9dd53f75f5db8fdf9fa5adca4a08b4aa1d701a634cd4fc2dddbec8ec260a033",
    "i4": "82d4283ec466c1edad0c2dde068cfeb29ad0c075c17902590b1b5a8f87614342",  # eight decoders
    "t13_node0": "500c11c1d20c925ffdee0e258949070dec182c54b22c1412e8cfa12183633710",  # TP and PP
    "t13_node1": "78697a3123176285d3ce98c5af1aac1102bb9368f2c540a26e55702ed115ce43",
    "t2": "633c0cd1a450c3af04fd1fb336a1d773d0d822cbff738b54fa6bb4a1a98b3e55",  # DDP
    "t3": "7ccec08a37b71097be06ccc2089a1b0122b7a04bdda9e97a7f021f35c97c9a57",  # power-capped
    "t6": "bc47f627e3637c6516340974af69461f835d2811a994f5d0b1e5017a86958106",  # FSDP, CPU offload
}
FOLDER = os.environ.get("GPUDECK_RECORDINGS", "")
# Column, ours, factor; the mean of a second.
MEANS = (("gpu_util_pct", "util_pct", 1.0), ("mem_util_pct", "mem_util_pct", 1.0),
         ("sm_active", "sm_active_pct", 100.0), ("power_w", "power_w", 1.0),
         ("temp_c", "temp_c", 1.0), ("mem_used_mib", "mem_used_bytes", 2.0**20),
         ("pcie_tx_bytes_s", "pcie_tx_bytes_per_s", 1.0),
         ("pcie_rx_bytes_s", "pcie_rx_bytes_per_s", 1.0))
SLOW_MEANS = (("tensor_active", "tensor_active_pct", 100.0),
              ("dram_active", "dram_active_pct", 100.0),
              ("nvlink_tx_bytes_s", "nvlink_tx_bytes_per_s", 1.0),
              ("nvlink_rx_bytes_s", "nvlink_rx_bytes_per_s", 1.0))
SLOWED = (("slowed_power_pct", 0x04), ("slowed_hard_thermal_pct", 0x48),
          ("slowed_soft_thermal_pct", 0x20), ("slowed_brake_pct", 0x80))
SHUTDOWN_C = 90.0  # of an H100, less what the driver keeps below it


def seconds_of(text: str) -> Iterator[list[fleets.Row]]:
    """Yield the values of each board in each second, in order."""
    rows: dict[int, dict[int, list[dict[str, str]]]] = defaultdict(lambda: defaultdict(list))
    for row in csv.DictReader(text.splitlines()):
        rows[int(float(row["timestamp"]))][int(row["gpu"])].append(row)
    for _, boards in sorted(rows.items()):
        if len(boards) == 8:
            yield [_second(boards[at]) for at in range(8)]


def _second(rows: list[dict[str, str]]) -> fleets.Row:
    def values(name: str) -> list[float]:
        return [float(row[name]) for row in rows if row[name] not in ("", "N/A")]

    row = {key: factor * float(np.mean(numbers)) for name, key, factor in (*MEANS, *SLOW_MEANS)
           if (numbers := values(name))}
    bits = [int(value) for value in values("throttle_reasons")]
    row |= {key: 100.0 * float(np.mean([bool(reasons & bit) for reasons in bits]))
            for key, bit in SLOWED if bits}
    return row | {"util_max_pct": max(values("gpu_util_pct")),
                  "power_max_w": max(values("power_w")),
                  "energy_j": values("energy_mj")[-1] / 1e3,
                  "temp_margin_c": SHUTDOWN_C - row["temp_c"],
                  "throttle_bits": float(bits[-1] if bits else 0)}


def job_on(name: str, rows: dict[int, fleets.Row]) -> Tasks:
    """Return the tasks of one job with a rank on each of these boards."""
    listed = fleets.tasks(*((f"{name}:{at}", at, "ann") for at in rows))
    return Tasks(True, tuple(structs.replace(task, job_id=f"job-{name}") for task in listed.began),
                 tuple(Use(use.task_id, use.gpu, rows[use.gpu]["mem_used_bytes"], None)
                       for use in listed.uses))


@pytest.mark.soak
@pytest.mark.skipif(not FOLDER, reason="GPUDECK_RECORDINGS is not set")
def test_healthy_boards_raise_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recordings run at once, each on its own node; one that is over keeps its last second."""
    clock = Clock()
    for module in PATCHED:
        monkeypatch.setattr(f"dashboard.{module}.time", clock)
    bench = Bench(tmp_path, clock)
    runs = {name: list(seconds_of(text_of(name))) for name in RUNS}
    assert min(map(len, runs.values())) > 250
    bench.machines.append(bench.add(len(bench.machines)))
    on = dict(zip(runs, bench.machines[1:], strict=True))  # a board of the first one is split
    fired: set[str] = set()
    for second in range(max(map(len, runs.values()))):
        for name, machine in on.items():
            machine.rows = dict(enumerate(runs[name][min(second, len(runs[name]) - 1)]))
            machine.tasks = job_on(name, machine.rows)
        bench.turn(1)
        fired |= {f"{alert.rule_id} on {alert.target.host}" for alert in bench.alerts.firing()}
    print({name: len(run) for name, run in runs.items()}, "s of 8 boards each,",
          f"{len(bench.alerts.ready)} rules, fired: {fired or 'none'}")
    assert (bench.notifications, fired) == ([], set())
    assert COLUMN.keys() >= {key for _, key, _ in MEANS}
    machine = on["t2"]  # the same rules do speak
    machine.rows = dict(enumerate(runs["t2"][len(runs["t2"]) // 2]))
    machine.rows[3] = {**machine.rows[3], "power_w": 0.6 * machine.rows[3]["power_w"]}
    bench.turn(360)
    assert [rule for _, _, rule in bench.notifications] == ["rank-lagging"]
    machine.states[3] = "lost"
    bench.turn(60)
    assert [rule for _, _, rule in bench.notifications] == ["rank-lagging", "gpu-lost"]
    bench.state.close()


@pytest.mark.soak
@pytest.mark.skipif(not FOLDER, reason="GPUDECK_RECORDINGS is not set")
@pytest.mark.parametrize("name", RUNS)
def test_phases_are_those_that_were_written_beside_them(name: str) -> None:
    """Steps and evaluations cannot show in so short a run: what works is work, and no more."""
    rows, labels = list(seconds_of(text_of(name))), labels_of(text_of(name))
    steps = min(len(rows), len(labels)) // 60

    def minutes(key: str) -> Matrix:
        values = np.array([[row[gpu].get(key, np.nan) for row in rows] for gpu in range(8)], float)
        means: Matrix = values[:, :steps * 60].reshape(8, steps, 60).mean(axis=2)
        return means

    unknown = np.full((8, steps), np.nan)
    numbers = dict.fromkeys((*OF_GPUS, *OF_HOSTS, "host_cpu_pct"), unknown) | {
        key: minutes(key) for key in ("util_pct", "power_w", "mem_used_bytes")}
    ranks = [JobRank("n", "h", f"G{at}", str(at), f"t{at}", "j", at, 80e9, 700.0)
             for at in range(8)]
    phases = phases_of(JobMinutes(0, 60, ranks, numbers | {"held_s": np.full((8, steps), 60.0)}),
                     PhaseWitnesses(0.0, (), has_steps=False, serves=False))
    kinds = [phase.kind for phase in phases for _ in range(phase.start, phase.end, 60)]
    steady = [{*labels[minute * 60:minute * 60 + 60]} == {"steady"} for minute in range(steps)]
    print(name, kinds, steady)
    assert {*kinds} <= {"loading", "work", "idle"}
    works = "idle" if name == "b1" else "work"  # a model that is loaded, and rests
    assert {kind for kind, is_steady in zip(kinds, steady, strict=True) if is_steady} == {works}


def labels_of(text: str) -> list[str]:
    """Return what the first board was said to do at the end of each second."""
    first = [row for row in csv.DictReader(text.splitlines()) if row["gpu"] == "0"]
    return [*{int(float(row["timestamp"])): row["phase"] for row in first}.values()]


def text_of(name: str) -> str:
    data = (Path(FOLDER) / f"{name}_telemetry.csv").read_bytes()
    assert hashlib.sha256(data).hexdigest() == RUNS[name], f"not the file of {COMMIT}"
    return data.decode()
