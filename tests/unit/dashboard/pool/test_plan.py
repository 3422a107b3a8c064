"""What each node is told of a pass: leases that others need, and where else a claim would fit."""

from dashboard.pool.plan import PlannedPass, PoolNode, scheduled, waiting_claims
from gpudeck.pool.core.claims import Claim
from gpudeck.pool.core.schedule import NoOwnerLimits, PoolPolicy
from gpudeck.pool.link import NodeClaim, OfferedGpu, PoolPlan, PoolReport, ReportedLease
from tests.unit.gpudeck.pool.inventories import NoBookings

POLICY = PoolPolicy()


def claim(name: str, gpus: int = 1, at: float = 0.0, model: str = "") -> Claim:
    return Claim(id=name, owner="ann", gpus=gpus, submitted_at=at,
                 models=(model,) if model else ())


def node(name: str, gpus: int, held: int, *asked: Claim, model: str = "H100") -> PoolNode:
    leases = tuple(ReportedLease(claim(f"{name}-l{index}"), (f"{name}-{index}",), "active", 0.0,
                                 9e4, 0.0) for index in range(held))
    return PoolNode(f"id-{name}", name, PoolReport(
        tuple(OfferedGpu(f"{name}-{index}", model, index) for index in range(gpus)),
        tuple(NodeClaim(each, True) for each in asked), leases))


def plans(nodes: list[PoolNode], now: float) -> dict[str, PoolPlan]:
    waiting = waiting_claims(nodes, (), {})
    made = scheduled(nodes, waiting, {}, (), None, (), NoOwnerLimits(), POLICY, now)
    planned = PlannedPass(made, nodes, {each.id: each for each in waiting}, {}, {}, None,
                          NoBookings(), now)
    return {each.host: planned.plan(each, {}, {}, {}, {}, 120.0) for each in nodes}


def test_who_waits_is_told_which_other_nodes_have_it_free() -> None:
    nodes = [node("n1", 2, 2, claim("a"), claim("b", 2), claim("c", 9)), node("n2", 2, 1),
             node("n3", 4, 4), node("n4", 8, 0)]
    found = {each.claim_id: each.elsewhere for each in plans(nodes, 10.0)["n1"].standings}
    assert found == {"a": ("n2", "n4"), "b": ("n4",), "c": ()}


def test_what_only_its_own_node_has_is_nowhere_else() -> None:
    nodes = [node("n1", 2, 2, claim("a", model="h100")), node("n2", 2, 0, model="T4")]
    [standing] = plans(nodes, 10.0)["n1"].standings
    assert standing.elsewhere == ()


def test_a_node_is_told_which_of_its_leases_are_not_renewed() -> None:
    nodes = [node("n1", 2, 2, claim("a")), node("n2", 2, 2)]
    assert plans(nodes, POLICY.pin_after_s - 1.0)["n1"].keep_until == {}
    found = plans(nodes, POLICY.pin_after_s)
    assert [*found["n1"].keep_until.values()] == [POLICY.pin_after_s]
    assert found["n2"].keep_until == {}
