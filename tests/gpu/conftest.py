"""Fixtures of tests on a real card. Where there is none they skip, also where CI is set: CI's
machines have no card, and no test can bring one (CONTRIBUTING.md says so too)."""

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.doctor.bundle import TextScrubber

ROOT = Path(__file__).parents[2]
BUSY = Path(__file__).with_name("busy.py")
MIB = 2**20


def why_no_card() -> str:
    if os.environ.get("FAKE_NVML"):
        return "the fake library is no card"
    if shutil.which("nvidia-smi") is None:
        return "no NVIDIA card here: there is no nvidia-smi"
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    if listed.returncode or "GPU " not in listed.stdout:
        return f"no NVIDIA card here: nvidia-smi says {listed.stdout.strip()[:80]!r}"
    return ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    card_tests = [item for item in items if item.path.parent == BUSY.parent]
    why = why_no_card() if card_tests else ""
    for item in card_tests:
        item.add_marker("gpu")
        if why and not item.get_closest_marker("anywhere"):
            item.add_marker(pytest.mark.skip(reason=why))


class Busy:
    """A running CUDA task, and the rounds that it has done."""

    def __init__(
        self, mem_bytes: int, env: dict[str, str] | None = None, program: Path = BUSY
    ) -> None:
        self.mem_bytes = mem_bytes
        self.rounds = 0
        self.process = subprocess.Popen(
            [sys.executable, str(program), str(mem_bytes)], stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, env=env, start_new_session=True)
        assert self.process.stdout is not None
        if self.process.stdout.readline() != "ready\n":
            _, why = self.process.communicate(timeout=10)
            pytest.fail(f"the CUDA task did not start: {why}")
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.rounds = int(line.split()[1])

    def close(self) -> None:
        self.process.kill()
        self.process.wait(20)
        self._thread.join(5)
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


@pytest.fixture
def busy() -> Iterator[Callable[..., Busy]]:
    started: list[Busy] = []

    def start(mem_bytes: int, env: dict[str, str] | None = None) -> Busy:
        started.append(Busy(mem_bytes, env))
        return started[-1]

    yield start
    for task in started:
        task.close()


def gpudeck_json(program: str, *arguments: str) -> Any:
    """Return the JSON that `gpudeck status` or `tasks` prints of this machine."""
    code = f"import sys; from agent.cli.main import {program}; sys.exit({program}(sys.argv[1:]))"
    result = subprocess.run([sys.executable, "-c", code, "--json", *arguments], cwd=ROOT, text=True,
                            capture_output=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def capture(name: str, what: Any) -> None:
    """Write a capture to compare the fakes with: without serial numbers, with made-up UUIDs."""
    folder = Path(os.environ.get("GPUDECK_CAPTURES") or ROOT / "tests" / "captures")
    folder.mkdir(exist_ok=True)
    scrub = TextScrubber(os.environ, [os.uname().nodename])
    (folder / f"{name}.json").write_text(scrub(json.dumps(what, indent=1)) + "\n")
