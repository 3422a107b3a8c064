"""Plan of a demo's pool: its users, their nodes and their runs. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

EIGHTHS = 8  # parts of a node are counted in eighths


@dataclass(frozen=True, slots=True)
class PoolRun:
    """A `gpudeck run` of a user. `kind`: of the simulated load. `waits`: it requests more than is
    free when it begins."""

    node: str
    gpus: int
    user: str
    span: str
    script: str
    kind: str
    waits: bool = False


@dataclass(frozen=True, slots=True)
class _Wish:
    eighths: int  # of a node
    user: str
    span: str
    script: str
    kind: str


# Runs on each node in turn; then those that find it full and wait.
HOLD = ((_Wish(2, "alice", "8h", "train.py", "train"),
         _Wish(1, "kavya", "45m", "eval.py", "finetune")),
        (_Wish(4, "emeka", "3h", "finetune.py", "finetune"),
         _Wish(1, "svc-inference", "12h", "serve.py", "serve")))
WAIT = (_Wish(8, "chen.wei", "4h", "pretrain.py", "train"),
        _Wish(6, "jonas", "1h", "sweep.py", "finetune"))
FORGETFUL, RESERVES = "bohdan", "giulia"
RESERVED_EIGHTHS = 4


def runs(boards: Mapping[str, int]) -> Iterator[PoolRun]:
    """Yield the runs. `boards`: number of whole boards per node that the pool may lease. One is
    left free where there are more than two, for the forgetful user; where there is none, somebody
    waits for one."""
    for (node, count), wishes, waiter in zip(sorted(boards.items()), HOLD, WAIT, strict=False):
        free = max(count - (count > 2), min(count, 1))
        for holder in wishes:
            gpus = min(free, _part(count, holder.eighths))
            free -= gpus
            if gpus:
                yield _run(node, gpus, holder, waits=False)
        yield _run(node, _part(count, waiter.eighths), waiter, waits=True)


def reservation(boards: Mapping[str, int]) -> tuple[str, int]:
    """Return node and number of boards reserved for tonight, next to the runs that last until then;
    0: there is no room."""
    node, count = min(boards.items(), default=("", 0))
    busy = sum(run.gpus for run in runs({node: count}) if not run.waits)
    return node, min(_part(count, RESERVED_EIGHTHS), count - busy)


def _part(count: int, eighths: int) -> int:
    return max(1, count * eighths // EIGHTHS)


def _run(node: str, gpus: int, wish: _Wish, waits: bool) -> PoolRun:
    return PoolRun(node, gpus, wish.user, wish.span, wish.script, wish.kind, waits)


def boards_of(nodes: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return the number of usable boards per host. `nodes`: as `GET pool/nodes` lists them. Boards
    that others use are not counted."""
    return {node["host"]: sum(not gpu["is_mig"] and not gpu["trouble"] for gpu in node["gpus"])
            for node in nodes}
