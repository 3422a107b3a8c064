"""CPUs and host memory that claims ask for: counted where a node says how much it has."""

from dataclasses import replace

import msgspec
import pytest

from dashboard.pool.plan import PlannedPass, PoolNode, never
from gpudeck.contract.pool_link import OfferedGpu, PoolReport, ReportedLease
from gpudeck.pool.core.claims import Claim
from gpudeck.pool.core.schedule import NoOwnerLimits, Pass, PoolPolicy
from gpudeck.pool.core.strategies import STRATEGIES
from tests.unit.dashboard.pool.passes import scheduled
from tests.unit.gpudeck.pool.inventories import NoBookings, claim

GIB = 2**30


def a_node(name: str, cpus: int | None, *running: Claim, gib: int | None = None) -> PoolNode:
    leases = tuple(ReportedLease(holder, (f"{name}-{at}",), "active", 0.0, 9e4, 0.0)
                   for at, holder in enumerate(running))
    return PoolNode(name, name, PoolReport(
        tuple(OfferedGpu(f"{name}-{index}", "H100", index) for index in range(4)), (), leases,
        cpus=cpus, ram_bytes=None if gib is None else gib * GIB))


def run_pass(nodes: list[PoolNode], *waiting: Claim, strategy: str = "pack") -> Pass:
    return scheduled(nodes, waiting, {}, (), None, (), NoOwnerLimits(), {}, {},
                     PoolPolicy(strategy=strategy), {}, 0.0)


BUSY = claim(9, cpu_milli=48_000, ram_bytes=200 * GIB)


@pytest.mark.parametrize(("cpus", "cpu_milli", "at"), [
    (64, 16_000, ["n1"]), (64, 17_000, []), (None, 17_000, ["n1"]), (64, None, ["n1"])])
def test_a_node_gets_no_more_than_it_has_cpus_and_unknown_excludes_none(
        cpus: int | None, cpu_milli: int | None, at: list[str]) -> None:
    outcome = run_pass([a_node("n1", cpus, BUSY)], claim(0, cpu_milli=cpu_milli))
    assert [offer.grants[0].node for offer in outcome.offers] == at


@pytest.mark.parametrize(("gib", "needed", "at"), [
    (256, 56, ["n1"]), (256, 57, []), (None, 57, ["n1"]), (256, None, ["n1"])])
def test_nor_more_than_it_has_memory(gib: int | None, needed: int | None, at: list[str]) -> None:
    outcome = run_pass([a_node("n1", None, BUSY, gib=gib)],
                       claim(0, ram_bytes=None if needed is None else needed * GIB))
    assert [offer.grants[0].node for offer in outcome.offers] == at


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_counts_both(strategy: str) -> None:
    claims = [claim(at, cpu_milli=16_000, ram_bytes=100 * GIB) for at in range(5)]
    outcome = run_pass([a_node("n1", 64, gib=256), a_node("n2", 16, gib=256)], *claims,
                       strategy=strategy)
    assert sorted(offer.grants[0].node for offer in outcome.offers) == ["n1", "n1", "n2"]


def test_two_of_one_pass_share_the_cpus() -> None:
    outcome = run_pass([a_node("n1", 64)], *(claim(at, cpu_milli=40_000) for at in range(2)))
    assert [offer.claim.id for offer in outcome.offers] == ["c0"]
    assert outcome.shadow is not None
    assert (outcome.shadow.claim.id, outcome.shadow.at) == ("c1", BUSY.term_s)


def test_it_says_that_it_waits_for_cpus() -> None:
    there, waiting = [a_node("n1", 64, BUSY)], claim(0, gpus=2, cpu_milli=32_000)
    planned = PlannedPass(run_pass(there, waiting), there, {"c0": waiting}, {}, {}, {}, None,
                          NoBookings(), 0.0)
    assert planned.standing(waiting).why == (
        "it asks for 2 GPUs, 32 CPUs; 3 of 4 matching are free, it needs 32 CPUs, 16 of 64 are not "
        "allocated")


def test_it_says_that_it_waits_for_memory_and_on_which_of_several_nodes() -> None:
    there = [a_node("n1", None, BUSY, gib=256), a_node("n2", None, gib=32)]
    waiting = claim(0, ram_bytes=64 * GIB)
    planned = PlannedPass(run_pass(there, waiting), there, {"c0": waiting}, {}, {}, {}, None,
                          NoBookings(), 0.0)
    assert planned.standing(waiting).why == (
        "it asks for 1 GPU, 64 GiB of memory; 7 of 8 matching are free, it needs 64 GiB of memory, "
        "56 of 256 GiB are not allocated on n1")


def test_more_than_any_node_has_is_refused_with_what_there_is() -> None:
    there = [a_node("n1", 64), a_node("n2", 32)]
    assert never(claim(0, cpu_milli=65_000), there) == (
        "no node here has such GPUs and 65 CPUs; the largest has 64 CPUs")
    assert never(claim(0, cpu_milli=64_000), there) == ""
    assert never(claim(0, ram_bytes=GIB), [a_node("n1", None)]) == ""
    assert never(claim(0, cpu_milli=1_000, ram_bytes=65 * GIB), [a_node("n1", 8, gib=64)]) == (
        "no node here has such GPUs and 1 CPU, 65 GiB of memory; the largest has 8 CPUs, 64 GiB of "
        "memory")
    assert never(claim(0, cpu_milli=65_000), [*there, a_node("n3", None)]) == ""
    report = msgspec.structs.replace(there[0].report, managed_by="Slurm")
    there[0] = replace(there[0], report=report)
    assert "Slurm" in never(claim(0, cpu_milli=64_000), there)
