"""From what a board is split into to what is wished: what is destroyed and created where. Pure.

Drivers place an instance at the first start that is free, and then some sets do not fit in any
order, or only in one: 2g+2g+3g fails with the largest first. So every placement is chosen here,
before anything is touched, by looking at all of them: there are 2,318 layouts of a board of eight
slices.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpudeck.mig.boards import MigProfile

Layout = tuple[tuple[int, int], ...]  # profile id and start, sorted


@dataclass(frozen=True, slots=True)
class MigPlan:
    """In this order: what is in the way first. What is kept is not touched."""

    destroy: Layout
    create: Layout
    keep: Layout

    @property
    def layout(self) -> Layout:
        return tuple(sorted((*self.keep, *self.create)))

    @property
    def is_nothing(self) -> bool:
        return not self.destroy and not self.create


class NoLayoutError(ValueError):
    """Why the wish cannot be had, for people."""


def plan(profiles: Sequence[MigProfile], present: Iterable[tuple[int, int]],
         wish: Mapping[int, int], busy: Iterable[tuple[int, int]] = ()) -> MigPlan:
    """`wish`: how many of each profile, and nothing else. `busy`: of the present instances those
    that somebody uses: they stay where they are. Of all layouts the one that keeps most of what is
    there. Raises NoLayoutError."""
    there, used = {*present}, {*busy}
    wanted = Counter({each: count for each, count in wish.items() if count})
    _check(profiles, wanted)
    best: tuple[int, Layout] | None = None
    for layout in _layouts(profiles, wanted):
        if not used <= {*layout}:
            continue
        kept = len(there & {*layout})
        if best is None or (-kept, layout) < (-best[0], best[1]):
            best = kept, layout
    if best is None:
        raise NoLayoutError(_why(profiles, wanted, used))
    keep = there & {*best[1]}
    return MigPlan(tuple(sorted(there - keep)), tuple(sorted({*best[1]} - keep)),
                   tuple(sorted(keep)))


def all_layouts(profiles: Sequence[MigProfile]) -> Iterator[Layout]:
    """Every one, the empty one too."""
    yield from _fill(profiles, [(each, start) for each in profiles for start in each.starts], 0, ())


def sets(layouts: Iterable[Layout]) -> set[tuple[int, ...]]:
    """Which profiles, wherever they are."""
    return {tuple(sorted(profile for profile, _ in layout)) for layout in layouts}


def _fill(profiles: Sequence[MigProfile], places: Sequence[tuple[MigProfile, int]], taken: int,
          layout: Layout) -> Iterator[Layout]:
    yield tuple(sorted(layout))
    counts = Counter(profile for profile, _ in layout)
    for at, (profile, start) in enumerate(places):
        mask = ((1 << profile.size) - 1) << start
        if not taken & mask and counts[profile.id] < profile.most:
            yield from _fill(profiles, places[at + 1:], taken | mask,
                             (*layout, (profile.id, start)))


def _layouts(profiles: Sequence[MigProfile], wanted: Counter[int]) -> Iterator[Layout]:
    todo = [profile for profile in profiles for _ in range(wanted[profile.id])]
    yield from _placed(todo, 0, ())


def _placed(todo: Sequence[MigProfile], taken: int, layout: Layout) -> Iterator[Layout]:
    if not todo:
        yield tuple(sorted(layout))
        return
    profile, *rest = todo
    # Of one profile's instances none is told apart from another: each next one starts later.
    after = layout[-1][1] if layout and layout[-1][0] == profile.id else -1
    for start in profile.starts:
        mask = ((1 << profile.size) - 1) << start
        if start > after and not taken & mask:
            yield from _placed(rest, taken | mask, (*layout, (profile.id, start)))


def _check(profiles: Sequence[MigProfile], wanted: Counter[int]) -> None:
    known = {each.id: each for each in profiles}
    for profile_id, count in wanted.items():
        profile = known.get(profile_id)
        if profile is None:
            raise NoLayoutError(f"this board has no profile {profile_id}")
        if count > profile.most:
            raise NoLayoutError(f"{count}x {profile.name}: this board has room for {profile.most}")


def _why(profiles: Sequence[MigProfile], wanted: Counter[int], used: set[tuple[int, int]]) -> str:
    names = {each.id: each.name for each in profiles}
    words = " + ".join(f"{count}x {names[each]}" for each, count in sorted(wanted.items()))
    beside = sorted({*used} - {(each, start) for each, start in used if each in wanted})
    if used and next(_layouts(profiles, wanted), None) is not None:
        kept = ", ".join(f"{names.get(each, each)} at {start}" for each, start in
                         (beside or sorted(used)))
        return f"{words} does not fit around instances in use ({kept}); wait until these are free"
    return f"{words} does not fit on this board in any placement"
