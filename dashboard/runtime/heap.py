"""Memory of the hub's process: collected in pauses of a few milliseconds, and given back."""

import ctypes
import gc

import gevent

TRIM_EVERY_S = 30.0
# Others wait while young objects are scanned: with 20,000 of them for up to 14 ms, measured at
# 10,000 GPUs. All objects are scanned as seldom as with (20_000, 20, 50).
THRESHOLDS = 2_000, 10, 1_000


def settle_garbage() -> None:
    """Exempt all present objects from collection: the collector need not scan them again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)


def return_free_memory(_now: float, _mono: float) -> None:
    """Trim the heap in a native thread, as that may take milliseconds; nothing without glibc, which
    gives back by itself only what is free at the very end of its heap."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        gevent.get_hub().threadpool.apply(trim, (0,))
