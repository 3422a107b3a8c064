"""Reasons why a claim waits, or could never be met, as its owner reads them."""

from dataclasses import replace

import pytest

from agent.cli.run import say_place
from gpudeck.contract.pool_messages import ClaimWaits
from gpudeck.pool.core.claims import Claim
from gpudeck.pool.core.feasibility import why_never, why_waits
from gpudeck.pool.core.inventory import FreeGpu, Node, node_of
from gpudeck.pool.core.wait_estimate import BOUND_MOST_S, WaitEstimate, known_bound

HOUR_S, NOW = 3_600.0, 1_795_856_400.0  # 2026-11-28 09:00 UTC
GIB = 2**30


def node(count: int = 4, model: str = "H100", is_mig: bool = False) -> Node:
    return node_of("n1", "n1", [(f"G{at}", FreeGpu(model, is_mig, None, None, 10 * GIB))
                                for at in range(count)])


def claim(gpus: int = 1, term_s: float = 25 * HOUR_S, model: str = "", share: int = 1_000) -> Claim:
    return Claim(id="c", owner="ann", gpus=gpus, submitted_at=NOW, term_s=term_s,
                 models=(model,) if model else (), share_milli=share)


def why(waiting: Claim, reserved: dict[str, float], at: str = "n1") -> str:
    """`reserved`: GPUs of the node `at`."""
    there, starts = [node()], {(at, uuid): start for uuid, start in reserved.items()}
    return why_waits(waiting, there, there, {(at, "G9"): "lost", ("n2", "G0"): "lost"}, starts,
                     NOW)


def test_a_reservation_of_somebody_else_is_in_the_reason() -> None:
    tomorrow = dict.fromkeys(("G0", "G1", "G2", "G3"), NOW + 24 * HOUR_S)
    assert why(claim(), {}) == "it asks for 1 GPU; 4 of 4 matching are free"
    assert why(claim(), tomorrow) == (
        "it asks for 1 GPU; 4 of 4 matching are free, 4 of these are reserved from "
        "2026-11-29 09:00 UTC on, and it asks for 25 h")
    assert why(claim(term_s=2 * HOUR_S), tomorrow) == why(claim(), {}), "it ends before"
    assert why(claim(), tomorrow, "n2") == why(claim(), {}), "of those names on another node"
    assert ", 1 of these is reserved from now, and" in why(claim(), {"G2": NOW - 5})


@pytest.mark.parametrize(("wish", "sentence"), [
    (claim(2, model="1g.10gb"), "one process sees one of them: ask for 1 GPU"),
    (claim(model="1g.10gb", share=300), "no part of one can be limited: leave the share out"),
])
def test_what_one_process_cannot_see_is_no_lack_of_memory(wish: Claim, sentence: str) -> None:
    there = [node(4, "H100 1g.10gb", is_mig=True)]
    assert why_never(wish, there) == f"only MIG instances match here, and {sentence}"
    assert why_never(replace(wish, gpus=1, share_milli=1_000), there) == ""
    too_large = replace(wish, gpus=1, share_milli=1_000, mem_bytes=20 * GIB)
    assert "no GPU here has this much memory" in why_never(too_large, there)


@pytest.mark.parametrize(("waits", "sentence"), [
    (ClaimWaits(1, "busy", 2_400.0),
     "number 1 in the queue: busy; 40 min at most, if running commands end on time"),
    (ClaimWaits(1, "busy", known_bound(31_621_980.0)),
     "number 1 in the queue: busy; how long is not known"),
    (ClaimWaits(3, "busy"), "number 3 in the queue: busy"),
    (ClaimWaits(1, "busy", 86_400.0, WaitEstimate(1_200.0, 2_400.0, 4_200.0, 12)),
     "number 1 in the queue: busy; about 40 min, 50 % between 20 min and 70 min; from 12 earlier "
     "runs; 1 d at most, if running commands end on time"),
])
def test_how_long_is_said_in_spans_or_not_at_all(
        waits: ClaimWaits, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    say_place(waits)
    assert capsys.readouterr().err == f"gpudeck: {sentence}\n"


def test_a_bound_of_weeks_is_none() -> None:
    assert known_bound(BOUND_MOST_S) == BOUND_MOST_S
    assert known_bound(BOUND_MOST_S + 1) is None
