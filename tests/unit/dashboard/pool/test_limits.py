"""Limits that quotas set: what is leased and what is used count once, and others go on."""

from hypothesis import given
from hypothesis import strategies as st

from dashboard.pool.limits import HeldGpus, LeasedQuotas, QuotaLimits
from gpudeck.contract.quota import Quota
from gpudeck.contract.quota_usage import QuotaIndex
from gpudeck.pool.core.claims import Claim, Grant, Lease
from gpudeck.pool.core.fragmentation import ClaimMix
from gpudeck.pool.core.placement import Placement, candidates
from gpudeck.pool.core.schedule import Pass, PoolPolicy, Queue, finish, run_pass
from gpudeck.pool.core.strategies import PlacementContext
from tests.unit.gpudeck.pool.inventories import claim, node

SPOTS = {"id0": ("n0", "prod"), "id1": ("n1", None)}
GROUPS = {"ann": ("vision",), "bob": ("vision",)}


def quota(name: str, subject: str, **fields: object) -> Quota:
    return Quota(id=name, subject=subject, **{"mode": "act", **fields})  # type: ignore[arg-type]


def limits(*quotas: Quota, uses: HeldGpus | None = None, hours: float | None = None) -> QuotaLimits:
    return finish(QuotaLimits.build(LeasedQuotas(QuotaIndex(quotas), GROUPS, {
        (quota.id, "ann"): hours for quota in quotas}), SPOTS, uses or {}))


def pass_of(waiting: list[Claim], bounds: QuotaLimits, leases: tuple[Lease, ...] = ()) -> Pass:
    there = [node(0, gpus=4), node(1, gpus=4)]
    return run_pass(Queue(waiting=waiting, leases=leases, limits=bounds), there, PoolPolicy(),
                    PlacementContext(mix=ClaimMix(())), 0.0)


def began(outcome: Pass) -> list[str]:
    return [offer.claim.id for offer in outcome.offers]


QUOTAS = st.builds(
    lambda at, subject, scope, gpus, count: quota(f"q{at}", subject, scope=scope, gpus=gpus,
                                                  count=count),
    st.integers(0, 99), st.sampled_from(("*", "user:ann", "group:vision", "group:speech")),
    st.sampled_from(("fleet", "node:n0", "group:prod")), st.integers(0, 4),
    st.sampled_from(("each", "together")))


@given(st.lists(QUOTAS, max_size=4, unique_by=lambda quota: quota.id),
       st.lists(st.tuples(st.sampled_from(("ann", "bob", "cid")), st.integers(0, 1),
                          st.integers(1, 3)), max_size=6))
def test_what_is_given_counts_as_if_it_had_been_held_all_along(
        quotas: list[Quota], given_out: list[tuple[str, int, int]]) -> None:
    """Questions that were asked and remembered before change nothing."""
    uses: HeldGpus = {"cid": {("id0", "GPU-0-9")}}
    bounds = limits(*quotas, uses={owner: {*gpus} for owner, gpus in uses.items()})
    claims = [claim(0, owner=owner, gpus=gpus) for owner in ("ann", "bob", "cid")
              for gpus in (1, 2, 4)]
    for owner, at, gpus in given_out:
        for waiting in claims:
            bounds.why_not(waiting)
        way = next(candidates(node(at), claim(1, owner=owner, gpus=gpus), 0.0))
        bounds.take(Placement((way,)))
        uses.setdefault(owner, set()).update((f"id{at}", uuid) for uuid in way.uuids)
        fresh = limits(*quotas, uses={owner: {*gpus} for owner, gpus in uses.items()})
        for waiting in claims:
            assert (bounds.why_not(waiting), bounds.closed(waiting)) == (
                fresh.why_not(waiting), fresh.closed(waiting))


def test_who_has_what_the_quota_gives_waits_and_others_go_on() -> None:
    bounds = limits(quota("two", "*", gpus=2), uses={"ann": {("id0", "GPU-0-0"), ("id9", "X")}})
    outcome = pass_of([claim(0), claim(1, owner="bob", submitted_at=1.0)], bounds)
    assert began(outcome) == ["c1"]
    assert outcome.blocked == {
        "c0": "the quota two gives ann 2 GPUs on the whole fleet; 2 GPUs are leased or in use"}
    assert outcome.shadow is None


def test_what_a_pass_offers_counts_in_it() -> None:
    outcome = pass_of([claim(number) for number in range(4)], limits(quota("two", "*", gpus=2)))
    assert began(outcome) == ["c0", "c1"]
    assert set(outcome.blocked) == {"c2", "c3"}


def test_a_sum_over_a_group_counts_for_each_of_it() -> None:
    bounds = limits(quota("v", "group:vision", gpus=2, count="together"),
                    uses={"ann": {("id0", "GPU-0-0")}})
    outcome = pass_of([claim(0, owner="bob"), claim(1, owner="bob", submitted_at=1.0),
                       claim(2, owner="cid", submitted_at=2.0)], bounds)
    assert began(outcome) == ["c0", "c2"]


def test_a_quota_for_one_node_closes_that_node_alone() -> None:
    bounds = limits(quota("n0", "*", scope="node:n0", gpus=0), quota("prod", "*", gpus=3,
                                                                     scope="group:prod"))
    outcome = pass_of([claim(0, gpus=4), claim(1, hosts=("n0",))], bounds)
    assert began(outcome) == ["c0"]
    assert outcome.offers[0].grants[0].node == "id1"
    assert "the quota n0 gives ann 0 GPUs on n0" in outcome.blocked["c1"]


def test_only_a_quota_that_acts_holds_back_and_the_most_specific_one_counts() -> None:
    assert began(pass_of([claim(0)], limits(quota("none", "*", gpus=0, mode="warn")))) == ["c0"]
    assert began(pass_of([claim(0)], limits(quota("none", "*", gpus=0),
                                            quota("ann", "user:ann", gpus=1)))) == ["c0"]


def test_hours_that_are_used_up_hold_back() -> None:
    hours_quota = quota("h", "*", gpu_hours=10.0)
    assert began(pass_of([claim(0)], limits(hours_quota, hours=9.9))) == ["c0"]
    assert began(pass_of([claim(0)], limits(hours_quota, hours=None))) == ["c0"]
    outcome = pass_of([claim(0)], limits(hours_quota, hours=10.0))
    assert "gives ann 10 GPU-hours per day" in outcome.blocked["c0"]


def test_a_blocked_claim_keeps_nothing_from_others() -> None:
    running = Lease(id="r", claim=claim(9, gpus=4), grants=(Grant("id1", tuple(
        f"GPU-1-{index}" for index in range(4))),), since=0.0, until=60.0)
    outcome = pass_of([claim(0, gpus=4), claim(1, owner="bob", gpus=4, submitted_at=1.0)],
                      limits(quota("three", "user:ann", gpus=3)), (running,))
    assert began(outcome) == ["c1"]
