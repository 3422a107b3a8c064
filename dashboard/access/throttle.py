"""Limit of password guesses that are evaluated: per account, per address, per known device.

An attacker who uses up an account's share must not lock its owner out, so a device that has signed
in to that account before is counted separately.
"""

from collections import deque
from typing import Literal

Lane = Literal["account", "address", "device"]


WITHIN_S = 900.0
GUESSES: dict[Lane, int] = {"account": 20, "address": 60, "device": 10}
# Keys are numbers below this, so the table is bounded whatever names and addresses are sent.
KEYS = 65_536

Key = tuple[Lane, int]


class SignInThrottle:
    def __init__(self) -> None:
        self._guesses: dict[Key, deque[float]] = {}

    def take(self, keys: list[Key], mono: float) -> float:
        """Count a guess and return 0 if it may be evaluated; else the seconds until one may."""
        wait_s = max(self._wait_s(key, mono) for key in keys)
        if wait_s == 0:
            for key in keys:
                self._guesses.setdefault(key, deque()).append(mono)
        return wait_s

    def give_back(self, keys: list[Key]) -> None:
        """Undo the count: the password was right, or nothing was evaluated."""
        for key in keys:
            guesses = self._guesses.get(key)
            if guesses:
                guesses.pop()

    def _wait_s(self, key: Key, mono: float) -> float:
        guesses = self._guesses.get(key)
        if guesses is None:
            return 0.0
        while guesses and mono - guesses[0] >= WITHIN_S:
            guesses.popleft()
        if not guesses:
            del self._guesses[key]
            return 0.0
        return 0.0 if len(guesses) < GUESSES[key[0]] else guesses[0] + WITHIN_S - mono
