"""History queries: a few at once, in gevent's native threads, so that the live path goes on."""

from collections.abc import Callable
from http import HTTPStatus
from typing import TypeVar

import msgspec
from gevent.lock import BoundedSemaphore

from ..errors import ArchiveAwayError, ResultTooLargeError, UnknownMetricError
from ..runtime.native_threads import in_thread
from .answers import ApiError, bad

AT_ONCE = 4
WAIT_S = 10.0

T = TypeVar("T")


class QueryPool:
    """The pool shared by all routes of a hub."""

    def __init__(self) -> None:
        self._turns = BoundedSemaphore(AT_ONCE)

    def ask(self, question: Callable[[], T]) -> T:
        """Run a query. It should return the body of the answer: what is made of many numbers
        belongs in the thread as well."""
        if not self._turns.acquire(timeout=WAIT_S):
            raise ApiError(HTTPStatus.SERVICE_UNAVAILABLE,
                           "too many history queries at once; try again in a moment")
        try:
            return in_thread(question)
        except (ResultTooLargeError, UnknownMetricError) as error:
            raise bad(str(error)) from error
        except ArchiveAwayError as error:
            raise ApiError(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from error
        finally:
            self._turns.release()

    def encoded(self, question: Callable[[], msgspec.Struct]) -> msgspec.Raw:
        """Run a query and encode its result as JSON."""
        return msgspec.Raw(self.ask(lambda: msgspec.json.encode(question())))
