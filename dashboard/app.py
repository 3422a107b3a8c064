"""Composition of the hub: the fleet in the middle, the edges around it. It has no other logic."""

import logging
import sys
import time
from collections.abc import Collection
from typing import Any

import gevent
from dash.exceptions import DependencyException
from flask import Flask
from msgspec import to_builtins
from werkzeug.exceptions import NotFound

from gpudeck import __version__
from gpudeck.actions import Preview, Reply
from gpudeck.desired_state import InForce
from gpudeck.pool.link import PoolReport
from gpudeck.wire import Beat, FromHub

from .access.api import AccountsApi
from .access.coverage import check_coverage
from .access.events import CredentialEnded
from .access.gate import (
    AccessGate,
    CookieNames,
    RequestAuthenticator,
    add_second_check,
    policy,
)
from .access.oidc.setup import add_sign_ins
from .access.passwords import PasswordService
from .access.requests import asker
from .access.service import REFRESH_EVERY_S
from .access.services import AccessServices
from .actions.api import ActionsApi
from .actions.commander import Commander
from .actions.events import HoldChanged
from .actions.guards import ActionGuards
from .actions.holds import HoldService
from .actions.owner_keeps import OwnerKeepService
from .actions.preview_requests import PreviewRequester
from .actions.service import ActionService
from .actions.signer_client import CHECK_EVERY_S, SignerClient, start_signer
from .alerts.active_rules import ActiveRules
from .alerts.admin import RuleAdmin
from .alerts.api import AlertsApi
from .alerts.events import AlertChanged
from .alerts.queries import AlertQueries
from .alerts.rehearsal.api import RehearsalsApi
from .alerts.rehearsal.service import RehearsalService
from .alerts.service import EVERY_S, AlertService, AlertSources
from .alerts.silences import SilenceService
from .announcements import Announcements
from .audit.api import AuditApi
from .audit.file_copy import AuditCopy
from .audit.recorder import AuditRecorder
from .audit.verify import AuditVerifier
from .automation.api import AutomationApi
from .automation.brakes import BrakeService, BrakesReset
from .automation.dispatch import ActionDispatcher
from .automation.holds import HubHolds, MaintenanceService
from .automation.loops import secondary_loops
from .automation.preemption_source import PreemptionIntentSource
from .automation.quota_source import QuotaIntentSource
from .automation.rule_source import AlertDetails, RuleIntentSource
from .automation.service import LadderService
from .fleet.api import FleetApi
from .fleet.effects import (
    CloseLink,
    EpochRaised,
    HubEvent,
    LogMessage,
    NodeJoined,
    NodeReport,
    RevokeNode,
    SendMessage,
    StreamRecord,
)
from .fleet.events_api import EventsApi
from .fleet.idle_history import IDLE_LOOK_S, IdleHistory
from .fleet.inventory import FleetInventory
from .fleet.node_names import NodeNames
from .fleet.past_api import FleetPastApi
from .fleet.state_machine import FleetStateMachine
from .fleet.visibility import VisibleFleetCache
from .heartbeat import TICK_S, Heartbeat, fields
from .history.api import HistoryApi
from .history.maintenance_loop import maintenance_of
from .imports.api import ImportsApi
from .imports.service import ImportService
from .insight.advice_parts import advice_apis, qos_over
from .insight.api import InsightApi
from .jobs.api import JobsApi
from .jobs.schedulers import SchedulerQueries
from .jobs.service import JobsService
from .jobs.unused_allocations import UnusedAllocations
from .jobs.usage_names import JobUsageNames
from .live.socket import LiveEndpoint
from .nodes.api import NodesApi
from .nodes.audit_heads import AuditHeadExchange
from .nodes.checkpoint import restore
from .nodes.enrolment import EnrolmentService
from .nodes.events import GroupChanged, NodeRevoked
from .nodes.recorder import MessageRecorder
from .nodes.socket import AGENT_BYTES, AgentEndpoint
from .notifications.addresses import OwnerAddresses
from .notifications.api import NotificationsApi
from .notifications.mail import SmtpSettings
from .notifications.owner_mail import OwnerMailer
from .notifications.receiver_directory import ReceiverDirectory
from .notifications.service import NotificationService, recovered_groups, timing_of
from .notifications.transports import Transports
from .openapi.api import add_api
from .pages import build_pages
from .pages.site import load_site_pages
from .pool.api import PoolApi
from .pool.lease_map import LeaseMap, PoolPast
from .pool.limits import PoolLimits
from .pool.policy import PoolPolicyApi
from .pool.queries import PoolQueries
from .pool.service import PASS_EVERY_S, PoolService
from .pool.source_api import ResourceManagerApi
from .pool.watch import PoolWatch
from .prometheus.page import PrometheusPage, add_metrics_page
from .public_url import PublicOrigins
from .quotas.active_quotas import ActiveQuotas
from .quotas.api import QuotasApi
from .quotas.deployment import QuotaDeployer
from .quotas.queries import QuotaQueries
from .quotas.service import HOLD_S, QuotaService
from .runtime.bus import Bus, InProcessBus
from .runtime.data_folder import token_in
from .runtime.dispatcher import Dispatcher
from .runtime.garbage import settle_garbage
from .runtime.runner import Loop, Runner
from .runtime.state_guard import StateGuard
from .settings import HubSettings
from .sites.api import SitesApi
from .sites.service import SitesService
from .state import HubState
from .storage import open_history, outlets_of
from .web.bounded_socket import BoundedSocketIO, ConnectionLimits
from .web.compress import add_compression
from .web.health import add_health
from .web.http_server import ServerCounters
from .web.idempotency import add_once
from .web.query_pool import QueryPool

log = logging.getLogger("gpudeck.hub")

SWITCH_S = 0.001
DAY_S = 86_400.0
VIEWER_BYTES = 4_096
HOLDS = "holds"  # topic of the bus
# An agent is known to live by its own Beat; these are only for the library at its end.
AGENT_PING_S, AGENT_STALL_S = 25.0, 60.0


class Hub:
    """A running hub with all its parts."""

    def __init__(self, settings: HubSettings, state: HubState, port: int,
                 signer: SignerClient | None = None) -> None:
        self.settings = settings
        self.state = state
        self.events = Dispatcher()
        self.guard = StateGuard()
        self.tally = ServerCounters()
        self.signer = signer or start_signer(settings)
        self.signer.wait()
        self.machine = FleetStateMachine(state.hub_id(), self._epoch(), time.monotonic())
        self.visible_fleets = VisibleFleetCache(self.machine.fleet)
        self.bus: Bus = InProcessBus()
        self.history = open_history(settings)
        self.recorder = MessageRecorder(settings.data, state.save_nodes, self.machine, self.submit,
                                        self.history, state.confirm)
        self.idle_history = IdleHistory(self.machine.fleet, self.history)
        self._recover()
        self.archive, self.mirror = outlets_of(settings, self.history, time.time())
        self.site = PublicOrigins.at(settings.bind[0], port, settings.tls_cert is not None,
                                     settings.public_url)
        copy = None if settings.audit_copy is None else AuditCopy(settings.audit_copy, state.audit)
        self.audit = AuditRecorder(state.audit, copy, self.events)
        self.access = AccessServices(state, PasswordService(), self.audit, self.events)
        self.access.admin.sync_file_token(token_in(settings.data / "api.token"))
        self.anchors = AuditHeadExchange(self.audit, self._send_to_all)
        self.keeps = OwnerKeepService(state.standing, self.audit, self.machine.fleet,
                                      self.visible_fleets)
        self.addresses = OwnerAddresses(state.standing, self.audit)
        smtp = SmtpSettings.of(settings)
        self.notifier = OwnerMailer(smtp, self.addresses, lambda: self.site.url, self.audit.note)
        self.transports = Transports(smtp, self.addresses, settings.data, lambda: self.site.url,
                                     settings.webhook_networks)
        self.auth = RequestAuthenticator(
            self.access.accounts, CookieNames.of(state.hub_id(), self.site.is_secure),
            settings.trusted_proxies, settings.proxy_user_header)
        self.nodes = EnrolmentService(state.registry, self.signer.fingerprint, self.audit,
                                      self.events)
        self.node_names = NodeNames(self.machine.fleet, self.visible_fleets, self.nodes)
        self.nodes.apply_to(self.machine.fleet, time.time())
        self.events.listen(GroupChanged, lambda event: self.machine.fleet.set_group(
            event.node_id, event.group))
        self.events.listen(NodeRevoked, lambda event: self.submit(RevokeNode(event.node_id)))
        self._build_actions()
        self._build_rules()
        self._build_quotas()
        self.jobs = JobsService(self.machine.fleet, state.jobs, self.audit,
                                lambda: self.quotas.groups, settings.history_minute_days * DAY_S)
        self._build_pool()
        self.schedulers = SchedulerQueries(self.machine.fleet, self.settings.slurm_nodes,
                                           self.settings.kubernetes_nodes)
        self.qos = qos_over(self.machine.fleet, self.jobs, self.pool, state, self.audit)
        self._build_ladders()
        self.commander.recover()
        self.server = Flask("gpudeck", static_folder=None)
        # Whatever the environment says: a debugger in a browser is a shell for anyone who finds it.
        self.server.config.update(DEBUG=False, TESTING=False)
        self.socketio = BoundedSocketIO()
        self.heartbeat = Heartbeat(state, self.machine, self.socketio, self.alerts, self.commander,
                                   self.tally, self.submit, self.perform)
        self._build()

    def _build_actions(self) -> None:
        """Build the actions of people, and the guards that may refuse them."""
        state, machine, accounts = self.state, self.machine, self.access.accounts
        self.commander = Commander(state.commands, self.audit, self.signer, machine.fence, self,
                                   self.events)
        self.holds = HoldService(state.standing, self.audit, machine.fleet, self.visible_fleets,
                                 machine.link_of.__contains__, self.commander.hold, self.events)
        self.preview_requester = PreviewRequester(self.signer, self.send)
        self.maintenance = MaintenanceService(state.brakes, self.audit, machine.fleet,
                                              self.visible_fleets)
        guards = ActionGuards(self.holds.refusal, self.maintenance.why, self.keeps.of_any,
                              self.notifier.unreached)
        self.actions = ActionService(machine, self.visible_fleets, accounts, self.preview_requester,
                                     self.commander, self.audit, guards,
                                     self.settings.second_person == "on",
                                     self.settings.slurm_nodes)

    def _build_rules(self) -> None:
        """Build the rules, their alerts and rehearsals."""
        state, settings, fleet = self.state, self.settings, self.machine.fleet
        store = state.alerts
        self.receivers = ReceiverDirectory(state.notifications)
        self.groups = recovered_groups(state.notifications, self.receivers, timing_of(settings),
                                       (rule for _, rule in store.rules().values()),
                                       store.open_alerts())
        self.brakes = BrakeService(state.brakes, self.audit, self.events)
        rules, history = ActiveRules(store, self.events), self.history.rules
        self.alerts = AlertService(AlertSources(
            fleet, self.machine.events, self._revoked, self.brakes.hub_metrics, UnusedAllocations(
                fleet, settings.slurm_nodes, settings.kubernetes_nodes).by_node, history),
            rules, store, self.events)
        self.silences = SilenceService(store, self.audit, fleet, rules)
        self.alert_queries = AlertQueries(self.alerts, rules, store, fleet)
        self.rehearsals = RehearsalService(store, self.audit, fleet, history, self.nodes.members,
                                           self.access.accounts.person_behind)
        self.rule_admin = RuleAdmin(
            rules, store, self.audit, self.access.accounts.person_behind, self.rehearsals.of_rule,
            self.actions.second_person, settings.rule_proof_h * 3_600.0)

    def _build_quotas(self) -> None:
        store, fleet, history = self.state.quotas, self.machine.fleet, self.history
        self.active_quotas = ActiveQuotas(store, self.audit, self.events)
        self.quota_deployer = QuotaDeployer(self.active_quotas, fleet, self.signer,
                                            self.machine.link_of, self.send)
        self.quotas = QuotaService(self.active_quotas, store, fleet, self.history,
                                   min(HOLD_S, self.settings.quota_end_after_s / 2), self.events)
        self.quota_queries = QuotaQueries(self.quotas, self.quota_deployer, store, fleet, history)

    def _build_pool(self) -> None:
        self.pool = PoolService(self.state.pool, self.machine.fleet, self.machine.link_of,
                                self.send, PoolLimits(self.quotas, self.machine.fleet),
                                self.jobs.teams_of, lambda: self.preemption_intents,
                                self.settings.pool == "on", time.monotonic, time.time,
                                self.machine.allowances.spend_pool, PoolWatch(self.events))
        self.pool_queries = PoolQueries(self.pool)
        self.pool.open(time.time())
        self.events.listen(NodeRevoked, lambda event: self.pool.forget(event.node_id))
        self.insight = InsightApi.over(self.history, self.machine.fleet, self.visible_fleets,
                                       self.pool, self.state)

    def _build_ladders(self) -> None:
        """Build the automation, and everything that can hold it back."""
        state, machine = self.state, self.machine
        hub_holds = HubHolds(self.keeps, self.holds, self.maintenance)
        rules = RuleIntentSource(self.alerts, self.silences, self.brakes, hub_holds)
        self.quota_intents = QuotaIntentSource(self.quotas, machine.fleet, hub_holds,
                                               lambda: self.alerts.since_mono)
        dispatcher = ActionDispatcher(machine, self.preview_requester, self.commander, self)
        self.preemption_intents = PreemptionIntentSource(
            self.pool, lambda: self.ladders.runs, machine.fleet, hub_holds, dispatcher)
        self.ladders = LadderService(
            (rules, self.quota_intents, self.preemption_intents), self.brakes, dispatcher,
            self.audit, state.brakes, self.events, self.notifier.notify_of_ladder)
        self.automation = secondary_loops(dispatcher, rules, self.ladders.runs, self.audit)
        self.events.listen(BrakesReset, lambda _: self.alerts.restart_acting_rules())
        self.alert_details = AlertDetails(rules, self.ladders)
        self.notifications = NotificationService(state.notifications, self.audit, self.receivers,
                                                 self.groups, self.transports, self.alerts,
                                                 rules.mute)
        self.events.listen(AlertChanged, lambda event: self.notifications.take(event.alert))

    def _epoch(self) -> int:
        """Return a new epoch above all earlier ones: a restored state.db does not know them all."""
        epoch = max(self.state.next_epoch(), self.signer.epoch + 1)
        self.state.put("epoch", str(epoch))
        return self.signer.raise_epoch(epoch)

    def _recover(self) -> None:
        for checkpoint in self.state.nodes():
            restore(self.machine, checkpoint)
        self.recorder.recover()
        self.machine.recovered(time.time(), time.monotonic())
        self.sites = SitesService(self.settings, self.submit)

    def _build(self) -> None:
        add_second_check(self.server)
        add_once(self.server, lambda: asker().credential)
        add_sign_ins(self.server, self.auth, self.access, self.settings, self.state.oidc,
                     self.audit, lambda: self.site.url)
        add_api(self.server, self._apis(), self.node_names.id_of)
        add_health(self.server, self.heartbeat.unready)
        add_metrics_page(self.server, PrometheusPage(
            self.machine, self.visible_fleets, self.history, self.state.commands,
            self.heartbeat.counts, self.heartbeat.lag_s, time.time(),
            self.quota_queries.all_seen_by, self.pool_queries, self.archive, self.mirror,
            self.schedulers.texts))
        add_compression(self.server)
        pages = build_pages(self.server, self.auth.cookies.csrf,
                            load_site_pages(self.settings.data), lambda: self.wsgi)
        self.socketio.init_app(self.server, allowances=_allowances(self.settings), tally=self.tally)
        content_policy = policy(pages.csp_hashes())
        self.agents = AgentEndpoint(
            self.socketio.server, self.settings, self.nodes,
            lambda call: self.signer.challenge(call, self.machine.hub_id), self.submit,
            lambda: self.machine.fleet.disk_error is None)
        self.live = LiveEndpoint(self.socketio.server, self.machine, self.visible_fleets,
                                 self.access.accounts.holds, self.auth.is_csrf_right,
                                 lambda visible: to_builtins(self.holds.state(visible)),
                                 LeaseMap(self.pool, self.machine.fleet))
        self.events.listen(CredentialEnded,
                           lambda event: self.live.viewers.end_credential(event.credential))
        self.bus.subscribe(HOLDS, lambda _: self.live.hold_changed())
        self.events.listen(HoldChanged, lambda _: self.bus.publish(HOLDS, b""))
        Announcements(self.events, self.live, self.notifier, self.alert_queries, self.silences,
                      self.alert_details, self.pool_queries, self.machine)
        check_coverage(self.server, self.socketio.server.handlers, pages)
        # Dash would answer a request for an unknown script with a 500.
        self.server.register_error_handler(DependencyException, lambda _: NotFound())
        self.wsgi = AccessGate(self.server.wsgi_app, self.auth, self.server.url_map,
                               lambda: self.site,
                               lambda: content_policy)

    def _apis(self) -> tuple[object, ...]:
        machine, visible_fleets, fleet = self.machine, self.visible_fleets, self.machine.fleet
        questions = QueryPool()
        pool = PoolApi(self.pool, self.pool_queries, visible_fleets, self.audit)
        alerts = AlertsApi(self.alert_queries, self.rule_admin, self.silences, visible_fleets,
                           self.alert_details, self.settings.rule_proof_h)
        return (
            FleetApi(machine, visible_fleets, self.node_names, self.keeps.view_of), self.insight,
            EventsApi(machine, visible_fleets, self.history, questions),
            AuditApi(self.audit, AuditVerifier(self.state.another_audit, self.settings.audit_copy),
                     lambda actor, node: visible_fleets.seen_by(actor).sees_node(node),
                     fleet.host_of),
            HistoryApi(self.history, questions,
                       lambda actor: FleetInventory(fleet, visible_fleets.seen_by(actor)),
                       self.settings.cluster, JobUsageNames(self.jobs, self.state.another_jobs)),
            JobsApi(self.jobs, fleet, visible_fleets, self.history, questions,
                    self.schedulers),
            FleetPastApi(self.history, questions, fleet, visible_fleets, PoolPast(self.pool).at),
            NodesApi(self.nodes, machine, lambda: self.site.url),
            ImportsApi(ImportService(machine, self.submit, self.audit, self.history.store.keep)),
            AccountsApi(self.access, self.auth, lambda: self.state.get("url") or "",
                        self.actions.second_person),
            ActionsApi(self.actions, self.state.commands, fleet, self.holds, self.keeps,
                       self.node_names),
            alerts, AutomationApi(self.alert_queries, self.ladders, self.brakes, self.rule_admin,
                                  self.maintenance, self.actions, visible_fleets, alerts.rule),
            NotificationsApi(self.notifications, self.addresses), pool,
            PoolPolicyApi(self.pool, self.audit, questions), ResourceManagerApi(pool, fleet),
            QuotasApi(self.active_quotas, self.quota_queries, fleet, visible_fleets,
                      lambda: self.quota_intents.progress(self.ladders),
                      self.settings.quota_end_after_s),
            RehearsalsApi(self.rehearsals, visible_fleets),
            SitesApi(self.sites, fleet, visible_fleets),
            *advice_apis(fleet, visible_fleets, self.history, questions, self.pool, self.state,
                         self.audit, self.settings.advice_least_h, self.qos),
        )

    def _send_to_all(self, message: FromHub) -> None:
        self.state.confirm()
        for at in self.machine.link_of.values():
            self.agents.tell(at, message)

    # -- events in, effects out

    def submit(self, event: HubEvent) -> None:
        self.state.confirm()
        for effect in self.machine.handle(event, time.time(), time.monotonic()):
            self.perform(effect)

    def perform(self, effect: Any) -> None:
        match effect:
            case StreamRecord():
                self.recorder.put(effect)
                self.jobs.heard(effect)
                if effect.seq:
                    self.live.applied(effect)
            case SendMessage():
                self.agents.tell(effect.link, effect.message)
            case CloseLink():
                self.agents.close(effect.link, effect.reason)
            case NodeReport():
                self.guard.call(self._receive_report, effect)
            case NodeJoined():
                self.guard.call(self.anchors.joined,
                                self.machine.fleet.nodes[effect.node_id].hello)
                self.commander.node_joined(effect.node_id)
                self.quota_deployer.joined(effect.node_id)
                self.pool.joined(effect.node_id)
            case EpochRaised():  # else the heartbeat writes it
                self.guard.call(self.state.put, "epoch", str(effect.epoch))
            case LogMessage():
                log.info("%s %s", effect.what.replace(" ", "_"), fields(effect.fields))

    def _receive_report(self, effect: NodeReport) -> None:
        match effect.message:
            case Preview():
                self.preview_requester.preview_received(effect.node_id, effect.message)
                self.quotas.previewed(effect.message)
            case Reply():
                self.commander.replied(effect.node_id, effect.message)
            case PoolReport():
                self.pool.reported(effect.node_id, effect.message)
            case InForce():
                self.quota_deployer.reported(effect.node_id, effect.message)
            case Beat():
                self.anchors.beaten(effect.node_id, effect.message)
                self.holds.beat_received(effect.node_id)

    def connected(self) -> Collection[str]:
        return self.machine.link_of

    def send(self, node_id: str, message: FromHub) -> bool:
        self.state.confirm()
        link = self.machine.link_of.get(node_id)
        if link is not None:
            self.agents.tell(link, message)
        return link is not None

    def _revoked(self) -> Collection[str]:
        return [member.node_id for member in self.nodes.members() if member.access == "revoked"]

    def _loops(self) -> tuple[Loop, ...]:
        backfills = self.agents.backfills
        return (
            self.heartbeat.loop, self.insight.service.loop, *self.automation, self.qos.loop,
            Loop("backfills", backfills.step, TICK_S, backfills.wake, is_vital=True),
            Loop("accounts", self.access.accounts.step, REFRESH_EVERY_S),
            Loop("signer", self.signer.step, CHECK_EVERY_S, is_vital=True),
            Loop("holds", self.holds.step, TICK_S, self.holds.wake, is_vital=True),
            Loop("audit heads", self.anchors.step, TICK_S, is_vital=True),
            # Records of `gpudeck user` and other commands go into the copy, too.
            Loop("audit copy", lambda _now, _mono: self.audit.copy_or_log(), TICK_S,
                 is_vital=True),
            maintenance_of(self.history), *self.sites.loops, self.jobs.loop,
            *(outlet.loop for outlet in (self.archive, self.mirror) if outlet is not None),
            Loop("idle history", self.idle_history.step, IDLE_LOOK_S, self.idle_history.wake),
            Loop("alerts", self.alerts.step, EVERY_S),
            Loop("ladders", self.ladders.step, TICK_S),
            Loop("notifications", self.notifications.step, TICK_S),
            Loop("owner mail", self.notifier.step, TICK_S, self.notifier.wake),
            Loop("quota_deployment", self.quota_deployer.step, TICK_S),
            Loop("quotas", self.quotas.step, TICK_S),
            Loop("pool", self.pool.step, PASS_EVERY_S, self.pool.wake))

    def start(self) -> "list[gevent.Greenlet[..., Any]]":
        self.heartbeat.start()
        self.state.started()
        self.sites.start()
        self.audit.note("hub", {"action": "start", "outcome": "done", "detail": {
            "epoch": self.machine.fleet.epoch, "version": __version__}})
        running: list[gevent.Greenlet[..., Any]] = [
            gevent.spawn(self.recorder.run), *Runner(self._loops(), self.state.confirm).start(),
            gevent.spawn(self.live.run)]
        # By default the loop would wait 5 ms for each thread of history that computes.
        sys.setswitchinterval(SWITCH_S)
        settle_garbage()
        return running


def _allowances(settings: HubSettings) -> dict[str, ConnectionLimits]:
    stall_s = float(settings.viewer_stall_s)
    viewer = ConnectionLimits(VIEWER_BYTES, 20, 100, stall_s / 3, stall_s)
    # The agents' endpoint limits messages of agents; this bounds what never gets that far.
    agent = ConnectionLimits(AGENT_BYTES, 2_000, 20_000, AGENT_PING_S, AGENT_STALL_S)
    return {"agent": agent, "person": viewer, "program": viewer}
