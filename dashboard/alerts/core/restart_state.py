"""What Rules remember over a restart of the hub. Of all: that a target comes and goes, and how long
it cools down. Of those that only tell: how long each row has waited, and which alerts were open. A
Rule that acts begins again: what happened meanwhile nobody saw.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
from msgspec import Struct

from .firing_alerts import Alert, AlertTarget, FiringAlerts, ended_by_restart
from .flap_cooldown import DAY_S, WITHIN
from .rule import Of
from .rule_tracker import RuleTracker
from .state_machine import AlertPhase, Rows

GAP_MOST_S = 3_600.0  # as Prometheus
MOST = 50_000

KeyOf = Callable[[Of, int], str | None]  # None: nobody is there any more


class SavedPendingState(Struct, frozen=True, array_like=True):
    """PENDING since then, by so many samples, the newest of which was at `seen_at`."""

    since: float
    seen_at: float
    samples: float


class SavedFlapCooldown(Struct, frozen=True, array_like=True):
    """Bits of its last stretches, up to that one; of its cooldown, until when, when its last
    episode ended, and how many there were."""

    bits: int
    stretch: int
    is_flapping: bool
    until: float | None
    ended_at: float | None
    episodes: int
    is_firing: bool = False  # and will begin again


class SavedRuleStates(Struct, frozen=True):
    """By Rule (its id and version) and target."""

    at: float
    waited: dict[str, dict[str, SavedPendingState]] = {}
    held: dict[str, dict[str, SavedFlapCooldown]] = {}


def mark(ready_id: str, version: str) -> str:
    return f"{ready_id}/{version}"


def remember(watches: Mapping[str, RuleTracker], key_of: KeyOf, now: float,
             restart: "RuleStateRestore") -> SavedRuleStates:
    """At most so many: what is beyond begins its wait again. `restart`: the last one, of which some
    targets may not have come yet."""
    waited = {key: dict(rows) for key, rows in restart.waited.items()}
    held = {key: dict(rows) for key, rows in restart.held.items()}
    room = MOST
    for rule_id, watch in watches.items():
        name = mark(rule_id, watch.ready.version)
        if new := _waited(watch, key_of, room):
            waited.setdefault(name, {}).update(new)
        room -= len(new)
        if also := _held(watch, key_of, now, room):
            held.setdefault(name, {}).update(also)
        room -= len(also)
    return SavedRuleStates(now, waited, held)


def _waited(watch: RuleTracker, key_of: KeyOf, room: int) -> dict[str, SavedPendingState]:
    if watch.ready.has_ladder:
        return {}
    machine = watch.machine
    return {key: SavedPendingState(float(machine.since[row]), float(machine.seen_at[row]),
                                   float(machine.samples[row]))
            for row, key in _named(np.flatnonzero(machine.phase == AlertPhase.PENDING), watch,
                                   key_of, room)}


def _held(watch: RuleTracker, key_of: KeyOf, now: float, room: int) -> dict[str, SavedFlapCooldown]:
    """Of no other row there is anything to say."""
    flaps, cool, phase = watch.flaps, watch.cooldowns, watch.machine.phase
    stretch = flaps.stretch
    if stretch is None:
        return {}
    rows = np.flatnonzero((flaps.bits != 0) | (cool.until > now) | (cool.ended_at > now - DAY_S))
    return {key: SavedFlapCooldown(int(flaps.bits[row]), stretch, bool(flaps.is_flapping[row]),
                                   _known(cool.until[row]), _known(cool.ended_at[row]),
                                   int(cool.episodes[row]),
                                   # A rule that has just begun anew looks at nobody yet.
                                   watch.ready.has_ladder and row < len(phase)
                                   and phase[row] in WITHIN)
            for row, key in _named(rows, watch, key_of, room)}


def _named(rows: Rows, watch: RuleTracker, key_of: KeyOf, room: int) -> Iterator[tuple[int, str]]:
    for row in map(int, rows[:room]):
        key = key_of(watch.ready.rule.of, row)
        if key is not None:
            yield row, key


def _known(at: float) -> float | None:
    return float(at) if np.isfinite(at) else None


class RuleStateRestore:
    """What is still to be given back: a target may come some time after the hub."""

    def __init__(self, memory: SavedRuleStates | None, open_alerts: Iterable[Alert],
                 watches: Mapping[str, RuleTracker], now: float) -> None:
        """`ended`: alerts that cannot go on."""
        gap_s = np.inf if memory is None else now - memory.at
        self._began_at = now
        self.waited: dict[str, dict[str, SavedPendingState]] = {}
        self.held: dict[str, dict[str, SavedFlapCooldown]] = {}
        self._alerts: dict[tuple[str, str], Alert] = {}
        self.ended: list[Alert] = []
        if memory is not None and gap_s <= GAP_MOST_S:
            self.waited = {key: dict(rows) for key, rows in memory.waited.items()}
        if memory is not None and gap_s <= DAY_S:
            self.held = {key: dict(rows) for key, rows in memory.held.items()}
        for alert in open_alerts:
            watch = watches.get(alert.rule_id)
            goes_on = (gap_s <= GAP_MOST_S and watch is not None
                       and watch.ready.version == alert.version and not watch.ready.has_ladder)
            if goes_on:
                self._alerts[alert.rule_id, identity(alert.of, alert.target)] = alert
            else:
                self.ended.append(ended_by_restart(alert, now))
        self._seen_at = now if memory is None else memory.at

    def add(self, alerts: Iterable[Alert]) -> None:
        """More that are to go on."""
        self._alerts |= {(alert.rule_id, identity(alert.of, alert.target)): alert
                         for alert in alerts}

    @property
    def is_over(self) -> bool:
        return not self.waited and not self._alerts and not self.held

    def waiting(self) -> list[Alert]:
        """Alerts whose target has not come yet."""
        return list(self._alerts.values())

    def give_back(self, watches: Mapping[str, RuleTracker], rows_of: Callable[[Of], dict[str, int]],
                  alerts: FiringAlerts, now: float) -> list[Alert]:
        """To those who are there by now. After an hour, what is left has ended, and so has what
        its Rule no longer means."""
        for watch in watches.values():
            self._give_back(watch, rows_of, alerts, now)
        self.waited = {key: rows for key, rows in self.waited.items() if rows}
        self.held = {key: rows for key, rows in self.held.items() if rows}
        is_late = now - self._began_at > GAP_MOST_S
        ended = {key: alert for key, alert in self._alerts.items() if is_late
                 or alert.rule_id not in watches
                 or watches[alert.rule_id].ready.version != alert.version}
        self._alerts = {key: alert for key, alert in self._alerts.items() if key not in ended}
        if is_late:
            self.waited, self.held = {}, {}
        return [ended_by_restart(alert, now) for alert in ended.values()]

    def _give_back(self, watch: RuleTracker, rows_of: Callable[[Of], dict[str, int]],
                   alerts: FiringAlerts, now: float) -> None:
        rule = watch.ready.rule
        name = mark(rule.id, watch.ready.version)
        waited, held = self.waited.get(name, {}), self.held.get(name, {})
        mine = [key for key, alert in self._alerts.items()
                if key[0] == rule.id and alert.version == watch.ready.version]
        if not waited and not mine and not held:
            return
        rows = rows_of(rule.of)
        watch.make_room(max(rows.values(), default=-1) + 1)
        for key in held.keys() & rows.keys():
            _give_back_holds(watch, rows[key], held.pop(key))
        watch.flaps.judge()
        for key in waited.keys() & rows.keys():
            was = waited.pop(key)
            if watch.machine.phase[rows[key]] == AlertPhase.INACTIVE:
                watch.machine.resume(rows[key], AlertPhase.PENDING, was.since, was.samples,
                                     was.seen_at, now)
        for place in [place for place in mine if place[1] in rows]:
            alert, row = self._alerts.pop(place), rows[place[1]]
            phase = AlertPhase.FIRING if alert.state == "firing" else AlertPhase.RESOLVING
            since = alert.changed_at if phase is AlertPhase.RESOLVING else alert.since
            watch.machine.resume(row, phase, since, 1.0, self._seen_at, now)
            alerts.adopt(row, alert)


def _give_back_holds(watch: RuleTracker, row: int, was: SavedFlapCooldown) -> None:
    watch.flaps.give_back(row, was.bits, was.stretch, was.is_flapping, was.is_firing)
    watch.cooldowns.give_back(row, -np.inf if was.until is None else was.until,
                              -np.inf if was.ended_at is None else was.ended_at, was.episodes)


def identity(of: Of, target: AlertTarget) -> str:
    """As targets give it, by row."""
    return f"{target.node_id} {target.key}" if of == "gpu" else target.key
