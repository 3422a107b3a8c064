"""Time that tests wait for a state: so long that only what hangs is given up. How soon something
comes is measured by tests that say so, and by `make bench`."""

GIVE_UP_S = 120.0
GIVE_UP_MS = GIVE_UP_S * 1_000
HANGS_S = 900  # a test of `check`, in what it waits for without such a limit
