"""How many guesses are evaluated: per account, per address, per known device.

An attacker who uses up an account's share must not shut its owner out, so a device that has signed
in to that account before counts for itself alone.
"""

from collections import deque
from typing import Literal

Lane = Literal["account", "address", "device"]


WITHIN_S = 900.0
GUESSES: dict[Lane, int] = {"account": 20, "address": 60, "device": 10}
# Keys are numbers below this: names and addresses without end share a table that has one.
KEYS = 65_536

Key = tuple[Lane, int]


class SignInThrottle:
    def __init__(self) -> None:
        self._taken: dict[Key, deque[float]] = {}

    def take(self, keys: list[Key], mono: float) -> float:
        """0: the guess may be evaluated, and counts. Else the seconds until one may."""
        wait_s = max(self._wait_s(key, mono) for key in keys)
        if wait_s == 0:
            for key in keys:
                self._taken.setdefault(key, deque()).append(mono)
        return wait_s

    def give_back(self, keys: list[Key]) -> None:
        """It was no guess: the password was right, or nothing was evaluated."""
        for key in keys:
            taken = self._taken.get(key)
            if taken:
                taken.pop()

    def _wait_s(self, key: Key, mono: float) -> float:
        taken = self._taken.get(key)
        if taken is None:
            return 0.0
        while taken and mono - taken[0] >= WITHIN_S:
            taken.popleft()
        if not taken:
            del self._taken[key]
            return 0.0
        return 0.0 if len(taken) < GUESSES[key[0]] else taken[0] + WITHIN_S - mono
