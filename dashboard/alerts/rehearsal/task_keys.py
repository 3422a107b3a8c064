"""Identities in rows of history: the task, its job and its owner, as numbers. Pure."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gpudeck.contract.wire import Task
from gpudeck.measures.jobs import JobKey, job_key

from ...history.columns.grid import TaskRows
from ..core.state_machine import Rows

Key = tuple[str | None, ...]
WORDS = ("task", "user", "job", "launch", "manager", "kind")
MOST_PACKED = 2**62
DESCRIBED = (("job_id", "job"), ("manager", "manager"), ("kind", "kind"))


class UseKey(NamedTuple):
    gpu: str
    node: str
    task_id: str
    user: str | None
    job: JobKey
    task: Task | None  # None: its description was not read


class KeyNumbering:
    """Numbers keys: each new one gets the next number."""

    def __init__(self) -> None:
        self.keys: list[Key] = []
        self._number: dict[Key, int] = {}

    def of(self, key: Key) -> int:
        number = self._number.setdefault(key, len(self.keys))
        if number == len(self.keys):
            self.keys.append(key)
        return number

    def __contains__(self, key: Key) -> bool:
        return key in self._number

    def __len__(self) -> int:
        return len(self.keys)


def uses_in(part: TaskRows) -> tuple[list[UseKey], Rows]:
    """Return the uses in a part, and the use of each row."""
    words = {name: part.words[name] for name in WORDS if name in part.words}
    all_rows: list[Rows] = [part.name_at, *(at.astype(np.intp) for at, _ in words.values())]
    starts = run_starts(all_rows)
    columns = [column[starts] for column in all_rows]
    first, use_of_run = _distinct(columns)
    which = np.repeat(use_of_run, np.diff(np.append(starts, len(part.t))))
    uses = []
    for name, *at in zip(*(column[first].tolist() for column in columns), strict=True):
        gpu, node = part.names[name]
        word = {key: words[key][1][number] if number >= 0 else None
                for key, number in zip(words, at, strict=True)}
        task_id, user = word["task"] or "", word["user"]
        uses.append(UseKey(gpu, node, task_id, user, job_key(
            node, task_id, word["job"], user, word["launch"]),
            past_task(task_id, user, **{key: word[name] for key, name in DESCRIBED
                                        if word[name] is not None}) if "kind" in word else None))
    return uses, which


def run_starts(columns: Sequence[Rows]) -> Rows:
    """Return where rows begin that differ from the one before: few, for rows lie minute after
    minute."""
    differs = np.zeros(len(columns[0]), bool)
    differs[:1] = True
    for column in columns:
        differs[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(differs)


def _distinct(columns: Sequence[Rows]) -> tuple[Rows, Rows]:
    """Return where each combination comes first, and the combination of each row."""
    packed, room = np.zeros(len(columns[0]), np.intp), 1
    for column in columns:
        base = int(column.max(initial=0)) + 2
        if room * base > MOST_PACKED:
            _, packed = np.unique(packed, return_inverse=True)
            room = len(packed) + 1
        packed, room = packed * base + column + 1, room * base
    _, first, which = np.unique(packed, return_index=True, return_inverse=True)
    return first, which.reshape(-1)


def past_task(task_id: str, user: str | None, **more: Any) -> Task:
    """Return as much of a task as a scope may ask for."""
    return Task(task_id, 1, 0, None, user, None, **more)
