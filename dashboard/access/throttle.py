"""How many guesses are evaluated: per account, per address, per known device.

An attacker who uses up an account's share must not shut its owner out, so a device that has signed
in to that account before counts for itself alone.
"""

from collections import deque
from dataclasses import dataclass
from typing import Literal

Lane = Literal["account", "address", "device"]


@dataclass(frozen=True, slots=True)
class GuessLimit:
    guesses: int
    within_s: float


LIMITS: dict[Lane, GuessLimit] = {
    "account": GuessLimit(20, 900.0),
    "address": GuessLimit(60, 900.0),
    "device": GuessLimit(10, 900.0),
}
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
        limit, taken = LIMITS[key[0]], self._taken.get(key)
        if taken is None:
            return 0.0
        while taken and mono - taken[0] >= limit.within_s:
            taken.popleft()
        if not taken:
            del self._taken[key]
            return 0.0
        return 0.0 if len(taken) < limit.guesses else taken[0] + limit.within_s - mono
