"""Slow work in gevent's native threads, while the loop goes on."""

from collections.abc import Callable
from typing import TypeVar

import gevent

T = TypeVar("T")


def in_thread(work: Callable[[], T]) -> T:
    outcome: T | Exception = gevent.get_hub().threadpool.apply(_catch, (work,))
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _catch(work: Callable[[], T]) -> T | Exception:
    """Return an exception, not raise it: gevent writes one that leaves a thread to stderr."""
    try:
        return work()
    except Exception as error:
        return error
