"""Delivery at least once, whatever happens between: lives of the notifier, over one disk."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import gevent
import pytest

from dashboard.actions.standing_store import StandingStore
from dashboard.alerts.core.firing_alerts import Alert
from dashboard.alerts.core.restart_state import RuleStateRestore
from dashboard.alerts.core.rule import CompiledRule
from dashboard.audit.recorder import AuditRecorder
from dashboard.audit.store import AuditStore
from dashboard.notifications import outbox
from dashboard.notifications.addresses import OwnerAddresses
from dashboard.notifications.grouping import NotificationTiming
from dashboard.notifications.receiver_directory import ReceiverDirectory
from dashboard.notifications.receivers import Receiver
from dashboard.notifications.service import NotificationService, recovered_groups
from dashboard.notifications.store import NotificationsStore
from dashboard.notifications.transports import Transports
from dashboard.runtime.dispatcher import Dispatcher
from dashboard.runtime.sqlite_state import SqliteStateStore
from dashboard.state import HubState
from dashboard.trusted_networks import NONE
from tests.fakes.webhook import HttpSink
from tests.unit.dashboard.notifications.test_owner_words import alert, over

PACE = NotificationTiming(0.0, 0.0, 3_600.0)
LATER_S = 1_000.0  # what waits for another attempt is due by then


class Rules:
    """The firing alerts that a life of the hub knows."""

    def __init__(self, *alerts: Alert) -> None:
        self.ready: dict[str, CompiledRule] = {}
        self.stepped_mono = time.monotonic()
        self.alerts = list(alerts)
        self.restart = RuleStateRestore(None, (), {}, time.time())  # nothing waits for its target

    def firing(self) -> list[Alert]:
        return self.alerts


class Life:
    """A life of the hub that ends as a kill ends it: nothing is shut down."""

    def __init__(self, folder: Path, rules: Rules) -> None:
        self.state = HubState.open(folder)
        auditor = AuditRecorder(self.state.store(AuditStore), None, Dispatcher())
        receivers = ReceiverDirectory(self.state.store(NotificationsStore))
        groups = recovered_groups(self.state.store(NotificationsStore), receivers, PACE, [], [])
        self.notifications = NotificationService(
            self.state.store(NotificationsStore), auditor, receivers, groups, Transports(
                None, OwnerAddresses(self.state.store(StandingStore), auditor), folder, str, NONE),
            rules, lambda: lambda _: False)  # type: ignore[arg-type]
        self.rules = rules

    def fires(self, one: Alert) -> None:
        self.rules.alerts.append(one)
        self.notifications.take(one)

    def step(self, ahead_s: float = 0.0) -> None:
        self.notifications.step(time.time() + ahead_s, time.monotonic())

    def until(self, what: Callable[[], Any], ahead_s: float = 0.0) -> None:
        deadline = time.monotonic() + 10
        while not what():
            assert time.monotonic() < deadline
            self.step(ahead_s)
            gevent.sleep(0.02)

    def rest(self) -> None:
        for _ in range(10):
            self.step()
            gevent.sleep(0.02)


@pytest.fixture(name="sink")
def _sink() -> Iterator[HttpSink]:
    with HttpSink() as sink:
        yield sink


@pytest.fixture(name="live")
def _live(tmp_path: Path, sink: HttpSink) -> Iterator[Callable[..., Life]]:
    tmp_path.chmod(0o700)
    state = HubState.open(tmp_path)
    state.store(NotificationsStore).put_receiver(Receiver("r1", "ops", "webhook", sink.url))
    state.close()
    lives: list[Life] = []

    def live(*firing: Alert) -> Life:
        lives.append(Life(tmp_path, Rules(*firing)))
        return lives[-1]

    yield live
    sink.release()
    for life in lives:
        life.state.close()


def on_disk(folder: Path) -> list[str]:
    """Return the ids of the waiting notices as another process would find them."""
    with closing(SqliteStateStore(folder / "state.db")) as store:
        return [entry.notice.id for entry in NotificationsStore(store.connection).waiting()]


def test_it_is_on_disk_before_it_leaves_and_until_it_is_taken(
    live: Callable[..., Life], sink: HttpSink, tmp_path: Path
) -> None:
    life = live()
    sink.hold()
    life.fires(alert(at=time.time()))
    life.until(lambda: sink.got)
    assert on_disk(tmp_path) == [sink.got[0]["id"]]
    sink.release()
    life.until(lambda: on_disk(tmp_path) == [])
    life.rest()
    assert len(sink.got) == 1


def test_what_was_not_taken_another_life_sends_as_the_same(
    live: Callable[..., Life], sink: HttpSink
) -> None:
    one = alert(at=time.time())
    first = live()
    sink.status = 503
    first.fires(one)
    first.until(lambda: first.notifications.receivers.status["r1"].failed)
    [attempt] = sink.got
    sink.status = 200
    second = live(one)
    second.until(lambda: len(sink.got) == 2, LATER_S)
    assert sink.got[1]["id"] == attempt["id"]
    second.rest()
    assert len(sink.got) == 2, "and once it is taken, no more"


def test_killed_before_it_was_answered_it_is_sent_again_and_its_end_once(
    live: Callable[..., Life], sink: HttpSink
) -> None:
    one = alert(at=time.time())
    first = live()
    sink.hold()
    first.fires(one)
    first.until(lambda: sink.got)
    second = live(one)
    sink.release()
    second.until(lambda: len(sink.got) == 2, LATER_S)
    assert len({notice["id"] for notice in sink.got}) == 1
    second.rules.alerts.clear()
    second.notifications.take(over(one, time.time()))
    second.until(lambda: len(sink.got) == 3)
    second.rest()
    assert [notice["status"] for notice in sink.got] == ["firing", "firing", "resolved"]


def test_a_disk_that_takes_nothing_delays_nothing_and_loses_nothing(
    live: Callable[..., Life], sink: HttpSink, tmp_path: Path
) -> None:
    """A case of the fault matrix: nobody was notified of a full disk, nor of anything else then."""
    one, late = (alert(f"GPU-{node}", time.time(), node) for node in ("n1", "n2"))
    life = live()
    life.state._db.execute("pragma query_only = 1")
    life.fires(one)
    life.until(lambda: sink.got)
    life.rest()
    assert len(sink.got) == 1
    sink.status = 503
    life.fires(late)
    life.until(lambda: life.notifications.receivers.status["r1"].failed)
    life.state._db.execute("pragma query_only = 0")
    life.step()
    assert on_disk(tmp_path) == [sink.got[-1]["id"]], "written when it can be"
    sink.status = 200
    life.until(lambda: on_disk(tmp_path) == [], LATER_S)
    sent_count = len(sink.got)
    life.rest()
    assert len(sink.got) == sent_count
    sink.got.clear()
    restarted = live(one, late)
    restarted.notifications.take(one)
    restarted.notifications.take(late)
    restarted.rest()
    assert sink.got == [], "that they were told is on disk too"


def test_while_the_disk_takes_nothing_as_few_wait_as_ever(
    live: Callable[..., Life], sink: HttpSink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A receiver that is away for hours, and a full disk: memory has a limit, too."""
    monkeypatch.setattr(outbox, "MOST_WAITING", 2)
    sink.status = 503
    life = live()
    life.state._db.execute("pragma query_only = 1")
    status = life.notifications.receivers.status["r1"]
    for number in range(5):
        life.fires(alert(f"GPU-{number}", time.time(), f"n{number}"))
        total = number + 1
        life.until(lambda: len(life.notifications.outbox) + status.dropped == total)  # noqa: B023
    assert (len(life.notifications.outbox), status.dropped) == (2, 3)
    life.state._db.execute("pragma query_only = 0")
    life.step()
    assert len(on_disk(tmp_path)) == 2


def test_what_was_taken_while_the_disk_refused_is_not_sent_again(
    live: Callable[..., Life], sink: HttpSink, tmp_path: Path
) -> None:
    one = alert(at=time.time())
    life = live()
    sink.hold()
    life.fires(one)
    life.until(lambda: sink.got)
    life.state._db.execute("pragma query_only = 1")
    sink.release()
    life.until(lambda: len(life.notifications.outbox) == 0)
    assert on_disk(tmp_path) == [sink.got[0]["id"]]
    life.state._db.execute("pragma query_only = 0")
    life.rest()
    assert on_disk(tmp_path) == []
    assert len(sink.got) == 1
