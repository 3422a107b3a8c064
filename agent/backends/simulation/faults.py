"""The seeded schedule of lost Gpus: now and then one falls off the bus for some minutes."""

from .chance import between, roll, seed_of

WINDOW_S = 900.0


def lost_gpu(seed: int, node: str, gpus: int, at: float, odds: float) -> int | None:
    """The index of the Gpu of this node that is lost at this moment, if one is. `odds` is the
    chance that a quarter of an hour takes one from this node."""
    if gpus == 0:
        return None
    window = int(at // WINDOW_S)
    here = seed_of(seed, node, "faults", window)
    if roll(here, 0) >= odds:
        return None
    begins_s = between(120, 420, roll(here, 1))
    lasts_s = between(120, 450, roll(here, 2))
    if not begins_s <= at % WINDOW_S < begins_s + lasts_s:
        return None
    return int(roll(here, 3) * gpus)
