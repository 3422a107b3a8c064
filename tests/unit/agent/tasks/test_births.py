"""The descendants of a process, however often pids are reused."""

import random

from agent.tasks.births import MOST, Lineage


def test_no_stranger_is_ever_in_the_line_and_no_living_child_is_missing() -> None:
    """Twelve numbers for all processes of a machine, so that each is used again at once."""
    line, mine = Lineage(), {1: True, 2: False}  # living pid -> is it below 1
    line.follow((1,))
    followed, births, reused = True, 0, 0
    for moment in range(20_000):
        parent = random.choice(list(mine))
        free = sorted(set(range(1, 13)) - mine.keys())
        if free and random.random() < 0.55:
            child = random.choice(free)
            reused += child in line.born()
            line.add(parent, child, float(moment))
            mine[child] = mine[parent]
            followed &= child != 1
        elif len(mine) > 1:
            del mine[parent]
        descendants = line.born()
        assert all(mine[pid] for pid in descendants if pid in mine)
        assert {pid for pid, its in mine.items() if its} <= descendants.keys() | {1}
        births += len(descendants)
        if len({*mine.values()}) == 1:  # all of one kind are gone: anew
            line, mine = Lineage(), {1: True, 2: False}
            line.follow((1,))
    assert (births > 1_000, reused > 100, followed) == (True, True, False)


def test_each_is_there_with_when_it_was_born_last() -> None:
    line = Lineage()
    line.follow((7,))
    line.add(7, 8, 1.0)
    line.add(8, 9, 2.0)
    line.add(3, 8, 3.0)  # 8 is somebody else's now; what it bore before stays
    assert line.born() == {9: 2.0}
    line.add(9, 8, 4.0)
    assert line.born() == {9: 2.0, 8: 4.0}


def test_who_forks_without_end_is_nobodys_line() -> None:
    line = Lineage()
    line.follow((1,))
    for pid in range(2, MOST + 3):
        line.add(1, pid, 0.0)
    assert not line.is_known
    assert line.born() == {}
