"""Layouts of MIG: every one of the eight-slice boards is planned, from any other; wishes as people
and mig-parted write them."""

import random
from collections import Counter

import pytest

from gpudeck.mig.boards import BOARDS, MigProfile
from gpudeck.mig.planner import Layout, MigPlan, NoLayoutError, all_layouts, plan, sets
from gpudeck.mig.wishes import (
    WishError,
    from_mig_parted,
    parse_wish,
    to_mig_parted,
    wish_words,
)

H100 = BOARDS["h100-80"]
EVERY = [*all_layouts(H100)]


def without(*ids: int) -> list[MigProfile]:
    return [profile for profile in H100 if profile.id not in ids]


def tally(layout: Layout) -> Counter[int]:
    return Counter(profile for profile, _ in layout)


def fits(layout: Layout) -> bool:
    """Check a layout by another way than the planner's: slice by slice."""
    by_id = {profile.id: profile for profile in H100}
    slices = [start + at for profile, start in layout for at in range(by_id[profile].size)]
    return (len({*slices}) == len(slices) and all(0 <= slot < 8 for slot in slices)
            and all(start in by_id[profile].starts for profile, start in layout)
            and all(count <= by_id[profile].most for profile, count in tally(layout).items())
            and sum(by_id[profile].slices for profile, _ in layout) <= 7)


@pytest.mark.parametrize(("profiles", "layouts", "different"), [
    (without(15, 20), 297, 37), (without(20), 722, 77), (H100, 2_318, 127),
    (BOARDS["a30"], 25, 9)])
def test_there_are_as_many_layouts_as_were_counted(profiles: list[MigProfile], layouts: int,
                                                   different: int) -> None:
    listed = [layout for layout in all_layouts(profiles) if layout]
    assert (len(listed), len({*listed}), len(sets(listed))) == (layouts, layouts, different)


def test_every_layout_is_planned_from_any_other() -> None:
    for target in EVERY:
        start = random.choice(EVERY)
        a_plan = plan(H100, start, tally(target))
        assert fits(a_plan.layout)
        assert tally(a_plan.layout) == tally(target), (start, target)
        check_steps(start, a_plan)


def check_steps(start: Layout, a_plan: MigPlan) -> None:
    """Check that destroyed instances existed, kept ones stay, and each step leaves a layout."""
    assert {*a_plan.keep} | {*a_plan.destroy} == {*start}
    assert not {*a_plan.keep} & {*a_plan.destroy}
    now = {*start}
    for instance in a_plan.destroy:
        now.remove(instance)
        assert fits(tuple(now))
    for instance in a_plan.create:
        now.add(instance)
        assert fits(tuple(now))
    assert tuple(sorted(now)) == a_plan.layout


def test_what_is_there_already_is_left_alone() -> None:
    for layout in random.sample(EVERY, 200):
        assert plan(H100, layout, tally(layout)).is_nothing


@pytest.mark.parametrize("wish", [
    Counter({14: 2, 9: 1}), Counter({19: 2, 14: 1, 9: 1}), Counter({19: 4, 9: 1})])
def test_what_largest_first_fails_at_succeeds(wish: Counter[int]) -> None:
    assert tally(plan(H100, (), wish).layout) == wish
    assert len(greedy(wish)) < sum(wish.values()), "else this would prove nothing"


def greedy(wish: Counter[int]) -> list[tuple[int, int]]:
    """The control: largest first at the lowest start that is free, as a driver places."""
    occupied, placements = 0, []
    for profile in H100:
        for _ in range(wish[profile.id]):
            for start in profile.starts:
                mask = ((1 << profile.size) - 1) << start
                if not occupied & mask:
                    occupied |= mask
                    placements.append((profile.id, start))
                    break
    return placements


def test_what_is_in_use_stays_where_it_is() -> None:
    a_plan = plan(H100, [(9, 0), (19, 4)], Counter({9: 1, 14: 1}), busy=[(9, 0)])
    assert (9, 0) in a_plan.keep
    assert a_plan.destroy == ((19, 4),) or (19, 4) not in a_plan.keep
    for layout in random.sample(EVERY, 60):
        busy = [instance for instance in layout if random.random() < 0.5]
        target = random.choice(EVERY)
        try:
            a_plan = plan(H100, layout, tally(target), busy)
        except NoLayoutError:
            continue
        assert {*busy} <= {*a_plan.keep}


@pytest.mark.parametrize(("wish", "busy", "why"), [
    ({0: 1, 19: 1}, (), "in any placement"), ({5: 2}, (), "room for 1"),
    ({99: 1}, (), "no profile"),
    ({9: 2}, [(19, 1)], "in use"), ({0: 1}, [(19, 0)], "in use")])
def test_what_cannot_be_is_said(wish: dict[int, int], busy: list[tuple[int, int]], why: str
                                ) -> None:
    with pytest.raises(NoLayoutError, match=why):
        plan(H100, busy, wish, busy)


@pytest.mark.parametrize(("text", "wish"), [
    ("2x 3g.40gb + 1x 1g.10gb", {9: 2, 19: 1}), ("3g.40gb", {9: 1}), ("none", {}),
    ("2 3g.40gb, 1g.10gb+me", {9: 2, 20: 1}), ("1g.10gb + 1g.10gb", {19: 2}),
    ("2x1g.20gb", {15: 2})])
def test_a_wish_is_read(text: str, wish: dict[int, int]) -> None:
    parsed = parse_wish(text, H100)
    assert parsed == wish
    assert parse_wish(wish_words(parsed, H100), H100) == wish


@pytest.mark.parametrize("text", ["", "3g", "2x", "3g.60gb", "-1x 3g.40gb", "3g.40gb 1g.10gb", "+"])
def test_what_is_no_wish_is_refused(text: str) -> None:
    with pytest.raises(WishError):
        parse_wish(text, H100)


def test_mig_parted_is_read_and_written() -> None:
    wish = tally(random.choice([layout for layout in EVERY if layout]))
    document = to_mig_parted("mine", 3, wish, H100)
    assert from_mig_parted(document, "mine", 3, H100) == wish
    everywhere = {"version": "v1", "mig-configs": {"all": [
        {"devices": "all", "mig-enabled": True, "mig-devices": {"1g.10gb": 7}}],
        "off": [{"devices": [1], "mig-enabled": False}]}}
    assert from_mig_parted(everywhere, "all", 5, H100) == {19: 7}
    assert from_mig_parted(everywhere, "off", 1, H100) == {}
    nine = {"version": "v1", "mig-configs": {"x": [
        {"devices": "all", "mig-enabled": True, "mig-devices": {"9g.1gb": 1}}]}}
    bad: list[tuple[object, str]] = [
        (everywhere, "none"), (everywhere, "off"), ({}, "x"), ([], "x"), (nine, "x")]
    for wrong, name in bad:
        with pytest.raises(WishError):
            from_mig_parted(wrong, name, 0, H100)
