"""A pass: whose turn it is, backfill that delays nobody, overtaking that has a bound."""

import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudeck.pool.core import schedule
from gpudeck.pool.core.claims import Claim, Grant, Lease, expected_end
from gpudeck.pool.core.fair_share import (
    QUEUE_ORDERS,
    EndedUsage,
    FairSharePolicy,
    decayed_s,
    usage_of,
)
from gpudeck.pool.core.fragmentation import ClaimMix
from gpudeck.pool.core.inventory import Node
from gpudeck.pool.core.placement import candidates
from gpudeck.pool.core.schedule import (
    Pass,
    PoolPolicy,
    Queue,
    Shadow,
    run_pass,
    shadow_of,
)
from gpudeck.pool.core.strategies import STRATEGIES, PlacementContext
from tests.unit.gpudeck.pool.inventories import AllMayHave, claim, claims, node, nodes
from tests.unit.gpudeck.pool.plain_pass import PlainPass

POLICY = PoolPolicy()
NO_TEAMS: Mapping[str, str] = {}


def make_pass(waiting: Sequence[Claim], there: Sequence[Node], now: float = 0.0,
              leases: Sequence[Lease] = (), past: Sequence[Lease] = (),
              policy: PoolPolicy = POLICY, team_of: Mapping[str, str] = NO_TEAMS) -> Pass:
    free = []
    for a_node in there:
        for lease in leases:
            for grant in lease.grants:
                if grant.node == a_node.id:
                    a_node = a_node.after_grant(grant.uuids, lease.claim)
        free.append(a_node)
    past_usage = EndedUsage(past, policy.fair_share, now)
    queue = Queue(waiting=waiting, leases=leases, past_usage=past_usage,
                  limits=AllMayHave(), team_of=team_of)
    return run_pass(queue, free, policy, PlacementContext(mix=ClaimMix(waiting)), now)


def leases_of(outcome: Pass, now: float) -> list[Lease]:
    return [Lease(id=offer.claim.id, claim=offer.claim, grants=offer.grants, since=now,
                  until=now + offer.claim.term_s) for offer in outcome.offers]


def began(outcome: Pass) -> list[str]:
    return [offer.claim.id for offer in outcome.offers]


def test_priority_then_who_had_least_then_age() -> None:
    had = Lease(id="x", claim=claim(99, owner="ann"), grants=(Grant("id9", ("G",)),), since=-3_600,
                until=0.0, ended_at=0.0)
    waiting = [claim(0, owner="ann", submitted_at=1.0), claim(1, owner="bob", submitted_at=2.0),
               claim(2, owner="bob", submitted_at=3.0),
               claim(3, owner="cid", priority=3, submitted_at=4.0)]
    outcome = make_pass(waiting, [node(0, gpus=1)], 10.0, past=[had])
    assert began(outcome) == ["c3"]
    assert outcome.order[0] == "c1"


@pytest.mark.parametrize(("order", "ids"), [
    ("fair", ["c1", "c3", "c0", "c2"]), ("fifo", ["c0", "c1", "c2", "c3"]),
    ("smallest_first", ["c1", "c3", "c0", "c2"]), ("largest_first", ["c2", "c0", "c1", "c3"]),
    ("shortest_first", ["c2", "c3", "c0", "c1"]),
])
def test_the_order_of_the_queue_is_policy_and_priority_comes_before_it(
        order: str, ids: list[str]) -> None:
    had = Lease(id="x", claim=claim(99, owner="ann"), grants=(Grant("id9", ("G",)),), since=-3_600,
                until=0.0, ended_at=0.0)
    waiting = [claim(0, owner="ann", gpus=2, submitted_at=1.0, term_s=3_600.0),
               claim(1, owner="bob", gpus=1, submitted_at=2.0, term_s=7_200.0),
               claim(2, owner="ann", gpus=4, submitted_at=3.0, term_s=60.0),
               claim(3, owner="cid", gpus=1, submitted_at=4.0, term_s=600.0),
               claim(4, owner="ann", gpus=3, submitted_at=5.0, priority=3, term_s=9e4)]
    outcome = make_pass(waiting, [node(0, gpus=0)], 10.0, past=[had],
                        policy=PoolPolicy(queue_order=order))
    assert list(outcome.order) == ["c4", *ids]
    late = make_pass(waiting, [node(0, gpus=0)], 3.0 + POLICY.pin_after_s,
                     policy=PoolPolicy(queue_order=order))
    assert list(late.order)[:3] == ["c0", "c1", "c2"], "pinned, by age"


def test_what_was_taken_from_its_owner_is_the_first_of_its_priority() -> None:
    had = Lease(id="x", claim=claim(99, owner="ann"), grants=(Grant("id9", ("G",)),), since=-3_600,
                until=0.0, ended_at=0.0)
    waiting = [claim(0, owner="bob", submitted_at=1.0), claim(1, owner="ann", submitted_at=3.0),
               claim(2, owner="ann", submitted_at=4.0, is_again=True),
               claim(3, owner="cid", priority=3, submitted_at=5.0)]
    outcome = make_pass(waiting, [], 10.0, past=[had])
    assert outcome.order == ("c3", "c2", "c0", "c1")


def test_leases_are_not_renewed_where_a_pinned_claim_is_to_begin() -> None:
    busy = Lease(id="r", claim=claim(90), grants=(Grant("id0", ("GPU-0-0",)),), since=0.0,
                 until=1e9)
    there = [node(0, gpus=1)]
    assert make_pass([claim(0)], there, POLICY.pin_after_s - 1, [busy]).kept_from == {}
    outcome = make_pass([claim(0)], there, POLICY.pin_after_s, [busy])
    assert outcome.kept_until("id0", ("GPU-0-0", "GPU-0-1")) == POLICY.pin_after_s
    assert outcome.kept_until("id0", ("GPU-0-1",)) is None
    assert outcome.kept_until("id1", ("GPU-0-0",)) is None, "one of that name on another node"


def test_one_owner_does_not_get_ten_gpus_in_one_pass() -> None:
    waiting = [claim(number, owner="ann") for number in range(10)] + [
        claim(10 + number, owner="bob", submitted_at=1.0) for number in range(10)]
    outcome = make_pass(waiting, [node(0)])
    assert Counter(offer.claim.owner for offer in outcome.offers) == {"ann": 4, "bob": 4}


def test_a_team_comes_before_its_members() -> None:
    had = Lease(id="x", claim=claim(99, owner="ann"), grants=(Grant("id9", ("G",)),), since=-3_600,
                until=0.0, ended_at=0.0)
    waiting = [claim(0, owner="new"), claim(1, owner="bob", submitted_at=5.0)]
    options: dict[str, Any] = {"now": 10.0, "past": [had]}
    there = [node(0, gpus=1)]
    assert began(make_pass(waiting, there, **options)) == ["c0"]
    team_of = {"ann": "vision", "new": "vision", "bob": "speech"}
    assert began(make_pass(waiting, there, **options, team_of=team_of)) == ["c1"]
    del team_of["bob"]  # as a team of one
    assert began(make_pass(waiting, there, **options, team_of=team_of)) == ["c1"]
    del team_of["ann"]  # who leaves a team takes along what they had
    assert began(make_pass(waiting, there, **options, team_of=team_of)) == ["c0"]


def test_a_team_may_have_a_larger_share_and_no_user_can_be_called_like_it() -> None:
    had = [Lease(id=owner, claim=claim(90, owner=owner), grants=(Grant("id9", ("G",)),),
                 since=-took, until=0.0, ended_at=0.0) for owner, took in (("ann", 300.0),
                                                                           ("bob", 200.0))]
    waiting = [claim(0, owner="ann"), claim(1, owner="bob")]
    for shares, first in (({}, "c1"), ({"team:vision": 2.0}, "c0"), ({"vision": 2.0}, "c1")):
        policy = PoolPolicy(fair_share=FairSharePolicy(shares=shares))
        outcome = make_pass(waiting, [node(0, gpus=1)], 1.0, past=had, policy=policy,
                            team_of={"ann": "vision", "bob": "speech"})
        assert began(outcome) == [first]


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.floats(60, 1e5)), max_size=8),
       st.dictionaries(st.sampled_from("abcdef"), st.sampled_from(("x", "y")), max_size=6),
       st.lists(st.sampled_from("abcdef"), min_size=1, max_size=12))
def test_nobody_goes_before_a_team_that_had_less(
        had: list[tuple[str, float]], team_of: dict[str, str], asking: list[str]) -> None:
    """Members of a team come by their own usage, too, whatever their names and claims."""
    past = [Lease(id=f"x{at}", claim=claim(99, owner=owner), grants=(Grant("id9", ("G",)),),
                  since=-took, until=0.0, ended_at=0.0) for at, (owner, took) in enumerate(had)]
    waiting = [claim(at, owner=owner, submitted_at=-float(at)) for at, owner in enumerate(asking)]
    own = {owner: sum(decayed_s(-took, 0.0, 1.0, POLICY.fair_share.half_life_s)
                      for whose, took in had if whose == owner) for owner in "abcdef"}
    of_team = {team: sum(own[owner] for owner in team_of if team_of[owner] == team)
               for team in ("x", "y")}

    def use(owner: str) -> float:
        return of_team[team_of[owner]] if owner in team_of else own[owner]

    owners = [next(a_claim.owner for a_claim in waiting if a_claim.id == claim_id)
              for claim_id in make_pass(waiting, [], 1.0, past=past, team_of=team_of).order]
    for first, second in pairwise(owners):
        assert use(first) <= use(second) + 1e-6
        if team_of.get(first) == team_of.get(second) is not None:
            assert own[first] <= own[second] + 1e-6


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1e6), st.floats(60, 1e6))
def test_what_was_held_counts_the_same_however_it_is_cut(
        one: float, two: float, three: float, half_life: float) -> None:
    first, second, third = sorted((one, two, three))
    whole = decayed_s(first, third, 1e6, half_life)
    parts = decayed_s(first, second, 1e6, half_life) + decayed_s(second, third, 1e6, half_life)
    assert parts == pytest.approx(whole, rel=1e-9, abs=1e-6)


def test_it_halves_in_a_half_life_and_never_outgrows_its_bound() -> None:
    an_hour = decayed_s(0.0, 3_600.0, 3_600.0, 604_800.0)
    assert decayed_s(0.0, 3_600.0, 3_600.0 + 604_800.0, 604_800.0) == pytest.approx(an_hour / 2)
    assert decayed_s(-1e9, 0.0, 0.0, 604_800.0) / 86_400 == pytest.approx(10.1, abs=0.01)


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan")])
def test_a_half_life_of_nothing_is_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="half-life"):
        FairSharePolicy(half_life_s=wrong)


def test_backfill_goes_ahead_only_where_it_delays_nobody() -> None:
    there = [node(0, gpus=4)]
    running = Lease(id="r", claim=claim(90, gpus=2), grants=(Grant("id0", ("GPU-0-0", "GPU-0-1")),),
                    since=0.0, until=3_600.0)
    head = claim(0, gpus=4, submitted_at=0.0)
    fits = claim(1, gpus=1, submitted_at=1.0, term_s=3_600.0)
    late = claim(2, gpus=1, submitted_at=1.0, term_s=3_601.0)
    outcome = make_pass([head, fits, late], there, leases=[running])
    assert began(outcome) == ["c1"]
    assert outcome.shadow is not None
    assert (outcome.shadow.at, outcome.shadow.claim) == (3_600.0, head)


def test_the_head_waits_for_what_began_in_the_same_pass() -> None:
    """Otherwise it would never fit, and others would be promised what it needs."""
    outcome = make_pass([claim(0, gpus=2, term_s=600.0), claim(1, gpus=4, submitted_at=1.0),
                         claim(2, gpus=1, submitted_at=2.0, term_s=601.0)], [node(0, gpus=4)])
    assert began(outcome) == ["c0"]
    assert outcome.shadow is not None
    assert (outcome.shadow.claim.id, outcome.shadow.at) == ("c1", 600.0)


def test_who_waits_for_another_model_is_passed_freely() -> None:
    there = [node(0, gpus=1), node(1, gpus=1, model="Tesla T4", gib=16)]
    busy = Lease(id="r", claim=claim(90), grants=(Grant("id0", ("GPU-0-0",)),), since=0.0,
                 until=1e9)
    outcome = make_pass([claim(0, models=("h100",)), claim(1, models=("t4",), submitted_at=1.0)],
                        there, leases=[busy])
    assert began(outcome) == ["c1"]


class Closed(AllMayHave):
    """Nodes that are closed to an owner."""

    def closed(self, claim: Claim) -> Collection[str]:
        return frozenset({"id0"}) if claim.owner == "ann" else ()


class DistinctlyClosed(Closed):
    """The same, but no two claims look alike."""

    def closed(self, claim: Claim) -> Collection[str]:
        return frozenset({*super().closed(claim), claim.id})


@settings(max_examples=50)
@given(nodes(), claims())
def test_claims_alike_are_looked_at_once_also_where_nodes_are_closed(
        there: list[Node], waiting: list[Claim]) -> None:
    context = PlacementContext(mix=ClaimMix(waiting))
    quick, plain = (run_pass(Queue(waiting=waiting, leases=(), limits=limits), there, POLICY,
                             context, 0.0) for limits in (Closed(), DistinctlyClosed()))
    assert (quick.offers, quick.order, quick.shadow) == (plain.offers, plain.order, plain.shadow)


@settings(max_examples=50)
@given(st.data())
def test_a_pass_finds_what_one_without_short_cuts_finds(data: st.DataObject) -> None:
    there, leases = data.draw(nodes()), []
    for a_claim in data.draw(claims(8)):
        at = data.draw(st.integers(0, len(there) - 1))
        if (way := next(candidates(there[at], a_claim, 0.0), None)) is not None:
            there[at] = way.after
            leases.append(Lease(id=f"l{a_claim.id}", claim=a_claim, since=-a_claim.submitted_at,
                                until=data.draw(st.sampled_from((-900.0, 60.0, 5_000.0))),
                                grants=(Grant(there[at].id, way.uuids),)))
    waiting = [replace(a_claim, submitted_at=a_claim.submitted_at - 15_000.0,
                       nodes=data.draw(st.sampled_from((1, 1, 1, 2))),
                       is_again=data.draw(st.booleans()),
                       hosts=data.draw(st.sampled_from(((), (), (there[0].id,)))))
               for a_claim in data.draw(claims())]
    policy = PoolPolicy(strategy=data.draw(st.sampled_from(sorted(STRATEGIES))),
                        queue_order=data.draw(st.sampled_from(sorted(QUEUE_ORDERS))))
    context = PlacementContext(mix=ClaimMix(waiting * 4))
    team_of = data.draw(st.dictionaries(st.sampled_from(("ann", "bob", "cid")), st.just("x")))
    outcome = run_pass(Queue(waiting=waiting, leases=leases, limits=AllMayHave(), team_of=team_of),
                       there, policy, context, 0.0)
    plain = PlainPass(waiting, leases, there, policy, context, 0.0, team_of)
    assert [(offer.claim.id, offer.grants) for offer in outcome.offers] == plain.offers
    assert list(outcome.order) == plain.order
    assert (None if outcome.shadow is None else (outcome.shadow.claim.id, outcome.shadow.at,
                                                 outcome.shadow.grants)) == plain.shadow


@settings(max_examples=60)
@given(nodes(3), claims(16))
def test_while_terms_are_honoured_the_head_never_begins_later(there: list[Node],
                                                              queue: list[Claim]) -> None:
    """Time goes from one end of a lease to the next; no new claims come."""
    waiting = [replace(a_claim, submitted_at=0.0, priority=2, owner="ann", cpu_milli=None,
                       id=f"c{number:02}") for number, a_claim in enumerate(queue)]
    running: list[Lease] = []
    now = 0.0
    promised: dict[str, float] = {}
    for _ in range(2 * len(waiting) + 2):
        outcome = make_pass(waiting, there, now, running)
        running += leases_of(outcome, now)
        waiting = [a_claim for a_claim in waiting if a_claim.id not in began(outcome)]
        for claim_id in began(outcome):
            assert now <= promised.get(claim_id, now)
        if outcome.shadow is not None:
            head = outcome.shadow.claim.id
            assert outcome.shadow.at <= promised.get(head, outcome.shadow.at)
            promised[head] = outcome.shadow.at
        if not running:
            break
        now = min(lease.until for lease in running)
        running = [lease for lease in running if lease.until > now]
    empty = PlacementContext(mix=ClaimMix(()))
    for a_claim in waiting:
        assert not run_pass(Queue(waiting=[a_claim], leases=(), limits=AllMayHave()), there, POLICY,
                            empty, 0.0).offers, "it would have fitted"


def test_a_pinned_claim_is_not_overtaken_by_new_ones() -> None:
    """Newcomers who had nothing yet would go first for ever under fair share alone."""
    old = claim(0, owner="ann", gpus=8)
    had = Lease(id="x", claim=claim(98, owner="ann", gpus=8), grants=(Grant("id9", ("G",)),),
                since=-1e5, until=0.0, ended_at=0.0)
    there = [node(0)]
    running: list[Lease] = []
    new, now = 1, 0.0
    while now < 86_400:
        waiting = [old, *(claim(new + at, owner=f"new{new + at}", gpus=2, submitted_at=now,
                                term_s=1_800.0, priority=3) for at in range(4))]
        new += 4
        outcome = make_pass(waiting, there, now, running, past=[had])
        if "c0" in began(outcome):
            break
        running = [lease for lease in running + leases_of(outcome, now) if lease.until > now + 600]
        now += 600
    assert POLICY.pin_after_s <= now <= POLICY.pin_after_s + 1_800 + 600


def test_two_who_always_want_more_get_the_same() -> None:
    there: list[Node] = [node(0)]
    running: list[Lease] = []
    past: list[Lease] = []
    number, now = 0, 0.0
    for _ in range(400):
        waiting = []
        for owner, gpus, term in (("ann", 1, 1_800.0), ("bob", 4, 7_200.0)):
            for _ in range(8):
                number += 1
                waiting.append(claim(number, owner=owner, gpus=gpus, term_s=term,
                                     submitted_at=now))
        outcome = make_pass(waiting, there, now, running, past)
        running += leases_of(outcome, now)
        now += 1_800
        for lease in [lease for lease in running if lease.until <= now]:
            running.remove(lease)
            past.append(replace(lease, ended_at=lease.until))
    hours = {"ann": 0.0, "bob": 0.0}
    for lease in past:
        hours[lease.claim.owner] += lease.claim.gpus * (lease.until - lease.since)
    assert hours["ann"] == pytest.approx(hours["bob"], rel=0.05)


def test_an_overdue_lease_is_taken_to_last_a_while_longer_each_time() -> None:
    late = Lease(id="x", claim=claim(0), grants=(), since=0.0, until=10_000.0)
    ends = [expected_end(late, now) for now in (0.0, 10_000.0, 11_999.0, 12_000.0, 15_999.0)]
    assert ends == [10_000.0, 12_000.0, 12_000.0, 16_000.0, 16_000.0]
    assert all(expected_end(late, now) > now for now in (1e4, 1.2e4, 1.6e4, 2.4e4, 1e6, 1e9))


def test_names_and_the_order_of_rows_change_nothing() -> None:
    there = [node(0, gpus=4), node(1, gpus=4)]
    waiting = [claim(at, owner=owner, gpus=gpus, submitted_at=float(at))
               for at, (owner, gpus) in enumerate([("ann", 2), ("bob", 4), ("cid", 1)] * 3)]
    assert began(make_pass(waiting, there)) == began(make_pass(waiting[::-1], there[::-1]))


def test_what_can_never_fit_has_no_shadow() -> None:
    assert shadow_of(claim(0, gpus=9), {"id0": node(0)}, (), (), 0.0) is None


def test_usage_counts_what_is_held_and_not_what_is_used() -> None:
    running = Lease(id="r", claim=claim(0, gpus=2), grants=(), since=0.0, until=9e9)
    usage = usage_of([running], None, 3_600.0, FairSharePolicy(), {})
    assert usage.owners["ann"] == pytest.approx(7_200, rel=0.01)


def test_what_leases_that_ended_count_is_the_same_however_it_is_summed_up() -> None:
    draw, policy = random.Random(), FairSharePolicy(half_life_s=7_200.0)
    past = []
    for number in range(40):
        since = draw.uniform(0.0, 90_000.0)
        until = since + draw.uniform(1.0, 20_000.0)
        past.append(Lease(id=f"l{number}", grants=(), since=since, until=until, ended_at=until,
                          claim=claim(number, gpus=draw.randrange(1, 5),
                                      owner=draw.choice(("ann", "bob")))))
    now = 120_000.0
    had = EndedUsage((), policy, 0.0)
    for lease in sorted(past, key=lambda lease: lease.until):
        had.usage(lease.until, {})  # a pass goes on between them
        had.add(lease)
    for owner in ("ann", "bob"):
        alone = sum(lease.claim.gpus * decayed_s(lease.since, lease.until, now, policy.half_life_s)
                    for lease in past if lease.claim.owner == owner)
        for history in (had, EndedUsage(past, policy, now)):
            assert history.usage(now, {}).owners[owner] == pytest.approx(alone, rel=1e-6)


def test_who_has_not_been_here_for_long_is_forgotten() -> None:
    was = Lease(id="l", claim=claim(0), grants=(), since=0.0, until=60.0, ended_at=60.0)
    had = EndedUsage([was], FairSharePolicy(half_life_s=3_600.0), 60.0)
    assert had.usage(3_600.0, {}).owners["ann"] > 0
    assert had.usage(1e6, {}).owners == {}


def test_claims_that_want_what_nothing_can_meet_cost_one_look_at_the_fleet(
        monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []

    def count_look(*args: Any) -> Shadow | None:
        looks.append(args[0].id)
        return shadow_of(*args)

    monkeypatch.setattr(schedule, "shadow_of", count_look)
    outcome = make_pass([claim(number, gpus=9) for number in range(50)], [node(0), node(1)])
    assert looks == ["c0"]
    assert len(outcome.order) == 50


def test_nodes_take_turns_also_from_pass_to_pass() -> None:
    leases: list[Lease] = []
    policy = PoolPolicy(strategy="round_robin")
    for number in range(5):
        outcome = make_pass([claim(number)], [node(at, gpus=4) for at in range(3)], float(number),
                            leases, policy=policy)
        leases.append(Lease(id=f"c{number}", claim=claim(number), grants=outcome.offers[0].grants,
                            since=float(number), until=1e6))
    assert [lease.grants[0].node for lease in leases] == ["id0", "id1", "id2", "id0", "id1"]
