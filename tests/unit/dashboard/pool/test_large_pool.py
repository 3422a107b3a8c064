"""What the hub keeps of leases that have ended."""

import random

from gpudeck.pool.core.claims import Claim
from gpudeck.pool.core.inventory import FreeGpu, Node, node_of
from gpudeck.pool.link import ReportedEnd
from tests.unit.dashboard.pool.large_pool import LargePool

NOW = 1_000.0


def an_end(number: int) -> ReportedEnd:
    claim = Claim(id=f"l{number}", owner="ann", gpus=1, submitted_at=0.0)
    return ReportedEnd(claim, ("G0-0",), 1.0, 2.0 + number / 10, "released")


def a_node(number: int) -> Node:
    return node_of(f"id{number}", f"n{number}", [
        (f"G{number}-{index}", FreeGpu("H100", False, None, None, None)) for index in range(8)])


def test_leases_that_ended_are_kept_one_by_one_only_for_a_while() -> None:
    pool = LargePool([a_node(0)], (), (), NOW, random.Random(1))
    ended = pool.service.ended
    for number in range(5_000):
        ended.add("id0", an_end(number))
    assert not pool.service.store.add_ended("id0", an_end(0))
    assert len(ended.recent) == 4_096
    assert ended.recent[-1].id == "l4999"
    assert ended.had is not None
    was = ended.had.usage(NOW).owners["ann"]
    ended.add("id0", an_end(4_999))  # said again
    assert ended.had.usage(NOW).owners["ann"] == was
    ended.open(pool.service.policy.fair_share, NOW)  # as after a restart
    assert abs(ended.had.usage(NOW).owners["ann"] - was) < 1e-6 * was
    assert [each.id for each in ended.recent][-1] == "l4999"
    pool.close()
