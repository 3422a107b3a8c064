"""Questions to history: some at once, in gevent's native threads, so that live goes on beside."""

from collections.abc import Callable
from http import HTTPStatus
from typing import TypeVar

import gevent
import msgspec
from gevent.lock import BoundedSemaphore

from ..errors import ResultTooLargeError, UnknownMetricError
from .answers import ApiError, bad

AT_ONCE = 4
WAIT_S = 10.0

T = TypeVar("T")


class QueryPool:
    """One for all routes of a hub."""

    def __init__(self) -> None:
        self._turns = BoundedSemaphore(AT_ONCE)

    def ask(self, question: Callable[[], T]) -> T:
        """What it returns should be the body of the answer: what is made of many numbers belongs
        into the thread as well."""
        if not self._turns.acquire(timeout=WAIT_S):
            raise ApiError(HTTPStatus.SERVICE_UNAVAILABLE,
                           "too many questions to history at once; ask again in a moment")
        try:
            found: T | Exception = gevent.get_hub().threadpool.apply(_caught, (question,))
        finally:
            self._turns.release()
        if isinstance(found, ResultTooLargeError | UnknownMetricError):
            raise bad(str(found))
        if isinstance(found, Exception):
            raise found
        return found

    def encoded(self, question: Callable[[], msgspec.Struct]) -> msgspec.Raw:
        """As JSON."""
        return msgspec.Raw(self.ask(lambda: msgspec.json.encode(question())))


def _caught(question: Callable[[], T]) -> T | Exception:
    """gevent writes an exception that leaves a thread to stderr."""
    try:
        return question()
    except Exception as error:
        return error
