"""State of rules over a restart of the hub. Every rule: flapping and cooldown of its targets.
Rules without a ladder: how long each row has waited, which alerts were open, and what they look
back over: without it "3 NVLinks fewer than within the last day" would have ended with the restart.
A rule that acts starts over, as nobody saw what happened in between.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
from msgspec import Struct

from .firing_alerts import Alert, AlertTarget, FiringAlerts, ended_by_restart
from .flap_cooldown import DAY_S, WITHIN
from .row_state import SavedWindow
from .rule import Of
from .rule_tracker import RuleTracker
from .state_machine import AlertPhase, Rows

GAP_MOST_S = 3_600.0  # as Prometheus
MOST = 50_000
MOST_WINDOWS = 256  # a kilobyte each, which is written on the hub's loop

KeyOf = Callable[[Of, int], str | None]  # None: the target is gone


class SavedPendingState(Struct, frozen=True, array_like=True):
    """Pending since `since`, by so many samples, the newest of which was at `seen_at`."""

    since: float
    seen_at: float
    samples: float


class SavedFlapCooldown(Struct, frozen=True, array_like=True):
    """Flapping: `bits` of its last stretches up to `stretch`. Cooldown: until when, when the last
    episode ended, and how many there were."""

    bits: int
    stretch: int
    is_flapping: bool
    until: float | None
    ended_at: float | None
    episodes: int
    is_firing: bool = False  # and will fire again


class SavedRuleStates(Struct, frozen=True):
    """States by rule (its id and version) and target."""

    at: float
    waited: dict[str, dict[str, SavedPendingState]] = {}
    held: dict[str, dict[str, SavedFlapCooldown]] = {}
    windows: dict[str, dict[str, dict[str, SavedWindow]]] = {}  # the last key is a term


def mark(ready_id: str, version: str) -> str:
    return f"{ready_id}/{version}"


def remember(watches: Mapping[str, RuleTracker], key_of: KeyOf, now: float,
             restart: "RuleStateRestore") -> SavedRuleStates:
    """Return the states to save, at most MOST of them: the wait of the others starts over.
    `restart`: the last restore, of which some targets may not have appeared yet."""
    pending = {key: dict(rows) for key, rows in restart.pending.items()}
    cooldowns = {key: dict(rows) for key, rows in restart.cooldowns.items()}
    windows = {key: dict(rows) for key, rows in restart.windows.items()}
    room = MOST
    for rule_id, watch in watches.items():
        name = mark(rule_id, watch.ready.version)
        if new := _pending_states(watch, key_of, room):
            pending.setdefault(name, {}).update(new)
        room -= len(new)
        if also := _cooldown_states(watch, key_of, now, room):
            cooldowns.setdefault(name, {}).update(also)
        room -= len(also)
    room = MOST_WINDOWS - sum(_many(rows) for rows in windows.values())
    for phases in ((AlertPhase.FIRING, AlertPhase.RESOLVING), (AlertPhase.PENDING,)):
        for rule_id, watch in watches.items():
            if of_rule := _windows(watch, phases, key_of, room):
                windows.setdefault(mark(rule_id, watch.ready.version), {}).update(of_rule)
                room -= _many(of_rule)
    return SavedRuleStates(now, pending, cooldowns, windows)


def _many(rows: Mapping[str, Mapping[str, SavedWindow]]) -> int:
    return sum(map(len, rows.values()))


def _windows(watch: RuleTracker, phases: tuple[AlertPhase, ...], key_of: KeyOf, room: int
             ) -> dict[str, dict[str, SavedWindow]]:
    if watch.ready.has_ladder or room <= 0:
        return {}
    rows = np.flatnonzero(np.isin(watch.machine.phase, phases))
    by_target: dict[str, dict[str, SavedWindow]] = {}
    for row, key in _rows_with_keys(rows, watch, key_of, room):
        if (windows := watch.saved_windows(row)) and room >= len(windows):
            by_target[key] = windows
            room -= len(windows)
    return by_target


def _pending_states(watch: RuleTracker, key_of: KeyOf, room: int) -> dict[str, SavedPendingState]:
    if watch.ready.has_ladder:
        return {}
    machine = watch.machine
    return {key: SavedPendingState(float(machine.since[row]), float(machine.seen_at[row]),
                                   float(machine.samples[row]))
            for row, key in _rows_with_keys(
                np.flatnonzero(machine.phase == AlertPhase.PENDING), watch, key_of, room)}


def _cooldown_states(watch: RuleTracker, key_of: KeyOf, now: float, room: int
                     ) -> dict[str, SavedFlapCooldown]:
    """Return the rows that flap or cool down; others have nothing to save."""
    flaps, cool, phase = watch.flaps, watch.cooldowns, watch.machine.phase
    stretch = flaps.stretch
    if stretch is None:
        return {}
    rows = np.union1d(np.flatnonzero(flaps.bits), cool.rows(now))
    return {key: SavedFlapCooldown(int(flaps.bits[row]), stretch, bool(flaps.is_flapping[row]),
                                   *cool.saved(row),
                                   # A rule that has just restarted has no targets yet.
                                   watch.ready.has_ladder and row < len(phase)
                                   and phase[row] in WITHIN)
            for row, key in _rows_with_keys(rows, watch, key_of, room)}


def _rows_with_keys(rows: Rows, watch: RuleTracker, key_of: KeyOf, room: int
                    ) -> Iterator[tuple[int, str]]:
    for row in map(int, rows[:room]):
        key = key_of(watch.ready.rule.of, row)
        if key is not None:
            yield row, key


class RuleStateRestore:
    """States that are still to be restored: a target may appear some time after the hub.
    `ended_alerts`: alerts that cannot go on."""

    def __init__(self, memory: SavedRuleStates | None, open_alerts: Iterable[Alert],
                 watches: Mapping[str, RuleTracker], now: float) -> None:
        gap_s = np.inf if memory is None else now - memory.at
        self._began_at = now
        self.pending: dict[str, dict[str, SavedPendingState]] = {}
        self.cooldowns: dict[str, dict[str, SavedFlapCooldown]] = {}
        self.windows: dict[str, dict[str, dict[str, SavedWindow]]] = {}
        self._alerts: dict[tuple[str, str], Alert] = {}
        self.ended_alerts: list[Alert] = []
        if memory is not None and gap_s <= GAP_MOST_S:
            self.pending = {key: dict(rows) for key, rows in memory.waited.items()}
            self.windows = {key: dict(rows) for key, rows in memory.windows.items()}
        if memory is not None and gap_s <= DAY_S:
            self.cooldowns = {key: dict(rows) for key, rows in memory.held.items()}
        for alert in open_alerts:
            watch = watches.get(alert.rule_id)
            goes_on = (gap_s <= GAP_MOST_S and watch is not None
                       and watch.ready.version == alert.version and not watch.ready.has_ladder)
            if goes_on:
                self._alerts[alert.rule_id, identity(alert.of, alert.target)] = alert
            else:
                self.ended_alerts.append(ended_by_restart(alert, now))
        self._seen_at = now if memory is None else memory.at

    def add(self, alerts: Iterable[Alert]) -> None:
        """Add alerts that are to go on."""
        self._alerts |= {(alert.rule_id, identity(alert.of, alert.target)): alert
                         for alert in alerts}

    @property
    def is_over(self) -> bool:
        return not (self.pending or self._alerts or self.cooldowns or self.windows)

    def waiting(self) -> list[Alert]:
        """Return alerts whose target has not appeared yet."""
        return list(self._alerts.values())

    def restore(self, watches: Mapping[str, RuleTracker], rows_of: Callable[[Of], dict[str, int]],
                alerts: FiringAlerts, now: float) -> list[Alert]:
        """Restore the states of targets that are present by now, and return alerts that ended: all
        that are left after an hour, and those of rules that were removed or mean something else."""
        for watch in watches.values():
            self._restore(watch, rows_of, alerts, now)
        self.pending = {key: rows for key, rows in self.pending.items() if rows}
        self.cooldowns = {key: rows for key, rows in self.cooldowns.items() if rows}
        self.windows = {key: rows for key, rows in self.windows.items() if rows}
        is_late = now - self._began_at > GAP_MOST_S
        ended_alerts = {key: alert for key, alert in self._alerts.items() if is_late
                        or alert.rule_id not in watches
                        or watches[alert.rule_id].ready.version != alert.version}
        self._alerts = {key: alert for key, alert in self._alerts.items()
                        if key not in ended_alerts}
        if is_late:
            self.pending, self.cooldowns, self.windows = {}, {}, {}
        return [ended_by_restart(alert, now) for alert in ended_alerts.values()]

    def _restore(self, watch: RuleTracker, rows_of: Callable[[Of], dict[str, int]],
                 alerts: FiringAlerts, now: float) -> None:
        rule = watch.ready.rule
        name = mark(rule.id, watch.ready.version)
        pending, cooldowns = self.pending.get(name, {}), self.cooldowns.get(name, {})
        windows = self.windows.get(name, {})
        alert_keys = [key for key, alert in self._alerts.items()
                      if key[0] == rule.id and alert.version == watch.ready.version]
        if not (pending or alert_keys or cooldowns or windows):
            return
        rows = rows_of(rule.of)
        watch.make_room(max(rows.values(), default=-1) + 1)
        for key in cooldowns.keys() & rows.keys():
            _restore_cooldown(watch, rows[key], cooldowns.pop(key))
        watch.flaps.judge()
        for key in windows.keys() & rows.keys():
            watch.restore_windows(rows[key], windows.pop(key))
        for key in pending.keys() & rows.keys():
            saved = pending.pop(key)
            if watch.machine.phase[rows[key]] == AlertPhase.INACTIVE:
                watch.machine.resume(rows[key], AlertPhase.PENDING, saved.since, saved.samples,
                                     saved.seen_at, now)
        for alert_key in [alert_key for alert_key in alert_keys if alert_key[1] in rows]:
            alert, row = self._alerts.pop(alert_key), rows[alert_key[1]]
            phase = AlertPhase.FIRING if alert.state == "firing" else AlertPhase.RESOLVING
            since = alert.changed_at if phase is AlertPhase.RESOLVING else alert.since
            watch.machine.resume(row, phase, since, 1.0, self._seen_at, now)
            alerts.adopt(row, alert)


def _restore_cooldown(watch: RuleTracker, row: int, state: SavedFlapCooldown) -> None:
    watch.flaps.restore(row, state.bits, state.stretch, state.is_flapping, state.is_firing)
    watch.cooldowns.restore(row, -np.inf if state.until is None else state.until,
                            -np.inf if state.ended_at is None else state.ended_at, state.episodes)


def identity(of: Of, target: AlertTarget) -> str:
    """Return the identity of a target as `NamedRuleTargets.identity` gives it by row."""
    return f"{target.node_id} {target.key}" if of == "gpu" else target.key
