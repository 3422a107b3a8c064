"""Chance without state: the same place and moment always roll the same dice."""

from hashlib import blake2b

_MASK = 2**64 - 1


def seed_of(*words: object) -> int:
    text = "/".join(map(str, words)).encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big")


def roll(seed: int, moment: int) -> float:
    """Uniform in [0, 1): splitmix64's finaliser over the pair."""
    mixed = (seed + moment * 0x9E3779B97F4A7C15) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    return (mixed ^ (mixed >> 31)) / 2**64


def between(low: float, high: float, part: float) -> float:
    return low + (high - low) * part
