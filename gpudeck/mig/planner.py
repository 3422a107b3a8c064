"""Plans from the layout of a board to a wished one: what is destroyed and created where. Pure.

Drivers place an instance at the first start that is free, and then some sets do not fit in any
order, or only in one: 2g+2g+3g fails with the largest first. So every placement is chosen here,
before anything is touched, by trying all of them: there are 2,318 layouts of a board of eight
slices.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpudeck.mig.boards import MigProfile

Layout = tuple[tuple[int, int], ...]  # profile id and start, sorted


@dataclass(frozen=True, slots=True)
class MigPlan:
    """Steps of a change, in this order: what is in the way goes first. Instances to keep are not
    touched."""

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
    """Reason, for people, that a wish cannot be met."""


def plan(profiles: Sequence[MigProfile], present: Iterable[tuple[int, int]],
         wish: Mapping[int, int], busy: Iterable[tuple[int, int]] = ()) -> MigPlan:
    """Choose the layout that keeps most of the present instances. `wish`: how many of each profile,
    and nothing else. `busy`: those of the present instances that are in use: they stay where they
    are. Raises NoLayoutError."""
    existing, in_use = {*present}, {*busy}
    counts = Counter({profile_id: count for profile_id, count in wish.items() if count})
    _check(profiles, counts)
    best: tuple[int, Layout] | None = None
    for layout in _layouts(profiles, counts):
        if not in_use <= {*layout}:
            continue
        kept_count = len(existing & {*layout})
        if best is None or (-kept_count, layout) < (-best[0], best[1]):
            best = kept_count, layout
    if best is None:
        raise NoLayoutError(_why(profiles, counts, in_use))
    keep = existing & {*best[1]}
    return MigPlan(tuple(sorted(existing - keep)), tuple(sorted({*best[1]} - keep)),
                   tuple(sorted(keep)))


def all_layouts(profiles: Sequence[MigProfile]) -> Iterator[Layout]:
    """Yield every layout, the empty one too."""
    places = [(profile, start) for profile in profiles for start in profile.starts]
    yield from _fill(profiles, places, 0, ())


def sets(layouts: Iterable[Layout]) -> set[tuple[int, ...]]:
    """Return the sets of profiles of these layouts, wherever the instances are."""
    return {tuple(sorted(profile for profile, _ in layout)) for layout in layouts}


def _fill(profiles: Sequence[MigProfile], places: Sequence[tuple[MigProfile, int]], occupied: int,
          layout: Layout) -> Iterator[Layout]:
    yield tuple(sorted(layout))
    counts = Counter(profile for profile, _ in layout)
    for at, (profile, start) in enumerate(places):
        mask = ((1 << profile.size) - 1) << start
        if not occupied & mask and counts[profile.id] < profile.most:
            yield from _fill(profiles, places[at + 1:], occupied | mask,
                             (*layout, (profile.id, start)))


def _layouts(profiles: Sequence[MigProfile], counts: Counter[int]) -> Iterator[Layout]:
    todo = [profile for profile in profiles for _ in range(counts[profile.id])]
    yield from _place_all(todo, 0, ())


def _place_all(todo: Sequence[MigProfile], occupied: int, layout: Layout) -> Iterator[Layout]:
    if not todo:
        yield tuple(sorted(layout))
        return
    profile, *rest = todo
    # Instances of one profile are interchangeable, so each next one starts later.
    after = layout[-1][1] if layout and layout[-1][0] == profile.id else -1
    for start in profile.starts:
        mask = ((1 << profile.size) - 1) << start
        if start > after and not occupied & mask:
            yield from _place_all(rest, occupied | mask, (*layout, (profile.id, start)))


def _check(profiles: Sequence[MigProfile], counts: Counter[int]) -> None:
    profile_of = {profile.id: profile for profile in profiles}
    for profile_id, count in counts.items():
        profile = profile_of.get(profile_id)
        if profile is None:
            raise NoLayoutError(f"this board has no profile {profile_id}")
        if count > profile.most:
            raise NoLayoutError(f"{count}x {profile.name}: this board has room for {profile.most}")


def _why(profiles: Sequence[MigProfile], counts: Counter[int], in_use: set[tuple[int, int]]) -> str:
    names = {profile.id: profile.name for profile in profiles}
    words = " + ".join(f"{count}x {names[key]}" for key, count in sorted(counts.items()))
    beside = sorted({*in_use} - {(key, start) for key, start in in_use if key in counts})
    if in_use and next(_layouts(profiles, counts), None) is not None:
        listed = ", ".join(f"{names.get(key, key)} at {start}" for key, start in
                           (beside or sorted(in_use)))
        return f"{words} does not fit around instances in use ({listed}); wait until these are free"
    return f"{words} does not fit on this board in any placement"
