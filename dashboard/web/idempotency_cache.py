"""What was answered to a request that may be asked again, so that asking twice does once.

A key is the asker's own: it means a request only together with the credential that brought it.
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
    asked: bytes
    at: float
    said: IdempotentResponse | None = None


class IdempotencyCache:
    """Oldest first. One asker cannot push out the answers of another: each has a number of their
    own, and over all of them only the bytes are bounded."""

    def __init__(self) -> None:
        self._entries: OrderedDict[tuple[str, str], _IdempotencyEntry] = OrderedDict()
        self._bytes = 0

    def begin(self, asker: str, key: str, asked: bytes,
              now: float) -> tuple[IdempotencyStatus, IdempotentResponse | None]:
        self._forget_old(now)
        entry = self._entries.get((asker, key))
        if entry is None:
            self._make_room(asker)
            self._entries[asker, key] = _IdempotencyEntry(asked, now)
            return IdempotencyStatus.NEW, None
        if entry.asked != asked:
            return IdempotencyStatus.OTHER, None
        return (IdempotencyStatus.UNDER_WAY,
                None) if entry.said is None else (IdempotencyStatus.ANSWERED, entry.said)

    def end(self, asker: str, key: str, said: IdempotentResponse | None) -> None:
        """`said` None: nothing was done, and it may be asked again."""
        entry = self._entries.get((asker, key))
        if entry is None:
            return
        if said is None:
            self._drop((asker, key))
            return
        entry.said = said
        self._bytes += len(said.body)
        while self._bytes > MOST_BYTES:
            self._drop(next(self._done()))

    def _forget_old(self, now: float) -> None:
        while (name := next(self._done(), None)) and now - self._entries[name].at > KEPT_S:
            self._drop(name)

    def _make_room(self, asker: str) -> None:
        own = [name for name in self._done() if name[0] == asker]
        for name in own[: max(0, len(own) + 1 - MOST_KEPT_OF_ONE)]:
            self._drop(name)

    def _done(self) -> Iterator[tuple[str, str]]:
        return (name for name, entry in self._entries.items() if entry.said is not None)

    def _drop(self, name: tuple[str, str]) -> None:
        said = self._entries.pop(name).said
        self._bytes -= 0 if said is None else len(said.body)
