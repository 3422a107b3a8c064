"""Content of the widget for one machine: from its agent's snapshots to what is drawn. Pure."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gpudeck.contract.notebook_pipe import PipeSnapshot

from .pictures import GpuPicture, HeldPicture, MachinePicture, TaskPicture

Item = dict[str, Any]

PAST_S = 60
SHOWN = ("util_pct", "mem_used_bytes", "temp_c", "power_w")
NOBODY = "not by a visible task"
ANYBODY = "owner unknown here"


@dataclass(slots=True)
class RecentGpuHistory:
    """The last minute of each GPU, a point per second."""

    by_gpu: dict[str, deque[tuple[float, float | None, float | None]]] = field(default_factory=dict)

    def add(self, snapshot: PipeSnapshot) -> None:
        for gpu in snapshot.gpus:
            track = self.by_gpu.setdefault(gpu["uuid"], deque(maxlen=2 * PAST_S))
            track.append((snapshot.at, _share(gpu["values"].get("util_pct"), 100.0),
                          _share(gpu["values"].get("mem_used_bytes"),
                                 gpu["facts"].get("mem_total_bytes"))))
        here = {gpu["uuid"] for gpu in snapshot.gpus}
        self.by_gpu = {uuid: track for uuid, track in self.by_gpu.items() if uuid in here}

    def lines(self, uuid: str, now: float) -> list[list[float | None]]:
        """Return utilization and memory as shares of 1, oldest first; None is a hole."""
        util: list[float | None] = [None] * PAST_S
        memory: list[float | None] = [None] * PAST_S
        for at, used_pct, memory_pct in self.by_gpu.get(uuid, ()):
            place = PAST_S - 1 - round(now - at)
            if 0 <= place < PAST_S:
                util[place], memory[place] = used_pct, memory_pct
        return [util, memory]


def picture(snapshot: PipeSnapshot, tasks: Sequence[Item] | None, past: RecentGpuHistory,
            kernel_pid: int) -> MachinePicture:
    tasks = tasks or ()
    return {
        "kind": "here", "at": snapshot.at, "host": snapshot.host, "reader": snapshot.reader,
        "detail": snapshot.detail, "driver": snapshot.driver_version,
        "simulated": snapshot.is_simulated, "holds": [*snapshot.holds], "unseen": snapshot.unseen,
        "ram": {"total": snapshot.ram_total_bytes, "available": snapshot.ram_available_bytes},
        "gpus": [_gpu(gpu, tasks, past, snapshot) for gpu in snapshot.gpus],
        "tasks": [task_of(task, kernel_pid, places_of(snapshot.gpus)) for task in tasks
                  if task["mine"] or task["kernel"]],
    }


def places_of(gpus: Sequence[Item]) -> dict[str, str]:
    return {gpu["uuid"]: str(gpu.get("place", gpu["index"])) for gpu in gpus}


def _gpu(gpu: Item, tasks: Sequence[Item], past: RecentGpuHistory, snapshot: PipeSnapshot
         ) -> GpuPicture:
    values = gpu["values"]
    return {
        "uuid": gpu["uuid"], "place": str(gpu.get("place", gpu["index"])), "name": gpu["name"],
        "state": gpu["state"], "total": gpu["facts"].get("mem_total_bytes"),
        "values": {key: values[key] for key in SHOWN if key in values},
        "missing": {key: gpu["missing"].get(key, "unknown") for key in SHOWN if key not in values},
        "past": past.lines(gpu["uuid"], snapshot.at),
        "held": held_by(gpu, tasks, ANYBODY if snapshot.unseen else NOBODY),
    }


def held_by(gpu: Item, tasks: Sequence[Item], rest_is: str
            ) -> list[HeldPicture]:
    """Split a GPU's memory by owner: this kernel with what it started, the user's other tasks, each
    other user, the most first; last the memory in use that no visible task holds."""
    by_owner: dict[tuple[int, str], float] = {}
    for task in tasks:
        amount = sum(use["mem_used_bytes"] or 0.0 for use in task["gpus"]
                     if use["uuid"] == gpu["uuid"])
        if amount:
            whose = _whose(task)
            by_owner[whose] = by_owner.get(whose, 0.0) + amount
    parts: list[HeldPicture] = [
        {"rank": rank, "who": owner, "bytes": amount} for (rank, owner), amount in
        sorted(by_owner.items(), key=lambda entry: (min(entry[0][0], 2), -entry[1]))]
    in_use = gpu["values"].get("mem_used_bytes")
    rest = None if in_use is None else in_use - sum(by_owner.values())
    if rest is not None and in_use is not None and rest > 0.005 * max(in_use, 1.0):
        parts.append({"rank": 3, "who": rest_is, "bytes": rest})
    return parts


def _whose(task: Item) -> tuple[int, str]:
    if task["kernel"]:
        return 0, "this kernel"
    if task["mine"]:
        return 1, "your other tasks"
    return 2, task["user"] or "unknown user"


def task_of(task: Item, kernel_pid: int | None, places: dict[str, str]) -> TaskPicture:
    return {
        "id": task["id"], "pid": task["pid"], "user": task["user"], "command": task["command"],
        "gpus": [places.get(use["uuid"], "?") for use in task["gpus"]],
        "node": task.get("host"), "mem": task["mem_used_bytes"], "sm": task["sm_pct"],
        "state": task["state"], "since": task["started_at"], "kernel": task["pid"] == kernel_pid,
        "child": task.get("kernel", False) and task["pid"] != kernel_pid,
    }


def _share(value: float | None, of: float | None) -> float | None:
    return None if value is None or not of else round(value / of, 3)
