"""Traces with bad rows, shares given out, and waits as the hub would have made them."""

import random

import pytest

from gpudeck.pool.core.claims import Claim
from gpudeck.pool.core.fragmentation import ClaimMix, coarse
from gpudeck.pool.core.schedule import PoolPolicy
from gpudeck.pool.core.simulation import TracedClaim, allocation, waiting
from gpudeck.pool.core.strategies import PlacementContext
from gpudeck.pool.plot import allocation_svg
from gpudeck.pool.trace import read_claims, read_nodes
from tests.unit.gpudeck.pool.inventories import claim, node

NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,96000,1,2,G2\nn1,96000,1,many,G2\nn2,,1,4,T4\n"
CLAIMS = """name,cpu_milli,num_gpu,gpu_milli,gpu_spec,qos,creation_time,duration
a,12000,1,460,,LS,10,600
b,1000,2,500,,LS,10,600
c,1000,1,-3,,LS,10,600
d,,8,,G2|T4,BE,20,
"""


def test_bad_rows_are_named_and_the_others_are_read() -> None:
    nodes, claims = read_nodes(NODES.splitlines()), read_claims(CLAIMS.splitlines())
    assert [(row.host, len(row.gpus), row.free_cpu_milli) for row in nodes.rows] == [
        ("n0", 2, 96_000), ("n2", 4, None)]
    assert nodes.bad == ["line 3: gpu: 'many' is not a number from 0 to 1024"]
    first, last = claims.rows
    assert (first.claim.share_milli, first.claim.submitted_at, first.runs_s) == (460, 10.0, 600.0)
    assert (last.claim.gpus, last.claim.models, last.claim.is_preemptible, last.runs_s) == (
        8, ("G2", "T4"), True, None)
    assert [why.partition(":")[0] for why in claims.bad] == ["line 3", "line 4"]


def test_a_table_without_a_column_is_refused() -> None:
    with pytest.raises(ValueError, match="no column num_gpu"):
        read_claims(["name,gpus", "a,1"])


def test_shares_given_out_are_counted_by_hand() -> None:
    """Two GPUs, claims of 600 thousandths: one fits on each, and 400 are of no use to a third."""
    usual = [claim(0, share_milli=600)]
    context = PlacementContext(mix=ClaimMix(usual * 60))
    shares = allocation([node(0, gpus=2)], usual, "pack", 1, random.Random(1), context)
    assert shares.given_pct == {100.0: 60.0, 130.0: 60.0}
    assert shares.unusable_pct == {100.0: 40.0, 130.0: 40.0}


def test_the_gradient_is_coarse_and_rises() -> None:
    marks = [coarse(milli) for milli in (-1e6, -1_000, -40, 0, 10, 40, 1_000, 1e6)]
    assert marks == sorted(marks)
    assert (marks[0], marks[3], marks[4], marks[-1]) == (0, 50, 51, 100)


def test_waits_by_hand() -> None:
    """A single GPU: the second waits for the first's true end, the short third goes in no hole."""
    traced = [TracedClaim(one(0, 0.0), 100.0), TracedClaim(one(1, 10.0), 50.0),
              TracedClaim(one(2, 20.0), 50.0)]
    waits = waiting([node(0, gpus=1)], traced, "best_fit", PlacementContext(mix=ClaimMix(())),
                    PoolPolicy())
    assert (waits.wait_p50_s, waits.wait_p95_s, waits.makespan_s, waits.never) == (
        90.0, 130.0, 200.0, 0)
    assert waits.used_pct == pytest.approx(100.0)


def one(number: int, at: float) -> Claim:
    return claim(number, submitted_at=at, term_s=100.0, owner=f"u{number}")


def test_the_plot_names_each_strategy_and_escapes() -> None:
    lines = {"pack": [(60.0, 60.0), (100.0, 95.2), (130.0, 95.4)],
             "<b>": [(60.0, 60.0), (130.0, 90.0)]}
    svg = allocation_svg(lines, "x & y")
    assert svg.count("<polyline") == 2
    assert "&lt;b&gt;" in svg
    assert "x &amp; y" in svg
