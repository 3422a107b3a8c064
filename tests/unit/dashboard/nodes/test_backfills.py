"""Whose turn it is when many bring what happened without us."""

import gevent
import pytest

from dashboard.nodes.backfills import MAX_BYTES, PER_LINK, SLICE, BackfillQueue
from gpudeck.wire import Backfill


class Taken:
    def __init__(self, is_open: bool = True) -> None:
        self.slices: list[tuple[str, int]] = []
        self.is_open = is_open
        self.all = BackfillQueue(lambda link, part: self.slices.append((link, len(part.messages))),
                                 lambda: self.is_open)

    def put(self, link: str, count: int, size: int = 1) -> bool:
        return self.all.put(link, Backfill((b"x",) * count), size)


def test_each_in_turn_by_slices() -> None:
    taken = Taken()
    taken.put("a", 2 * SLICE + 1)
    taken.put("b", 5)
    while taken.all.take_slice():
        pass
    assert taken.slices == [("a", SLICE), ("b", 5), ("a", SLICE), ("a", 1)]


def test_one_that_does_not_wait_for_acks_is_refused_and_another_is_not() -> None:
    taken = Taken()
    assert [taken.put("a", 1) for _ in range(PER_LINK + 1)] == [True] * PER_LINK + [False]
    assert taken.put("b", 1)
    taken.all.take_slice()
    assert taken.put("a", 1)


def test_who_left_is_not_taken_in_and_leaves_no_bytes() -> None:
    taken = Taken()
    taken.put("a", 1, MAX_BYTES)
    taken.put("b", 1)
    assert taken.all.is_full
    taken.all.drop_link("a")
    assert not taken.all.is_full
    while taken.all.take_slice():
        pass
    assert taken.slices == [("b", 1)]


@pytest.mark.parametrize("is_open", [True, False])
def test_nothing_while_the_disk_refuses(is_open: bool) -> None:
    taken = Taken(is_open)
    taken.put("a", 1)
    running = gevent.spawn(taken.all.step, 0.0, 0.0)
    gevent.sleep(0.05)
    running.kill()
    assert bool(taken.slices) == is_open
