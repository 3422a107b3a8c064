"""Who was silent when, by what was sampled in each second."""

import random
from itertools import pairwise

import numpy as np

from dashboard.alerts.rehearsal.fleet_replay import (
    STALE,
    FleetStateReplay,
    ReplayedFleetState,
    ReplayedSamples,
)

BEGIN = 1_700_000_000
UNKNOWN = np.array([np.inf, np.inf])
NODES = np.array([0, 0, 1])  # of three GPUs


def told(seen: dict[int, list[tuple[int, int]]], seconds: int,
         stale: tuple[tuple[int, int], ...] = ()) -> ReplayedSamples:
    """Of each GPU when it was sampled, and when it was said to be stale (GPU, second)."""
    state = np.full((3, seconds), np.nan)
    for gpu, spans in seen.items():
        for first, last in spans:
            state[gpu, first:last] = 0
    for gpu, second in stale:
        state[gpu, second] = STALE
    return ReplayedSamples(BEGIN, state, {"power_w": np.where(np.isnan(state), np.nan, 100.0)})


def known(what: ReplayedSamples, since: np.ndarray = UNKNOWN) -> ReplayedFleetState:
    return FleetStateReplay(BEGIN).take(what, NODES, since)


def silent(found: ReplayedFleetState, node: int) -> list[int]:
    """From and until when."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], found.is_silent[node], [0]])))
    return [int(at) for at in edges]


def test_a_node_is_silent_a_minute_after_its_last_sample() -> None:
    found = known(told({0: [(0, 300)], 1: [(0, 300)], 2: [(0, 100), (200, 230)]}, 300))
    assert silent(found, 0) == []
    assert silent(found, 1) == [159, 200, 289, 300]


def test_one_gpu_that_is_heard_of_is_enough_and_the_other_is_not_listed() -> None:
    found = known(told({0: [(0, 300)], 1: [(0, 50)], 2: [(0, 300)]}, 300))
    assert silent(found, 0) == []
    assert found.is_listed[1].sum() == 50
    assert found.age_s[1, 60] == 11


def test_while_nobody_is_heard_of_it_is_this_hub_that_is_away() -> None:
    """And what was silent before goes on from there."""
    found = known(told({0: [(0, 100), (400, 600)], 1: [(0, 100), (400, 600)], 2: [(0, 90)]}, 600))
    assert np.flatnonzero(found.is_blind).tolist() == list(range(105, 400))
    seen = ~found.is_blind
    assert found.is_silent[0][seen].sum() == 0
    # 10 s before the hub was away, and the other 50 after it is back.
    assert np.flatnonzero(found.is_silent[1] & seen).min() == 450


def test_who_said_that_nothing_is_read_is_not_silent() -> None:
    seen = {0: [(0, 300)], 1: [(0, 300)], 2: [(0, 100)]}
    assert silent(known(told(seen, 300)), 1) == [159, 300]
    assert silent(known(told(seen, 300, ((2, 100),))), 1) == []


def test_who_belonged_to_the_hub_is_missed_from_then_on() -> None:
    seen = {0: [(0, 300)], 1: [(0, 300)], 2: [(200, 300)]}
    late = known(told(seen, 300))
    assert np.flatnonzero(late.is_there[1]).min() == 200
    missed = known(told(seen, 300), np.array([np.inf, BEGIN + 20.0]))
    assert np.flatnonzero(missed.is_there[1]).min() == 20
    assert silent(missed, 1) == [80, 200]
    assert not missed.is_heard[1, :200].any()


def test_stretches_come_to_the_same_as_the_whole() -> None:
    spans: dict[int, list[tuple[int, int]]] = {}
    for gpu in range(3):
        cuts = sorted(random.sample(range(900), 8))
        spans[gpu] = [(first, last) for first, last in zip(cuts[::2], cuts[1::2], strict=True)]
    whole, heard = told(spans, 900), FleetStateReplay(BEGIN)
    cuts = [0, *sorted(random.sample(range(1, 900), 4)), 900]
    parts = [heard.take(ReplayedSamples(BEGIN + first, whole.state[:, first:last],
                                        {"power_w": whole.values["power_w"][:, first:last]}), NODES,
                        UNKNOWN)
             for first, last in pairwise(cuts)]
    wanted = known(whole)
    for name in ("age_s", "state", "is_listed", "is_there", "is_heard", "is_silent"):
        np.testing.assert_array_equal(
            np.concatenate([getattr(part, name) for part in parts], axis=1),
            getattr(wanted, name), name)
    np.testing.assert_array_equal(np.concatenate([part.is_blind for part in parts]),
                                  wanted.is_blind)
    np.testing.assert_array_equal(
        np.concatenate([part.values["power_w"] for part in parts], axis=1),
        wanted.values["power_w"])
