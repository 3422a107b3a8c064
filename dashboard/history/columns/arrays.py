"""Rows as a dataclass of arrays, which have one entry per row; also those in its dicts. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Slots = npt.NDArray[np.intp]
Words = npt.NDArray[np.object_]
Rows = TypeVar("Rows")


def take_rows(rows: Rows, which: Any) -> Rows:
    """Return some of the rows, in this order."""
    return _combine([rows], lambda columns: columns[0][which])


def concat_rows(parts: Sequence[Rows]) -> Rows:
    """Concatenate rows. What is not an array is that of the first part."""
    return parts[0] if len(parts) == 1 else _combine(parts, np.concatenate)


def _combine(parts: Sequence[Rows], make: Callable[[list[Any]], npt.NDArray[Any]]) -> Rows:
    first: Any = parts[0]
    combined: Rows = replace(first, **{field.name: _column(
        [getattr(part, field.name) for part in parts], make) for field in fields(first)})
    return combined


def _column(values: list[Any], make: Callable[[list[Any]], npt.NDArray[Any]]) -> Any:
    first = values[0]
    if isinstance(first, dict):
        return {name: make([value[name] for value in values]) for name in first}
    return make(values) if isinstance(first, np.ndarray) else first


def runs(*keys: npt.NDArray[Any]) -> Slots:
    """Return where runs of rows with the same keys begin."""
    if not len(keys[0]):
        return np.zeros(0, np.intp)
    changes = np.zeros(len(keys[0]), bool)
    changes[0] = True
    for key in keys:
        changes[1:] |= key[1:] != key[:-1]
    return np.flatnonzero(changes)


def lengths(starts: Slots, rows: int) -> Ints:
    """Return how many rows each run has, of runs that begin there."""
    return np.diff(np.append(starts, rows)).astype(np.int64)


def in_runs(values: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], Slots]:
    """Return the distinct values, and of each row the number of its value: as `np.unique`, but fast
    where values repeat in a row."""
    starts = runs(values)
    distinct, at = np.unique(values[starts], return_inverse=True)
    return distinct, np.repeat(at, lengths(starts, len(values)))
