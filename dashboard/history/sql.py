"""Pieces of DuckDB's SQL."""

from collections.abc import Sequence
from pathlib import Path

from .columns import MASKS
from .protocol import Nodes


def text(word: str) -> str:
    return "'" + word.replace("'", "''") + "'"


def texts(words: Sequence[str]) -> str:
    return ", ".join(map(text, words)) or "null"


def source(kind: str, paths: Sequence[Path]) -> str:
    """A metric that came later is not in older files: the empty table has all there are now."""
    return (f"(select * from read_parquet([{texts([str(path) for path in paths])}], "
            f"union_by_name = true) union all by name select * from {kind}_now)")


def on(nodes: Nodes) -> str:
    return "" if nodes is None else f" and node in ({texts(sorted(nodes))})"


def sums_of(metric: str, kind: str) -> str:
    low, high = ("bit_and", "bit_or") if metric in MASKS else ("min", "max")
    if kind in ("raw", "slow"):
        return (f"{low}({metric}) as {metric}_min, {high}({metric}) as {metric}_max, "
                f"sum({metric}) as {metric}_sum, count({metric}) as {metric}_n")
    return (f"{low}({metric}_min) as {metric}_min, {high}({metric}_max) as {metric}_max, "
            f"sum({metric}_mean::double * {metric}_n) as {metric}_sum, "
            f"sum({metric}_n) as {metric}_n")
