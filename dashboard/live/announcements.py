"""Announcements of changed commands, alerts, leases and claims to browsers."""

import time

from ..actions.events import CommandChanged
from ..actions.views import command_view
from ..alerts.events import AlertChanged
from ..alerts.queries import AlertQueries
from ..alerts.silences import SilenceService
from ..alerts.views import alert_view
from ..automation.alert_details import AlertDetails
from ..fleet.visibility import VisibleFleet
from ..pool.events import ClaimChanged, LeaseChanged
from ..pool.queries import PoolQueries
from ..pool.views import ClaimChangeView, LeaseView, claim_view, ended_view, lease_view
from ..runtime.dispatcher import Dispatcher
from .socket import LiveEndpoint


class Announcements:
    def __init__(self, events: Dispatcher, live: LiveEndpoint, alerts: AlertQueries,
                 silences: SilenceService, details: AlertDetails, pool: PoolQueries) -> None:
        self._live = live
        self._alerts = alerts
        self._silences = silences
        self._details = details
        self._pool = pool
        events.listen(CommandChanged, self._command)
        events.listen(AlertChanged, self._alert)
        events.listen(LeaseChanged, self._lease)
        events.listen(ClaimChanged, self._claim)

    def _command(self, event: CommandChanged) -> None:
        record = event.record
        self._live.announce("command", record.node_id, record.id,
                            lambda visible: command_view(record, visible.reads))

    def _alert(self, event: AlertChanged) -> None:
        alert = event.alert
        self._live.announce("alert", alert.target.node_id, alert.id,
                            lambda visible: alert_view(
                                alert, self._alerts.gpus_seen(alert.target, visible),
                                self._silences.matching(alert, time.time()),
                                self._details.of(alert)))

    def _lease(self, event: LeaseChanged) -> None:
        host = self._pool.service.fleet.host_of(event.node_id) or event.node_id

        def shape(_: VisibleFleet) -> LeaseView:
            view = lease_view(event.node_id, host, event.lease,
                              self._pool.outside(event.node_id), time.time())
            return view if event.is_held else ended_view(view, event.end)

        self._live.announce("lease", event.node_id, event.lease.claim.id, shape)

    def _claim(self, event: ClaimChanged) -> None:
        claim, entry, service = event.claim, event.standing, self._pool.service
        hosts = {node.id: node.host for node in service.nodes}

        def shape(visible: VisibleFleet) -> ClaimChangeView | None:
            if not self._pool.visible_claims([claim], visible, visible.reads.own):
                return None
            if entry is None:
                return ClaimChangeView(claim.id, None)
            place = self._pool.places(visible, visible.reads.own).get(claim.id, entry.place)
            return ClaimChangeView(claim.id, claim_view(
                claim, entry, place, hosts, claim.id in service.claims,
                service.bookings.kept_gpus(claim.id), service.team_of.get(claim.owner)))

        self._live.announce("claim", None, claim.id, shape)
