"""Return of free memory to the machine. Otherwise a process is, for good, as large as at its
busiest moment: glibc gives back by itself only what is free at the very end of its heap."""

import ctypes

import gevent

TRIM_EVERY_S = 30.0


def return_free_memory(_now: float, _mono: float) -> None:
    """Trim the heap in a native thread, as that may take milliseconds; nothing without glibc."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        gevent.get_hub().threadpool.apply(trim, (0,))
