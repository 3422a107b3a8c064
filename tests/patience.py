"""Time that tests wait for a state: so long that only what hangs is given up. How soon something
comes is measured by tests that say so, and by `make bench`."""

GIVE_UP_S = 120.0
GIVE_UP_MS = GIVE_UP_S * 1_000
LOOK_EVERY_S, LOOK_MOST_S = 0.02, 0.25
HANGS_S = 900  # a test of `check`, in what it waits for without such a limit


def pause_s(waited_s: float, looked_s: float) -> float:
    """Return how long to wait before the next look: looks that ask a hub or start a program would
    take the processor from what is waited for. They get a quarter of the time at most, and are the
    rarer the longer it takes."""
    return min(max(LOOK_EVERY_S, waited_s / 20, 3 * looked_s), LOOK_MOST_S)
