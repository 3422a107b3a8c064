"""Who a row of history is about: the task, its job and its owner, as numbers. Pure."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gpudeck.jobs import JobKey, job_key
from gpudeck.wire import Task

from ...history.grid import TaskRows
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
    task: Task | None  # None: what describes it was not read


class KeyNumbering:
    """Each new key gets the next number."""

    def __init__(self) -> None:
        self.keys: list[Key] = []
        self._number: dict[Key, int] = {}

    def of(self, key: Key) -> int:
        found = self._number.setdefault(key, len(self.keys))
        if found == len(self.keys):
            self.keys.append(key)
        return found

    def __len__(self) -> int:
        return len(self.keys)


def uses_in(part: TaskRows, rows: Rows) -> tuple[list[UseKey], Rows]:
    """The uses that these rows are of, and which of them each row is. Jobs are all alike where
    their words were not read."""
    words = {name: part.words[name] for name in WORDS if name in part.words}
    columns = [part.name_at[rows], *(at[rows].astype(np.intp) for at, _ in words.values())]
    first, which = _distinct(columns)
    found = []
    for name, *at in zip(*(column[first].tolist() for column in columns), strict=True):
        gpu, node = part.names[name]
        word = {key: words[key][1][number] if number >= 0 else None
                for key, number in zip(words, at, strict=True)}
        task_id, user = word["task"] or "", word["user"]
        found.append(UseKey(gpu, node, task_id, user, job_key(
            node, task_id, word["job"], user, word["launch"]) if "job" in word else ("",),
            past_task(task_id, user, **{key: word[name] for key, name in DESCRIBED
                                        if word[name] is not None}) if "kind" in word else None))
    return found, which


def _distinct(columns: Sequence[Rows]) -> tuple[Rows, Rows]:
    """Where each combination comes first, and which each row has."""
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
    """As much of it as a scope may ask for."""
    return Task(task_id, 1, 0, None, user, None, **more)
