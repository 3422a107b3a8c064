"""What a filter looks at and what it answers: three-valued truth over a whole fleet."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpudeck.wire import Task

from ..runtime.expressions import ExpressionError
from .fleet import Fleet
from .visibility import ALL_READ, CommandLineVisibility

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class ThreeValuedMask:
    """Where it is known to be so, and where it is known not to be."""

    yes: Mask
    no: Mask

    def __invert__(self) -> "ThreeValuedMask":
        return ThreeValuedMask(self.no, self.yes)

    def __and__(self, other: "ThreeValuedMask") -> "ThreeValuedMask":
        return ThreeValuedMask(self.yes & other.yes, self.no | other.no)

    def __or__(self, other: "ThreeValuedMask") -> "ThreeValuedMask":
        return ThreeValuedMask(self.yes | other.yes, self.no & other.no)


class FilterError(ExpressionError):
    """What a filter may not say."""


@dataclass(frozen=True, slots=True)
class TaskGpuPairs:
    """Tasks on Gpus, one row for each pair."""

    slots: npt.NDArray[np.intp]
    tasks: list[Task]


@dataclass(frozen=True, slots=True)
class FilterInput:
    """What a filter looks at: the fleet at one moment, Gpu by Gpu or Task by Task."""

    fleet: Fleet
    show: npt.NDArray[np.uint8]
    mono: float
    reads: CommandLineVisibility = ALL_READ
    uses: TaskGpuPairs | None = None


Test = Callable[[FilterInput], ThreeValuedMask]
