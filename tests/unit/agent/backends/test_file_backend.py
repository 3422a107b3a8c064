"""The example of docs/internals/backends.md is a backend: what it reads reaches a hub."""

import json
import os
import random
import time
from pathlib import Path
from typing import Any

import pytest

from agent.backends import Backend, Capabilities, ReaderUnavailableError
from agent.tasks.boot_id import boot_id
from agent.tasks.task_table import TaskTable
from agent.telemetry import sampler
from gpudeck.contract import wire
from gpudeck.measures.metrics import COLUMN, Absence

ROOT = Path(__file__).parents[4]
MIB = 2**20
ROW = Backend("vector", Capabilities("host", "none", "", simulates_mps=False, plays_file=False),
              "tests.fakes.file_backend")


def a_board(folder: Path, serial: str, **more: Any) -> dict[str, Any]:
    board = {"serial": serial, "name": "Vector 9", "load": random.randint(0, 100),
             "memory": [random.randint(1, 9_999), 16_384],
             "milliwatts": random.randint(1_000, 300_000), "joules": None,
             "processes": {str(os.getpid()): random.randint(1, 900)}} | more
    (folder / f"{serial}.json").write_text(json.dumps(board))
    return board


def test_it_reads_what_the_driver_wrote(tmp_path: Path) -> None:
    first, second = a_board(tmp_path, "A1"), a_board(tmp_path, "B2", joules=5)
    reader = ROW.open_reader(str(tmp_path))
    reading = reader.read()
    gpu, other = reading.gpus
    assert (gpu.uuid, gpu.value("util_pct")) == ("A1", first["load"])
    assert gpu.value("power_w") == pytest.approx(first["milliwatts"] / 1_000)
    assert gpu.value("mem_used_bytes") == first["memory"][0] * MIB
    assert gpu.absent[COLUMN["energy_j"]] == Absence.UNSUPPORTED
    assert other.value("energy_j") == 5
    assert [facts.mem_total_bytes for facts in reading.facts] == [16_384 * MIB] * 2
    assert reader.fresh().mem_used_bytes == {
        board["serial"]: board["memory"][0] * MIB for board in (first, second)}


def test_a_board_that_went_stays_as_lost(tmp_path: Path) -> None:
    a_board(tmp_path, "A1")
    a_board(tmp_path, "B2")
    reader = ROW.open_reader(str(tmp_path))
    reader.read()
    (tmp_path / "B2.json").unlink()
    assert [gpu.state for gpu in reader.read().gpus] == ["ok", "lost"]
    with pytest.raises(ReaderUnavailableError):
        reader.fresh()
    os.utime(tmp_path / "A1.json", (0, time.time() - 60))
    assert [gpu.state for gpu in reader.read().gpus] == ["lost", "lost"]


@pytest.mark.parametrize(("name", "state"), [("nowhere", "no_driver"), (".", "no_gpus")])
def test_it_says_why_there_is_nothing(tmp_path: Path, name: str, state: str) -> None:
    with pytest.raises(ReaderUnavailableError) as error:
        ROW.open_reader(str(tmp_path / name))
    assert error.value.state == state


def test_its_reading_goes_over_the_wire(tmp_path: Path) -> None:
    board = a_board(tmp_path, "A1")
    reading = ROW.open_reader(str(tmp_path)).read()
    assert reading.processes is not None
    tasks = TaskTable(boot_id()).describe(reading.processes)
    step = sampler.sample(sampler.SamplerState(), reading, tasks, 1, time.monotonic(), ())
    frames = [wire.decode_from_agent(wire.encode(message)) for message in step.messages]
    [frame] = [frame for frame in frames if isinstance(frame, wire.Frame)]
    assert frame.tasks is not None
    assert [use.mem_used_bytes for use in frame.tasks.uses] == [
        board["processes"][str(os.getpid())] * MIB]


def test_the_page_shows_that_file() -> None:
    source = (ROOT / "tests/fakes/file_backend.py").read_text()
    page = (ROOT / "docs/internals/backends.md").read_text()
    assert f"```python\n{source}```" in page
