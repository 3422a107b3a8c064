"""Rolling windows, compared with sums over everything that was ever seen."""

import random

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dashboard.alerts.core.minute_blocks import AnomalyWindow, GrowthWindow
from dashboard.alerts.core.rolling_windows import MOST_BUCKETS, SAVED, RollingWindow
from dashboard.alerts.core.row_state import RowValues, SavedWindow
from dashboard.alerts.core.rule_signal import How, SignalTerm

HOWS: tuple[How, ...] = ("avg", "min", "max", "rate", "increase")


def value_from_all(how: How, samples: list[tuple[int, float]], since: int) -> float:
    """Compute the value of one row from all its samples."""
    inside = [value for second, value in samples if second >= since]
    if how in ("rate", "increase"):
        grown = [0.0 if at == 0 else (
                     value if value < samples[at - 1][1] else value - samples[at - 1][1])
                 / (second - samples[at - 1][0] if how == "rate" else 1)
                 for at, (second, value) in enumerate(samples) if second >= since]
        return sum(grown) / (len(grown) if how == "rate" else 1)
    return {"avg": lambda: sum(inside) / len(inside), "min": lambda: min(inside),
            "max": lambda: max(inside)}[how]()


@settings(max_examples=120, deadline=None)
@given(how=st.sampled_from(HOWS), span=st.sampled_from([2, 7, 60, 61, 150, 600]),
       steps=st.lists(st.tuples(st.sampled_from([1, 1, 1, 2, 30, 500, 5_000]),
                                st.one_of(st.none(), st.integers(0, 100))), max_size=120))
def test_a_window_is_what_all_of_it_says(how: How, span: int, steps: list[tuple[int, int | None]]
                                         ) -> None:
    window = RollingWindow(SignalTerm(how, "x", span), 1, 0.05, 1)
    length = max(1, -(-span // MOST_BUCKETS))
    buckets = -(-span // length)
    samples: list[tuple[int, float]] = []
    second = 1_000
    for gap, value in steps:
        second += gap
        window.add(second, np.array([np.nan if value is None else float(value)]))
        if value is not None:
            samples.append((second, float(value)))
        since = (second // length - buckets) * length
        inside = [sample for sample in samples if sample[0] >= since]
        got = window.values()[0]
        if len(inside) < max(1.0, 0.05 * span):
            assert np.isnan(got)
        else:
            assert got == pytest.approx(value_from_all(how, samples, since))


def test_a_rate_is_what_the_board_drew_whatever_the_recording_does() -> None:
    """Found by examiners: a looping recording drew 4,130,205 W, and 32 alerts were rehearsed."""
    watts, begin = random.uniform(50, 700), random.uniform(1e5, 1e9)
    window = RollingWindow(SignalTerm("rate", "energy_j", 60), 1, 0.5, 4)
    total = RollingWindow(SignalTerm("increase", "energy_j", 60), 1, 0.5, 1)
    for second in range(300):
        steady, looped = begin + second * watts, begin + second % 70 * watts
        jumped = steady + (1e7 if second > 100 else 0.0)
        gap = np.nan if 100 < second < 115 else steady
        window.add(second, np.array([steady, looped, jumped, gap]))
        total.add(second, np.array([looped]))
        if second > 40:
            assert window.values() == pytest.approx([watts] * 4, rel=0.05)
        if second > 61:
            assert total.values()[0] == pytest.approx(60 * watts, rel=0.05)


def test_a_counter_that_begins_at_nothing_again_counts_from_there() -> None:
    window = RollingWindow(SignalTerm("increase", "ecc_corrected", 60), 1, 0.1, 1)
    for second, value in enumerate([5.0] * 20 + [3.0] * 20):
        window.add(second, np.array([value]))
    assert window.values()[0] == 3.0


def test_the_time_of_a_look_does_not_change_a_rate() -> None:
    """Looks come late and early: two samples in one second, none in another."""
    watts = random.uniform(50, 700)
    window = RollingWindow(SignalTerm("rate", "energy_j", 30), 1, 0.5, 1)
    for tick in range(100):
        window.add(int(tick + random.random()), np.array([1e6 + tick * watts]),
                   np.array([tick + 0.2]))
    assert window.values()[0] == pytest.approx(watts, rel=0.05)


def test_a_span_with_too_few_samples_has_no_value() -> None:
    window = RollingWindow(SignalTerm("avg", "x", 60), 1, 0.8, 2)
    for second in range(47):
        window.add(second, np.array([5.0, 5.0 if second % 2 else np.nan]))
    assert np.isnan(window.values()).all()
    for second in range(47, 120):
        window.add(second, np.array([5.0, 5.0 if second % 2 else np.nan]))
    assert window.values()[0] == 5.0
    assert np.isnan(window.values()[1])


def test_a_row_that_is_somebody_elses_begins_anew() -> None:
    window = RollingWindow(SignalTerm("max", "x", 10), 1, 0.1, 2)
    for second in range(5):
        window.add(second, np.array([99.0, 98.0]))
    window.forget(np.array([0]))
    window.add(5, np.array([3.0, 1.0]))
    assert window.values().tolist() == [3.0, 98.0]
    window.grow(3)
    window.add(6, np.array([4.0, 1.0, 7.0]))
    assert window.values().tolist() == [4.0, 98.0, 7.0]


class PlainRing:
    """Ring whose buckets are all read again each time."""

    def __init__(self, how: How, span: int) -> None:
        self.how, self.buckets = how, span
        self.ring: dict[int, float] = {}
        self.at: int | None = None
        self.open: list[float] = []
        self.closed: list[float] = []

    def take(self, second: int, value: float | None) -> float | None:
        if self.at is None or second < self.at:
            self.at = second
        if second > self.at:
            for number in range(max(self.at, second - self.buckets), second):
                self.ring.pop(number % self.buckets, None)
                if number == self.at and self.open:
                    self.ring[number % self.buckets] = self.pick(self.open)
            self.closed, self.open, self.at = [*self.ring.values()], [], second
        self.open += [] if value is None else [value]
        values = [*self.closed, *self.open]
        return self.pick(values) if values else None

    def pick(self, values: list[float]) -> float:
        return max(values) if self.how == "max" else min(values)


def test_a_clock_that_goes_back_loses_nothing_of_a_window() -> None:
    for seed in random.sample(range(2**32), 100):
        chance = random.Random(seed)
        how: How = chance.choice(("min", "max"))
        span, second = chance.choice((2, 7, 13)), 1_000
        window, plain = RollingWindow(SignalTerm(how, "x", span), 1, 0.01, 1), PlainRing(how, span)
        for _ in range(60):
            second += chance.choice((1, 1, 1, 0, 2, 9, 40, -1, -4, -20))
            value = chance.choice((None, float(chance.randint(0, 100))))
            window.add(second, np.array([np.nan if value is None else value]))
            reference, got = plain.take(second, value), window.values()[0]
            assert np.isnan(got) if reference is None else got == reference, seed


@settings(max_examples=150, deadline=None)
@given(how=st.sampled_from(HOWS), span=st.sampled_from([2, 7, 60, 61, 150, 600]),
       seed=st.integers(0, 2**32), gap=st.sampled_from([0, 1, 40, 700]), warm=st.integers(0, 200))
def test_a_window_goes_on_over_a_restart_in_another_row(how: How, span: int, seed: int, gap: int,
                                                        warm: int) -> None:
    """`warm`: seconds that the new hub has watched other rows before the target appears."""
    lots, term = random.Random(seed), SignalTerm(how, "x", span)
    second, whole = 10_000, RollingWindow(term, 1, 0.05, 1)

    def sample() -> float:
        return lots.choice((np.nan, lots.uniform(0, 100)))

    for _ in range(lots.randrange(1, 400)):
        second += 1
        whole.add(second, np.array([sample()]))
    saved = whole.saved(0)
    assert saved is not None
    stored = msgspec.json.decode(msgspec.json.encode(saved), type=SavedWindow)
    after, row = RollingWindow(term, 1, 0.05, 3), lots.randrange(3)
    second += gap
    for _ in range(warm):
        second += 1
        after.add(second, np.array([np.nan if at == row else sample() for at in range(3)]))
    after.restore(row, stored)
    for _ in range(lots.randrange(1, 900)):
        second += lots.choice((1, 1, 1, 3))
        value = sample()
        whole.add(second, np.array([value]))
        after.add(second, np.array([value if at == row else sample() for at in range(3)]))
        assert after.values()[row] == pytest.approx(whole.values()[0], nan_ok=True)


@settings(max_examples=40, deadline=None)
@given(is_growth=st.booleans(), seed=st.integers(0, 2**32), gap=st.sampled_from([0, 1, 9, 200]))
def test_blocks_of_minutes_go_on_over_a_restart(is_growth: bool, seed: int, gap: int) -> None:
    lots = random.Random(seed)
    term = SignalTerm("growth", "mem_used_bytes", 2_880) if is_growth else SignalTerm(
        "anomaly", "power_w", 7_200)
    kind = GrowthWindow if is_growth else AnomalyWindow
    whole, after, row = kind(term, 60, 0.8), kind(term, 60, 0.8), lots.randrange(3)
    whole.grow(1)
    after.grow(3)
    minute, level = 20_000, 500.0

    def sample() -> float:
        return lots.choice((np.nan, *[level + minute * is_growth + lots.uniform(0, 9)] * 9))

    for _ in range(lots.randrange(1, 300)):
        minute += 1
        whole.add(60 * minute, np.array([sample()]))
    saved = whole.saved(0)
    assert saved is not None
    minute += gap
    after.restore(row, msgspec.json.decode(msgspec.json.encode(saved), type=SavedWindow))
    level = lots.choice((level, 700.0))
    for _ in range(150):
        minute += 1
        value = sample()
        whole.add(60 * minute, np.array([value]))
        after.add(60 * minute, np.array([value if at == row else sample() for at in range(3)]))
        assert after.values()[row] == pytest.approx(whole.values()[0], nan_ok=True)
        assert after.values().dtype == whole.values().dtype


def test_a_window_of_another_version_begins_empty() -> None:
    window = RollingWindow(SignalTerm("max", "x", 60), 1, 0.05, 1)
    foreign_parts: list[list[RowValues]] = [
        [{}], [], [dict.fromkeys(SAVED, bytes(8))], [dict.fromkeys(SAVED, b"x")]]
    for parts in foreign_parts:
        with pytest.raises((KeyError, IndexError, ValueError)):
            window.restore(0, SavedWindow(5, parts))
    for second in range(100, 103):
        window.add(second, np.array([3.0]))
    assert window.values()[0] == 3.0
