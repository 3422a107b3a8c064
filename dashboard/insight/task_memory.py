"""Memory of tasks by the minute, out of history. Runs in native threads."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..history.columns.grid import TaskRows
from ..history.reads.protocol import RuleHistory
from .core.outlook import MINUTE_S, READS_S, MinuteMemory

WANTED = ("task", "user", "mem_byte_s", "mem_s")


@dataclass(frozen=True, slots=True)
class TaskMemoryHistory:
    spans: RuleHistory

    def until(self, end: int) -> MinuteMemory:
        """Read the minutes of a forecast and of its outcome, up to `end`, a whole minute."""
        start = end - READS_S
        numbers: dict[tuple[str, str, str], int] = {}
        users: list[str | None] = []
        byte_s, known_s = np.zeros((0, READS_S // MINUTE_S)), np.zeros((0, READS_S // MINUTE_S))
        for part in self.spans.held(start, end, WANTED):
            at = _numbered(part, numbers, users)
            more = len(numbers) - len(byte_s)
            byte_s, known_s = (np.pad(rows, ((0, more), (0, 0))) for rows in (byte_s, known_s))
            minute = (part.t - start) // MINUTE_S
            np.add.at(byte_s, (at, minute), np.nan_to_num(part.numbers["mem_byte_s"]))
            np.add.at(known_s, (at, minute), np.nan_to_num(part.numbers["mem_s"]))
        mean = np.where(known_s > 0, byte_s / np.maximum(known_s, 1), np.nan)
        return MinuteMemory(list(numbers), users, mean)


def _numbered(part: TaskRows, numbers: dict[tuple[str, str, str], int], users: list[str | None]
              ) -> npt.NDArray[np.intp]:
    """Return, for each row, the number of its task on its GPU."""
    (task, tasks), (user, names) = part.words["task"], part.words["user"]
    base = len(tasks) + 1
    packed = part.name_at.astype(np.intp) * base + task + 1
    _, first, which = np.unique(packed, return_index=True, return_inverse=True)
    row_numbers = np.empty(len(first), np.intp)
    for place, row in enumerate(first.tolist()):
        gpu, node = part.names[part.name_at[row]]
        key = (tasks[task[row]] if task[row] >= 0 else "", gpu, node)
        at = numbers.setdefault(key, len(numbers))
        if at == len(users):
            users.append(names[user[row]] if user[row] >= 0 else None)
        row_numbers[place] = at
    mine: npt.NDArray[np.intp] = row_numbers[which.reshape(-1)]
    return mine
