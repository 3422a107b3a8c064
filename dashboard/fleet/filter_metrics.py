"""Input and answer of a filter, three-valued truth over a whole fleet; and how metrics are
compared in it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gpudeck.contract.wire import Task
from gpudeck.language.filters import OPERATIONS
from gpudeck.measures.metrics import Absence, Metric

from .fleet import Fleet, GpuStatus
from .visibility import ALL_READ, CommandLineVisibility

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class ThreeValuedMask:
    """Two masks: where it is known to be so, and where it is known not to be."""

    yes: Mask
    no: Mask

    def __invert__(self) -> "ThreeValuedMask":
        return ThreeValuedMask(self.no, self.yes)

    def __and__(self, other: "ThreeValuedMask") -> "ThreeValuedMask":
        return ThreeValuedMask(self.yes & other.yes, self.no | other.no)

    def __or__(self, other: "ThreeValuedMask") -> "ThreeValuedMask":
        return ThreeValuedMask(self.yes | other.yes, self.no & other.no)


@dataclass(frozen=True)
class TaskGpuPairs:
    """Tasks on GPUs, one row for each pair."""

    slots: npt.NDArray[np.intp]
    tasks: list[Task]

    @cached_property
    def users(self) -> tuple[list[str | None], npt.NDArray[np.intp]]:
        """User names, far fewer than tasks, and for each row the number of its name."""
        number: dict[str | None, int] = {}
        at = [number.setdefault(task.user, len(number)) for task in self.tasks]
        return [*number], np.array(at, np.intp)


@dataclass(frozen=True, slots=True)
class FilterInput:
    """Input of a filter: the fleet at one moment, GPU by GPU or Task by Task."""

    fleet: Fleet
    show: npt.NDArray[np.uint8]
    mono: float
    reads: CommandLineVisibility = ALL_READ
    uses: TaskGpuPairs | None = None


Test = Callable[[FilterInput], ThreeValuedMask]

def compare(metric: Metric, op: str, number: float, is_share: bool) -> Test:
    operation = OPERATIONS[op]

    def test(data: FilterInput) -> ThreeValuedMask:
        column = data.fleet.column(metric.key, data.mono)
        is_known = (data.show == GpuStatus.OK) & (column.absent == Absence.PRESENT)
        values = column.values
        if is_share:
            is_known = is_known & ~np.isnan(column.full)
            values = values / np.where(is_known, column.full, 1.0)
        holds = operation(values, number)
        return ThreeValuedMask(is_known & holds, is_known & ~holds)

    return test
