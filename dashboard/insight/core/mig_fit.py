"""Small jobs of several owners that would fit one board, split by MIG: measured of whole boards.
Pure."""

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
    """`gpus`: indices; the work of all of them fits the first, split like this."""

    gpus: tuple[int, ...]
    layout: str


def mig_fits(week: MeasuredWeek, profiles: Sequence[LoadProfile | None], taken: set[int]
             ) -> Iterator[MigFit]:
    """The largest first, each into the first board with room. `taken`: what other advice is
    about. One owner's jobs share a board without MIG."""
    for board, slices in _candidates(week, profiles, taken).items():
        sizes = sorted((-each.size, -each.slices, at) for at, each in slices.items())
        left = [at for _, _, at in sizes]
        while left:
            mine = _filled(board[2], left, slices)
            left = [at for at in left if at not in mine]
            if len({week.gpus[at].owner for at in mine}) > 1:
                wish = Counter(slices[at].id for at in mine)
                yield MigFit(tuple(mine), wish_words(wish, BOARDS[board[2]]))


def _candidates(week: MeasuredWeek, profiles: Sequence[LoadProfile | None], taken: set[int]
                ) -> Mapping[tuple[str, str, str], dict[int, MigProfile]]:
    """By node, model and kind of board; of each GPU the instance that it fits."""
    found: dict[tuple[str, str, str], dict[int, MigProfile]] = {}
    for at, gpu in enumerate(week.gpus):
        load = profiles[at]
        if load is None or gpu.is_mig or gpu.owner is None or at in taken or not gpu.mem_bytes:
            continue
        board = board_of(gpu.model, gpu.mem_bytes)
        if board is None or choose(load, gpu.model, gpu.mem_bytes, True).method != "mig":
            continue
        instance = mig_profile(load, gpu.mem_bytes, BOARDS[board])
        if instance is not None:
            found.setdefault((gpu.node, gpu.model, board), {})[at] = instance
    return found


def _filled(board: str, left: Sequence[int], slices: Mapping[int, MigProfile]) -> list[int]:
    mine: list[int] = []
    for at in left:
        wish = tuple(sorted(slices[each].id for each in (*mine, at)))
        if wish in _sets(board):
            mine.append(at)
    return mine


@cache
def _sets(board: str) -> set[tuple[int, ...]]:
    return sets(all_layouts(BOARDS[board]))
