"""Claims and nodes from CSV files, in the columns of Alibaba's openb trace. Pure.

nodes: `sn,gpu,model`, and if they are known `cpu_milli,gpu_mib`
claims: `num_gpu`, and if they are known `name,user,gpu_milli,gpu_mib,cpu_milli,gpu_spec,qos,
creation_time,duration`
"""

import csv
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from gpudeck.pool.core.claims import DEFAULT_PRIORITY, DEFAULT_TERM_S, WHOLE_MILLI, Claim
from gpudeck.pool.core.inventory import FreeGpu, Node, node_of
from gpudeck.pool.core.simulation import TracedClaim

MOST_GPUS = 1_024
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TraceRows(Generic[T]):
    """Rows of a trace. `bad`: a sentence for each row that was left out."""

    rows: list[T]
    bad: list[str]


class _BadCell(ValueError):
    pass


def read_nodes(lines: Iterable[str]) -> "TraceRows[Node]":
    return _read(lines, ("sn", "gpu", "model"), _node)


def read_claims(lines: Iterable[str]) -> "TraceRows[TracedClaim]":
    return _read(lines, ("num_gpu",), _claim)


def _read(lines: Iterable[str], needed: Iterable[str],
          read: Callable[[Mapping[str, str], int], T]) -> "TraceRows[T]":
    """Read the rows. Raises ValueError where a column is missing."""
    table = csv.DictReader(lines, restval="")
    if missing := [name for name in needed if name not in (table.fieldnames or ())]:
        raise ValueError(f"it has no column {' or '.join(missing)}")
    rows: list[T] = []
    bad = []
    for row in table:
        try:
            rows.append(read({name: (value or "").strip() for name, value in row.items()
                              if isinstance(name, str)}, table.line_num))
        except _BadCell as why:
            bad.append(f"line {table.line_num}: {why}")
    return TraceRows(rows, bad)


def _node(row: Mapping[str, str], line: int) -> Node:
    mib = _number(row, "gpu_mib", None)
    gpus = [(f"{row['sn']}/{index}", FreeGpu(
        row["model"], False, None, None, None if mib is None else mib * 2**20))
        for index in range(_number(row, "gpu", 0, MOST_GPUS) or 0)]
    return node_of(row["sn"], row["sn"], gpus, _number(row, "cpu_milli", None))


def _claim(row: Mapping[str, str], line: int) -> TracedClaim:
    gpus = _number(row, "num_gpu", 0, MOST_GPUS) or 0
    # openb writes 0 for claims without GPUs, and nothing where claims are of whole ones.
    milli = _number(row, "gpu_milli", WHOLE_MILLI, WHOLE_MILLI) or WHOLE_MILLI
    if gpus > 1 and milli < WHOLE_MILLI:
        raise _BadCell("gpu_milli: a part is of one GPU alone")
    mib = _number(row, "gpu_mib", None)
    ran = _number(row, "duration", None)
    return TracedClaim(Claim(
        id=f"{row.get('name') or 'claim'}-{line}", owner=row.get("user") or "somebody", gpus=gpus,
        submitted_at=float(_number(row, "creation_time", 0) or 0), share_milli=milli,
        mem_bytes=None if mib is None else mib * 2**20,
        cpu_milli=_number(row, "cpu_milli", None),
        models=tuple(filter(None, row.get("gpu_spec", "").split("|"))),
        term_s=DEFAULT_TERM_S if ran is None else float(ran),
        priority=DEFAULT_PRIORITY - (row.get("qos") == "BE"), is_preemptible=row.get("qos") == "BE",
    ), None if ran is None else float(ran))


def _number(row: Mapping[str, str], name: str, default: int | None, most: int = 2**53
            ) -> int | None:
    text = row.get(name, "")
    if not text:
        return default
    try:
        number = int(float(text))
    except (ValueError, OverflowError):
        number = -1
    if not 0 <= number <= most:
        raise _BadCell(f"{name}: {text[:40]!r} is not a number from 0 to {most}")
    return number
