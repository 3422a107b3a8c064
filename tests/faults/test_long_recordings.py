"""Runs of an hour and more that strangers recorded with `nvidia-smi`, each as one job on its own
board, under all rules that come with gpudeck, and minute by minute through the phases of a job.

Nobody says beside them what ran when, so all that can be asked is that nothing is made up: no
alert, and no evaluation or checkpoint. They are not ours to give on: fetch each file at its commit,
and say where they are by GPUDECK_LONG_RECORDINGS, under the names of this table.
"""

import csv
import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from dashboard.jobs.core.job_minutes import OF_GPUS, OF_HOSTS, JobMinutes, JobRank, Matrix
from dashboard.jobs.core.phases import JobPhase, PhaseKind, PhaseWitnesses, phases_of
from gpudeck.contract.wire import Tasks
from tests.faults.test_clean_recordings import job_on
from tests.unit import fleets
from tests.unit.climbing import PATCHED, Clock
from tests.unit.dashboard.automation.hand_turned_fleet import Bench

pytestmark = pytest.mark.soak
FOLDER = os.environ.get("GPUDECK_LONG_RECORDINGS", "")


@dataclass(frozen=True)
class Recording:
    """`minutes`: until its process ends. `rests`: its longest rest, in minutes."""

    repository: str
    commit: str
    path: str
    sha256: str
    minutes: int
    rests: int


RUNS = {
    # Trained and scored in turn, with three models; a sample in 15 s, without power.
    "budget.csv": Recording(
        "shougangu/balance-budget", "affa9117c7124361d2bdbab548c62b5afe506a8b", "gpu_usage.csv",
        "36a12ca6873a947fa98fdfdeb0670cfd23ce7cc693bc4e8a8ed111ea947ee85a", 87, 27),
    # Trained with few workers, so that the board rests between batches; a sample in a minute.
    "rpf.csv": Recording(
        "RCKola/Rectified-Point-Flow", "e21ca9c7ad6f2991fd193e2c2d79139ccadc6a8d",
        "gpu_usage.csv",
        "182e527207c9f9108b761df9e14128cd861d939eae4e34fb0ce68f11fc494c10", 122, 0),
    # Answers of a vision model are scored; each second, with power.
    "vlm.csv": Recording(
        "eobo0530/vlm_optimization", "a35a64748f43570caaed56e85e5e607c90233977", "gpu_log.csv",
        "dce357ac2777f8d9d75e0960f3f28c167637783e3099289dbecbafaa85f59c90", 49, 0),
}
COLUMNS = {"utilization.gpu": ("util_pct", 1.0), "memory.used": ("mem_used_bytes", 2.0**20),
           "power.draw": ("power_w", 1.0)}


def seconds_of(name: str) -> list[fleets.Row]:
    """Return the values of each second while its process runs; one that was not sampled has those
    of the sample before."""
    samples = list(_samples(name))
    rows = []
    for (at, row), (next_at, _) in pairwise([*samples, (samples[-1][0] + 1, {})]):
        rows += [row] * (next_at - at)
    return rows[:60 * RUNS[name].minutes]


def _samples(name: str) -> Iterator[tuple[int, fleets.Row]]:
    data = (Path(FOLDER) / name).read_bytes()
    assert hashlib.sha256(data).hexdigest() == RUNS[name].sha256, f"not that of {RUNS[name]}"
    for cells in csv.DictReader(data.decode().splitlines(), skipinitialspace=True):
        row = {key: factor * float(value.split()[0]) for column, value in cells.items()
               for key, factor in [COLUMNS.get(column.split(" ")[0], ("", 0.0))] if key}
        yield _second(cells["timestamp"]), row | {"util_max_pct": row["util_pct"]}


def _second(text: str) -> int:
    if re.fullmatch(r"\d+", text):
        return int(text)
    return int(datetime.strptime(text, "%Y/%m/%d %H:%M:%S.%f").replace(tzinfo=UTC).timestamp())


@pytest.mark.skipif(not FOLDER, reason="GPUDECK_LONG_RECORDINGS is not set")
def test_hours_of_work_raise_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    for module in PATCHED:
        monkeypatch.setattr(f"dashboard.{module}.time", clock)
    bench = Bench(tmp_path, clock)
    runs = {name: seconds_of(name) for name in RUNS}
    on = dict(zip(runs, bench.machines[1:], strict=False))
    fired: dict[str, int] = {}
    for second in range(max(map(len, runs.values()))):
        for name, machine in on.items():
            rows = dict(enumerate(runs[name][second:second + 1]))
            machine.rows = rows
            machine.tasks = job_on(name, rows) if rows else Tasks(True, (), ())
        bench.turn(1)
        for alert in bench.alerts.firing():
            fired.setdefault(f"{alert.rule_id} on {alert.target.host}", second)
    print({name: len(rows) // 60 for name, rows in runs.items()}, "min,",
          f"{len(bench.alerts.ready)} rules, fired: {fired or 'none'}")
    assert (bench.notifications, fired) == ([], {})
    bench.state.close()


@pytest.mark.skipif(not FOLDER, reason="GPUDECK_LONG_RECORDINGS is not set")
@pytest.mark.parametrize("name", RUNS)
def test_no_phase_is_made_up(name: str) -> None:
    rows, run = seconds_of(name), RUNS[name]
    steps = len(rows) // 60

    def minutes(key: str) -> Matrix:
        values = np.array([row.get(key, np.nan) for row in rows[:60 * steps]], float)
        means: Matrix = values.reshape(1, steps, 60).mean(axis=2)
        return means

    numbers = dict.fromkeys((*OF_GPUS, *OF_HOSTS, "host_cpu_pct"), np.full((1, steps), np.nan)) | {
        key: minutes(key) for key in ("util_pct", "power_w", "mem_used_bytes")}
    phases = phases_of(
        JobMinutes(0, 60, [JobRank("n", "h", "G0", "0", "t0", "j", 0, 80e9, 700.0)],
                   numbers | {"held_s": np.full((1, steps), 60.0)}),
        PhaseWitnesses(0.0, (), has_steps=False, serves=False))
    print(name, [(phase.kind, (phase.end - phase.start) // 60) for phase in phases])
    assert {phase.kind for phase in phases} <= {"loading", "work", "pause", "idle"}
    assert _longest(phases, ("pause", "idle")) == run.rests
    assert _longest(phases, ("work",)) > 5


def _longest(phases: Sequence[JobPhase], kinds: tuple[PhaseKind, ...]) -> int:
    return max(((phase.end - phase.start) // 60 for phase in phases if phase.kind in kinds),
               default=0)
