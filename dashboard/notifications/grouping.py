"""Groups alerts into notifications: for which receivers, with which others, and when to repeat.

Alerts go in as they change, batches come out. Each alert is reported once as firing and once as
resolved; alerts muted by a silence or another rule wait until they are not, and one that is
resolving before anybody was notified waits for its end. The caller stores what was sent, so that a
restart neither forgets nor repeats it. Pure.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import msgspec
from msgspec import Struct

from ..alerts.core.firing_alerts import Alert
from ..alerts.core.silence import Mute
from .receivers import Receiver

MUTED_LOOK_S = 5.0
DOUBT_S = 120.0  # in addition to the rule's own hold
FOLD_FROM = 10



@dataclass(frozen=True, slots=True)
class NotificationTiming:
    """Delays of notifications. `wait_s`: before the first one of a group, for other alerts of it;
    `interval_s`: between two of a group; `repeat_s`: between repeats of what still fires."""

    wait_s: float = 10.0
    interval_s: float = 300.0
    repeat_s: float = 14_400.0


Reason = Literal["firing", "resolved", "repeat"]
Key = tuple[str, str]  # receiver, words


class GroupedAlert(Struct):
    """`doubtful_until`: the hub was restarted in between, and until then the alert may still
    fire."""

    alert: Alert
    is_told: bool = False
    is_muted: bool = False  # when it was last checked
    doubtful_until: float | None = None

    @property
    def is_over(self) -> bool:
        return self.alert.state == "ended"


class NotificationGroup(Struct):
    receiver: str
    owner: str
    by: dict[str, str]
    members: dict[str, GroupedAlert] = {}
    sent_at: float | None = None
    waits_since: float | None = None  # since something of it is to be reported


@dataclass(frozen=True, slots=True)
class NotificationBatch:
    """The contents of one notification."""

    key: Key
    owner: str
    by: Mapping[str, str]
    reason: Reason
    firing: tuple[Alert, ...]
    over: tuple[Alert, ...]
    muted: int = 0


@dataclass(slots=True)
class NotificationGroupChanges:
    """Changes to store before anything of them is sent."""

    members: dict[tuple[Key, str], GroupedAlert | None] = field(default_factory=dict)
    groups: dict[Key, NotificationGroup | None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.members or self.groups)


def member_key(alert: Alert) -> str:
    """Return the same key for a target and a rule each time the rule fires."""
    return f"{alert.rule_id}/{alert.target.key}"


def group_by(alert: Alert, names: Iterable[str]) -> dict[str, str]:
    target = alert.target
    values = {"rule": alert.rule_id, "node": target.node_id, "owner": ",".join(target.users),
              "gpu": target.key}
    return {name: values[name] for name in names}


def key_of(receiver: str, owner: str, by: Mapping[str, str]) -> Key:
    return receiver, msgspec.json.encode([owner, *by.items()]).decode()


class NotificationGrouping:
    """Groups alerts. `owners_for`: a receiver gets a notification for each of these owners; '' is
    nobody in particular."""

    def __init__(self, timing: NotificationTiming,
                 owners_for: Callable[[Receiver, Alert], tuple[str, ...]]) -> None:
        self._timing = timing
        self._owners_for = owners_for
        self._groups: dict[Key, NotificationGroup] = {}
        self._look_at: dict[Key, float] = {}
        self._where: dict[tuple[str, str], set[Key]] = {}  # receiver, member
        self._changes = NotificationGroupChanges()
        self.muted = 0  # never reported, as they ended before they could be

    def changes(self) -> NotificationGroupChanges:
        """Return the changes since the last call; the caller has to store them."""
        changes, self._changes = self._changes, NotificationGroupChanges()
        return changes

    def put_back(self, changes: NotificationGroupChanges) -> None:
        """Take back changes that could not be stored."""
        self._changes = NotificationGroupChanges(changes.members | self._changes.members,
                                                 changes.groups | self._changes.groups)

    # -- alerts in

    def take(self, alert: Alert, receiver: Receiver, names: Iterable[str], now: float) -> None:
        name = member_key(alert)
        keys = [key for key in self._where.get((receiver.id, name), ())
                if self._groups[key].members[name].alert.id == alert.id]
        if not keys:
            if alert.state == "ended" or not receiver.wants(alert):
                return
            by = group_by(alert, names)
            keys = [self._key(receiver.id, owner, by)
                    for owner in self._owners_for(receiver, alert)]
        for key in keys:
            self._put(key, name, alert, now)

    def _key(self, receiver: str, owner: str, by: dict[str, str]) -> Key:
        key = key_of(receiver, owner, by)
        if key not in self._groups:
            self._groups[key] = self._changes.groups[key] = NotificationGroup(receiver, owner, by)
        return key

    def _put(self, key: Key, name: str, alert: Alert, now: float) -> None:
        group = self._groups[key]
        member = group.members.get(name)
        if member is None:
            member = group.members[name] = GroupedAlert(alert)
            self._where.setdefault((key[0], name), set()).add(key)
        member.alert, member.doubtful_until = alert, None
        if not member.is_told or member.is_over:
            group.waits_since = now if group.waits_since is None else group.waits_since
        self._changes.members[key, name] = member
        self._look_at[key] = min(now, self._look_at.get(key, now))

    def refit(self, receiver: Receiver) -> None:
        """Remove alerts that a changed receiver no longer wants."""
        for key in [key for key in self._groups if key[0] == receiver.id]:
            members = self._groups[key].members
            for name in [name for name in members if not receiver.wants(members[name].alert)]:
                self._remove(key, name)

    def _remove(self, key: Key, name: str) -> None:
        del self._groups[key].members[name]
        self._changes.members[key, name] = None
        self._where[key[0], name].discard(key)
        if not self._where[key[0], name]:
            del self._where[key[0], name]

    # -- over a restart

    def recover(self, groups: Iterable[NotificationGroup], now: float) -> None:
        """Read groups as they were stored."""
        for group in groups:
            key = key_of(group.receiver, group.owner, group.by)
            self._groups[key] = group
            for name, member in group.members.items():
                self._where.setdefault((group.receiver, name), set()).add(key)
                if member.is_over or not member.is_told:
                    group.waits_since = now
            self._look_at[key] = now

    def doubt(self, now: float, hold_s: Callable[[str], float]) -> None:
        """Mark stored alerts as doubtful: one that fired may still fire, but its rule may have to
        hold again before it says so."""
        for group in self._groups.values():
            for member in group.members.values():
                if not member.is_over:
                    member.doubtful_until = now + DOUBT_S + hold_s(member.alert.rule_id)

    def settle(self, now: float, fires: Callable[[Alert], bool],
               ended: Callable[[Alert], Alert]) -> None:
        """End doubtful alerts whose time is up and that do not fire now."""
        for key, group in self._groups.items():
            for name, member in list(group.members.items()):
                until = member.doubtful_until
                if until is None or now < until:
                    continue
                if fires(member.alert):
                    member.doubtful_until = None
                else:
                    self._put(key, name, ended(member.alert), now)

    def forget_receiver(self, receiver: str) -> None:
        for key in [key for key in self._groups if key[0] == receiver]:
            self._drop(key)

    def _drop(self, key: Key) -> None:
        for name in list(self._groups[key].members):
            self._remove(key, name)
        del self._groups[key]
        self._look_at.pop(key, None)
        self._changes.groups[key] = None

    # -- batches out

    def due(self, now: float, is_muted: Mute) -> list[NotificationBatch]:
        batches = [self._look(key, self._groups[key], now, is_muted)
                   for key, at in list(self._look_at.items()) if at <= now]
        return [batch for batch in batches if batch is not None]

    def _look(self, key: Key, group: NotificationGroup, now: float,
              is_muted: Mute) -> NotificationBatch | None:
        firing, resolved, muted_count = self._sorted(key, group, is_muted)
        at, reason = _when(group, self._timing, firing, resolved)
        if now < at:
            # A waiting alert may be muted before its turn comes.
            is_open = muted_count > 0 or any(not member_.is_told for member_ in firing)
            self._look_again(key, group, now, at, is_open)
            return None
        for member in (*firing, *resolved):
            name = member_key(member.alert)
            member.is_told = True
            self._changes.members[key, name] = member
            if member.is_over:
                self._remove(key, name)
        group.sent_at, group.waits_since = now, None
        self._changes.groups[key] = group
        self._look_at[key] = now + MUTED_LOOK_S
        return NotificationBatch(key, group.owner, group.by, reason,
                                 tuple(member_.alert for member_ in firing),
                                 tuple(member_.alert for member_ in resolved), muted_count)

    def _sorted(self, key: Key, group: NotificationGroup, is_muted: Mute
                ) -> tuple[list[GroupedAlert], list[GroupedAlert], int]:
        """Return the firing and the resolved alerts, and how many are muted. That an alert is
        resolved is reported to everyone who heard of it, muted or not."""
        firing: list[GroupedAlert] = []
        over: list[GroupedAlert] = []
        muted = 0
        for name, member in list(group.members.items()):
            if member.is_over and member.is_told:
                over.append(member)
            elif is_muted(member.alert) or (member.is_over and member.is_muted):
                muted, member.is_muted = muted + 1, True
                if member.is_over:
                    self.muted += 1
                    self._remove(key, name)
            elif member.is_told or member.alert.state != "resolving":
                member.is_muted = False
                (over if member.is_over else firing).append(member)
        return firing, over, muted

    def _look_again(self, key: Key, group: NotificationGroup, now: float, at: float,
                    is_open: bool) -> None:
        if is_open:
            at = min(at, now + MUTED_LOOK_S)
        if not group.members:
            # Keep the group for as long as another notification would come too soon.
            at = (group.sent_at or -math.inf) + self._timing.interval_s
            if now >= at:
                self._drop(key)
                return
        self._look_at[key] = at


def _when(group: NotificationGroup, timing: NotificationTiming, firing: list[GroupedAlert],
          over: list[GroupedAlert]) -> tuple[float, Reason]:
    fresh = any(not member.is_told for member in firing)
    if fresh or over:
        since = group.waits_since
        first = -math.inf if since is None else since + timing.wait_s
        if not firing:  # nobody needs to act on what is resolved
            return first, "resolved"
        next_at = -math.inf if group.sent_at is None else group.sent_at + timing.interval_s
        return max(first, next_at), "firing" if fresh else "resolved"
    if firing and group.sent_at is not None:
        return group.sent_at + timing.repeat_s, "repeat"
    return math.inf, "repeat"


def fold(batches: Iterable[NotificationBatch]) -> Iterator[NotificationBatch]:
    """Fold many batches for one reader into one: an event of the whole fleet is not reported a
    thousand times."""
    by_reader: dict[tuple[str, str], list[NotificationBatch]] = {}
    for batch in batches:
        by_reader.setdefault((batch.key[0], batch.owner), []).append(batch)
    for (receiver, owner), own_batches in by_reader.items():
        if len(own_batches) < FOLD_FROM:
            yield from own_batches
            continue
        firing = tuple(alert for batch in own_batches for alert in batch.firing)
        reasons = {batch.reason for batch in own_batches}
        reason: Reason = "firing" if "firing" in reasons else (
            "repeat" if "repeat" in reasons else "resolved")
        yield NotificationBatch(key_of(receiver, owner, {}), owner, {}, reason, firing,
                                tuple(alert for batch in own_batches for alert in batch.over),
                                sum(batch.muted for batch in own_batches))
