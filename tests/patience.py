"""Time that tests wait for a state: so long that only what hangs is given up. How soon something
comes is measured by tests that say so, and by `make bench`."""

GIVE_UP_S = 120.0
GIVE_UP_MS = GIVE_UP_S * 1_000
LOOK_EVERY_S, LOOK_MOST_S = 0.02, 0.25
HANGS_S = 900  # a test of `check`, in what it waits for without such a limit


def pause_s(wait_s: float, look_s: float) -> float:
    """Return how long to wait before the next look: looks that ask a hub or start a program take
    the processor from what is waited for, so they pause for longer than they take, and the longer
    the longer it takes."""
    return min(max(LOOK_EVERY_S, wait_s / 20, 3 * look_s), LOOK_MOST_S)
