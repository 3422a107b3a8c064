"""Healthy is one word of a node: on the Fleet page's line, at the node, for Prometheus."""

import pytest

from dashboard.fleet import views
from dashboard.fleet.fleet import Fleet, Node
from dashboard.fleet.node_health import health
from dashboard.fleet.quarantine import NodeRefusal
from dashboard.fleet.visibility import EVERYTHING_SEEN, focus
from dashboard.prometheus.families import pages, snapshot
from gpudeck.contract.pool_link import NodeMaintenance
from gpudeck.contract.wire import Beat, ReaderState
from tests.unit.fleets import EMPTY, MONO, NOW, add_node, frame, task_views, tasks


def beat(reader: ReaderState, age_s: float | None = 0.5, detail: str = "") -> Beat:
    return Beat(reader, age_s, 0, 0, detail)


def take(fleet: Fleet, node: Node, reader: ReaderState, age_s: float | None = 0.5) -> None:
    node.take_beat(beat(reader, age_s), MONO)


@pytest.mark.parametrize(("reader", "age_s", "word"), [
    ("ok", 0.5, "healthy"), ("ok", None, "healthy"), ("ok", 40.0, "driver_hung"),
    ("hung", 77.0, "driver_hung"), ("no_driver", 90.0, "no_driver"),
    ("no_library", None, "no_driver"), ("failed", 9.0, "reader_failing"),
    ("starting", None, "starting")])
def test_what_its_agent_says_of_the_driver(reader: ReaderState, age_s: float | None, word: str
                                           ) -> None:
    fleet = Fleet(1)
    take(fleet, add_node(fleet), reader, age_s)
    assert_shown(fleet, word)


def test_silent_refused_and_in_maintenance() -> None:
    fleet = Fleet(1)
    node = add_node(fleet)
    assert_shown(fleet, "healthy")
    fleet.maintenance["n1"] = NodeMaintenance("new fans", NOW + 60), MONO + 60
    assert_shown(fleet, "maintenance")
    take(fleet, node, "hung", 77.0)
    assert_shown(fleet, "driver_hung")
    assert health(fleet, node, MONO).why == (
        "The driver has not answered for 1 min; values are old")
    node.refusal = NodeRefusal(NOW + 60, MONO + 60, "it floods")
    assert_shown(fleet, "refused")
    node.state = "silent"
    assert_shown(fleet, "silent")


def assert_shown(fleet: Fleet, word: str) -> None:
    node, visible = fleet.nodes["n1"], focus(fleet, EVERYTHING_SEEN)
    assert health(fleet, node, MONO).word == word
    assert views.totals(fleet, visible, NOW, MONO)["healthy"] == (word == "healthy")
    text = "".join(pages(snapshot(fleet, visible, {}, MONO)))
    assert f'gpudeck_node_health{{Hostname="n1.example",node="n1",health="{word}"}} 1\n' in text


def test_what_tasks_did_is_not_live_when_their_gpu_is_not_read() -> None:
    fleet = Fleet(1)
    node = add_node(fleet, gpus=1)
    fleet.frame(node, frame([EMPTY], tasks=tasks(("a", 0, "alice"))), NOW, MONO)
    for after_s, sm in ((1.0, 10.0), (6.0, None)):
        [task] = task_views(fleet, mono=MONO + after_s)
        assert (task.sm_pct, task.gpus[0].sm_pct) == (sm, sm)
