"""Notifications that wait: on disk before they leave, and until their receiver has taken them."""

from collections.abc import Iterator

from ..errors import NotFoundError
from .retry import QueuedNotification, again
from .store import NotificationsStore
from .words import AlertNotification, joined

MOST_WAITING = 2_000  # of one receiver


class NotificationOutbox:
    def __init__(self, store: NotificationsStore) -> None:
        self._store = store
        self._waiting = {each.notice.id: each for each in store.waiting()}
        self.sending: set[str] = set()

    def __iter__(self) -> Iterator[QueuedNotification]:
        return iter([*self._waiting.values()])

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, notification_id: str) -> bool:
        return notification_id in self._waiting

    def find(self, notification_id: str) -> QueuedNotification:
        if notification_id not in self._waiting:
            raise NotFoundError("there is no such notice waiting: it was taken, or dropped")
        return self._waiting[notification_id]

    def snapshot(self) -> dict[str, QueuedNotification]:
        return dict(self._waiting)

    def restore(self, snapshot: dict[str, QueuedNotification]) -> None:
        """The disk has taken nothing of what came since."""
        self._waiting = snapshot

    def put(self, notification: AlertNotification, now: float) -> int:
        """Join older ones of the same group into it. Return how many others were dropped."""
        for each in self._not_left(notification):
            notification = joined(each.notice, notification)
            self.forget(each)
        mine = [each for each in self if each.notice.receiver == notification.receiver]
        dropped = len(mine) >= MOST_WAITING
        if dropped:
            self.forget(min(mine, key=lambda each: each.notice.at))
        waiting = self._waiting[notification.id] = QueuedNotification(notification, now)
        self._store.put(waiting)
        return int(dropped)

    def _not_left(self, notification: AlertNotification) -> list[QueuedNotification]:
        """Older ones of the same group, of which nothing was taken yet."""
        group = notification.receiver, notification.words
        return [each for each in self if (each.notice.receiver, each.notice.words) == group
                and each.parked_at is None and not each.left
                and each.notice.id not in self.sending]

    def save(self, each: QueuedNotification) -> None:
        self._store.put(each)

    def forget(self, each: QueuedNotification) -> None:
        del self._waiting[each.notice.id]
        self._store.drop([each.notice.id])

    def forget_receiver(self, receiver_id: str) -> None:
        """Whose rows are dropped with it."""
        self._waiting = {notification_id: each for notification_id, each in self._waiting.items()
                         if each.notice.receiver != receiver_id}

    def retry(self, notification_id: str, now: float) -> None:
        each = self.find(notification_id)
        again(each, now)
        self._store.put(each)
