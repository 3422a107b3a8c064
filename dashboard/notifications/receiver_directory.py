"""The receivers, and the status of each since the hub started."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from ..errors import NotFoundError
from .channels.table import channel_of, with_current_kind
from .receivers import Receiver
from .store import NotificationsStore
from .transports import DeliveryResult


@dataclass(slots=True)
class ReceiverStatus:
    """Each receiver has one sender at a time: one that hangs delays no other."""

    beat_mono: float = float("-inf")
    is_busy: bool = False
    sent: int = 0
    failed: int = 0
    unreached: int = 0  # owners without an address
    dropped: int = 0
    told_at: float | None = None
    error: str = ""
    error_at: float | None = None
    test: DeliveryResult | None = None  # the last one since the hub started
    tested_at: float | None = None

    def note(self, result: DeliveryResult, now: float) -> None:
        if result.is_taken:
            self.sent, self.told_at, self.error = self.sent + 1, now, ""
        else:
            self.failed, self.error, self.error_at = self.failed + 1, result.words, now


class ReceiverDirectory:
    def __init__(self, store: NotificationsStore) -> None:
        self._receivers = {receiver_id: with_current_kind(receiver)
                           for receiver_id, receiver in store.receivers().items()}
        for receiver in self:
            channel_of(receiver)  # a kind of a newer version fails here, not when an alert fires
        self.status = defaultdict[str, ReceiverStatus](ReceiverStatus)

    def __iter__(self) -> Iterator[Receiver]:
        return iter([*self._receivers.values()])

    def __len__(self) -> int:
        return len(self._receivers)

    def find(self, receiver_id: str) -> Receiver | None:
        return self._receivers.get(receiver_id)

    def get(self, receiver_id: str) -> Receiver:
        if receiver_id not in self._receivers:
            raise NotFoundError(f"there is no receiver {receiver_id[:80]!r}")
        return self._receivers[receiver_id]

    def put(self, receiver: Receiver) -> None:
        self._receivers[receiver.id] = receiver

    def remove(self, receiver_id: str) -> None:
        del self._receivers[receiver_id]
        self.status.pop(receiver_id, None)
