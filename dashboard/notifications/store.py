"""The SQL of notifications: receivers, reported alerts, and the outbox."""

import sqlite3
from collections.abc import Iterable
from contextlib import AbstractContextManager

import msgspec
from msgspec.structs import replace

from ..runtime.sql_transaction import put, together
from ..runtime.state_store import SqlStore
from .grouping import GroupedAlert, Key, NotificationGroup, NotificationGroupChanges
from .receivers import Receiver
from .retry import QueuedNotification

SCHEMA = """
create table receivers (id text primary key, body blob not null) without rowid;
create table notice_groups (
  receiver_id text not null, words text not null, body blob not null,
  primary key (receiver_id, words)
) without rowid;
create table notice_members (
  receiver_id text not null, words text not null, name text not null, body blob not null,
  primary key (receiver_id, words, name)
) without rowid;
create table notices (
  id text primary key, receiver_id text not null, words text not null, next_at real not null,
  parked_at real, body blob not null
) without rowid;
create index notices_by_receiver on notices (receiver_id, next_at);
"""
# By the version of the state that each leads to. A step is never edited later.
MIGRATIONS = {11: SCHEMA}
MOST_LISTED = 200
# The disk is full or fails. A hub whose state another one has taken over sends nothing.
CANNOT_STORE = sqlite3.Error

_encode = msgspec.json.Encoder().encode
_receivers = msgspec.json.Decoder(Receiver)
_groups = msgspec.json.Decoder(NotificationGroup)
_members = msgspec.json.Decoder(GroupedAlert)
_waiting = msgspec.json.Decoder(QueuedNotification)


class NotificationsStore(SqlStore):
    def together(self) -> AbstractContextManager[None]:
        return together(self._db)

    # -- receivers

    def receivers(self) -> dict[str, Receiver]:
        return {receiver.id: receiver for receiver in (
            _receivers.decode(body) for body, in self._db.execute(
                "select body from receivers order by id"))}

    def put_receiver(self, receiver: Receiver) -> None:
        put(self._db, "receivers", [(receiver.id, _encode(receiver))])

    def drop_receiver(self, receiver_id: str) -> None:
        """Delete a receiver and all that was to be sent to it."""
        self._db.execute("delete from receivers where id = ?", (receiver_id,))
        self._db.execute("delete from notices where receiver_id = ?", (receiver_id,))

    # -- reported alerts

    def groups(self) -> list[NotificationGroup]:
        groups = {(receiver, words): _groups.decode(body) for receiver, words, body in
                  self._db.execute("select receiver_id, words, body from notice_groups")}
        for receiver, words, name, body in self._db.execute(
                "select receiver_id, words, name, body from notice_members"):
            if (receiver, words) in groups:
                groups[receiver, words].members[name] = _members.decode(body)
        return [*groups.values()]

    def put_changes(self, changes: NotificationGroupChanges) -> None:
        for key, group in changes.groups.items():
            self._put_group(key, group)
        self._db.executemany("delete from notice_members where receiver_id = ? and words = ? and "
                             "name = ?", [(*key, name) for (key, name), member in
                                          changes.members.items() if member is None])
        put(self._db, "notice_members", [(*key, name, _encode(member)) for (key, name), member in
                                         changes.members.items() if member is not None])

    def _put_group(self, key: Key, group: NotificationGroup | None) -> None:
        if group is None:
            self._db.execute("delete from notice_groups where receiver_id = ? and words = ?", key)
            return
        put(self._db, "notice_groups", [(*key, _encode(replace(group, members={})))])

    # -- the outbox

    def waiting(self) -> list[QueuedNotification]:
        """Return all notifications, oldest first."""
        entries = [_waiting.decode(body) for body, in self._db.execute("select body from notices")]
        return sorted(entries, key=lambda entry: entry.notice.at)

    def put(self, entry: QueuedNotification) -> None:
        notice = entry.notice
        put(self._db, "notices", [(notice.id, notice.receiver, notice.words, entry.next_at,
                                   entry.parked_at, _encode(entry))])

    def drop(self, ids: Iterable[str]) -> None:
        self._db.executemany("delete from notices where id = ?",
                             [(notification_id,) for notification_id in ids])
