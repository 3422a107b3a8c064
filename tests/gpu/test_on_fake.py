"""Steps of test_whole.py on the fake driver and a task that only pretends to compute, so that they
are known to work before a card is there. It proves nothing about a card."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fakes.nvml import FakeNvml
from tests.gpu.conftest import MIB, Busy
from tests.gpu.test_whole import a_whole, paused_resumed_and_ended

PRETENDS = """
import time
print("ready", flush=True)
for rounds in range(10**9):
    time.sleep(0.01)
    if rounds % 20 == 0:
        print("round", rounds, flush=True)
"""


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], Busy]]:
    program, started = tmp_path / "busy.py", list[Busy]()
    program.write_text(PRETENDS)
    nvml = FakeNvml(tmp_path, gpus=1)
    nvml.gpus[0].update(mem_adds=1, mem_used=100 * MIB)
    nvml.save()
    nvml.use_in_children(monkeypatch)

    def pretend(mem_bytes: int) -> Busy:
        started.append(Busy(mem_bytes, program=program))
        nvml.gpus[0].process(started[-1].pid, mem_bytes, sm_pct=40)
        nvml.save()
        return started[-1]

    yield pretend
    for task in started:
        task.close()


@pytest.mark.anywhere
def test_paused_resumed_and_ended(start: Callable[[int], Busy], tmp_path: Path) -> None:
    folder = tmp_path / "whole"
    folder.mkdir(mode=0o700)
    with a_whole(folder) as whole:
        paused_resumed_and_ended(whole, start(256 * MIB), start(1_024 * MIB))
