"""What Rules that only tell remember over a restart of the hub: how long each row has waited, and
which alerts were open. A Rule that acts begins again: what happened meanwhile nobody saw.
"""

from collections.abc import Callable, Iterable, Mapping

import numpy as np
from msgspec import Struct

from .alerts import Alert, Alerts, Changed, Named, ended_by_restart
from .machine import Phase, Resumed
from .rule import Of
from .watch import Watch

GAP_MOST_S = 3_600.0  # as Prometheus
MOST = 50_000

KeyOf = Callable[[Of, int], str]


class Waited(Struct, frozen=True, array_like=True):
    """PENDING since then, by so many samples, the newest of which was at `seen_at`."""

    since: float
    seen_at: float
    samples: float


class Memory(Struct, frozen=True):
    """By Rule (its id and version) and target."""

    at: float
    waited: dict[str, dict[str, Waited]] = {}


def mark(ready_id: str, version: str) -> str:
    return f"{ready_id}/{version}"


def remember(watches: Mapping[str, Watch], key_of: KeyOf, now: float,
             left: Mapping[str, Mapping[str, Waited]]) -> Memory:
    """At most so many: what is beyond begins its wait again. `left`: whose targets have not come
    since the last restart."""
    found = {key: dict(rows) for key, rows in left.items()}
    room = MOST
    for rule_id, watch in watches.items():
        machine = watch.machine
        rows = np.flatnonzero(machine.phase == Phase.PENDING)[:room]
        if watch.ready.has_ladder or not len(rows):
            continue
        room -= len(rows)
        found.setdefault(mark(rule_id, watch.ready.version), {}).update({
            key_of(watch.ready.rule.of, row): Waited(
                float(machine.since[row]), float(machine.seen_at[row]),
                float(machine.samples[row]))
            for row in map(int, rows)})
    return Memory(now, found)


class Restart:
    """What is still to be given back: a target may come some time after the hub."""

    def __init__(self, memory: Memory | None, open_alerts: Iterable[Alert],
                 watches: Mapping[str, Watch], now: float) -> None:
        """`ended`: alerts that cannot go on."""
        gap_s = np.inf if memory is None else now - memory.at
        self._began_at = now
        self._waited: dict[str, dict[str, Waited]] = {}
        self._alerts: dict[tuple[str, str], Alert] = {}
        self.ended: list[Alert] = []
        if memory is not None and gap_s <= GAP_MOST_S:
            self._waited = {key: dict(rows) for key, rows in memory.waited.items()}
        for alert in open_alerts:
            watch = watches.get(alert.rule_id)
            goes_on = (gap_s <= GAP_MOST_S and watch is not None
                       and watch.ready.version == alert.version and not watch.ready.has_ladder)
            if goes_on:
                self._alerts[alert.rule_id, identity(alert.of, alert.target)] = alert
            else:
                self.ended.append(ended_by_restart(alert, now))
        self._seen_at = now if memory is None else memory.at

    @property
    def is_over(self) -> bool:
        return not self._waited and not self._alerts

    @property
    def left(self) -> Mapping[str, Mapping[str, Waited]]:
        return self._waited

    def give_back(self, watches: Mapping[str, Watch], rows_of: Callable[[Of], dict[str, int]],
                  alerts: Alerts, now: float) -> list[Changed]:
        """To those who are there by now. After an hour, what is left has ended, and so has what
        its Rule no longer means."""
        for watch in watches.values():
            self._give_back(watch, rows_of, alerts, now)
        self._waited = {key: rows for key, rows in self._waited.items() if rows}
        is_late = now - self._began_at > GAP_MOST_S
        ended = {key: alert for key, alert in self._alerts.items() if is_late
                 or alert.rule_id not in watches
                 or watches[alert.rule_id].ready.version != alert.version}
        self._alerts = {key: alert for key, alert in self._alerts.items() if key not in ended}
        if is_late:
            self._waited = {}
        return [Changed(ended_by_restart(alert, now)) for alert in ended.values()]

    def _give_back(self, watch: Watch, rows_of: Callable[[Of], dict[str, int]], alerts: Alerts,
                   now: float) -> None:
        rule = watch.ready.rule
        waited = self._waited.get(mark(rule.id, watch.ready.version), {})
        mine = [key for key, alert in self._alerts.items()
                if key[0] == rule.id and alert.version == watch.ready.version]
        if not waited and not mine:
            return
        rows = rows_of(rule.of)
        watch.make_room(max(rows.values(), default=-1) + 1)
        for key in [key for key in waited if key in rows]:
            was = waited.pop(key)
            if watch.machine.phase[rows[key]] == Phase.INACTIVE:
                watch.machine.resume(rows[key], Resumed(Phase.PENDING, was.since, was.seen_at,
                                                        was.samples), now)
        for place in [place for place in mine if place[1] in rows]:
            alert, row = self._alerts.pop(place), rows[place[1]]
            phase = Phase.FIRING if alert.state == "firing" else Phase.RESOLVING
            watch.machine.resume(row, Resumed(
                phase, alert.changed_at if phase is Phase.RESOLVING else alert.since,
                self._seen_at, 1.0, alert.fired_at, alert.comebacks), now)
            alerts.adopt(row, alert)


def identity(of: Of, target: Named) -> str:
    """A board may have moved to another Node, where it is another target."""
    return f"{target.node_id} {target.key}" if of == "gpu" else target.key
