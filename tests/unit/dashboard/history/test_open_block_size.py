"""Memory of an open block of five minutes."""

import os
from pathlib import Path

import numpy as np

from dashboard.history.columns.layout import AT, STORED
from dashboard.history.columns.memory import BLOCK_S, MemoryBlock, SampleBatch

GPUS = 4_000
WHOLE_BYTES = BLOCK_S * GPUS * sum(np.dtype(column.narrow).itemsize for column in STORED)
PARTS = 30  # what is written is a 30th of the block


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def second(at: int, temp_c: float) -> SampleBatch:
    steps = np.ones((GPUS, len(STORED)))
    steps[:, AT["temp_c"]] = temp_c
    return SampleBatch(np.arange(GPUS), np.full(GPUS, at), np.ones(GPUS, np.uint8),
                       np.full(GPUS, at % 2), steps)


def test_seconds_that_have_not_come_yet_take_no_memory() -> None:
    """Regression: they took it once a page of them was read, or a column widened. A hub of 10,000
    GPUs held 100 MB for the first seconds of a block."""
    before = resident_bytes()
    block = MemoryBlock(0, GPUS, np.arange(GPUS))
    for at in range(BLOCK_S // PARTS):
        block.place(second(at, 100.0 + 256 * (at == 5)))
    assert block.filled.sum() == block.row_count == GPUS * BLOCK_S // PARTS
    rows = block.rows(np.arange(GPUS), only=("temp_c",))
    assert np.bincount(rows.values("temp_c").astype(int)).nonzero()[0].tolist() == [
        100, 356]
    del rows
    assert resident_bytes() - before < WHOLE_BYTES / 4
