"""Placement of claims: nothing twice, and the quick way finds what trying all finds."""

from collections import Counter
from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudeck.pool.core.claims import Claim, Grant
from gpudeck.pool.core.fragmentation import ClaimMix, accepts
from gpudeck.pool.core.inventory import FreeGpu, Node, node_of
from gpudeck.pool.core.placement import Placement, Placer, candidates
from gpudeck.pool.core.strategies import STRATEGIES, PlacementContext
from tests.unit.gpudeck.pool.inventories import GIB, claim, claims, node, nodes


def context(*usual: Claim) -> PlacementContext:
    return PlacementContext(mix=ClaimMix(usual * 50))


@given(nodes(), claims(), st.sampled_from(sorted(STRATEGIES)))
def test_nothing_is_given_out_twice(there: list[Node], queue: list[Claim], strategy: str) -> None:
    placer = Placer(there, strategy, context(*queue))
    milli: Counter[str] = Counter()
    memory: Counter[str] = Counter()
    cpu: Counter[str] = Counter()
    boards = {uuid: gpu for a_node in there
              for uuid, gpu in zip(a_node.uuids, a_node.gpus, strict=True)}
    for a_claim in queue:
        placement = placer.find(a_claim, 0.0)
        if placement is None:
            continue
        placer.take(placement)
        for grant in placement.grants:
            assert len(set(grant.uuids)) == a_claim.gpus
            cpu[grant.node] += a_claim.cpu_milli or 0
            for uuid in grant.uuids:
                milli[uuid] += a_claim.share_milli
                memory[uuid] += a_claim.mem_bytes or 0
                assert accepts(a_claim.models, boards[uuid].model)
    assert all(total <= 1_000 for total in milli.values())
    assert all(total <= (boards[uuid].board_bytes or inf) for uuid, total in memory.items())
    assert all(cpu[a_node.id] <= a_node.free_cpu_milli for a_node in there
               if a_node.free_cpu_milli is not None)


@given(nodes(), claims(), st.sampled_from(("pack", "best_fit", "worst_fit", "spread", "weighted")),
       st.lists(st.tuples(st.integers(0, 29), st.integers(0, 4), st.integers(600, 30_000))))
def test_it_finds_what_trying_all_finds(there: list[Node], queue: list[Claim], strategy: str,
                                        holds: list[tuple[int, int, int]]) -> None:
    """`holds`: before which claim, a node all of whose GPUs are for somebody else, and from when
    on."""
    ctx = context(*queue)
    placer = Placer(there, strategy, ctx)
    for turn, a_claim in enumerate(queue):
        for _, number, at in filter(lambda hold: hold[0] == turn, holds):
            of = there[number % len(there)]
            placer.hold([Grant(of.id, of.uuids)], float(at))
        placement = placer.find(a_claim, 0.0)
        best = min(((STRATEGIES[strategy].score(way, ctx), of.host, way.places)
                    for of in placer.nodes.values()
                    for way in candidates(of, a_claim, a_claim.term_s)), default=None)
        assert (placement is None) == (best is None)
        if placement is not None and best is not None:
            candidate = placement.candidates[0]
            assert (STRATEGIES[strategy].score(candidate, ctx), candidate.node.host) == best[:2]
            placer.take(placement)


def test_what_ends_before_something_begins_is_found_after_longer_ones_were_looked_for() -> None:
    there = [node(0, gpus=1), node(1, gpus=1)]
    placer = Placer(there, "pack", context())
    placer.hold([Grant("id0", ("GPU-0-0",))], 2_000.0)
    placer.hold([Grant("id1", ("GPU-1-0",))], 900.0)
    assert placer.find(claim(0, term_s=3_600.0), 0.0) is None
    placer.hold([Grant("id1", ("GPU-1-0",))], 800.0)
    placement = placer.find(claim(1, term_s=1_000.0), 0.0)
    assert placement is not None
    assert placement.grants[0].node == "id0"


@pytest.mark.parametrize("has_shares", [False, True])
@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_no_score_is_less_than_its_bound(strategy: str, has_shares: bool) -> None:
    """Otherwise the best of all would not be looked at."""
    of, two = node(0), claim(1, gpus=2)
    ctx = replace(context(*(claim(0, share_milli=300),) * has_shares, two), places={of.id: 0})
    bound = STRATEGIES[strategy].bound(of.free_milli, of.free_cpu_milli, two, ctx)
    ways = list(candidates(of, two, 0.0))
    assert ways
    assert all(STRATEGIES[strategy].score(way, ctx)[:len(bound)] == bound for way in ways)


def hosts_of(strategy: str, there: list[Node], *queue: Claim, **settings: object) -> list[str]:
    placer = Placer(there, strategy, replace(context(), **settings))  # type: ignore[arg-type]
    hosts = []
    for a_claim in queue:
        placement = placer.find(a_claim, 0.0)
        hosts.append("-" if placement is None else ",".join(
            way.node.host for way in placement.candidates))
        if placement is not None:
            placer.take(placement)
    return hosts


FOUR = [node(number) for number in range(4)]


@pytest.mark.parametrize(("strategy", "hosts"), [
    ("best_fit", ["n0", "n0", "n0"]),
    ("worst_fit", ["n0", "n1", "n2"]),
    ("spread", ["n0", "n1", "n2"]),
    ("round_robin", ["n0", "n1", "n2", "n3", "n0"]),
    ("interval", ["n0", "n2", "n1", "n3", "n0"]),
    ("least_tasks", ["n0", "n1", "n2", "n3", "n0"]),
])
def test_each_strategy_in_order(strategy: str, hosts: list[str]) -> None:
    assert hosts_of(strategy, FOUR, *(claim(number) for number in range(len(hosts)))) == hosts


def test_random_is_the_same_for_the_same_seed_and_not_always_the_same_node() -> None:
    queue = [claim(number) for number in range(8)]
    one, repeat = (hosts_of("random", FOUR, *queue, seed=5) for _ in range(2))
    assert one == repeat != hosts_of("random", FOUR, *queue, seed=6)
    assert len(set(one)) > 1


def test_the_least_loaded_goes_first_and_an_unknown_load_is_neither_idle_nor_busy() -> None:
    there = [replace(a_node, load_pct=load) for a_node, load in
             zip(FOUR, (90.0, 30.0, None, 71.0), strict=True)]
    many = [claim(number, gpus=8) for number in range(4)]
    assert hosts_of("least_loaded", there, *many) == ["n1", "n2", "n3", "n0"]


def test_weights_keep_what_is_worth_most() -> None:
    there = [node(0), node(1, model="Tesla T4", gib=16)]
    weights = {"NVIDIA H100 80GB HBM3": 8.0, "Tesla T4": 1.0}
    assert hosts_of("weighted", there, claim(0), weights=weights) == ["n1"]


def test_the_smallest_board_that_is_enough() -> None:
    there = [node(0), node(1, model="Tesla T4", gib=16)]
    assert hosts_of("best_fit", there, claim(0), claim(1, mem_bytes=40 * GIB)) == ["n1", "n0"]


def test_several_gpus_are_joined_by_nvlink_if_that_can_be() -> None:
    # Two cliques of four, numbered across: 0 2 4 6 and 1 3 5 7.
    mixed = node_of("id0", "n0", [
        (f"GPU-{index}", FreeGpu("H100", False, index % 2, 0, 80 * GIB)) for index in range(8)])
    placer = Placer([mixed], "best_fit", context())
    for number in range(2):
        placement = placer.find(claim(number, gpus=4), 0.0)
        assert placement is not None
        placer.take(placement)
        assert len({int(uuid[-1]) % 2 for uuid in placement.grants[0].uuids}) == 1


def test_one_process_sees_one_mig_instance() -> None:
    split = node_of("id0", "n0", [
        (f"MIG-{index}", FreeGpu("H100", True, None, 0, 10 * GIB)) for index in range(4)])
    assert hosts_of("pack", [split], claim(0, gpus=2), claim(1), claim(2, share_milli=300)) == [
        "-", "n0", "-"]


def test_several_nodes_or_none() -> None:
    assert hosts_of("pack", FOUR[:2], claim(0, gpus=8, nodes=3), claim(1, gpus=8, nodes=2),
                    claim(2)) == ["-", "n0,n1", "-"]


def test_of_several_nodes_its_own_is_the_first_or_there_are_none() -> None:
    there = [node(number, gpus=8) for number in range(3)]
    there[1] = there[1].after_grant(there[1].uuids[:2], claim(9, gpus=2))
    for home, node_ids in (("id2", ["id2", "id1"]), ("id1", ["id1", "id0"])):
        placement = Placer(there, "best_fit", context()).find(
            claim(0, gpus=4, nodes=2, home=home), 0.0)
        assert placement is not None
        assert [grant.node for grant in placement.grants] == node_ids
    placer = Placer(there, "best_fit", context())
    beside = placer.find(claim(0, gpus=4, nodes=2, home="id1", hosts=("n2",)), 0.0)
    assert beside is not None
    assert [grant.node for grant in beside.grants] == ["id1", "id2"]
    assert placer.find(claim(0, gpus=7, nodes=2, home="id1"), 0.0) is None
    assert placer.find(claim(0, gpus=7, nodes=2, home="id9"), 0.0) is None


def test_what_is_reserved_is_for_what_ends_before() -> None:
    placer = Placer([node(0, gpus=1)], "pack", context())
    placer.hold([Grant("id0", ("GPU-0-0",))], 3_600.0)
    assert placer.find(claim(0, term_s=3_601.0), 0.0) is None
    assert placer.find(claim(1, term_s=3_600.0), 0.0) is not None


def test_hosts_are_names_or_ids() -> None:
    placements: list[Placement | None] = [
        Placer(FOUR, "pack", context()).find(claim(0, hosts=hosts), 0.0)
        for hosts in (("n2",), ("id3",), ("n9",))]
    assert [placement and placement.grants[0].node for placement in placements] == [
        "id2", "id3", None]


def test_models_are_words_of_the_name() -> None:
    name = "NVIDIA H100 80GB HBM3"
    matches = [accepts(models, name) for models in (
        ("h100",), ("A100", "H100 hbm3"), (), ("h200",), ("h100 40gb",))]
    assert matches == [True, True, True, False, False]
