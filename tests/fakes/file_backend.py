"""Backend of an imaginary vendor, whose driver writes a JSON file per board into a folder:

    {"serial": "A1", "name": "Vector 9", "load": 37, "memory": [2048, 16384], "milliwatts": 70500,
     "joules": null, "processes": {"4711": 2048}}
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agent.backends import ReaderUnavailableError
from agent.backends.metric_row import MetricRow
from agent.readings import (
    BackendEvent,
    GpuReading,
    OnDemandReading,
    ProcessReading,
    Reading,
)
from gpudeck.contract.wire import GpuFacts
from gpudeck.measures.metrics import COLUMNS, SLOW, UNSUPPORTED

MIB = 2**20
LOST_AFTER_S = 10.0  # without a new file
SLOW_EVERY_S = 15.0


def open_reader(options: str = "") -> "FileReader":
    return FileReader(Path(options or "/run/vector"))


class FileReader:
    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._folder, self._clock = folder, clock
        self._read_at = self._slow_at = float("-inf")
        # A board that was there once stays in the list, marked as lost.
        self._last: dict[Path, dict[str, Any]] = {}
        if not folder.is_dir():
            raise ReaderUnavailableError("no_driver", f"{folder} is not there: load the driver.")
        if not self._files():
            raise ReaderUnavailableError("no_gpus", f"{folder} has no board: see `dmesg`.")

    def read(self) -> Reading:
        now = self._clock()
        interval_s = 1.0 if self._read_at == float("-inf") else now - self._read_at
        is_slow = now - self._slow_at >= SLOW_EVERY_S
        self._read_at, self._slow_at = now, now if is_slow else self._slow_at
        boards = self._boards()
        return Reading(
            taken_at=now, interval_s=interval_s,
            gpus=tuple(_reading(board, self._is_lost(path, now), is_slow)
                       for path, board in boards.items()),
            facts=tuple(_facts(board, index) for index, board in enumerate(boards.values())),
            processes=_processes(boards.values()))

    def fresh(self) -> OnDemandReading:
        boards = self._boards()
        if any(self._is_lost(path, self._clock()) for path in boards):
            raise ReaderUnavailableError("failed", "a board does not list its processes now.")
        return OnDemandReading(
            _processes(boards.values()),
            {board["serial"]: float(board["memory"][0] * MIB) for board in boards.values()})

    def watch(self, tell: Callable[[BackendEvent], None]) -> None:
        """Report nothing: this driver has no events."""

    def close(self) -> None:
        """Close nothing: no file stays open."""

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob("*.json"))

    def _boards(self) -> dict[Path, dict[str, Any]]:
        for path in self._files():
            self._last[path] = json.loads(path.read_text())
        return self._last

    def _is_lost(self, path: Path, now: float) -> bool:
        return not path.exists() or now - path.stat().st_mtime > LOST_AFTER_S


def _facts(board: dict[str, Any], index: int) -> GpuFacts:
    return GpuFacts(uuid=board["serial"], index=index, name=board["name"],
                    mem_total_bytes=float(board["memory"][1] * MIB))


def _reading(board: dict[str, Any], is_lost: bool, is_slow: bool) -> GpuReading:
    row, slow = MetricRow(), MetricRow.slow()
    for metrics, values in ((COLUMNS, row), (SLOW, slow)):
        for metric in metrics:
            values.put(metric.key, UNSUPPORTED)
    if not is_lost:
        row.put("util_pct", float(board["load"]))
        row.put("mem_used_bytes", float(board["memory"][0]), MIB)
        row.put("power_w", float(board["milliwatts"]), 1e-3)
        # null: this board has no such counter. It is not 0.
        row.put("energy_j", UNSUPPORTED if board["joules"] is None else float(board["joules"]))
    return GpuReading(
        board["serial"], "lost" if is_lost else "ok", tuple(row.values), bytes(row.absent),
        tuple(slow.values) if is_slow else (), bytes(slow.absent) if is_slow else b"")


def _processes(boards: Any) -> tuple[ProcessReading, ...]:
    return tuple(ProcessReading(int(pid), board["serial"], float(mebibytes * MIB), None)
                 for board in boards for pid, mebibytes in sorted(board["processes"].items()))
