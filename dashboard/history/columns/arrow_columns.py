"""Columns of pyarrow, to and from arrays of numpy."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Table = Any  # of pyarrow, which has no types


def arrow() -> Any:
    """Import pyarrow with the first file, not with the hub: it takes a fifth of a second."""
    import pyarrow

    pa: Any = pyarrow
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    # Its own allocator keeps, in huge pages, what the largest file that was written had taken.
    pa.set_memory_pool(pa.system_memory_pool())
    return pa


def column_of(values: npt.NDArray[Any], mask: npt.NDArray[np.bool_] | None = None) -> Any:
    """Return values as a column, as they lie in memory; True in `mask`: null. `pyarrow.array` would
    import pandas, which a writer does not need."""
    pa = arrow()
    values = np.ascontiguousarray(values)
    there = (pa.py_buffer(np.packbits(~mask, bitorder="little"))
             if mask is not None and mask.any() else None)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values),
                                 [there, pa.py_buffer(values)])


def snappy(data: bytes) -> bytes:
    """Compress as a block, without a frame around it."""
    block: bytes = arrow().compress(data, codec="snappy", asbytes=True)
    return block


def strings(words: Sequence[str]) -> Any:
    pa = arrow()
    packed = [word.encode() for word in words]
    ends = np.zeros(len(packed) + 1, np.int32)
    np.cumsum(list(map(len, packed)), out=ends[1:])
    return pa.Array.from_buffers(pa.string(), len(packed),
                                 [None, pa.py_buffer(ends), pa.py_buffer(b"".join(packed))])


def words_at(indices: npt.NDArray[Any], words: Sequence[str | None]) -> Any:
    """Return a column of the word that each row has; None is null."""
    there = [word for word in words if word is not None]
    if len(there) == len(words):
        return arrow().DictionaryArray.from_arrays(column_of(indices.astype(np.int32)),
                                                   strings(there))
    places = np.cumsum([word is not None for word in words]) - 1
    absent = np.array([word is None for word in words], bool)
    return arrow().DictionaryArray.from_arrays(
        column_of(np.maximum(places, 0)[indices].astype(np.int32), absent[indices]),
        strings(there))


def words_of(values: Sequence[str | None], which: npt.NDArray[np.intp] | None = None) -> Any:
    """Return a column that has each word once; `which`: of each row, the number of its value."""
    distinct = list(dict.fromkeys(values))
    number = dict(zip(distinct, range(len(distinct)), strict=True))
    of_value = np.array(list(map(number.__getitem__, values)), np.intp)
    return words_at(of_value if which is None else of_value[which], distinct)


def numbers(column: Any, null: float = 0) -> npt.NDArray[Any]:
    """Return numbers as they lie in memory, which may be that of the column; null as this number.
    `to_numpy` would import pandas, which a merge does not need."""
    parts = [np.zeros(0, column.type.to_pandas_dtype())]
    for chunk in getattr(column, "chunks", [column]):
        if not len(chunk):
            continue
        valid, data = chunk.buffers()
        kind = parts[0].dtype
        part = np.frombuffer(data, kind, len(chunk), chunk.offset * kind.itemsize)
        if chunk.null_count:
            first, bit = divmod(chunk.offset, 8)
            packed = np.frombuffer(valid, np.uint8, -(-(bit + len(chunk)) // 8), first)
            bits = np.unpackbits(packed, count=bit + len(chunk), bitorder="little")[bit:]
            part = np.where(bits.view(bool), part, null)
        parts.append(part)
    return parts[1] if len(parts) == 2 else np.concatenate(parts)


def picked(table: Table, rows: npt.NDArray[np.bool_]) -> Table:
    pa = arrow()
    packed = pa.py_buffer(np.packbits(rows, bitorder="little"))
    return table.filter(pa.Array.from_buffers(pa.bool_(), len(rows), [None, packed]))
