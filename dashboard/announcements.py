"""Tells browsers, and the owners of tasks, of commands and alerts as they change."""

import time

from .actions.events import CommandChanged
from .actions.views import command_view
from .alerts.events import AlertChanged
from .alerts.queries import AlertQueries
from .alerts.silences import SilenceService
from .alerts.views import alert_view
from .automation.rule_source import AlertDetails
from .live.socket import LiveEndpoint
from .notifications.owner_mail import OwnerMailer
from .notifications.owner_words import OwnerActionNotification, is_first_of_acting
from .runtime.dispatcher import Dispatcher


class Announcements:
    def __init__(self, events: Dispatcher, live: LiveEndpoint, mailer: OwnerMailer,
                 alerts: AlertQueries, silences: SilenceService, details: AlertDetails) -> None:
        self._live = live
        self._mailer = mailer
        self._alerts = alerts
        self._silences = silences
        self._details = details
        events.listen(CommandChanged, self._command)
        events.listen(CommandChanged, self._owner)
        events.listen(AlertChanged, self._alert)

    def _command(self, event: CommandChanged) -> None:
        record = event.record
        self._live.announce("command", record.node_id, record.id,
                            lambda visible: command_view(record, visible.reads))

    def _owner(self, event: CommandChanged) -> None:
        """Once the node has taken it, and not of what came to nothing."""
        record = event.record
        if is_first_of_acting(record):
            self._mailer.tell(record.owner, OwnerActionNotification(
                record.action, record.host, record.task_id or "", record.command,
                record.asker.name, record.reason, record.params.text, record.params.grace_s))

    def _alert(self, event: AlertChanged) -> None:
        alert = event.alert
        self._live.announce("alert", alert.target.node_id, alert.id,
                            lambda visible: alert_view(
                                alert, self._alerts.gpus_seen(alert.target, visible),
                                self._silences.matching(alert, time.time()),
                                *self._details.of(alert)))
