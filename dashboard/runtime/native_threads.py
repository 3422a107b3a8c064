"""Work that takes a while, in gevent's native threads, while the loop goes on."""

from collections.abc import Callable
from typing import TypeVar

import gevent

T = TypeVar("T")


def in_thread(work: Callable[[], T]) -> T:
    found: T | Exception = gevent.get_hub().threadpool.apply(_caught, (work,))
    if isinstance(found, Exception):
        raise found
    return found


def _caught(work: Callable[[], T]) -> T | Exception:
    """gevent writes an exception that leaves a thread to stderr."""
    try:
        return work()
    except Exception as error:
        return error
