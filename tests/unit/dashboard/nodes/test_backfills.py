"""Turns among many nodes that bring messages of a time without the hub."""

import gevent
import pytest

from dashboard.nodes.backfills import MAX_BYTES, PER_LINK, SLICE, BackfillQueue
from gpudeck.contract.wire import Backfill


class QueueScene:
    def __init__(self, is_open: bool = True) -> None:
        self.slices: list[tuple[str, int]] = []
        self.is_open = is_open
        self.queue = BackfillQueue(
            lambda link, part: self.slices.append((link, len(part.messages))),
            lambda: self.is_open)

    def put(self, link: str, count: int, size: int = 1) -> bool:
        return self.queue.put(link, Backfill((b"x",) * count), size)


def test_each_in_turn_by_slices() -> None:
    scene = QueueScene()
    scene.put("a", 2 * SLICE + 1)
    scene.put("b", 5)
    while scene.queue.take_slice():
        pass
    assert scene.slices == [("a", SLICE), ("b", 5), ("a", SLICE), ("a", 1)]


def test_one_that_does_not_wait_for_acks_is_refused_and_another_is_not() -> None:
    scene = QueueScene()
    assert [scene.put("a", 1) for _ in range(PER_LINK + 1)] == [True] * PER_LINK + [False]
    assert scene.put("b", 1)
    scene.queue.take_slice()
    assert scene.put("a", 1)


def test_who_left_is_not_taken_in_and_leaves_no_bytes() -> None:
    scene = QueueScene()
    scene.put("a", 1, MAX_BYTES)
    scene.put("b", 1)
    assert scene.queue.is_full
    scene.queue.drop_link("a")
    assert not scene.queue.is_full
    while scene.queue.take_slice():
        pass
    assert scene.slices == [("b", 1)]


@pytest.mark.parametrize("is_open", [True, False])
def test_nothing_while_the_disk_refuses(is_open: bool) -> None:
    scene = QueueScene(is_open)
    scene.put("a", 1)
    running = gevent.spawn(scene.queue.step, 0.0, 0.0)
    gevent.sleep(0.05)
    running.kill()
    assert bool(scene.slices) == is_open
