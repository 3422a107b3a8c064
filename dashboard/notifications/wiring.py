"""Parts of the notifications: of alerts to receivers, of actions to owners."""

from ..actions.events import CommandChanged
from ..actions.lifecycle import CommandRecord
from ..actions.standing_store import StandingStore
from ..actions.wiring import UNREACHED
from ..alerts.events import AlertChanged
from ..alerts.service import AlertService
from ..alerts.wiring import LastRun
from ..audit.recorder import AuditRecorder
from ..automation.rule_source import RuleIntentSource
from ..automation.wiring import NOTIFY_OWNER
from ..composition import Capability, Core
from ..fleet.fleet import Fleet, Node
from ..runtime.runner import TICK_S, Loop
from .addresses import OwnerAddresses
from .api import ROUTES as ROUTES
from .api import NotificationsApi
from .drain_mail import drain_notifications
from .mail import SmtpSettings
from .owner_mail import OwnerMailer
from .owner_words import OwnerActionNotification, is_first_effect
from .receiver_directory import ReceiverDirectory
from .service import NotificationService, recovered_groups, timing_of
from .store import NotificationsStore
from .transports import Transports


def build(core: Core) -> Capability:
    settings, events, audit = core.settings, core.events, core.get(AuditRecorder)
    smtp, addresses = SmtpSettings.of(settings), OwnerAddresses(core.state.store(StandingStore),
                                                                audit)
    mailer = OwnerMailer(smtp, addresses, lambda: core.site.url, audit.note)
    core.join(UNREACHED, mailer.unreached)
    core.join(NOTIFY_OWNER, mailer.notify_of_ladder)
    store, last_run = core.state.store(NotificationsStore), core.get(LastRun)
    receivers = ReceiverDirectory(store)
    groups = recovered_groups(store, receivers, timing_of(settings), last_run.rules,
                              last_run.open_alerts)
    service = NotificationService(
        store, audit, receivers, groups,
        Transports(smtp, addresses, settings.data, lambda: core.site.url,
                   settings.webhook_networks),
        core.get(AlertService), core.get(RuleIntentSource).mute)
    events.listen(AlertChanged, lambda event: service.take(event.alert))
    fleet = core.get(Fleet)
    events.listen(CommandChanged, lambda event: _notify_owners(
        mailer, event.record, fleet.nodes.get(event.record.node_id)))
    return Capability(
        loops=(Loop("notifications", service.step, TICK_S),
               Loop("owner mail", mailer.step, TICK_S, mailer.wake)),
        apis=lambda: (NotificationsApi(service, addresses),))


def _notify_owners(mailer: OwnerMailer, record: CommandRecord, node: Node | None) -> None:
    """Notify the owner once the node has accepted the command, and not if it has no effect."""
    if is_first_effect(record):
        mailer.send(record.owner, OwnerActionNotification(
            record.action, record.host, record.task_id or "", record.command, record.asker.name,
            record.reason, record.params.text, record.params.grace_s))
    for owner, notification in drain_notifications(record, node):
        mailer.send(owner, notification)
