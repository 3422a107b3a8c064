"""Who uses the pool of a demo, on which of its nodes, and for what. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

EIGHTHS = 8  # in which parts of a node are counted


@dataclass(frozen=True, slots=True)
class PoolRun:
    """`kind`: of the simulated load. `waits`: it asks for more than is free when it begins."""

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


# Of the nodes in turn; then who finds them taken.
HOLD = ((_Wish(2, "alice", "8h", "train.py", "train"),
         _Wish(1, "kavya", "45m", "eval.py", "finetune")),
        (_Wish(4, "emeka", "3h", "finetune.py", "finetune"),
         _Wish(1, "svc-inference", "12h", "serve.py", "serve")))
WAIT = (_Wish(8, "chen.wei", "4h", "pretrain.py", "train"),
        _Wish(6, "jonas", "1h", "sweep.py", "finetune"))
FORGETFUL, RESERVES = "bohdan", "giulia"
RESERVED_EIGHTHS = 4


def runs(boards: Mapping[str, int]) -> Iterator[PoolRun]:
    """`boards`: whole ones of each node that the pool may give out. One is left free where there
    are more than two, for those who forget theirs; where there is none somebody waits for one."""
    for (node, count), wishes, wish in zip(sorted(boards.items()), HOLD, WAIT, strict=False):
        left = max(count - (count > 2), min(count, 1))
        for each in wishes:
            gpus = min(left, _part(count, each.eighths))
            left -= gpus
            if gpus:
                yield _run(node, gpus, each, waits=False)
        yield _run(node, _part(count, wish.eighths), wish, waits=True)


def reserved(boards: Mapping[str, int]) -> tuple[str, int]:
    """Node and number of what is kept for tonight, beside what runs that long; 0: there is no room
    for that."""
    node, count = min(boards.items(), default=("", 0))
    held = sum(each.gpus for each in runs({node: count}) if not each.waits)
    return node, min(_part(count, RESERVED_EIGHTHS), count - held)


def _part(count: int, eighths: int) -> int:
    return max(1, count * eighths // EIGHTHS)


def _run(node: str, gpus: int, wish: _Wish, waits: bool) -> PoolRun:
    return PoolRun(node, gpus, wish.user, wish.span, wish.script, wish.kind, waits)


def boards_of(nodes: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """`nodes`: as `GET pool/nodes` lists them. What others work on is not counted."""
    return {each["host"]: sum(not gpu["is_mig"] and not gpu["trouble"] for gpu in each["gpus"])
            for each in nodes}
