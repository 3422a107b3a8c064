"""Plan of each node after a pass: leases that others need, and where else a claim would fit."""

from dataclasses import replace

import msgspec

from dashboard.pool.plan import (
    PendingOffer,
    PlannedPass,
    PoolNode,
    never,
    waiting_claims,
)
from gpudeck.contract.pool_link import NodeClaim, OfferedGpu, PoolPlan, PoolReport, ReportedLease
from gpudeck.pool.core.claims import Claim
from gpudeck.pool.core.schedule import NoOwnerLimits, PoolPolicy
from tests.unit.dashboard.pool.passes import scheduled
from tests.unit.gpudeck.pool.inventories import NoBookings

POLICY = PoolPolicy()


def claim(name: str, gpus: int = 1, at: float = 0.0, model: str = "") -> Claim:
    return Claim(id=name, owner="ann", gpus=gpus, submitted_at=at,
                 models=(model,) if model else ())


def node(name: str, gpus: int, leased: int, *claims: Claim, model: str = "H100") -> PoolNode:
    leases = tuple(ReportedLease(claim(f"{name}-l{index}"), (f"{name}-{index}",), "active", 0.0,
                                 9e4, 0.0) for index in range(leased))
    return PoolNode(f"id-{name}", name, PoolReport(
        tuple(OfferedGpu(f"{name}-{index}", model, index) for index in range(gpus)),
        tuple(NodeClaim(claim, True) for claim in claims), leases))


def managed(name: str, model: str = "H100") -> PoolNode:
    return PoolNode(f"id-{name}", name, PoolReport(
        (OfferedGpu(f"{name}-0", model, 0, trouble="managed by Slurm"),), (), (),
        managed_by="Slurm"))


def plans(nodes: list[PoolNode], now: float) -> dict[str, PoolPlan]:
    waiting = waiting_claims(nodes, (), {})
    outcome = scheduled(nodes, waiting, {}, (), None, (), NoOwnerLimits(), {}, {}, POLICY, {}, now)
    planned = PlannedPass(outcome, nodes, {claim.id: claim for claim in waiting}, {}, {}, {}, None,
                          NoBookings(), now)
    return {node.host: planned.plan(node, {}, {}, {}, {}, 120.0) for node in nodes}


def test_who_waits_is_told_which_other_nodes_have_it_free() -> None:
    nodes = [node("n1", 2, 2, claim("a"), claim("b", 2), claim("c", 9)), node("n2", 2, 1),
             node("n3", 4, 4), node("n4", 8, 0)]
    elsewhere = {place.claim_id: place.elsewhere for place in plans(nodes, 10.0)["n1"].standings}
    assert elsewhere == {"a": ("n2", "n4"), "b": ("n4",), "c": ()}


def test_what_only_its_own_node_has_is_nowhere_else() -> None:
    nodes = [node("n1", 2, 2, claim("a", model="h100")), node("n2", 2, 0, model="T4")]
    [standing] = plans(nodes, 10.0)["n1"].standings
    assert standing.elsewhere == ()


def test_a_node_is_told_which_of_its_leases_are_not_renewed() -> None:
    nodes = [node("n1", 2, 2, claim("a")), node("n2", 2, 2)]
    assert plans(nodes, POLICY.pin_after_s - 1.0)["n1"].keep_until == {}
    by_host = plans(nodes, POLICY.pin_after_s)
    assert [*by_host["n1"].keep_until.values()] == [POLICY.pin_after_s]
    assert by_host["n2"].keep_until == {}


def test_models_weigh_what_the_policy_says_by_words_of_their_names() -> None:
    nodes = [node("n1", 1, 0, model="NVIDIA H100 80GB"), node("n2", 1, 0, model="Tesla T4")]
    for weights, host in (({"h100": 4.0}, "id-n2"), ({"t4": 4.0}, "id-n1")):
        outcome = scheduled(nodes, [claim("a")], {}, (), None, (), NoOwnerLimits(), {}, {},
                            PoolPolicy(strategy="weighted", weights=weights), {}, 0.0)
        assert outcome.offers[0].grants[0].node == host


def test_the_node_of_a_run_is_asked_when_all_others_have_theirs() -> None:
    """The command of the run begins at once."""
    nodes = [node(name, 2, 0) for name in ("n1", "n2", "n3")]
    wide = replace(claim("a"), nodes=3, home="id-n2")
    outcome = scheduled(nodes, [wide], {}, (), None, (), NoOwnerLimits(), {}, {}, POLICY, {}, 0.0)
    grants = outcome.offers[0].grants
    assert grants[0].node == "id-n2"
    for ids, hosts in (((), {"n1", "n3"}), (("id-n1",), {"n3"}), (("id-n1", "id-n3"), {"n2"})):
        offer = PendingOffer(wide, grants, 0.0, frozenset(ids))
        planned = PlannedPass(outcome, nodes, {}, {"a": offer}, {}, {}, None, NoBookings(), 0.0)
        offers_of = {node.host: planned.plan(node, {}, {}, {}, {}, 120.0).offers for node in nodes}
        assert {host for host, offers in offers_of.items() if offers} == hosts
        for host in hosts:
            assert offers_of[host][0].hosts == ("n2", "n1", "n3")


def test_what_only_a_managed_node_could_meet_is_refused_and_says_whom_to_ask() -> None:
    nodes = [node("n1", 2, 2, model="T4"), managed("n2"), managed("n3")]
    assert never(claim("a", model="h100"), nodes) == (
        "it could be met only with GPUs of n2, n3, and Slurm assigns those: ask it for them")
    assert never(replace(claim("a"), hosts=("n2",)), nodes) == (
        "it could be met only with GPUs of n2, and Slurm assigns those: ask it for them")
    assert never(claim("a"), nodes) == ""
    assert never(claim("a", gpus=3), nodes) == (
        "no node here has 3 GPUs that match; the largest has 2. "
        "Ask for fewer, or for several nodes")
    assert never(claim("a", model="v100"), nodes) == (
        "there is no GPU of model v100 here; there are 2 x T4")


def test_what_waits_for_a_managed_node_says_so() -> None:
    claims = [replace(claim("a"), nodes=2, home="id-n1"), claim("b", model="T4")]
    nodes = [node("n1", 2, 2, *claims, model="T4"), managed("n2")]
    whys = {standing.claim_id: standing.why for standing in plans(nodes, 10.0)["n1"].standings}
    assert whys == {
        "a": "it could be met only with GPUs of n2, and Slurm assigns those: ask it for them",
        "b": "it asks for 1 GPU, T4; 0 of 2 matching are free"}


def test_what_is_out_of_service_is_named_as_the_reason() -> None:
    there = node("n1", 4, 1, claim("a", 4))
    gpus = tuple(msgspec.structs.replace(gpu, trouble=why) for gpu, why in zip(
        there.report.gpus, ("", "", "its readings are old", "its readings are old"), strict=True))
    there = replace(there, report=msgspec.structs.replace(there.report, gpus=gpus))
    [standing] = plans([there], 10.0)["n1"].standings
    assert standing.why == ("it asks for 4 GPUs; 1 of 4 matching are free, 2 cannot be leased "
                            "now (its readings are old)")


def test_who_waits_is_told_how_many_of_higher_priority_are_before_it() -> None:
    high = [replace(claim(name), priority=3) for name in ("b", "c", "d")]
    other = replace(claim("e", model="t4"), priority=4)
    nodes = [node("n1", 2, 2, claim("a", model="h100"), *high[:2], other),
             node("n2", 1, 1, high[2])]
    waiting = waiting_claims(nodes, [replace(claim("f", gpus=2), priority=3, hosts=())], {})
    outcome = scheduled(nodes, waiting, {}, (), None, (), NoOwnerLimits(), {}, {}, POLICY, {}, 10.0)
    planned = PlannedPass(outcome, nodes, {claim.id: claim for claim in waiting}, {}, {}, {}, None,
                          NoBookings(), 10.0)
    whys = {claim_id.id: standing.why for claim_id, standing in planned.waiting(outcome.order)}
    assert whys["a"] == ("it asks for 1 GPU, h100; 0 of 2 matching are free, "
                         "3 claims of higher priority before it")
    assert "before it" not in whys["b"] + whys["e"]


def test_who_may_have_no_more_is_before_nobody() -> None:
    class Over(NoOwnerLimits):
        def why_not(self, claim: Claim) -> str:
            return "over its quota" if claim.id == "b" else ""

    nodes = [node("n1", 1, 1, claim("a"), replace(claim("b"), priority=3))]
    waiting = waiting_claims(nodes, (), {})
    outcome = scheduled(nodes, waiting, {}, (), None, (), Over(), {}, {}, POLICY, {}, 10.0)
    planned = PlannedPass(outcome, nodes, {claim.id: claim for claim in waiting}, {}, {}, {}, None,
                          NoBookings(), 10.0)
    whys = {claim_id.id: standing.why for claim_id, standing in planned.waiting(outcome.order)}
    assert whys == {"b": "over its quota",
                    "a": "it asks for 1 GPU; 0 of 1 matching are free"}
