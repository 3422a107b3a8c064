"""Recipients and times of notifications: alerts in, notices out, and the time is an argument."""

import random
import secrets
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from dashboard.alerts.core.firing_alerts import Alert, AlertTarget
from dashboard.alerts.core.rule import CompiledRule, Of, check, read
from dashboard.notifications.channels.table import channel_of, flaw, owners_for
from dashboard.notifications.channels.webhook import fields_of
from dashboard.notifications.grouping import (
    DOUBT_S,
    FOLD_FROM,
    NotificationBatch,
    NotificationGroup,
    NotificationGroupChanges,
    NotificationGrouping,
    NotificationTiming,
    fold,
)
from dashboard.notifications.receivers import Receiver, address_flaw
from dashboard.notifications.retry import (
    LONGEST_S,
    PARKED_AFTER_S,
    QueuedNotification,
    record_failure,
    retry_now,
)
from dashboard.notifications.words import (
    build_notification,
    chat_text,
    mail,
    merge_notifications,
    sentence,
    text,
    title,
)
from dashboard.trusted_networks import NONE

OPS = Receiver("r1", "ops", "webhook", "https://chat.example.org/hook/secret-path")
BY = ("rule", "node")
TIMING = NotificationTiming()
WAIT_S, INTERVAL_S, REPEAT_S = TIMING.wait_s, TIMING.interval_s, TIMING.repeat_s


def alert(target: str = "GPU-1", at: float = 100.0, node: str = "n1", rule: str = "hot",
          **more: Any) -> Alert:
    users = more.pop("users", ())
    return Alert(f"{rule}/{target}/{at}", rule, "v", more.pop("title", "Hot"),
                 more.pop("severity", "warn"), "gpu",
                 AlertTarget(target, node, f"host-{node}", "0", users), "firing", at - 5, at, at,
                 91.5,
                 **more)


def over(one: Alert, at: float) -> Alert:
    return replace(one, state="ended", ended_at=at, changed_at=at,
                   why="the condition is not met any more")


def nobody(_: Alert) -> bool:
    return False


def ids(batches: list[NotificationBatch]) -> list[tuple[str, list[str], list[str]]]:
    return [(batch.reason, sorted(item.target.key for item in batch.firing),
             sorted(item.target.key for item in batch.over)) for batch in batches]


def test_those_of_one_group_go_together_once() -> None:
    groups = NotificationGrouping(TIMING, owners_for)
    groups.take(alert("a", 100), OPS, BY, 100)
    assert groups.due(100 + WAIT_S - 1, nobody) == []
    groups.take(alert("b", 105), OPS, BY, 105)
    groups.take(alert("c", 105, node="n2"), OPS, BY, 105)
    batches = groups.due(100 + WAIT_S, nobody)
    assert ids(batches) == [("firing", ["a", "b"], [])]
    assert batches[0].by == {"rule": "hot", "node": "n1"}
    assert ids(groups.due(105 + WAIT_S, nobody)) == [("firing", ["c"], [])]
    assert groups.due(120 + INTERVAL_S, nobody) == []


def test_what_comes_later_waits_for_the_interval_and_what_stays_is_repeated() -> None:
    groups = NotificationGrouping(TIMING, owners_for)
    one = alert("a", 100)
    groups.take(one, OPS, BY, 100)
    assert ids(groups.due(110, nobody)) == [("firing", ["a"], [])]
    groups.take(alert("b", 150), OPS, BY, 150)
    assert groups.due(110 + INTERVAL_S - 1, nobody) == []
    assert ids(groups.due(110 + INTERVAL_S, nobody)) == [("firing", ["a", "b"], [])]
    assert groups.due(110 + INTERVAL_S + REPEAT_S - 1, nobody) == []
    assert ids(groups.due(110 + INTERVAL_S + REPEAT_S, nobody)) == [("repeat", ["a", "b"], [])]


def test_what_is_over_is_told_once() -> None:
    groups = NotificationGrouping(TIMING, owners_for)
    one, other = alert("a", 100), alert("b", 100)
    for item in (one, other):
        groups.take(item, OPS, BY, 100)
    groups.due(110, nobody)
    groups.take(over(one, 120), OPS, BY, 120)
    assert ids(groups.due(110 + INTERVAL_S, nobody)) == [("resolved", ["b"], ["a"])]
    groups.take(over(other, 430), OPS, BY, 430)
    assert ids(groups.due(110 + 2 * INTERVAL_S, nobody)) == [("resolved", [], ["b"])]
    assert groups.due(1e6, nobody) == []
    assert groups._groups == {}


def test_what_was_over_before_its_first_notice_is_told_all_the_same() -> None:
    groups = NotificationGrouping(TIMING, owners_for)
    groups.take(alert("a", 100), OPS, BY, 100)
    groups.take(over(alert("a", 100), 103), OPS, BY, 103)
    assert ids(groups.due(110, nobody)) == [("resolved", [], ["a"])]


def test_what_comes_back_before_it_was_told_to_be_over_goes_on() -> None:
    groups = NotificationGrouping(TIMING, owners_for)
    groups.take(alert("a", 100), OPS, BY, 100)
    groups.due(110, nobody)
    groups.take(over(alert("a", 100), 150), OPS, BY, 150)
    groups.take(alert("a", 160), OPS, BY, 160)
    assert groups.due(110 + INTERVAL_S + 1, nobody) == []


def test_the_muted_are_told_when_they_are_not_muted_any_more() -> None:
    groups, silenced = NotificationGrouping(TIMING, owners_for), {"a"}

    def is_muted(one: Alert) -> bool:
        return one.target.key in silenced

    for key in ("a", "b"):
        groups.take(alert(key, 100), OPS, BY, 100)
    [batch] = groups.due(110, is_muted)
    assert (ids([batch]), batch.muted) == ([("firing", ["b"], [])], 1)
    silenced.clear()
    assert ids(groups.due(110 + INTERVAL_S, is_muted)) == [("firing", ["a", "b"], [])]
    silenced.add("a")
    groups.take(over(alert("a", 100), 900), OPS, BY, 900)
    [batch] = groups.due(900 + INTERVAL_S, is_muted)
    assert ids([batch]) == [("resolved", ["b"], ["a"])], "it was told that it began"
    silenced.add("c")
    groups.take(alert("c", 1300), OPS, BY, 1300)
    groups.take(over(alert("c", 1300), 1310), OPS, BY, 1310)
    assert groups.due(2000, is_muted) == []
    assert groups.muted == 1


def test_receivers_hear_what_they_asked_for() -> None:
    groups = NotificationGrouping(TIMING, owners_for)
    bad = replace(OPS, id="r2", least="crit")
    by_rule = replace(OPS, id="r3", rules=("lost",))
    off = replace(OPS, id="r4", is_on=False)
    for receiver in (OPS, bad, by_rule, off):
        groups.take(alert("a", 100), receiver, BY, 100)
        groups.take(alert("b", 100, rule="lost", severity="crit"), receiver, BY, 100)
    deliveries = {(batch.key[0], item.rule_id) for batch in groups.due(110, nobody)
                  for item in batch.firing}
    assert deliveries == {("r1", "hot"), ("r1", "lost"), ("r2", "lost"), ("r3", "lost")}


def test_each_owner_hears_of_their_own() -> None:
    groups, owners = NotificationGrouping(TIMING, owners_for), Receiver("r1", "owners", "owners")
    groups.take(alert("a", 100, users=("alice", "bob")), owners, BY, 100)
    groups.take(alert("b", 100, users=("bob",)), owners, BY, 100)
    groups.take(alert("c", 100), owners, BY, 100)
    keys_by_owner = {batch.owner: ids([batch])[0][1] for batch in groups.due(110, nobody)}
    assert keys_by_owner == {"alice": ["a"], "bob": ["a", "b"]}


def test_a_receiver_that_wants_less_hears_less() -> None:
    groups = NotificationGrouping(TIMING, owners_for)
    groups.take(alert("a", 100), OPS, BY, 100)
    groups.refit(replace(OPS, least="crit"))
    assert groups.due(1e6, nobody) == []


def test_many_groups_at_once_are_one_notice() -> None:
    groups = NotificationGrouping(TIMING, owners_for)
    for number in range(FOLD_FROM):
        groups.take(alert(f"g{number}", 100, node=f"n{number}"), OPS, BY, 100)
    [batch] = fold(groups.due(110, nobody))
    assert len(batch.firing) == FOLD_FROM
    assert batch.by == {}


class Disk:
    """State that the caller keeps, as the store does."""

    def __init__(self) -> None:
        self.groups: dict[Any, NotificationGroup] = {}
        self.members: dict[Any, Any] = {}

    def keep(self, changes: NotificationGroupChanges) -> None:
        for key, group in changes.groups.items():
            if group is None:
                self.groups.pop(key, None)
            else:
                self.groups[key] = NotificationGroup(group.receiver, group.owner, group.by, {},
                                                     group.sent_at)
        for name, member in changes.members.items():
            if member is None:
                self.members.pop(name, None)
            else:
                self.members[name] = replace(member)

    def restored(self, now: float, hold_s: float = 0.0) -> NotificationGrouping:
        groups = NotificationGrouping(TIMING, owners_for)
        groups.recover([replace(group, members={
            name: replace(member) for (mine, name), member in self.members.items()
            if mine == key}) for key, group in self.groups.items()], now)
        groups.doubt(now, lambda _: hold_s)
        return groups


def test_a_restart_neither_repeats_nor_forgets() -> None:
    groups, disk = NotificationGrouping(TIMING, owners_for), Disk()
    groups.take(alert("a", 100), OPS, BY, 100)
    groups.due(110, nobody)
    groups.take(alert("b", 111), OPS, BY, 111)
    disk.keep(groups.changes())
    after = disk.restored(120)
    after.take(alert("a", 130), OPS, BY, 130)
    after.settle(130 + DOUBT_S, lambda _: False, lambda one: over(one, 130 + DOUBT_S))
    assert ids(after.due(110 + INTERVAL_S, nobody)) == [("resolved", ["a"], ["b"])]
    calm = disk.restored(120)
    calm.settle(120 + DOUBT_S, lambda one: True, lambda one: over(one, 1))
    assert ids(calm.due(110 + INTERVAL_S, nobody)) == [("firing", ["a", "b"], [])]


def test_a_group_that_is_resolved_is_told_within_15_s_and_a_part_of_one_is_not() -> None:
    groups = NotificationGrouping(TIMING, owners_for)
    for name in "ab":
        groups.take(alert(name, 100), OPS, BY, 100)
    assert ids(groups.due(111, nobody)) == [("firing", ["a", "b"], [])]
    groups.take(over(alert("a", 100), 130), OPS, BY, 130)
    assert groups.due(160, nobody) == [], "the other one goes on: not each by itself"
    groups.take(over(alert("b", 100), 170), OPS, BY, 170)
    assert ids(groups.due(171, nobody)) == [("resolved", [], ["a", "b"])]
    # It fires again: no group is told of that more often than before.
    groups.take(alert("a", 180), OPS, BY, 180)
    assert groups.due(300, nobody) == []
    assert ids(groups.due(171 + INTERVAL_S, nobody)) == [("firing", ["a"], [])]


def test_what_was_muted_to_its_end_is_not_told() -> None:
    """Once it is over, nobody can say any more that another one stood above it."""
    groups = NotificationGrouping(TIMING, owners_for)
    groups.take(alert("a", 100), OPS, BY, 100)
    assert groups.due(105, lambda _: True) == []
    groups.take(over(alert("a", 100), 108), OPS, BY, 108)
    assert groups.due(200, nobody) == []
    assert groups.muted == 1


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.floats(0.1, 400)), max_size=40),
       st.integers(0, 40))
def test_each_is_told_and_none_twice_within_the_interval(
    moves: list[tuple[int, bool, float]], restart_at: int
) -> None:
    """Alerts fire and end at any time, with a restart between: what fires in the end was told and
    not taken back, what ended is not told to fire, and no group is told twice within its time."""
    groups, disk, now = NotificationGrouping(TIMING, owners_for), Disk(), 1_000.0
    firing: dict[str, Alert] = {}
    told_firing: dict[str, bool] = {}
    sent_at: dict[Any, float] = {}

    def look() -> None:
        for batch in groups.due(now, nobody):
            if batch.firing:  # what is over all in all is told as soon as it waited for others
                assert now - sent_at.get(batch.key, -1e9) >= INTERVAL_S - 1e-6
            sent_at[batch.key] = now
            told_firing.update({item.target.key: True for item in batch.firing})
            told_firing.update({item.target.key: False for item in batch.over})
        disk.keep(groups.changes())

    for number, (target, fires, wait_s) in enumerate(moves):
        if number == restart_at:
            groups = disk.restored(now, 1e9)
        name = f"g{target}"
        if fires and name not in firing:
            firing[name] = alert(name, now, node=f"n{target % 2}")
            groups.take(firing[name], OPS, BY, now)
        elif not fires and name in firing:
            groups.take(over(firing.pop(name), now), OPS, BY, now)
        look()
        now += wait_s
    now += WAIT_S + INTERVAL_S
    look()
    assert {name for name, is_on in told_firing.items() if is_on} == set(firing)


# -- words


def ready(**more: Any) -> CompiledRule:
    return check(read({"id": "hot", "title": "Hot", "signal": "temp_c", "fire": ">= 85",
                       "scope": "*", "for": "2m", "runbook": "Look at the fans."} | more))


def notice(*alerts: Alert, find: Callable[[str], CompiledRule | None] = lambda _: ready()) -> Any:
    return build_notification(NotificationBatch(("r1", "[]"), "", {}, "firing", alerts, ()), 200.0,
                              "https://deck.example.org", find)


def test_a_notice_says_all_that_somebody_wakes_up_to_ask() -> None:
    message = text(notice(alert("GPU-7", users=("alice",))))
    for words in ("Firing [warn] Hot at host-n1 · GPU 0",
                  "temp_c 91.5 °C (fires at >= 85 °C for 2m)",
                  "since 1970-01-01 00:01:35 UTC", "tasks of alice", "Look at the fans.",
                  "https://deck.example.org/gpu/GPU-7", "https://deck.example.org/alerts"):
        assert words in message, words


def test_a_group_of_a_node_has_the_name_that_people_know() -> None:
    """Found by examiners: a chat showed 32 digits."""
    alerts = (alert("GPU-1"), alert("GPU-2"))

    def group(**by: str) -> dict[str, str]:
        return build_notification(
            NotificationBatch(("r1", "[]"), "", by, "firing", alerts, ()), 200.0,
            "https://deck.example.org", lambda _: None).group

    assert group(rule="hot", node="n1") == {"rule": "hot", "node": "n1", "host": "host-n1"}
    assert group(rule="hot") == {"rule": "hot"}


@pytest.mark.parametrize(("of", "key", "node", "gpus", "page"), [
    ("gpu", "GPU-7", "n1", (), "gpu/GPU-7"), ("node", "n1", "n1", (), "node/n1"),
    ("task", "t", "n1", ("GPU-8",), "gpu/GPU-8"), ("job", "j", "n1", ("a", "b"), "node/n1"),
    ("owner", "ann", "", ("GPU-8",), "gpu/GPU-8"), ("owner", "ann", "", ("a", "b"), "alerts"),
    ("fleet", "fleet", "", (), "alerts")])
def test_it_leads_to_where_the_timelines_are(of: Of, key: str, node: str, gpus: tuple[str, ...],
                                             page: str) -> None:
    one = replace(alert(), of=of, target=AlertTarget(key, node, node, gpus=gpus))
    [line] = notice(one).alerts
    assert line.url == f"https://deck.example.org/{page}"


def test_text_from_nodes_is_markup_and_header_to_nobody() -> None:
    word = secrets.token_hex(4)
    bad = notice(alert(title=f"<!channel> {word}\r\nBcc: eve@example.org",
                       users=("<https://evil|x>",)), find=lambda _: None)
    assert "<!channel>" not in chat_text(bad)
    assert f"&lt;!channel&gt; {word}" in chat_text(bad)
    fields = fields_of(bad, Receiver("1", "ops", "webhook", "https://chat.example.org/x"))
    assert fields["text"] == text(bad)
    assert f"<!channel> {word}" in fields["text"]
    message = mail(bad, "a@example.org")
    assert "\n" not in message.subject
    assert "\r" not in message.subject
    assert "\nBcc" not in message.text
    assert all("\n" not in value for _, value in message.headers)


def test_one_that_never_left_is_in_the_next() -> None:
    first = alert("a", 100)
    older = build_notification(
        NotificationBatch(("r1", "[]"), "", {}, "resolved", (), (over(first, 120),)), 130, "u",
        lambda _: None)
    newer = notice(alert("b", 200))
    merged = merge_notifications(older, newer)
    assert {line.target for line in merged.alerts} == {"a", "b"}
    assert (merged.firing, merged.over) == (1, 1)
    assert merged.id not in (older.id, newer.id)
    assert "(1 firing, 1 resolved)" in title(merged)


def test_its_id_is_its_own() -> None:
    one, same = notice(alert()), notice(alert())
    assert one.id == same.id
    assert build_notification(NotificationBatch(("r2", "[]"), "", {}, "firing", (), ()), 200.0, "u",
                              lambda _: None).id != (
                      one.id)


# -- receivers and the outbox


@pytest.mark.parametrize(("change", "says"), [
    ({"to": "ftp://x"}, "https://"), ({"to": "https://"}, "https://"),
    ({"to": "https://u:p@x.org"}, "no name or password"), ({"to": "https://x.org/a b"}, "blanks"),
    ({"to": "https://x.org:99999"}, "https://"), ({"token": "a b"}, "blanks"),
    ({"token": "a\r\nX: y"}, "blanks"), ({"token_file": "../api.token"}, "without a path"),
    ({"token": "a", "token_file": "b"}, "not both"),
    ({"kind": "mail", "to": ""}, "an address"),
    ({"kind": "mail", "to": "a@b\nBcc: c"}, "not an e-mail"),
    ({"kind": "mail", "to": "a@b.org", "token": "x"}, "only what is sent to a URL"),
    ({"kind": "owners"}, "leave `to` empty"),
])
def test_what_cannot_be_sent_to_is_not_kept(change: dict[str, Any], says: str) -> None:
    assert says in str(flaw(replace(OPS, **change)))
    assert flaw(OPS) is None
    assert flaw(replace(OPS, kind="mail", to="a@b.org, c@d.org")) is None


@pytest.mark.parametrize("address", ["169.254.169.254", "::ffff:169.254.169.254", "fe80::1%eth0",
                                     "0.0.0.0", "224.0.0.1", "::"])
def test_where_clouds_keep_credentials_nothing_is_sent(address: str) -> None:
    assert address_flaw(address, NONE) is not None
    assert address_flaw("127.0.0.1", NONE) is None
    assert address_flaw("10.1.2.3", NONE) is None


def test_the_path_of_a_url_is_not_shown() -> None:
    assert channel_of(OPS).shown_to() == "https://chat.example.org/…"


def test_it_is_tried_again_later_and_later_and_put_aside_after_a_day() -> None:
    waiting = QueuedNotification(notice(alert()), 200.0)
    longest, now = 0.0, 200.0
    while waiting.parked_at is None:
        record_failure(waiting, "no", now, random.random())
        longest = max(longest, waiting.next_at - now)
        now = max(now + 1.0, waiting.next_at)
    assert longest <= LONGEST_S
    assert waiting.parked_at - 200.0 >= PARKED_AFTER_S
    assert 90 < waiting.attempts < 2_000
    retry_now(waiting, now)
    after = asdict(waiting)
    assert (after["parked_at"], after["next_at"]) == (None, now)


def test_what_is_over_is_in_the_past_tense() -> None:
    """Found by examiners: "resolved, lost 1 (fires at = 1)" of a GPU that is back."""
    [line] = build_notification(NotificationBatch(
        ("r1", "[]"), "", {}, "resolved", (), (over(alert("GPU-7"), 120.0),)), 200.0,
        "https://deck.example.org", lambda _: ready()).alerts
    words = sentence(line)
    assert words.startswith(
        "temp_c was 91.5 °C (fired at >= 85 °C for 2m), from 1970-01-01 00:01:35")
    assert "to 1970-01-01 00:02:00 UTC" in words
