"""Rules in force: watched once a second, their alerts kept. What acts on them is elsewhere."""

import dataclasses
import logging
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping

import gevent
import numpy as np
from msgspec.structs import replace

from ..access.policy import Actor, RefusedError, by, may
from ..audit.recorder import AuditRecorder
from ..errors import InvalidChangeError, NotFoundError
from ..fleet.events import RecentEvents
from ..fleet.fleet import Fleet
from ..fleet.visibility import VisibleFleet
from ..history.grid import HistoryGrid
from ..history.protocol import RuleHistory
from .core.evaluator import RuleEvaluator, RuleMinutesRequest
from .core.firing_alerts import Alert, AlertChange, AlertTarget, FiringAlerts
from .core.gpu_targets import HubSelfMetrics
from .core.minute_aggregates import ClosedRuleMinute
from .core.momentary_rule import Basis, momentary
from .core.query import AlertQuery
from .core.restart_state import RuleStateRestore, remember
from .core.rule import CompiledRule, InvalidRuleError, Of, Rule, check
from .core.rule_tracker import SKEW_S, RuleTracker
from .core.silence import MOST_S, Silence
from .core.state_machine import AlertPhase
from .core.target_collector import NamedRuleTargets, RuleTargetCollector
from .rehearsal.gpus import LIVE, closed_minute
from .rules_file import PACK, parse
from .store import AlertsStore, CannotStore

log = logging.getLogger("gpudeck.alerts")

EVERY_S = 1.0
KEEP_EVERY_S = 3_600.0
REMEMBER_EVERY_S = 30.0
GIVE_BACK_EVERY_S = 10.0
FOLLOW_EVERY_S = 10.0
BLIND_WITHIN_S = 60.0
FAILS_FROM = 3  # looks in a row
MOST_RULES = 200
MOST_SILENCES = 1_000
MOST_UNKEPT = 20_000
MOST_PENDING = 200  # of one Rule


class AlertService:
    """`on_change`: who wants to hear of an Alert that began, changed or ended. `left`: Nodes that
    were sent away."""

    def __init__(self, store: AlertsStore, auditor: AuditRecorder, fleet: Fleet,
                 events: RecentEvents,
                 left: Callable[[], Collection[str]],
                 spans: RuleHistory | None = None) -> None:
        self._store = store
        self._auditor = auditor
        self._fleet = self.fleet = fleet
        self._scenes = RuleTargetCollector(fleet, events)
        self._shown: Mapping[Of, NamedRuleTargets] = {}  # at the last step
        self._left = left
        self._since_mono = time.monotonic()
        self._forgot_mono = -KEEP_EVERY_S
        self.stepped_mono = self._since_mono
        self._remembered_mono = -REMEMBER_EVERY_S
        self._give_back_at = 0.0
        self._followed_mono = self._since_mono
        self._spans = spans
        self._looked_mono: float | None = None
        self._late: list[tuple[float, float]] = []  # looks of the last minute, and by how much
        self._clock_ahead_s: float | None = None  # of the monotonic one
        self._unkept: dict[str, Alert] = {}  # by the disk
        self._said = ""  # of its trouble
        self._has_no_minute = False  # history did not give the one that was over
        # What of the hub itself its rules look at beside them: brakes, and the audit.
        self.hub_says: Callable[[], HubSelfMetrics] = HubSelfMetrics
        self.evaluator = RuleEvaluator(() if spans is None else LIVE)
        self.alerts = FiringAlerts()
        self.gate: Callable[[Actor, Rule | None, Rule], Rule] = only_observe
        self.author_of: Callable[[Actor], str] = lambda actor: actor.name
        self.on_change: list[Callable[[Alert], None]] = []
        self.rules: dict[str, tuple[int, Rule]] = {}
        self.ready: dict[str, CompiledRule] = {}
        self.silences: dict[str, Silence] = {}
        self._recover()

    def _recover(self) -> None:
        now = time.time()
        if not self._store.has_any_rule():
            self._begin_with_pack(now)
        self.silences = self._store.silences()
        self._load()
        self._restart = RuleStateRestore(self._store.memory(), self._store.open_alerts(),
                                         self.evaluator.watches, now)
        self._store.put_alerts(self._restart.ended)

    def _begin_with_pack(self, now: float) -> None:
        """A hub that never had a rule gets those that come along; out of the box nothing acts."""
        for ready in parse(PACK.read_text()).rules.values():
            self._store.put_rule(ready.rule, "gpudeck", now)

    def _load(self) -> None:
        self.rules, self.ready = self._store.rules(), {}
        for rule_id, (_, rule) in self.rules.items():
            try:
                self.ready[rule_id] = check(rule)
            except InvalidRuleError as error:  # by an older grammar: it is listed, and says so
                log.warning("rule_not_ready rule=%s why=%r", rule_id, str(error))
        gone = [rule_id for rule_id in self.evaluator.watches if rule_id not in self.ready]
        begun = [*self.evaluator.set_rules(self.ready), *gone]
        self._keep(self.alerts.drop(begun, time.time(), "edited"))

    # -- time

    def run(self) -> None:
        while True:
            gevent.sleep(EVERY_S)
            try:
                self.step()
            except Exception:  # rules must not take the hub with them
                log.exception("rules_failed")

    def step(self) -> None:
        now = time.time()
        self._look_at_clock(now, time.monotonic())
        brought = self._brought(now)
        mono = time.monotonic()
        self._shown = scenes = self._scenes.look(now, mono, self._since_mono, self._left(),
                                                 self._of_itself(mono))
        self._give_back(now)
        for moved in self.evaluator.step(scenes, now, brought):
            changed = [change for each in moved for change in self.alerts.take(
                each, lambda of, row: scenes[of].name(row))]
            self._keep(changed)
            gevent.sleep(0)  # so that agents do not wait for all rules
        self._follow(mono)
        for rule_id, watch in self.evaluator.watches.items():
            if watch.failures == 1:
                log.error("rule_failed rule=%s why=%r", rule_id, watch.trouble)
        self.stepped_mono = mono
        self._write()
        try:
            self._remember(now, mono)
        except CannotStore as error:
            self._say_unkept(error)

    def _remember(self, now: float, mono: float) -> None:
        if mono - self._remembered_mono >= REMEMBER_EVERY_S:
            self._remembered_mono = mono
            self._store.put_memory(remember(self.evaluator.watches, self._key_of, now,
                                            self._restart))
        if mono - self._forgot_mono >= KEEP_EVERY_S:
            self._forgot_mono = mono
            self._store.forget(now)

    def _key_of(self, of: Of, row: int) -> str | None:
        scene = self._shown[of]
        return scene.identity(row) if row < len(scene.there) and scene.there[row] else None

    def _look_at_clock(self, now: float, mono: float) -> None:
        """Against the one that is never set. What acts begins again: what is told of samples of
        before belongs to another time."""
        before, self._clock_ahead_s = self._clock_ahead_s, now - mono
        if before is None or abs(self._clock_ahead_s - before) <= SKEW_S:
            return
        by_s = self._clock_ahead_s - before
        log.warning("clock_set by_s=%.1f; rules that act begin again", by_s)
        self.evaluator.stepped(by_s)
        self._since_mono = mono
        self._give_back_at = 0.0
        self.begin_anew("clock")

    def _of_itself(self, mono: float) -> HubSelfMetrics:
        """A rule that is not looked at must not be silent for want of whoever says so."""
        last, self._looked_mono = self._looked_mono, mono
        late_s = 0.0 if last is None else max(0.0, mono - last - EVERY_S)
        self._late = [(at, each) for at, each in self._late if mono - at < BLIND_WITHIN_S]
        self._late.append((mono, late_s))
        blind_s = min(BLIND_WITHIN_S, sum(each for _, each in self._late))
        return dataclasses.replace(self.hub_says(), blind_s=blind_s,
                                   rules_failing=len(self.failing()))

    def failing(self) -> dict[str, str]:
        """Rules that are not evaluated, or not as they should be, and why."""
        found = {rule_id: "it is not well written any more: edit it" for rule_id in self.rules
                 if rule_id not in self.ready}
        for rule_id, watch in self.evaluator.watches.items():
            if watch.failures >= FAILS_FROM:
                found[rule_id] = watch.trouble
            elif self._has_no_minute and self.evaluator.is_of_history(watch):
                found[rule_id] = "history did not give the minute that was over; its log says why"
        return found

    def _brought(self, now: float) -> Mapping[str, ClosedRuleMinute] | None:
        """The minute that is over, from history: as a rehearsal will find it."""
        asks, spans = self.evaluator.asks(now), self._spans
        if asks is None or spans is None:
            return None
        found = gevent.get_hub().threadpool.apply(_minute, (spans, asks))
        self._has_no_minute = isinstance(found, Exception)
        if isinstance(found, Exception):
            log.error("rules_without_minute start=%d why=%r", asks.start, str(found))
            return None
        return closed_minute(found, self._fleet, asks)

    def _give_back(self, now: float) -> None:
        """A target may come some time after the hub: looked for now and then."""
        if self._restart.is_over or now < self._give_back_at:
            return
        self._give_back_at = now + GIVE_BACK_EVERY_S
        rows: dict[Of, dict[str, int]] = {}

        def rows_of(of: Of) -> dict[str, int]:
            if of not in rows:
                scene = self._shown[of]
                there = scene.there.copy()
                there[scene.fresh] = False  # a row that was another's is emptied first
                rows[of] = {scene.identity(row): row for row in map(int, np.flatnonzero(there))}
            return rows[of]

        self._keep(self._restart.give_back(self.evaluator.watches, rows_of, self.alerts, now))

    def _follow(self, mono: float) -> None:
        if mono - self._followed_mono < FOLLOW_EVERY_S:
            return
        self._followed_mono = mono

        def gpus_of(of: Of, row: int) -> tuple[str, ...]:
            scene = self._shown[of]
            is_there = row < len(scene.there) and scene.there[row]
            return scene.name(row).gpus if is_there else ()

        self._keep(self.alerts.follow(gpus_of))

    def _keep(self, changed: Iterable[AlertChange]) -> None:
        alerts = [change.alert for change in changed]
        self._unkept |= {alert.id: alert for alert in alerts}
        self._write()
        for alert in alerts:
            for tell in self.on_change:
                tell(alert)

    def _write(self) -> None:
        """What a full disk does not take is told all the same, and kept when it does."""
        if not self._unkept:
            return
        try:
            self._store.put_alerts([*self._unkept.values()])
        except CannotStore as error:
            self._say_unkept(error)
            while len(self._unkept) > MOST_UNKEPT:
                del self._unkept[next(iter(self._unkept))]
        else:
            self._unkept.clear()
            self._said = ""

    def _say_unkept(self, error: Exception) -> None:
        if str(error) != self._said:
            log.error("alerts_not_kept why=%r", str(error))
        self._said = str(error)

    @property
    def since_mono(self) -> float:
        """Since when it looks without a break."""
        return self._since_mono

    def forgive(self, mono: float) -> None:
        """The hub itself stood still: the silence was ours."""
        self._since_mono = mono

    # -- rules

    def put_rule(self, actor: Actor, rule: Rule) -> int:
        self._may(actor, "PUT /api/v1/rules/<rule_id>")
        check(rule)
        before = self.rules.get(rule.id)
        rule = self.gate(actor, None if before is None else before[1], rule)
        ready = check(rule)
        if rule.id not in self.rules and len(self.rules) >= MOST_RULES:
            raise InvalidChangeError(f"at most {MOST_RULES} rules fit")
        with self._auditor.change("rule", by(actor) | {"action": "put", "detail": {
                "rule": rule.id, "version": ready.version, "mode": rule.mode}}):
            number = self._store.put_rule(rule, self.author_of(actor), time.time())
        self._load()
        return number

    def put_mode(self, actor: Actor, before: Rule, rule: Rule) -> int:
        """What it may do; what it means is the same."""
        ready = check(rule)
        with self._auditor.change("rule", by(actor) | {"action": "mode", "detail": {
                "rule": rule.id, "version": ready.version, "from": before.mode, "to": rule.mode,
                "expires": rule.expires}}):
            number = self._store.put_rule(rule, self.author_of(actor), time.time())
        self._load()
        return number

    def begin_anew(self, why: str = "reset") -> None:
        """Rules that act are at rest after the brakes were reset, or the clock was: what was so
        before is over."""
        acting = [rule_id for rule_id, ready in self.ready.items()
                  if ready.has_ladder and ready.rule.mode != "observe"]
        begun = self.evaluator.begin_anew(acting)
        self._keep(self.alerts.drop(begun, time.time(), why))

    def remove_rule(self, actor: Actor, rule_id: str) -> None:
        self._may(actor, "DELETE /api/v1/rules/<rule_id>")
        if rule_id not in self.rules:
            raise NotFoundError(f"there is no rule {rule_id[:80]!r}")
        with self._auditor.change("rule", by(actor) | {"action": "remove", "detail": {
                "rule": rule_id}}, takes_away=True):
            self._store.put_rule(self.rules[rule_id][1], actor.name, time.time(), is_there=False)
        self._load()

    def try_out(self, rule: Rule) -> tuple[int, list[AlertTarget], Basis]:
        """How many it is about, and of whom its condition is true at this moment."""
        shown, basis = momentary(rule)
        ready, now = check(shown), time.time()
        if not self._shown:
            return 0, [], basis
        # A look of its own would take from the next step who has just come.
        scene, watch = self._shown[rule.of], RuleTracker(ready)
        look = watch.glance(scene, now)
        return int((watch.seen.scope & scene.there).sum()), [
            scene.name(row) for row in map(int, np.flatnonzero(look.breach & scene.there))], basis

    def matters_to(self, of: Of, row: int) -> list[tuple[str, str]]:
        """Node and id of the Tasks that one row was about at the last step."""
        scene = self._shown.get(of)
        return [] if scene is None else scene.matters_to(row)

    def is_seen(self, target: AlertTarget, lens: VisibleFleet) -> bool:
        """Who may see a Node sees what is there; what is of no Node is for who sees all of them,
        and an Owner's for that Owner."""
        if target.node_id:
            return lens.sees_node(target.node_id)
        return lens.is_whole or any(user in lens.reads.own for user in target.users)

    def host_of(self, node: str) -> str:
        known = self._fleet.nodes.get(node)
        return node if known is None else known.hello.host

    def ended(self, start: float, end: float, about: AlertQuery) -> list[Alert]:
        return self._store.ended_alerts(start, end, about)

    def nodes_of(self, gpus: Iterable[str]) -> frozenset[str]:
        slots = (self._fleet.find(uuid) for uuid in gpus)
        return frozenset(self._fleet.node_of(slot).hello.node_id for slot in slots
                         if slot is not None)

    def gpus_seen(self, target: AlertTarget, lens: VisibleFleet) -> list[str]:
        """Of a Job or an Owner some may be on Nodes that this one may not see."""
        return [uuid for uuid in target.gpus
                if lens.is_whole or self._fleet.find(uuid, lens.place_of) is not None]

    # -- silences

    def silence(self, actor: Actor, asked: Silence) -> Silence:
        self._may(actor, "POST /api/v1/silences")
        now = time.time()
        if not any((asked.rule, asked.node, asked.target, asked.user)):
            raise InvalidChangeError("say what is silenced: a rule, a node, a target or a user")
        if not asked.because.strip():
            raise InvalidChangeError("say why (because), so that others know what they may end")
        if asked.rule and asked.rule not in self.rules:
            raise NotFoundError(f"there is no rule {asked.rule[:80]!r}")
        if not now < asked.until <= now + MOST_S or asked.begins >= asked.until:
            raise InvalidChangeError("a silence has an end, ahead of now and within 30 days")
        if asked.node and not any(asked.node in (node_id, node.hello.host) for node_id, node in
                                  self._fleet.nodes.items()):
            raise NotFoundError(f"there is no node {asked.node[:80]!r}: give its host name, or "
                                "its id")
        if sum(not each.is_over(now) for each in self.silences.values()) >= MOST_SILENCES:
            raise InvalidChangeError(f"at most {MOST_SILENCES} silences fit")
        made = replace(asked, id="z" + secrets.token_hex(8), by=actor.name)
        self._put(actor, made, "silence")
        return made

    def end_silence(self, actor: Actor, silence_id: str) -> None:
        self._may(actor, "DELETE /api/v1/silences/<silence_id>")
        known = self.silences.get(silence_id)
        if known is None or known.is_over(time.time()):
            raise NotFoundError("there is no such silence, or it is over")
        self._put(actor, replace(known, ended_at=time.time()), "end silence")

    def _put(self, actor: Actor, silence: Silence, action: str) -> None:
        with self._auditor.change("silence", by(actor) | {"action": action, "detail": {
                "silence": silence.id, "what": silence.what, "because": silence.because,
                "rule": silence.rule, "node": silence.node,
                "target": silence.target, "user": silence.user, "until": silence.until}}):
            self._store.put_silence(silence)
        self.silences[silence.id] = silence

    def firing(self) -> list[Alert]:
        return self.alerts.firing()

    def pending(self) -> list[Alert]:
        """Of whom it is so, and not for long enough yet; who would fire first, first."""
        found = []
        for rule_id, watch in self.evaluator.watches.items():
            machine, rule = watch.machine, watch.ready.rule
            scene = self._shown.get(rule.of)
            if scene is None:
                continue
            for row in map(int, np.flatnonzero(machine.phase == AlertPhase.PENDING)[:MOST_PENDING]):
                since, value = float(machine.since[row]), float(watch.seen.values[row])
                target = scene.name(row)
                found.append(Alert(
                    f"{rule_id}/{target.key}/pending", rule_id, watch.ready.version, rule.title,
                    rule.severity, rule.of, target, "pending", since, since + watch.ready.for_s,
                    since, None if np.isnan(value) else value))
        return sorted(found, key=lambda alert: (alert.fired_at, alert.id))

    def silenced_by(self, alert: Alert, now: float) -> list[str]:
        return [silence.id for silence in self.silences.values()
                if silence.is_on(now) and silence.matches(alert)]

    def holds_of(self, alert: Alert, now: float) -> list[str]:
        return [f"silenced by {silence.by} until {_clock(silence.until)}: {silence.because}"
                for silence in self.silences.values()
                if silence.is_on(now) and silence.matches(alert)]

    def _may(self, actor: Actor, verb: str) -> None:
        refusal = may(actor, verb, now=time.time())
        if refusal is not None:
            raise RefusedError(refusal)


def only_observe(actor: Actor, before: Rule | None, wanted: Rule) -> Rule:
    if wanted.mode != "observe":
        raise InvalidChangeError("nothing here lets rules act: set mode to observe")
    return wanted


def _minute(spans: RuleHistory, asks: RuleMinutesRequest) -> HistoryGrid | Exception:
    """gevent writes an exception that leaves a thread to stderr."""
    try:
        return spans.minute(asks.start, asks.wanted)
    except Exception as error:
        return error


def _clock(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at))
