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


# What is seen most: a task's own faults, now and then a board's. 79 comes with a lost Gpu.
XIDS = (31, 13, 43, 31, 45, 13, 109, 63, 94, 48)
XID_SLOT_S = 60.0


def xids_between(
    seed: int, node: str, gpus: int, after: float, until: float, odds: float
) -> list[tuple[int, int, float]]:
    """(index of the Gpu, Xid, when) of this stretch of time. `odds` as above; an Xid is told of
    this node twice as often as it loses a Gpu."""
    found: list[tuple[int, int, float]] = []
    if gpus == 0 or odds <= 0 or until - after > WINDOW_S:
        return found
    for slot in range(int(after // XID_SLOT_S), int(until // XID_SLOT_S) + 1):
        here = seed_of(seed, node, "xid", slot)
        when = (slot + roll(here, 1)) * XID_SLOT_S
        if roll(here, 0) < 2 * odds * XID_SLOT_S / WINDOW_S and after < when <= until:
            found.append((int(roll(here, 2) * gpus), XIDS[int(roll(here, 3) * len(XIDS))], when))
    return found
