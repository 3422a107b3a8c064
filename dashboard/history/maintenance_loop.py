"""Runs what history does with time, beside the loop."""

import logging
import time

import gevent

from .store import HistoryStore

log = logging.getLogger("gpudeck.history")

TEND_EVERY_S = 5.0


def keep(store: HistoryStore) -> None:
    """A greenlet that waits; the work is done in gevent's pool of native threads."""
    while True:
        gevent.sleep(TEND_EVERY_S)
        gevent.get_hub().threadpool.apply(tend, (store, time.time(), time.monotonic()))


def tend(store: HistoryStore, now: float, mono: float) -> None:
    """gevent writes an exception that leaves a thread to stderr, where nobody would count it."""
    try:
        store.tend(now, mono)
    except Exception:
        store.failures += 1
        log.exception("history could not be tended")
