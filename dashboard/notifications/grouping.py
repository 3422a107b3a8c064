"""Groups alerts into notifications: to which receivers, together with which, and when repeated.

Alerts go in as they change, batches come out. Each is reported once as firing and once
as resolved; alerts muted by a silence or another Rule wait until they are not, and one that is
resolving before anybody was told waits for its end. The caller stores what was sent, so that a
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
DOUBT_S = 120.0  # beside the Rule's own hold
FOLD_FROM = 10



@dataclass(frozen=True, slots=True)
class NotificationTiming:
    """`wait_s`: for others of the same group, before the first notice of it; `interval_s` between
    two of one group; `repeat_s`: what goes on is told again."""

    wait_s: float = 10.0
    interval_s: float = 300.0
    repeat_s: float = 14_400.0


Reason = Literal["firing", "resolved", "repeat"]
Key = tuple[str, str]  # receiver, words


class GroupedAlert(Struct):
    """`doubtful_until`: the hub was restarted meanwhile, and it may be so still."""

    alert: Alert
    is_told: bool = False
    is_muted: bool = False  # when it was looked at last
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
    waits_since: float | None = None  # for something that is to be told


@dataclass(frozen=True, slots=True)
class NotificationBatch:
    """What one notice is about."""

    key: Key
    owner: str
    by: Mapping[str, str]
    reason: Reason
    firing: tuple[Alert, ...]
    over: tuple[Alert, ...]
    muted: int = 0


@dataclass(slots=True)
class NotificationGroupChanges:
    """What is to be written before anything of it is sent."""

    members: dict[tuple[Key, str], GroupedAlert | None] = field(default_factory=dict)
    groups: dict[Key, NotificationGroup | None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.members or self.groups)


def member_key(alert: Alert) -> str:
    """The same target under the same Rule, whichever time it is."""
    return f"{alert.rule_id}/{alert.target.key}"


def group_by(alert: Alert, names: Iterable[str]) -> dict[str, str]:
    target = alert.target
    known = {"rule": alert.rule_id, "node": target.node_id, "owner": ",".join(target.users),
             "gpu": target.key}
    return {name: known[name] for name in names}


def key_of(receiver: str, owner: str, by: Mapping[str, str]) -> Key:
    return receiver, msgspec.json.encode([owner, *by.items()]).decode()


class NotificationGrouping:
    """`owners_for`: a receiver gets a notification for each of these; '' is nobody in
    particular."""

    def __init__(self, timing: NotificationTiming,
                 owners_for: Callable[[Receiver, Alert], tuple[str, ...]]) -> None:
        self._timing = timing
        self._owners_for = owners_for
        self._groups: dict[Key, NotificationGroup] = {}
        self._look_at: dict[Key, float] = {}
        self._where: dict[tuple[str, str], set[Key]] = {}  # receiver, member
        self._changes = NotificationGroupChanges()
        self.muted = 0  # told to nobody, because it was over before it could be

    def changes(self) -> NotificationGroupChanges:
        """Those since the last time; they are the caller's now."""
        found, self._changes = self._changes, NotificationGroupChanges()
        return found

    def put_back(self, changes: NotificationGroupChanges) -> None:
        """They could not be written."""
        self._changes = NotificationGroupChanges(changes.members | self._changes.members,
                                                 changes.groups | self._changes.groups)

    # -- in

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
        """What it does not want to hear of any more, is not told of again."""
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
        """As they were written."""
        for group in groups:
            key = key_of(group.receiver, group.owner, group.by)
            self._groups[key] = group
            for name, member in group.members.items():
                self._where.setdefault((group.receiver, name), set()).add(key)
                if member.is_over or not member.is_told:
                    group.waits_since = now
            self._look_at[key] = now

    def doubt(self, now: float, hold_s: Callable[[str], float]) -> None:
        """Whoever fired may fire still, and its Rule may have to begin anew to say so."""
        for group in self._groups.values():
            for member in group.members.values():
                if not member.is_over:
                    member.doubtful_until = now + DOUBT_S + hold_s(member.alert.rule_id)

    def settle(self, now: float, fires: Callable[[Alert], bool],
               ended: Callable[[Alert], Alert]) -> None:
        """Of whom nothing was heard since the restart, it is over."""
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

    # -- out

    def due(self, now: float, is_muted: Mute) -> list[NotificationBatch]:
        looked = [self._look(key, self._groups[key], now, is_muted)
                  for key, at in list(self._look_at.items()) if at <= now]
        return [batch for batch in looked if batch is not None]

    def _look(self, key: Key, group: NotificationGroup, now: float,
              is_muted: Mute) -> NotificationBatch | None:
        firing, over, muted = self._sorted(key, group, is_muted)
        at, reason = _when(group, self._timing, firing, over)
        if now < at:
            # Who waits may be muted before its turn comes.
            is_open = muted > 0 or any(not each.is_told for each in firing)
            self._look_again(key, group, now, at, is_open)
            return None
        for member in (*firing, *over):
            name = member_key(member.alert)
            member.is_told = True
            self._changes.members[key, name] = member
            if member.is_over:
                self._remove(key, name)
        group.sent_at, group.waits_since = now, None
        self._changes.groups[key] = group
        self._look_at[key] = now + MUTED_LOOK_S
        return NotificationBatch(key, group.owner, group.by, reason,
                                 tuple(each.alert for each in firing),
                                 tuple(each.alert for each in over), muted)

    def _sorted(self, key: Key, group: NotificationGroup, is_muted: Mute
                ) -> tuple[list[GroupedAlert], list[GroupedAlert], int]:
        """Who fires, who is over, and how many are muted. That something is over is told to
        whoever heard that it began, muted or not."""
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
            # Kept for as long as another notice would come too soon.
            at = (group.sent_at or -math.inf) + self._timing.interval_s
            if now >= at:
                self._drop(key)
                return
        self._look_at[key] = at


def _when(group: NotificationGroup, timing: NotificationTiming, firing: list[GroupedAlert],
          over: list[GroupedAlert]) -> tuple[float, Reason]:
    fresh = any(not each.is_told for each in firing)
    if fresh or over:
        since = group.waits_since
        first = -math.inf if since is None else since + timing.wait_s
        if not firing:  # nobody shall look for what is over
            return first, "resolved"
        again = -math.inf if group.sent_at is None else group.sent_at + timing.interval_s
        return max(first, again), "firing" if fresh else "resolved"
    if firing and group.sent_at is not None:
        return group.sent_at + timing.repeat_s, "repeat"
    return math.inf, "repeat"


def folded(batches: Iterable[NotificationBatch]) -> Iterator[NotificationBatch]:
    """Many at once for one reader are one: what befell a fleet is not told a thousand times."""
    by_reader: dict[tuple[str, str], list[NotificationBatch]] = {}
    for batch in batches:
        by_reader.setdefault((batch.key[0], batch.owner), []).append(batch)
    for (receiver, owner), mine in by_reader.items():
        if len(mine) < FOLD_FROM:
            yield from mine
            continue
        firing = tuple(alert for batch in mine for alert in batch.firing)
        reasons = {batch.reason for batch in mine}
        reason: Reason = "firing" if "firing" in reasons else (
            "repeat" if "repeat" in reasons else "resolved")
        yield NotificationBatch(key_of(receiver, owner, {}), owner, {}, reason, firing,
                                tuple(alert for batch in mine for alert in batch.over),
                                sum(batch.muted for batch in mine))
