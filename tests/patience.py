"""Time that tests wait for a state: so long that only what hangs is given up. How soon something
comes is measured by tests that say so, and by `make bench`."""

GIVE_UP_S = 120.0
GIVE_UP_MS = GIVE_UP_S * 1_000
LOOK_EVERY_S, LOOK_MOST_S = 0.02, 0.5
HANGS_S = 900  # a test of `check`, in what it waits for without such a limit


def pause_s(looked_s: float) -> float:
    """Return how long to wait before the next look. A look that starts a program takes as much of
    the processor as what is waited for, so it is followed by a pause of its own length."""
    return min(max(LOOK_EVERY_S, looked_s), LOOK_MOST_S)
