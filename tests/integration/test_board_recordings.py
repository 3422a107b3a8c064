"""Recordings of real boards through agents and a hub: each stored second is the recorded one. They
are fetched as tests/faults/test_clean_recordings.py says."""

import random
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from agent.backends.recorded import FORMAT, RecordingHeader
from agent.reader.recording import RecordingWriter
from agent.readings import GpuReading, Reading
from dashboard.history.columns.layout import AT, STORED
from gpudeck.contract.wire import GpuFacts
from gpudeck.measures.metrics import COLUMN, WIDTH, Absence
from tests.fakes.hub import wait_for
from tests.faults.test_clean_recordings import FOLDER, RUNS, seconds_of, text_of
from tests.integration.hubs import HubProcess
from tests.integration.test_agent_process import an_agent
from tests.unit.fleets import Row

METRICS = ("util_pct", "util_max_pct", "sm_active_pct", "power_w", "power_max_w", "mem_used_bytes",
           "temp_c", "energy_j")
COUNTER = "energy_j"
AGENTS, BOARDS = 3, 8
HOLES_MOST = 0.01  # of the seconds: a busy machine reads two of them late


def uuid(name: str, board: int) -> str:
    return f"GPU-{name}-{board}"


def record(path: Path, name: str, seconds: list[list[Row]]) -> None:
    recording = RecordingWriter(path, RecordingHeader(FORMAT, name, "nvml", "1"), 2**30)
    began = 1_000.0 + random.random()
    facts = tuple(GpuFacts(uuid(name, at), at, "NVIDIA H100") for at in range(BOARDS))
    for at, rows in enumerate(seconds):
        recording.put(Reading(began + at, 1.0, tuple(
            _reading(uuid(name, board), row) for board, row in enumerate(rows)), facts, ()), (), [])
    recording.close()


def _reading(gpu: str, row: Row) -> GpuReading:
    values, absent = [0.0] * WIDTH, bytearray([Absence.UNSUPPORTED] * WIDTH)
    for key, value in row.items():
        if key in COLUMN:
            values[COLUMN[key]], absent[COLUMN[key]] = float(value), Absence.PRESENT
    return GpuReading(gpu, "ok", tuple(values), bytes(absent))


def series_of(hub: HubProcess, gpu: str, start: int, end: int) -> dict[str, list[float | None]]:
    first, *also = METRICS
    answer = hub.get(f"/api/v1/series?gpu={gpu}&metric={first}&also={','.join(also)}"
                     f"&start={start}&end={end}&step=1")
    bands: dict[str, Any] = {first: answer} | answer["also"]
    return {metric: bands[metric]["max" if metric == COUNTER else "mean"] for metric in METRICS}


def compare(series: dict[str, list[float | None]], seconds: list[Row]) -> Counter[str]:
    """Count the stored values that are the recorded ones, those that are not, and holes."""
    counts: Counter[str] = Counter()
    begin = next(at for at, value in enumerate(series[METRICS[0]]) if value is not None)
    for metric, values in series.items():
        slack = STORED[AT[metric]].step / 2 * 1.001
        for row, value in zip(seconds, values[begin:], strict=False):
            recorded_value = row.get(metric)
            is_equal = (value == recorded_value if value is None or recorded_value is None
                        else abs(value - recorded_value) <= slack)
            is_hole = value is None and not is_equal
            counts["hole" if is_hole else "equal" if is_equal else f"other {metric}"] += 1
    return counts


@pytest.mark.soak
@pytest.mark.skipif(not FOLDER, reason="GPUDECK_RECORDINGS is not set")
def test_each_stored_second_is_the_recorded_one(tmp_path: Path) -> None:
    names = random.sample([*RUNS], AGENTS)
    runs = {name: list(seconds_of(text_of(name))) for name in names}
    assert min(map(len, runs.values())) > 250
    start = int(time.time()) - 2
    with HubProcess(tmp_path / "hub") as hub, ExitStack() as agents:
        for name, token in zip(names, hub.tokens(AGENTS), strict=True):
            folder = tmp_path / name
            folder.mkdir()
            record(folder / "a.jsonl", name, runs[name])
            (folder / "token").write_text(token.text)
            agents.enter_context(an_agent(
                "--hub", hub.url, "--token-file", str(folder / "token"), "--data", str(folder),
                "--host", name, "--backend", "recorded", "--replay", str(folder / "a.jsonl")))
        span = start, start + max(map(len, runs.values())) + 120

        def count(name: str) -> int:
            values = series_of(hub, uuid(name, 0), *span)["temp_c"]
            return sum(value is not None for value in values)

        wait_for(lambda: len(hub.get("/api/v1/gpus")["items"]) == AGENTS * BOARDS)
        wait_for(lambda: all(count(name) > 0 for name in names))
        time.sleep(min(map(len, runs.values())))
        wait_for(lambda: all(count(name) >= (1 - HOLES_MOST) * len(run)
                             for name, run in runs.items()))
        time.sleep(5.0)
        counts = {name: sum((compare(series_of(hub, uuid(name, board), *span),
                                     [rows[board] for rows in run]) for board in range(BOARDS)),
                            Counter()) for name, run in runs.items()}
    print(counts)
    for name, of_run in counts.items():
        assert {*of_run} <= {"equal", "hole"}, (name, of_run)
        assert of_run["hole"] <= HOLES_MOST * of_run.total(), (name, of_run)
