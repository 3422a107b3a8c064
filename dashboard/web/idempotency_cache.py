"""Answers to requests that may be sent again, so that sending twice does once.

A key belongs to its client: it means a request only together with the credential that brought it.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

KEPT_S = 86_400.0
MOST_KEPT_OF_ONE = 200
MOST_BYTES = 16_000_000


class IdempotencyStatus(Enum):
    NEW = "to be done now"
    UNDER_WAY = "being done"
    ANSWERED = "done; here is the answer"
    OTHER = "the key was used for another request"


@dataclass(frozen=True, slots=True)
class IdempotentResponse:
    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


@dataclass(slots=True)
class _IdempotencyEntry:
    request_digest: bytes
    at: float
    response: IdempotentResponse | None = None


class IdempotencyCache:
    """Stored answers, oldest first. A client cannot push out the answers of another: the number is
    bounded for each client, and over all of them only the bytes are."""

    def __init__(self) -> None:
        self._entries: OrderedDict[tuple[str, str], _IdempotencyEntry] = OrderedDict()
        self._bytes = 0

    def begin(self, asker: str, key: str, request_digest: bytes,
              now: float) -> tuple[IdempotencyStatus, IdempotentResponse | None]:
        self._forget_old(now)
        entry = self._entries.get((asker, key))
        if entry is None:
            self._make_room(asker)
            self._entries[asker, key] = _IdempotencyEntry(request_digest, now)
            return IdempotencyStatus.NEW, None
        if entry.request_digest != request_digest:
            return IdempotencyStatus.OTHER, None
        return (IdempotencyStatus.UNDER_WAY,
                None) if entry.response is None else (IdempotencyStatus.ANSWERED, entry.response)

    def end(self, asker: str, key: str, response: IdempotentResponse | None) -> None:
        """Store the answer; None: nothing was done, and the request may be sent again."""
        entry = self._entries.get((asker, key))
        if entry is None:
            return
        if response is None:
            self._drop((asker, key))
            return
        entry.response = response
        self._bytes += len(response.body)
        while self._bytes > MOST_BYTES:
            self._drop(next(self._answered_keys()))

    def _forget_old(self, now: float) -> None:
        while (name := next(self._answered_keys(), None)) and now - self._entries[name].at > KEPT_S:
            self._drop(name)

    def _make_room(self, asker: str) -> None:
        own = [name for name in self._answered_keys() if name[0] == asker]
        for name in own[: max(0, len(own) + 1 - MOST_KEPT_OF_ONE)]:
            self._drop(name)

    def _answered_keys(self) -> Iterator[tuple[str, str]]:
        return (name for name, entry in self._entries.items() if entry.response is not None)

    def _drop(self, name: tuple[str, str]) -> None:
        response = self._entries.pop(name).response
        self._bytes -= 0 if response is None else len(response.body)
