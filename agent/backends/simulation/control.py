"""Settings of `control.json` over the simulation: parsed once per change, strictly, in words."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gpudeck.contract.wire import GPU_STATES, GpuState
from gpudeck.measures.metrics import COLUMN, SLOW_COLUMN, THROTTLE_REASONS, metric

LEAK = "leak_memory_on_exit"
# The others are for the tasks themselves: stand_in.py reads them when SIGTERM comes.
TASK_FLAGS = (LEAK, "ignore_sigterm", "fork_on_term")
# Setting a mean sets its maximum too: exact means exact.
FOLLOWERS = {"util_pct": "util_max_pct", "power_w": "power_max_w"}
DRIVER_FATES = ("gone", "reloaded", "upgraded")
XID_MAX = 999_999
METRICS = (*COLUMN, *SLOW_COLUMN)

Entry = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SimulatedGpuControl:
    """Settings of a GPU, by metric key."""

    values: Mapping[str, float] = field(default_factory=dict)
    unsupported: frozenset[str] = frozenset()
    state: GpuState | None = None
    xids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SimulatedNodeControl:
    reader: Literal["hang"] | None = None
    driver: Literal["gone", "reloaded", "upgraded"] | None = None
    permute: bool = False
    mps: Literal["dead"] | None = None


@dataclass(frozen=True, slots=True)
class SimulationControl:
    gpus: Mapping[str, SimulatedGpuControl] = field(default_factory=dict)
    nodes: Mapping[str, SimulatedNodeControl] = field(default_factory=dict)
    leaking_tasks: frozenset[str] = frozenset()
    changed_at: float = 0.0  # UTC; when the file was written

    @property
    def hung_nodes(self) -> frozenset[str]:
        return frozenset(name for name, node in self.nodes.items() if node.reader == "hang")


def parse(text: str) -> tuple[SimulationControl, list[str]]:
    """Return the control and a sentence for each thing in it that means nothing. Raises ValueError
    when it is not a JSON object at all."""
    document = json.loads(text)
    if not isinstance(document, dict):
        raise ValueError("an object is expected")
    parser = _ControlParser()
    for key in document.keys() - {"gpus", "nodes", "tasks"}:
        parser.warnings.append(f"unknown key {key!r}; there are gpus, nodes, tasks")
    gpus = {uuid: parser.gpu(uuid, entry) for uuid, entry in parser.part(document, "gpus")}
    nodes = {name: parser.node(name, entry) for name, entry in parser.part(document, "nodes")}
    leaking = frozenset(task for task, entry in parser.part(document, "tasks")
                        if parser.leaks(task, entry))
    return SimulationControl(gpus, nodes, leaking), parser.warnings


class _ControlParser:
    def __init__(self) -> None:
        self.warnings: list[str] = []  # of what means nothing

    def part(self, document: Entry, key: str) -> list[tuple[str, Entry]]:
        part = document.get(key, {})
        if not isinstance(part, dict):
            self.warnings.append(f"{key!r} must be an object")
            return []
        self.warnings += (f"{key}: {name}: an object is expected"
                          for name, entry in part.items() if not isinstance(entry, dict))
        return [(name, entry) for name, entry in part.items() if isinstance(entry, dict)]

    def gpu(self, uuid: str, entry: Entry) -> SimulatedGpuControl:
        self._only(uuid, entry, ("state", "unsupported", "xid", "throttle", "lost", *METRICS))
        state = self._word(uuid, entry, "state", GPU_STATES)
        if self._flag(uuid, entry, "lost"):
            state = "lost"
        values = {key: float(value) for key, value in entry.items()
                  if key in METRICS and self._is_value(uuid, key, value)}
        word = self._word(uuid, entry, "throttle", tuple(THROTTLE_REASONS.values()))
        if word is not None:
            bits = {reason: bit for bit, reason in THROTTLE_REASONS.items()}
            values["throttle_bits"] = float(bits[word])
        for key, follower in FOLLOWERS.items():
            if key in values:
                values.setdefault(follower, values[key])
        return SimulatedGpuControl(
            values, self._unsupported(uuid, entry.get("unsupported", [])), state,
            self._xids(uuid, entry.get("xid", [])))

    def node(self, name: str, entry: Entry) -> SimulatedNodeControl:
        self._only(name, entry, ("reader", "driver", "permute", "mps"))
        return SimulatedNodeControl(self._word(name, entry, "reader", ("hang",)),
                                    self._word(name, entry, "driver", DRIVER_FATES),
                                    self._flag(name, entry, "permute"),
                                    self._word(name, entry, "mps", ("dead",)))

    def leaks(self, task: str, entry: Entry) -> bool:
        self.warnings += (f"{task}: unknown key {other!r}; there are {', '.join(TASK_FLAGS)}"
                          for other in entry.keys() - set(TASK_FLAGS))
        flags = {flag: self._flag(task, entry, flag) for flag in TASK_FLAGS}
        return flags[LEAK]

    def _is_value(self, uuid: str, key: str, value: object) -> bool:
        """Return whether the metric can have it; true and false are values of what is on or off."""
        column = metric(key)
        is_mode = column.words is not None and column.high == 1
        number = isinstance(value, int | float) and (is_mode or not isinstance(value, bool))
        if number and column.low <= value <= column.high:  # type: ignore[operator]
            return True
        self.warnings.append(f"{uuid}: {key} must be a number from {column.low:g} to "
                             f"{column.high:g}, not {value!r}")
        return False

    def _xids(self, uuid: str, value: object) -> tuple[int, ...]:
        codes = value if isinstance(value, list) else [value]
        if all(isinstance(code, int) and not isinstance(code, bool) and 0 < code <= XID_MAX
               for code in codes):
            return tuple(codes)
        self.warnings.append(f"{uuid}: xid must be a number from 1 to {XID_MAX}, or a list of "
                             f"such, not {value!r}")
        return ()

    def _unsupported(self, uuid: str, keys: object) -> frozenset[str]:
        if not isinstance(keys, list):
            self.warnings.append(f"{uuid}: unsupported must be a list of metric keys")
            return frozenset()
        valid = {key for key in keys if isinstance(key, str) and key in METRICS}
        self.warnings += (f"{uuid}: unsupported: no metric {key!r}" for key in keys
                          if not isinstance(key, str) or key not in valid)
        return frozenset(valid | {FOLLOWERS[key] for key in valid & FOLLOWERS.keys()})

    def _only(self, name: str, entry: Entry, keys: tuple[str, ...]) -> None:
        self.warnings += (f"{name}: unknown key {other!r}" for other in entry.keys() - set(keys))

    def _flag(self, name: str, entry: Entry, key: str) -> bool:
        if not isinstance(entry.get(key, False), bool):
            self.warnings.append(f"{name}: {key} must be true or false, not {entry[key]!r}")
        return entry.get(key) is True

    def _word(self, name: str, entry: Entry, key: str, words: tuple[str, ...]) -> Any:
        if key not in entry or entry[key] in words:
            return entry.get(key)
        self.warnings.append(f"{name}: {key} must be one of {', '.join(words)}, not {entry[key]!r}")
        return None
