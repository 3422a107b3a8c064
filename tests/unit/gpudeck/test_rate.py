"""Rates: how often something that somebody else can cause is reported, and how much is taken."""

import random

from gpudeck.rate import RateLimiter, TokenBucket


def test_one_a_minute_of_each_and_the_rest_is_counted() -> None:
    limiter = RateLimiter()
    counts = [limiter.due("thief", float(at)) for at in range(150)]
    assert [count for count in counts if count is not None] == [0, 59, 59]
    assert limiter.due("other", 149.0) == 0


def test_a_burst_and_then_one_each_interval() -> None:
    burst, every_s = random.randint(2, 9), float(random.randint(2, 90))
    limiter = RateLimiter(burst, every_s)
    assert [limiter.may("key", 0.0) for _ in range(burst + 3)] == [True] * burst + [False] * 3
    later = [at for at in range(1, 400) if limiter.may("key", float(at))]
    assert later == [at for at in range(1, 400) if at % every_s == 0]


def test_a_clock_that_is_set_back_silences_nobody_for_longer_than_an_interval() -> None:
    limiter = RateLimiter(2, 60.0)
    assert limiter.may("key", 1e9)
    assert limiter.may("key", 1e9)
    assert not limiter.may("key", 5.0)
    assert not limiter.may("key", 64.0)
    assert limiter.may("key", 65.0)


def test_many_keys_are_forgotten_and_not_kept_for_ever() -> None:
    limiter = RateLimiter()
    for number in range(20_000):
        limiter.due(number, 0.0)
    assert len(limiter._used) < 5_000


def test_what_is_over_the_rate_takes_nothing() -> None:
    bucket = TokenBucket(2.0, 10.0, 0.0)
    assert bucket.take(10.0, 0.0)
    assert not bucket.take(5.0, 2.0)
    assert bucket.take(4.0, 2.0)
