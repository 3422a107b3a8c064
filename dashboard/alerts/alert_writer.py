"""Writing alerts to disk."""

import logging
from collections.abc import Iterable

from .core.firing_alerts import Alert
from .store import CANNOT_STORE, AlertsStore

log = logging.getLogger("gpudeck.alerts")

MOST_UNSAVED = 20_000


class AlertWriter:
    """Saves alerts. Receivers are notified of an alert that a full disk refuses all the same; it is
    saved once the disk accepts it."""

    def __init__(self, store: AlertsStore) -> None:
        self._store = store
        self.unsaved: dict[str, Alert] = {}
        self._reported = ""  # the disk error that was logged last

    def put(self, alerts: Iterable[Alert]) -> None:
        self.unsaved |= {alert.id: alert for alert in alerts}
        self.flush()

    def flush(self) -> None:
        if not self.unsaved:
            return
        try:
            self._store.put_alerts([*self.unsaved.values()])
        except CANNOT_STORE as error:
            self.report(error)
            while len(self.unsaved) > MOST_UNSAVED:
                del self.unsaved[next(iter(self.unsaved))]
        else:
            self.unsaved.clear()
            self._reported = ""

    def report(self, error: Exception) -> None:
        """Log a disk error once for as long as it lasts."""
        if str(error) != self._reported:
            log.error("alerts_not_kept why=%r", str(error))
        self._reported = str(error)
