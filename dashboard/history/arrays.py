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


def taken(rows: Rows, which: Any) -> Rows:
    """Some of the rows, in this order."""
    return _made([rows], lambda columns: columns[0][which])


def joined(parts: Sequence[Rows]) -> Rows:
    """One after the other. What is not an array is that of the first part."""
    return parts[0] if len(parts) == 1 else _made(parts, np.concatenate)


def _made(parts: Sequence[Rows], make: Callable[[list[Any]], npt.NDArray[Any]]) -> Rows:
    first: Any = parts[0]
    made: Rows = replace(first, **{field.name: _column(
        [getattr(part, field.name) for part in parts], make) for field in fields(first)})
    return made


def _column(values: list[Any], make: Callable[[list[Any]], npt.NDArray[Any]]) -> Any:
    first = values[0]
    if isinstance(first, dict):
        return {name: make([value[name] for value in values]) for name in first}
    return make(values) if isinstance(first, np.ndarray) else first


def runs(*keys: npt.NDArray[Any]) -> Slots:
    """Where rows with the same keys begin."""
    if not len(keys[0]):
        return np.zeros(0, np.intp)
    changes = np.zeros(len(keys[0]), bool)
    changes[0] = True
    for key in keys:
        changes[1:] |= key[1:] != key[:-1]
    return np.flatnonzero(changes)


def lengths(starts: Slots, rows: int) -> Ints:
    """Of runs that begin there."""
    return np.diff(np.append(starts, rows)).astype(np.int64)


def in_runs(values: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], Slots]:
    """What is in there, and where: as `np.unique`, fast where the same stands many times in a
    row."""
    starts = runs(values)
    found, at = np.unique(values[starts], return_inverse=True)
    return found, np.repeat(at, lengths(starts, len(values)))
