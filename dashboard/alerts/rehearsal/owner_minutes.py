"""Numbers of owners in a minute of history, by how long each task ran in it: an owner's tasks begin
and end all the time, and those that follow one another in a minute were never held together. Pure.
"""

from dataclasses import dataclass

import numpy as np

from ..core.minute_aggregates import MINUTE_S
from ..core.numbers import NONE, USES, UseColumns
from ..core.rule_signal import Floats
from ..core.state_machine import Rows


def present_s(longest_s: Floats, sum_s: Floats, sampled_s: Floats) -> Floats:
    """Return for how long an owner held anything in each minute, at most: history does not keep
    when in it. `longest_s` and `sum_s`: of their uses of GPUs; `sampled_s`: of those GPUs."""
    return np.minimum(np.clip(sampled_s, longest_s, MINUTE_S), sum_s)


@dataclass(frozen=True, slots=True)
class OwnerMinutes:
    """Uses in minutes. `use_s`: how long each lasted; `cell_s`: how long its owner was present, by
    cell."""

    uses: UseColumns
    use_s: Floats
    cell_s: Floats

    def values(self, name: str) -> Floats:
        """Return the mean of a number, by cell, over the time in which its owner was present; NaN
        for a cell without a use."""
        number = USES[name]
        match number.join:
            case "distinct":
                cell, _, key_s = self._together(self.uses.keys(number.column))
                return self._mean(cell, key_s)
            case "mean_of_gpus":
                cell, gpu, gpu_s = self._together(self.uses.gpu)
                values = self.uses.of_gpus(number.column)[gpu]
                total_s = np.bincount(cell, gpu_s, self.uses.size)
                sums = np.bincount(cell, gpu_s * values, self.uses.size)
                return np.where(total_s > 0, sums / np.maximum(total_s, 1), np.nan)
            case "total":
                values = self.uses.of_uses(number.column) * self.use_s
                return self._mean(self.uses.cell, values)
        raise ValueError(f"{name} is no number of an owner")

    def _mean(self, cell: Rows, second_sums: Floats) -> Floats:
        sums = np.bincount(cell, second_sums, self.uses.size)
        return np.where(self.cell_s > 0, sums / np.maximum(self.cell_s, 1), np.nan)

    def _together(self, keys: Rows) -> tuple[Rows, Rows, Floats]:
        """Return each key in each cell, and how long it was there: several uses at once are no
        longer than the owner was present."""
        is_known, base = keys != NONE, int(keys.max(initial=0)) + 1
        pairs, which = np.unique(self.uses.cell[is_known] * base + keys[is_known],
                                 return_inverse=True)
        seconds = np.bincount(which.reshape(-1), self.use_s[is_known], len(pairs))
        cell = pairs // base
        return cell, pairs % base, np.minimum(seconds, self.cell_s[cell])
