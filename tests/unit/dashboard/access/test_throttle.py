"""Guesses are counted, per account, address and known device."""

import random

from dashboard.access.throttle import GUESSES, Key, SignInThrottle

ACCOUNT: Key = ("account", 7)
ADDRESS: Key = ("address", 9)
DEVICE: Key = ("device", 7)


def accepted_guesses(throttle: SignInThrottle, keys: list[Key], times: list[float]) -> int:
    return sum(throttle.take(keys, mono) == 0 for mono in times)


def test_no_more_than_twenty_per_account_in_any_quarter_hour() -> None:
    throttle, chance = SignInThrottle(), random.Random(random.random())
    mono, let_through = 0.0, []
    for _ in range(10_000):
        mono += chance.expovariate(1.0)
        if throttle.take([ACCOUNT], mono) == 0:
            let_through.append(mono)
    assert len(let_through) > 100
    for first, later in zip(let_through, let_through[20:], strict=False):
        assert later - first >= 900


def test_the_wait_that_is_said_is_the_wait_that_is_needed() -> None:
    throttle = SignInThrottle()
    assert accepted_guesses(throttle, [ACCOUNT], [0.0] * 30) == 20
    wait_s = throttle.take([ACCOUNT], 100.0)
    assert wait_s == 800.0
    assert throttle.take([ACCOUNT], 100.0 + wait_s - 0.1) > 0
    assert throttle.take([ACCOUNT], 100.0 + wait_s) == 0


def test_one_address_cannot_try_account_after_account() -> None:
    throttle = SignInThrottle()
    accepted = sum(throttle.take([("account", at), ADDRESS], 0.0) == 0 for at in range(1_000))
    assert accepted == GUESSES["address"]


def test_a_guess_that_is_not_taken_counts_nowhere() -> None:
    throttle = SignInThrottle()
    accepted_guesses(throttle, [ADDRESS], [0.0] * 60)
    assert throttle.take([ACCOUNT, ADDRESS], 0.0) > 0
    assert accepted_guesses(throttle, [ACCOUNT], [0.0] * 30) == 20


def test_a_known_device_has_its_own_share() -> None:
    throttle = SignInThrottle()
    accepted_guesses(throttle, [ACCOUNT, ADDRESS], [0.0] * 10_000)
    assert throttle.take([DEVICE], 1.0) == 0
    assert accepted_guesses(throttle, [DEVICE], [1.0] * 100) == GUESSES["device"] - 1


def test_the_right_password_costs_nothing() -> None:
    throttle = SignInThrottle()
    for mono in range(1_000):
        assert throttle.take([ACCOUNT], float(mono) / 10) == 0
        throttle.give_back([ACCOUNT])


def test_what_is_held_has_an_end() -> None:
    throttle = SignInThrottle()
    for mono in (0.0, 1_000.0):
        accepted_guesses(throttle, [ACCOUNT], [mono] * 50)
        assert sum(map(len, throttle._guesses.values())) <= 20
    assert throttle.take([ACCOUNT], 5_000.0) == 0
