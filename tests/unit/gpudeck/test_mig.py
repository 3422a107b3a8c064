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
    return [each for each in H100 if each.id not in ids]


def counted(layout: Layout) -> Counter[int]:
    return Counter(profile for profile, _ in layout)


def fits(layout: Layout) -> bool:
    """By another way than the planner's: slice by slice."""
    of = {each.id: each for each in H100}
    slices = [start + at for profile, start in layout for at in range(of[profile].size)]
    return (len({*slices}) == len(slices) and all(0 <= each < 8 for each in slices)
            and all(start in of[profile].starts for profile, start in layout)
            and all(count <= of[each].most for each, count in counted(layout).items())
            and sum(of[profile].slices for profile, _ in layout) <= 7)


@pytest.mark.parametrize(("profiles", "layouts", "different"), [
    (without(15, 20), 297, 37), (without(20), 722, 77), (H100, 2_318, 127),
    (BOARDS["a30"], 25, 9)])
def test_there_are_as_many_layouts_as_were_counted(profiles: list[MigProfile], layouts: int,
                                                   different: int) -> None:
    found = [each for each in all_layouts(profiles) if each]
    assert (len(found), len({*found}), len(sets(found))) == (layouts, layouts, different)


def test_every_layout_is_planned_from_any_other() -> None:
    for target in EVERY:
        start = random.choice(EVERY)
        made = plan(H100, start, counted(target))
        assert fits(made.layout)
        assert counted(made.layout) == counted(target), (start, target)
        check_steps(start, made)


def check_steps(start: Layout, made: MigPlan) -> None:
    """What is destroyed was there, what is kept is not touched, and each step leaves a layout."""
    assert {*made.keep} | {*made.destroy} == {*start}
    assert not {*made.keep} & {*made.destroy}
    now = {*start}
    for each in made.destroy:
        now.remove(each)
        assert fits(tuple(now))
    for each in made.create:
        now.add(each)
        assert fits(tuple(now))
    assert tuple(sorted(now)) == made.layout


def test_what_is_there_already_is_left_alone() -> None:
    for layout in random.sample(EVERY, 200):
        assert plan(H100, layout, counted(layout)).is_nothing


@pytest.mark.parametrize("wish", [
    Counter({14: 2, 9: 1}), Counter({19: 2, 14: 1, 9: 1}), Counter({19: 4, 9: 1})])
def test_what_largest_first_fails_at_succeeds(wish: Counter[int]) -> None:
    assert counted(plan(H100, (), wish).layout) == wish
    assert len(greedy(wish)) < sum(wish.values()), "else this would prove nothing"


def greedy(wish: Counter[int]) -> list[tuple[int, int]]:
    """The control: largest first at the lowest start that is free, as a driver places."""
    taken, placed = 0, []
    for profile in H100:
        for _ in range(wish[profile.id]):
            for start in profile.starts:
                mask = ((1 << profile.size) - 1) << start
                if not taken & mask:
                    taken |= mask
                    placed.append((profile.id, start))
                    break
    return placed


def test_what_is_in_use_stays_where_it_is() -> None:
    made = plan(H100, [(9, 0), (19, 4)], Counter({9: 1, 14: 1}), busy=[(9, 0)])
    assert (9, 0) in made.keep
    assert made.destroy == ((19, 4),) or (19, 4) not in made.keep
    for layout in random.sample(EVERY, 60):
        busy = [each for each in layout if random.random() < 0.5]
        target = random.choice(EVERY)
        try:
            made = plan(H100, layout, counted(target), busy)
        except NoLayoutError:
            continue
        assert {*busy} <= {*made.keep}


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
    found = parse_wish(text, H100)
    assert found == wish
    assert parse_wish(wish_words(found, H100), H100) == wish


@pytest.mark.parametrize("text", ["", "3g", "2x", "3g.60gb", "-1x 3g.40gb", "3g.40gb 1g.10gb", "+"])
def test_what_is_no_wish_is_refused(text: str) -> None:
    with pytest.raises(WishError):
        parse_wish(text, H100)


def test_mig_parted_is_read_and_written() -> None:
    wish = counted(random.choice([each for each in EVERY if each]))
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
