"""What `control.json` sets over the simulation: parsed once per change, strictly, in words."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpudeck.metrics import COLUMN, SLOW_COLUMN, metric
from gpudeck.wire import GPU_STATES, GpuState

LEAK = "leak_memory_on_exit"
# The others are for the tasks themselves: stand_in.py reads them when SIGTERM comes.
TASK_FLAGS = (LEAK, "ignore_sigterm", "fork_on_term")
# Setting a mean sets its maximum too: exact means exact.
FOLLOWERS = {"util_pct": "util_max_pct", "power_w": "power_max_w"}


@dataclass(frozen=True, slots=True)
class GpuControl:
    values: Mapping[int, float] = field(default_factory=dict)  # column -> value
    unsupported: frozenset[int] = frozenset()
    slow_values: Mapping[int, float] = field(default_factory=dict)
    slow_unsupported: frozenset[int] = frozenset()
    state: GpuState | None = None


@dataclass(frozen=True, slots=True)
class Control:
    gpus: Mapping[str, GpuControl] = field(default_factory=dict)
    hung_nodes: frozenset[str] = frozenset()
    leaking_tasks: frozenset[str] = frozenset()


def parse(text: str) -> tuple[Control, list[str]]:
    """The control and a sentence for each thing in it that means nothing. Raises ValueError when
    it is not a JSON object at all."""
    told = json.loads(text)
    if not isinstance(told, dict):
        raise ValueError("an object is expected")
    said: list[str] = []
    for key in told.keys() - {"gpus", "nodes", "tasks"}:
        said.append(f"unknown key {key!r}; there are gpus, nodes, tasks")
    gpus = {uuid: _gpu(uuid, entry, said) for uuid, entry in _part(told, "gpus", said)}
    hung = frozenset(name for name, entry in _part(told, "nodes", said)
                     if _word(name, entry, "reader", ("hang",), said) == "hang")
    leaking = frozenset(task for task, entry in _part(told, "tasks", said)
                        if _leaks(task, entry, said))
    return Control(gpus, hung, leaking), said


def _part(told: dict[str, Any], key: str, said: list[str]) -> list[tuple[str, dict[str, Any]]]:
    part = told.get(key, {})
    if not isinstance(part, dict):
        said.append(f"{key!r} must be an object")
        return []
    bad = [name for name, entry in part.items() if not isinstance(entry, dict)]
    said.extend(f"{key}: {name}: an object is expected" for name in bad)
    return [(name, entry) for name, entry in part.items() if isinstance(entry, dict)]


def _gpu(uuid: str, entry: dict[str, Any], said: list[str]) -> GpuControl:
    state = _word(uuid, entry, "state", GPU_STATES, said, ("unsupported", *COLUMN, *SLOW_COLUMN))
    values = {key: float(value) for key, value in entry.items()
              if (key in COLUMN or key in SLOW_COLUMN) and _is_value(uuid, key, value, said)}
    for key, follower in FOLLOWERS.items():
        if key in values:
            values.setdefault(follower, values[key])
    gone = _unsupported(uuid, entry.get("unsupported", []), said)
    return GpuControl(
        {COLUMN[key]: value for key, value in values.items() if key in COLUMN},
        frozenset(COLUMN[key] for key in gone if key in COLUMN),
        {SLOW_COLUMN[key]: value for key, value in values.items() if key in SLOW_COLUMN},
        frozenset(SLOW_COLUMN[key] for key in gone if key in SLOW_COLUMN),
        state,
    )


def _is_value(uuid: str, key: str, value: object, said: list[str]) -> bool:
    low, high = metric(key).low, metric(key).high
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and math.isfinite(value) and low <= value <= high:  # type: ignore[arg-type, operator]
        return True
    said.append(f"{uuid}: {key} must be a number from {low:g} to {high:g}, not {value!r}")
    return False


def _unsupported(uuid: str, keys: object, said: list[str]) -> set[str]:
    if not isinstance(keys, list):
        said.append(f"{uuid}: unsupported must be a list of metric keys")
        return set()
    known = {key for key in keys if isinstance(key, str) and (key in COLUMN or key in SLOW_COLUMN)}
    said.extend(f"{uuid}: unsupported: no metric {key!r}" for key in keys
                if not isinstance(key, str) or key not in known)
    return known | {FOLLOWERS[key] for key in known & set(FOLLOWERS)}


def _word(
    name: str, entry: dict[str, Any], key: str, words: tuple[str, ...], said: list[str],
    others: tuple[str, ...] = (),
) -> Any:
    said.extend(f"{name}: unknown key {other!r}" for other in entry.keys() - {key, *others})
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
