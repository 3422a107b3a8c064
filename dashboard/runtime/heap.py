"""Free memory goes back to the machine. Else a process is, for good, as large as it was at its
busiest moment: glibc gives back by itself only what is free at the very end of its heap."""

import ctypes

import gevent

TRIM_EVERY_S = 30.0


def return_free_memory(_now: float, _mono: float) -> None:
    """In a native thread, for it may take milliseconds; nothing where libc is another."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        gevent.get_hub().threadpool.apply(trim, (0,))
