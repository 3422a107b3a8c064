"""Leases that make room for a claim of higher priority: as few as can be, or none."""

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


def victims(asks: int, *leases: Lease, priority: int = 3, nodes: int = 1) -> list[str]:
    there = {}
    for number in range(2):
        a_node = node(number, gpus=4)
        for a_lease in leases:
            if a_lease.grants[0].node == a_node.id:
                a_node = a_node.after_grant(a_lease.grants[0].uuids, a_lease.claim)
        there[a_node.id] = a_node
    a_claim = claim(1, gpus=asks, priority=priority, nodes=nodes)
    plan = preemption(a_claim, there, leases, LEAST_RUN_S, NOW)
    if plan is None:
        return []
    freed = {uuid for victim in plan.victims for uuid in victim.grants[0].uuids}
    free = {uuid for uuid, gpu in zip(there[plan.grant.node].uuids, there[plan.grant.node].gpus,
                                      strict=True) if gpu.free_milli == 1_000}
    assert set(plan.grant.uuids) <= freed | free
    assert len(plan.grant.uuids) == asks
    return [victim.id for victim in plan.victims]


FULL = lease("other", 0, 1, 2, 3, on=1, preemptible=False)


def test_fewest_then_the_lowest_priority_then_the_youngest() -> None:
    assert victims(2, lease("a", 0), lease("b", 1), lease("c", 2, 3), FULL) == ["c"]
    assert victims(1, lease("a", 0, 1, priority=2), lease("b", 2, 3), FULL) == ["b"]
    assert victims(1, lease("a", 0, 1), lease("b", 2, 3, since=5.0), FULL) == ["b"]


def test_what_is_free_already_counts() -> None:
    assert victims(2, lease("a", 0), lease("b", 1, 2), FULL) == ["a"]


def test_never_half() -> None:
    assert victims(4, lease("a", 0, 1), lease("b", 2, 3, preemptible=False), FULL) == []
    assert victims(4, lease("a", 0, 1), nodes=2) == []


def test_only_what_said_so_of_lower_priority_and_not_just_begun() -> None:
    assert victims(1, lease("a", 0, 1, 2, 3, preemptible=False), FULL) == []
    assert victims(1, lease("a", 0, 1, 2, 3, priority=3), FULL) == []
    assert victims(1, lease("a", 0, 1, 2, 3, since=NOW - LEAST_RUN_S + 1), FULL) == []
    assert victims(1, lease("a", 0, 1, 2, 3, since=NOW - LEAST_RUN_S), FULL) == ["a"]


def test_overdue_leases_go_all_that_are_in_the_way_or_none() -> None:
    grants = [Grant("id0", ("GPU-0-0", "GPU-0-1"))]
    over, running = (replace(lease(name, place, preemptible=False), until=until)
                     for name, place, until in (("a", 0, NOW), ("b", 1, NOW + 1)))
    plan = overdue(claim(1, gpus=2), grants, [over], NOW)
    assert plan is not None
    assert [victim.id for victim in plan.victims] == ["a"]
    assert overdue(claim(1, gpus=2), grants, [over, running], NOW) is None
    assert overdue(claim(1, gpus=2), grants, [running], NOW) is None
    assert overdue(claim(1), [Grant("id0", ("GPU-0-3",))], [over], NOW) is None


def test_nothing_is_overdue_on_a_gpu_that_another_node_calls_by_its_name() -> None:
    over = replace(lease("a", 0, preemptible=False), until=NOW)
    assert overdue(claim(1), [Grant("id1", over.grants[0].uuids)], [over], NOW) is None
