"""Who makes room for a claim of higher priority: as few as can be, or nobody."""

from dataclasses import replace

from gpudeck.pool.core.claims import Grant, Lease
from gpudeck.pool.core.preemption import overdue, preemption
from tests.unit.gpudeck.pool.inventories import claim, node

NOW = 10_000.0
LEAST_RUN_S = 900.0


def lease(name: str, *places: int, on: int = 0, priority: int = 1, since: float = 0.0,
          preemptible: bool = True) -> Lease:
    return Lease(id=name, claim=claim(0, gpus=len(places), priority=priority,
                                      is_preemptible=preemptible),
                 grants=(Grant(f"id{on}", tuple(f"GPU-{on}-{place}" for place in places)),),
                 since=since, until=1e9)


def chosen(asks: int, *leases: Lease, priority: int = 3, nodes: int = 1) -> list[str]:
    there = {}
    for number in range(2):
        each = node(number, gpus=4)
        for held in leases:
            if held.grants[0].node == each.id:
                each = each.after_grant(held.grants[0].uuids, held.claim)
        there[each.id] = each
    asked = claim(1, gpus=asks, priority=priority, nodes=nodes)
    found = preemption(asked, there, leases, LEAST_RUN_S, NOW)
    if found is None:
        return []
    freed = {uuid for each in found.victims for uuid in each.grants[0].uuids}
    free = {uuid for uuid, gpu in zip(there[found.grant.node].uuids, there[found.grant.node].gpus,
                                      strict=True) if gpu.free_milli == 1_000}
    assert set(found.grant.uuids) <= freed | free
    assert len(found.grant.uuids) == asks
    return [each.id for each in found.victims]


FULL = lease("other", 0, 1, 2, 3, on=1, preemptible=False)


def test_fewest_then_the_lowest_priority_then_the_youngest() -> None:
    assert chosen(2, lease("a", 0), lease("b", 1), lease("c", 2, 3), FULL) == ["c"]
    assert chosen(1, lease("a", 0, 1, priority=2), lease("b", 2, 3), FULL) == ["b"]
    assert chosen(1, lease("a", 0, 1), lease("b", 2, 3, since=5.0), FULL) == ["b"]


def test_what_is_free_already_counts() -> None:
    assert chosen(2, lease("a", 0), lease("b", 1, 2), FULL) == ["a"]


def test_never_half() -> None:
    assert chosen(4, lease("a", 0, 1), lease("b", 2, 3, preemptible=False), FULL) == []
    assert chosen(4, lease("a", 0, 1), nodes=2) == []


def test_only_what_said_so_of_lower_priority_and_not_just_begun() -> None:
    assert chosen(1, lease("a", 0, 1, 2, 3, preemptible=False), FULL) == []
    assert chosen(1, lease("a", 0, 1, 2, 3, priority=3), FULL) == []
    assert chosen(1, lease("a", 0, 1, 2, 3, since=NOW - LEAST_RUN_S + 1), FULL) == []
    assert chosen(1, lease("a", 0, 1, 2, 3, since=NOW - LEAST_RUN_S), FULL) == ["a"]


def test_overdue_leases_go_all_that_are_in_the_way_or_none() -> None:
    kept = [Grant("id0", ("GPU-0-0", "GPU-0-1"))]
    over, running = (replace(lease(name, place, preemptible=False), until=until)
                     for name, place, until in (("a", 0, NOW), ("b", 1, NOW + 1)))
    found = overdue(claim(1, gpus=2), kept, [over], NOW)
    assert found is not None
    assert [each.id for each in found.victims] == ["a"]
    assert overdue(claim(1, gpus=2), kept, [over, running], NOW) is None
    assert overdue(claim(1, gpus=2), kept, [running], NOW) is None
    assert overdue(claim(1), [Grant("id0", ("GPU-0-3",))], [over], NOW) is None
