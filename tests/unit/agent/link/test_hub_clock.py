"""The hub's time, by the answer that came fastest."""

import random

from agent.link.hub_clock import ASK_EVERY_S, SAMPLES, HubClock
from gpudeck.contract.actions import CLOCK_KNOWN_FOR_S, SKEW_MAX_S


def ask(clock: HubClock, now: float, trip_s: float, ahead_s: float, back_share: float = 0.5
        ) -> None:
    """Ask once; `back_share` is the way back's share of the trip (half is what can be assumed)."""
    clock_id = clock.ask(now)
    assert clock_id is not None
    clock.receive(clock_id, now + trip_s * (1 - back_share) + ahead_s, now + trip_s)


def test_the_fastest_answer_counts() -> None:
    clock, now, ahead = HubClock(), random.uniform(10, 1e6), random.uniform(-1e9, 1e9)
    clock.connected(now)
    assert clock.at(now) is None
    assert "not known" in clock.doubt(now, now)
    for trip, back in ((3.0, 1.0), (0.01, 0.5), (5.0, 0.0)):
        now = max(now, clock.due_at())
        ask(clock, now, trip, ahead, back)
        now += trip
    at = clock.at(now)
    assert at is not None
    assert abs(at - (now + ahead)) < 0.02
    assert clock.doubt(now, now + ahead + random.uniform(-4.9, 4.9)) == ""
    assert "apart" in clock.doubt(now, now + ahead + random.choice((-1, 1)) * (SKEW_MAX_S + 0.1))


def test_what_was_known_long_ago_is_not_known() -> None:
    clock = HubClock()
    clock.connected(0.0)
    ask(clock, 0.0, 0.1, 5.0)
    assert clock.at(CLOCK_KNOWN_FOR_S) is not None
    assert clock.at(CLOCK_KNOWN_FOR_S + 1) is None


def test_asked_now_and_then_and_only_what_was_asked_counts() -> None:
    clock, now = HubClock(), 0.0
    clock.connected(now)
    times = []
    for _ in range(SAMPLES):
        now = clock.due_at()
        times.append(now)
        ask(clock, now, 0.01, 0.0)
        assert clock.ask(now) is None
    assert times[-1] - times[-2] == ASK_EVERY_S
    clock.receive(10_000, 1e9, now)
    at = clock.at(now)
    assert at is not None
    assert abs(at - now) < 0.1


def test_another_connection_another_clock() -> None:
    clock = HubClock()
    clock.connected(0.0)
    late = clock.ask(0.0)
    assert late is not None
    ask(clock, clock.due_at(), 0.1, 100.0)
    clock.connected(5.0)
    assert clock.at(5.0) is None
    clock.receive(late, 1e9, 5.0)  # an answer of the hub before
    assert clock.at(5.0) is None
