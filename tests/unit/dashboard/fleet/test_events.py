"""Events at the hub: bounded fairly, newest first, within the viewer's scope, and back after a
restart."""

import random

import pytest

from dashboard.fleet import events_views
from dashboard.fleet.effects import MessageReceived, StorageFailed, StreamRecord
from dashboard.fleet.events import MOST, MOST_PER_NODE, SLACK, FleetEvent, RecentEvents, fair_share
from dashboard.fleet.state_machine import FleetStateMachine
from dashboard.fleet.visibility import (
    ALL_READ,
    EVERYTHING_SEEN,
    CommandLineVisibility,
    VisibilityScope,
    focus,
)
from dashboard.nodes.checkpoint import encode_nodes, restore
from gpudeck.contract.wire import Backfill, Event, Inventory, Task, Tasks, Use, encode
from gpudeck.measures.events import KINDS
from tests.unit.fleets import MONO, NOW, facts, frame, hello


def stored_event(node: str, at: float, kind: str = "task_began", seq: int = 1) -> FleetEvent:
    return FleetEvent(node, "s1", at, None, Event(seq, at, kind))


def send(machine: FleetStateMachine, *events: Event, node: str = "n1", mono: float = MONO) -> None:
    if node not in machine.fleet.nodes:
        greeting = hello(node)
        machine.handle(MessageReceived(f"at-{node}", greeting, encode(greeting)), NOW, mono)
    for event in events:
        machine.handle(MessageReceived(f"at-{node}", event, encode(event)), NOW, mono)


def views(machine: FleetStateMachine,
          reads: CommandLineVisibility = ALL_READ) -> list[events_views.EventView]:
    visible = focus(machine.fleet, EVERYTHING_SEEN)
    return [events_views.event_view(machine, one, reads)
            for one in machine.events.newest(visible.place_of)]


def test_a_node_that_chatters_crowds_out_nobody() -> None:
    events = RecentEvents()
    events.add(stored_event("quiet", 1.0, "gpu_lost"))
    events.add(stored_event("loud", 2.0, "rows_failed"))
    for at in range(3 * MOST):
        events.add(stored_event("loud", 10.0 + at, seq=at + 2))
    newest = events.newest(("quiet", "loud"))
    assert [(one.node_id, one.event.kind) for one in newest[-2:]] == [
        ("loud", "rows_failed"), ("quiet", "gpu_lost")]
    assert len(newest) == len(events) == 2 + MOST_PER_NODE
    assert newest[0].at == 10.0 + 3 * MOST - 1


def test_all_together_are_bounded_and_each_keeps_its_newest() -> None:
    events, nodes = RecentEvents(), [f"n{at}" for at in range(40)]
    for at in range(200 * len(nodes)):
        events.add(stored_event(nodes[at % len(nodes)], float(at), seq=at + 1))
        assert len(events) <= MOST + SLACK
    newest = {one.node_id: one.at for one in reversed(events.newest(nodes))}
    assert newest == {node: 199.0 * len(nodes) + at for at, node in enumerate(nodes)}


@pytest.mark.parametrize(("lengths", "most", "share"), [
    ([1, 1, 500], 10, 8), ([5, 5], 100, 100), ([4, 4, 4], 6, 2), ([1] * 10, 5, 1), ([3], 3, 3)])
def test_a_fair_share(lengths: list[int], most: int, share: int) -> None:
    limit = fair_share(lengths, most)
    assert sum(min(limit, length) for length in lengths) <= max(most, len(lengths))
    assert min(limit, max(lengths)) == min(share, max(lengths))


def test_what_comes_late_takes_its_place_in_time() -> None:
    """Older events are brought last after an outage."""
    events, ats = RecentEvents(), random.sample(range(10_000), MOST_PER_NODE + 50)
    for seq, at in enumerate(ats, 1):
        events.add(stored_event("n1", float(at), seq=seq))
    assert [one.at for one in events.newest(("n1",))] == sorted(ats, reverse=True)[:MOST_PER_NODE]


def test_newest_first_and_never_from_the_future() -> None:
    """Pitfall 12: an Xid is something that happened, at a time, and no gauge."""
    machine = FleetStateMachine("hub", 1)
    send(machine, Event(1, NOW - 50, "gpu_lost", "GPU-x"),
         Event(2, NOW + 9_999, "gpu_back", "GPU-x"),
         Event(3, NOW - 5, "xid", "GPU-x", numbers={"xid": 79.0}))
    assert [view.kind for view in views(machine)] == ["gpu_back", "xid", "gpu_lost"]
    assert max(view.at for view in views(machine)) <= NOW


def test_a_clock_that_is_ahead_is_taken_off() -> None:
    machine, ahead_s = FleetStateMachine("hub", 1), float(random.randrange(100, 10_000))
    send(machine)
    machine.fleet.nodes["n1"].set_clock(NOW + ahead_s, MONO, NOW, MONO)
    send(machine, Event(1, NOW + ahead_s - 5, "gpu_lost"), Event(2, NOW + 2 * ahead_s, "gpu_back"))
    assert [view.at for view in views(machine)] == [NOW, pytest.approx(NOW - 5)]


def test_an_event_is_kept_once() -> None:
    machine = FleetStateMachine("hub", 1)
    one = Event(1, NOW, "gpu_lost")
    send(machine, one, one)
    assert len(machine.events) == 1


def test_what_the_disk_refused_comes_again_and_is_kept_once() -> None:
    machine, one = FleetStateMachine("hub", 1), Event(1, NOW, "gpu_lost")
    send(machine, one)
    record = StreamRecord("n1", "s1", 1, NOW, encode(one))
    machine.handle(StorageFailed("no room", (record,)), NOW, MONO)
    send(machine, one)
    assert len(machine.events) == len(views(machine)) == 1


def test_what_is_brought_after_an_outage_is_listed_too() -> None:
    machine = FleetStateMachine("hub", 1)
    send(machine, Event(2, NOW, "gpu_back"))
    later = Backfill((encode(Event(1, NOW - 600, "gpu_lost")),))
    machine.handle(MessageReceived("at-n1", later, encode(later)), NOW, MONO)
    assert [(view.kind, view.at) for view in views(machine)] == [
        ("gpu_back", NOW), ("gpu_lost", NOW - 600)]


def test_a_view_says_what_where_and_what_to_do() -> None:
    machine = FleetStateMachine("hub", 1)
    send(machine)
    inventory = Inventory(1, (facts("n1", 7),))
    machine.handle(MessageReceived("at-n1", inventory, encode(inventory)), NOW, MONO)
    send(machine,
         Event(1, NOW, "xid", "GPU-n1-7", text="Xid 79: off the bus", numbers={"xid": 79.0}),
         Event(2, NOW, "made_up_later", "GPU-gone"))
    later, xid = views(machine)
    assert (xid.host, xid.gpu, xid.index) == ("n1.example", "GPU-n1-7", 7)
    assert (xid.label, xid.severity) == ("Xid 79", "critical")
    assert "reboot the node" in xid.advice
    assert (later.label, later.severity, later.index) == ("Made up later", "info", None)
    assert xid.id != later.id


def test_severities() -> None:
    machine = FleetStateMachine("hub", 1)
    send(machine, *(Event(seq, NOW, key) for seq, key in enumerate(KINDS, 1)))
    assert {view.kind: view.severity for view in views(machine)} == {
        key: kind.severity for key, kind in KINDS.items()}
    send(machine, Event(90, NOW, "xid", numbers={"xid": 31.0}),
         Event(91, NOW, "xid", numbers={"xid": 79.0}))
    assert [view.severity for view in views(machine)[:2]] == ["critical", "info"]


def test_of_others_tasks_the_text_is_not_told() -> None:
    """The text may quote a command line, which viewers and users read of their own tasks only."""
    machine, mine = FleetStateMachine("hub", 1), Task("t1", 1, 1, NOW, "alice",
                                                   "python a.py --key=secret")
    foreign = Task("t2", 2, 1, NOW, "bob", "python b.py")
    send(machine)
    inventory = Inventory(1, (facts("n1", 0),))
    first = frame([{}], tasks=Tasks(True, (mine, foreign), (Use("t1", 0, 1.0, 1.0),
                                                            Use("t2", 0, 1.0, 1.0))))
    for message in (inventory, first):
        machine.handle(MessageReceived("at-n1", message, encode(message)), NOW, MONO)
    send(machine, Event(2, NOW, "task_ended", "GPU-n1-0", "t1", "python a.py --key=secret ended"),
         Event(3, NOW, "task_ended", "GPU-n1-0", "t2", "python b.py ended"),
         Event(4, NOW, "task_ended", "GPU-n1-0", "t-unknown", "python c.py ended"),
         Event(5, NOW, "xid", "GPU-n1-0", "t2", "Xid 31", {"xid": 31.0}))
    texts = [view.text
             for view in views(machine, CommandLineVisibility(False, frozenset(("alice",))))]
    assert texts == ["Xid 31", "", "", "python a.py --key=secret ended"]
    assert all(view.text for view in views(machine))


def test_events_of_nodes_out_of_scope_are_not_told() -> None:
    machine = FleetStateMachine("hub", 1)
    send(machine, Event(1, NOW, "gpu_lost"), node="n1")
    send(machine, Event(1, NOW, "gpu_lost"), node="n2")
    machine.fleet.set_group("n2", "others")
    visible = focus(machine.fleet, VisibilityScope(("others",), ALL_READ))
    assert [item["node"] for item in events_views.live(machine, visible)["newest"]] == ["n2"]


def test_the_live_push_is_bounded() -> None:
    machine = FleetStateMachine("hub", 1)
    send(machine, *(Event(seq, NOW, "gpu_lost") for seq in range(1, 100)))
    newest = events_views.live(machine, focus(machine.fleet, EVERYTHING_SEEN))["newest"]
    assert [item["id"] for item in newest] == [
        f"n1:s1:{seq}" for seq in range(99, 99 - events_views.LIVE, -1)]


def test_they_are_back_after_a_restart_and_none_twice() -> None:
    """Events of the log and of a checkpoint, which may overlap."""
    machine, greeting = FleetStateMachine("hub", 1), hello()
    first, second = Event(1, NOW - 9, "gpu_lost", text="one"), Event(2, NOW, "gpu_back", text="two")
    send(machine, first)
    saved = [data for _, data in encode_nodes(machine, NOW, MONO)]
    send(machine, second)
    after = FleetStateMachine("hub", 2)
    for data in saved:
        restore(after, data)
    for seq, message in ((0, greeting), (1, first), (2, second)):
        after.recover(StreamRecord("n1", "s1", seq, NOW, encode(message)))
    after.recovered(NOW, MONO)
    assert [view.text for view in views(after)] == ["two", "one"]
    assert [view.id for view in views(after)] == [view.id for view in views(machine)]
