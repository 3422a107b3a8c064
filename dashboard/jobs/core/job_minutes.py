"""A job's ranks over time: rows are ranks, columns are steps of time. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

# Metrics of its GPU, as in history; memory is the rank's own.
OF_GPUS = ("util_pct", "power_w", "mem_util_pct", "sm_active_pct", "temp_c", "sm_clock_mhz",
           "util_max_pct", "nvlink_tx_bytes_per_s")
# Metrics of its host.
OF_HOSTS = ("io_pressure_pct", "cpu_pressure_pct")


@dataclass(frozen=True, slots=True)
class JobRank:
    """A task on one GPU."""

    node: str
    host: str
    gpu: str
    place: str  # of the GPU on its node
    task: str
    job: str
    number: int | None  # as the task reports it
    mem_total_bytes: float | None
    power_limit_w: float | None  # the largest that its board takes


@dataclass(frozen=True, slots=True)
class JobMinutes:
    """Numbers of a job. `numbers`: OF_GPUS, OF_HOSTS, `load_pct`, which is the highest load of its
    GPU in the step (gpudeck.measures.waste), `mem_used_bytes`, `host_cpu_pct` and `held_s`, each
    ranks x steps; NaN: not known."""

    t0: int
    step: int
    ranks: Sequence[JobRank]
    numbers: dict[str, Matrix]

    @property
    def steps(self) -> int:
        return int(self.numbers["held_s"].shape[1])

    def of_ranks(self, name: str) -> Matrix:
        """Return a constant of the ranks, as a column."""
        return np.array([getattr(rank, name) for rank in self.ranks], float).reshape(-1, 1)

    @property
    def is_held(self) -> Mask:
        return self.numbers["held_s"] > 0


def matrix_of(rows: Sequence[Any], values: Sequence[Any], columns: Sequence[Any],
              shape: tuple[int, int]) -> Matrix:
    matrix = np.full(shape, np.nan)
    matrix[np.asarray(rows, np.intp), np.asarray(columns, np.intp)] = np.asarray(values, float)
    return matrix
