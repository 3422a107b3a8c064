"""What `control.json` sets over the simulation: parsed once per change, strictly, in words."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gpudeck.metrics import COLUMN, SLOW_COLUMN, THROTTLE_REASONS, metric
from gpudeck.wire import GPU_STATES, GpuState

LEAK = "leak_memory_on_exit"
# The others are for the tasks themselves: stand_in.py reads them when SIGTERM comes.
TASK_FLAGS = (LEAK, "ignore_sigterm", "fork_on_term")
# Setting a mean sets its maximum too: exact means exact.
FOLLOWERS = {"util_pct": "util_max_pct", "power_w": "power_max_w"}
DRIVER_FATES = ("gone", "reloaded", "upgraded")
XID_MAX = 999_999


@dataclass(frozen=True, slots=True)
class SimulatedGpuControl:
    values: Mapping[int, float] = field(default_factory=dict)  # column -> value
    unsupported: frozenset[int] = frozenset()
    slow_values: Mapping[int, float] = field(default_factory=dict)
    slow_unsupported: frozenset[int] = frozenset()
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
    """The control and a sentence for each thing in it that means nothing. Raises ValueError when
    it is not a JSON object at all."""
    told = json.loads(text)
    if not isinstance(told, dict):
        raise ValueError("an object is expected")
    said: list[str] = []
    for key in told.keys() - {"gpus", "nodes", "tasks"}:
        said.append(f"unknown key {key!r}; there are gpus, nodes, tasks")
    gpus = {uuid: _gpu(uuid, entry, said) for uuid, entry in _part(told, "gpus", said)}
    nodes = {name: _node(name, entry, said) for name, entry in _part(told, "nodes", said)}
    leaking = frozenset(task for task, entry in _part(told, "tasks", said)
                        if _leaks(task, entry, said))
    return SimulationControl(gpus, nodes, leaking), said


def _part(told: dict[str, Any], key: str, said: list[str]) -> list[tuple[str, dict[str, Any]]]:
    part = told.get(key, {})
    if not isinstance(part, dict):
        said.append(f"{key!r} must be an object")
        return []
    bad = [name for name, entry in part.items() if not isinstance(entry, dict)]
    said.extend(f"{key}: {name}: an object is expected" for name in bad)
    return [(name, entry) for name, entry in part.items() if isinstance(entry, dict)]


def _gpu(uuid: str, entry: dict[str, Any], said: list[str]) -> SimulatedGpuControl:
    _only(uuid, entry, ("state", "unsupported", "xid", "throttle", "lost", *COLUMN, *SLOW_COLUMN),
          said)
    state = _word(uuid, entry, "state", GPU_STATES, said)
    if _flag(uuid, entry, "lost", said):
        state = "lost"
    values = _values(uuid, entry, COLUMN, said)
    word = _word(uuid, entry, "throttle", tuple(THROTTLE_REASONS.values()), said)
    if word is not None:
        bits = {reason: bit for bit, reason in THROTTLE_REASONS.items()}
        values[COLUMN["throttle_bits"]] = float(bits[word])
    for key, follower in FOLLOWERS.items():
        if COLUMN[key] in values:
            values.setdefault(COLUMN[follower], values[COLUMN[key]])
    fast, slow = _columns(uuid, entry.get("unsupported", []), said)
    return SimulatedGpuControl(values, fast, _values(uuid, entry, SLOW_COLUMN, said), slow, state,
                               _xids(uuid, entry, said))


def _values(
    uuid: str, entry: dict[str, Any], columns: Mapping[str, int], said: list[str]
) -> dict[int, float]:
    return {columns[key]: float(value) for key, value in entry.items()
            if key in columns and _is_value(uuid, key, value, said)}


def _is_value(uuid: str, key: str, value: object, said: list[str]) -> bool:
    """true and false are values of what is on or off."""
    asked = metric(key)
    is_mode = asked.words is not None and asked.high == 1
    number = isinstance(value, int | float) and (is_mode or not isinstance(value, bool))
    if number and asked.low <= value <= asked.high:  # type: ignore[operator]
        return True
    said.append(f"{uuid}: {key} must be a number from {asked.low:g} to {asked.high:g}, "
                f"not {value!r}")
    return False


def _xids(uuid: str, entry: dict[str, Any], said: list[str]) -> tuple[int, ...]:
    told = entry.get("xid", [])
    codes = told if isinstance(told, list) else [told]
    if all(isinstance(code, int) and not isinstance(code, bool) and 0 < code <= XID_MAX
           for code in codes):
        return tuple(codes)
    said.append(f"{uuid}: xid must be a number from 1 to {XID_MAX}, or a list of such, "
                f"not {told!r}")
    return ()


def _columns(
    uuid: str, keys: object, said: list[str]
) -> tuple[frozenset[int], frozenset[int]]:
    """Of the metrics that come each second, and of the slow ones."""
    if not isinstance(keys, list):
        said.append(f"{uuid}: unsupported must be a list of metric keys")
        return frozenset(), frozenset()
    known = {key for key in keys if isinstance(key, str) and key in (*COLUMN, *SLOW_COLUMN)}
    said.extend(f"{uuid}: unsupported: no metric {key!r}" for key in keys
                if not isinstance(key, str) or key not in known)
    fast = known & set(COLUMN)
    fast |= {FOLLOWERS[key] for key in fast & set(FOLLOWERS)}
    return (frozenset(COLUMN[key] for key in fast),
            frozenset(SLOW_COLUMN[key] for key in known & set(SLOW_COLUMN)))


def _node(name: str, entry: dict[str, Any], said: list[str]) -> SimulatedNodeControl:
    _only(name, entry, ("reader", "driver", "permute", "mps"), said)
    return SimulatedNodeControl(_word(name, entry, "reader", ("hang",), said),
                                _word(name, entry, "driver", DRIVER_FATES, said),
                                _flag(name, entry, "permute", said),
                                _word(name, entry, "mps", ("dead",), said))


def _only(name: str, entry: dict[str, Any], keys: tuple[str, ...], said: list[str]) -> None:
    said.extend(f"{name}: unknown key {other!r}" for other in entry.keys() - set(keys))


def _flag(name: str, entry: dict[str, Any], key: str, said: list[str]) -> bool:
    if not isinstance(entry.get(key, False), bool):
        said.append(f"{name}: {key} must be true or false, not {entry[key]!r}")
    return entry.get(key) is True


def _word(
    name: str, entry: dict[str, Any], key: str, words: tuple[str, ...], said: list[str]
) -> Any:
    if key not in entry:
        return None
    if entry[key] in words:
        return entry[key]
    said.append(f"{name}: {key} must be one of {', '.join(words)}, not {entry[key]!r}")
    return None


def _leaks(task: str, entry: dict[str, Any], said: list[str]) -> bool:
    said.extend(f"{task}: unknown key {other!r}; there are {', '.join(TASK_FLAGS)}"
                for other in entry.keys() - set(TASK_FLAGS))
    said.extend(f"{task}: {flag} must be true or false, not {entry[flag]!r}"
                for flag in TASK_FLAGS if not isinstance(entry.get(flag, False), bool))
    return entry.get(LEAK) is True
