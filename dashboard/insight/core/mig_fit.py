"""Small jobs of several owners that would fit one board split by MIG, from measurements of whole
boards. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from gpudeck.mig.boards import BOARDS, MigProfile, board_of
from gpudeck.mig.planner import all_layouts, sets
from gpudeck.mig.wishes import wish_words

from .sharing import LoadProfile, choose, mig_profile
from .week import MeasuredWeek


@dataclass(frozen=True, slots=True)
class MigFit:
    """Jobs that fit. `gpus`: indices; the work of all of them fits the first, split by `layout`."""

    gpus: tuple[int, ...]
    layout: str


def mig_fits(week: MeasuredWeek, profiles: Sequence[LoadProfile | None], excluded: set[int]
             ) -> Iterator[MigFit]:
    """Yield the fits, the largest jobs first, each into the first board with room. `excluded`: GPUs
    of other advice. One owner's jobs share a board without MIG."""
    for board, slices in _candidates(week, profiles, excluded).items():
        sizes = sorted((-profile.size, -profile.slices, at) for at, profile in slices.items())
        remaining = [at for _, _, at in sizes]
        while remaining:
            mine = _filled(board[2], remaining, slices)
            remaining = [at for at in remaining if at not in mine]
            if len({week.gpus[at].owner for at in mine}) > 1:
                wish = Counter(slices[at].id for at in mine)
                yield MigFit(tuple(mine), wish_words(wish, BOARDS[board[2]]))


def _candidates(week: MeasuredWeek, profiles: Sequence[LoadProfile | None], excluded: set[int]
                ) -> Mapping[tuple[str, str, str], dict[int, MigProfile]]:
    """Return, by node, model and kind of board, the instance that the work of each GPU fits."""
    by_board: dict[tuple[str, str, str], dict[int, MigProfile]] = {}
    for at, gpu in enumerate(week.gpus):
        load = profiles[at]
        if load is None or gpu.is_mig or gpu.owner is None or at in excluded or not gpu.mem_bytes:
            continue
        board = board_of(gpu.model, gpu.mem_bytes)
        if board is None or choose(load, gpu.model, gpu.mem_bytes, True).method != "mig":
            continue
        instance = mig_profile(load, gpu.mem_bytes, BOARDS[board])
        if instance is not None:
            by_board.setdefault((gpu.node, gpu.model, board), {})[at] = instance
    return by_board


def _filled(board: str, candidates: Sequence[int], slices: Mapping[int, MigProfile]) -> list[int]:
    mine: list[int] = []
    for at in candidates:
        wish = tuple(sorted(slices[index].id for index in (*mine, at)))
        if wish in _sets(board):
            mine.append(at)
    return mine


@cache
def _sets(board: str) -> set[tuple[int, ...]]:
    return sets(all_layouts(BOARDS[board]))
