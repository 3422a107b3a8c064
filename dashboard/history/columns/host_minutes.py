"""Minutes of hosts: mean and highest of each number, and how often it was reported."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from gpudeck.contract.hosts import HOST_KEYS, HostSample

from .arrays import Floats
from .slot_names import SlotNames

if TYPE_CHECKING:
    import pandas as pd

MINUTE_S = 60
WIDTH = len(HOST_KEYS)
HOST_COLUMNS = tuple(f"{key}_{part}" for key in HOST_KEYS for part in ("mean", "max"))


@dataclass(slots=True)
class HostMinute:
    samples: int = 0
    n: Floats = field(default_factory=lambda: np.zeros(WIDTH))
    total: Floats = field(default_factory=lambda: np.zeros(WIDTH))
    most: Floats = field(default_factory=lambda: np.full(WIDTH, np.nan))

    def add(self, sample: HostSample) -> None:
        row = np.array([sample.number(key) for key in HOST_KEYS], float)
        self.samples += 1
        there = ~np.isnan(row)
        # New arrays: readers copy what refers to the old ones.
        self.n = self.n + there
        self.total = self.total + np.where(there, row, 0.0)
        self.most = np.fmax(self.most, row)

    def join(self, other: "HostMinute") -> "HostMinute":
        return HostMinute(self.samples + other.samples, self.n + other.n,
                          self.total + other.total, np.fmax(self.most, other.most))

    def mean(self) -> Floats:
        return np.where(self.n > 0, self.total / np.maximum(self.n, 1), np.nan)


HostMinutes = dict[tuple[str, int], HostMinute]  # by node and minute


def join_hosts(parts: Iterable[HostMinutes]) -> HostMinutes:
    minutes: HostMinutes = {}
    for part in parts:
        for key, minute in part.items():
            former = minutes.get(key)
            minutes[key] = minute if former is None else former.join(minute)
    return minutes


def host_columns(minutes: HostMinutes, names: SlotNames) -> dict[str, list[Any]]:
    rows = sorted(minutes.items(), key=lambda row: row[0])
    means = np.array([minute.mean() for _, minute in rows]).reshape(-1, WIDTH)
    mosts = np.array([minute.most for _, minute in rows]).reshape(-1, WIDTH)
    columns: dict[str, list[Any]] = {
        "node": [node for (node, _), _ in rows], "cluster": [names.cluster] * len(rows),
        "host": [names.host(node, t) for (node, t), _ in rows],
        "t": [t for (_, t), _ in rows], "samples": [minute.samples for _, minute in rows],
    }
    for at, key in enumerate(HOST_KEYS):
        columns[f"{key}_mean"], columns[f"{key}_max"] = means[:, at].tolist(), mosts[:, at].tolist()
    return columns


def by_steps(rows: "pd.DataFrame", step: int) -> "pd.DataFrame":
    """Join minutes; means are weighted by how often they were reported."""
    rows = rows.assign(t=rows["t"] - rows["t"] % step)
    weight = rows["samples"].to_numpy(float)
    sums = {}
    for key in HOST_KEYS:
        mean = rows[f"{key}_mean"].to_numpy(float)
        sums[f"{key}_mean"] = np.where(np.isnan(mean), 0.0, mean * weight)
        sums[f"{key}_n"] = np.where(np.isnan(mean), 0.0, weight)
    means = rows[["node", "t", "samples"]].assign(**sums).groupby(
        ["node", "t"], as_index=False, observed=True).sum()
    mosts = rows[["node", "t", *(f"{key}_max" for key in HOST_KEYS)]].groupby(
        ["node", "t"], as_index=False, observed=True).max()
    for key in HOST_KEYS:
        n = means.pop(f"{key}_n").to_numpy(float)
        means[f"{key}_mean"] = np.where(n > 0, means[f"{key}_mean"] / np.maximum(n, 1), np.nan)
    return means.merge(mosts, on=["node", "t"])
