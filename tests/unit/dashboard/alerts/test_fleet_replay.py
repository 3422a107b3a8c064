"""Silent nodes of the past, by what was sampled in each second."""

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


def samples_of(spans_by_gpu: dict[int, list[tuple[int, int]]], seconds: int,
               stale: tuple[tuple[int, int], ...] = ()) -> ReplayedSamples:
    """Samples of each GPU in its spans, and when it was said to be stale (GPU, second)."""
    state = np.full((3, seconds), np.nan)
    for gpu, spans in spans_by_gpu.items():
        for first, last in spans:
            state[gpu, first:last] = 0
    for gpu, second in stale:
        state[gpu, second] = STALE
    return ReplayedSamples(BEGIN, state, {"power_w": np.where(np.isnan(state), np.nan, 100.0)})


def replay(samples: ReplayedSamples, since: np.ndarray = UNKNOWN) -> ReplayedFleetState:
    return FleetStateReplay(BEGIN).take(samples, NODES, since)


def silent(state: ReplayedFleetState, node: int) -> list[int]:
    """Return the seconds at which silences of the node begin and end, in turn."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], state.is_silent[node], [0]])))
    return [int(at) for at in edges]


def test_a_node_is_silent_a_minute_after_its_last_sample() -> None:
    state = replay(samples_of({0: [(0, 300)], 1: [(0, 300)], 2: [(0, 100), (200, 230)]}, 300))
    assert silent(state, 0) == []
    assert silent(state, 1) == [159, 200, 289, 300]


def test_one_gpu_that_is_heard_of_is_enough_and_the_other_is_not_listed() -> None:
    state = replay(samples_of({0: [(0, 300)], 1: [(0, 50)], 2: [(0, 300)]}, 300))
    assert silent(state, 0) == []
    assert state.is_listed[1].sum() == 50
    assert state.age_s[1, 60] == 11


def test_while_nobody_is_heard_of_it_is_this_hub_that_is_away() -> None:
    """Silence that began before goes on from there."""
    state = replay(samples_of({0: [(0, 100), (400, 600)], 1: [(0, 100), (400, 600)], 2: [(0, 90)]},
                              600))
    assert np.flatnonzero(state.is_blind).tolist() == list(range(105, 400))
    is_sighted = ~state.is_blind
    assert state.is_silent[0][is_sighted].sum() == 0
    # 10 s before the hub was away, and the other 50 after it is back.
    assert np.flatnonzero(state.is_silent[1] & is_sighted).min() == 450


def test_who_said_that_nothing_is_read_is_not_silent() -> None:
    spans = {0: [(0, 300)], 1: [(0, 300)], 2: [(0, 100)]}
    assert silent(replay(samples_of(spans, 300)), 1) == [159, 300]
    assert silent(replay(samples_of(spans, 300, ((2, 100),))), 1) == []


def test_who_belonged_to_the_hub_is_missed_from_then_on() -> None:
    spans = {0: [(0, 300)], 1: [(0, 300)], 2: [(200, 300)]}
    late = replay(samples_of(spans, 300))
    assert np.flatnonzero(late.is_there[1]).min() == 200
    missed = replay(samples_of(spans, 300), np.array([np.inf, BEGIN + 20.0]))
    assert np.flatnonzero(missed.is_there[1]).min() == 20
    assert silent(missed, 1) == [80, 200]
    assert not missed.is_heard[1, :200].any()


def test_stretches_come_to_the_same_as_the_whole() -> None:
    spans: dict[int, list[tuple[int, int]]] = {}
    for gpu in range(3):
        cuts = sorted(random.sample(range(900), 8))
        spans[gpu] = [(first, last) for first, last in zip(cuts[::2], cuts[1::2], strict=True)]
    whole, replayer = samples_of(spans, 900), FleetStateReplay(BEGIN)
    cuts = [0, *sorted(random.sample(range(1, 900), 4)), 900]
    parts = [replayer.take(ReplayedSamples(
                 BEGIN + first, whole.state[:, first:last],
                 {"power_w": whole.values["power_w"][:, first:last]}), NODES, UNKNOWN)
             for first, last in pairwise(cuts)]
    whole_state = replay(whole)
    for name in ("age_s", "state", "is_listed", "is_there", "is_heard", "is_silent"):
        np.testing.assert_array_equal(
            np.concatenate([getattr(part, name) for part in parts], axis=1),
            getattr(whole_state, name), name)
    np.testing.assert_array_equal(np.concatenate([part.is_blind for part in parts]),
                                  whole_state.is_blind)
    np.testing.assert_array_equal(
        np.concatenate([part.values["power_w"] for part in parts], axis=1),
        whole_state.values["power_w"])
