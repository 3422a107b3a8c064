"""Rules of the fleet over the past come to the same as when they were live."""

import random
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest

from dashboard.alerts.core.rule_signal import SignalTerm
from dashboard.alerts.core.target_collector import RuleTargetCollector
from dashboard.alerts.rehearsal.fleet import FleetRehearsalSource
from dashboard.alerts.rehearsal.source import CannotRehearseError, MembershipHistory
from dashboard.fleet.events import RecentEvents
from dashboard.fleet.fleet import Fleet
from tests.unit import fleets
from tests.unit.fleet_story import BEGIN, END, SILENT, Story, ready

FLEETS: dict[str, dict[str, Any]] = {
    "many-silent": {"signal": "nodes_silent / nodes", "fire": ">= 20%", "clear": "< 10%",
                    "where": ["nodes_silent >= 2"], "for": "30s"},
    "silent": {"signal": "nodes_silent", "fire": ">= 1", "clear": "< 1", "for": "5m"},
    "works": {"signal": "util_pct", "fire": ">= 45", "clear": "< 45", "for": "20s"},
    "peak": {"signal": "max(util_pct, 5m)", "fire": ">= 45", "clear": "< 45", "for": "5m"},
    "power": {"signal": "power_w", "fire": ">= 1500", "clear": "< 1500", "for": "10s"},
    "lost": {"signal": "gpus_lost / gpus", "fire": "> 0", "clear": "<= 0", "for": "5s"},
    "held-power": {"signal": "power_w", "fire": ">= 1500", "clear": "< 1500", "for": "5m"},
}
RULES = {name: {"of": "fleet"} | rule for name, rule in FLEETS.items()}


@pytest.fixture(name="story", scope="module")
def _story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    seed = random.randrange(10**6)
    print("seed", seed)
    story = Story(tmp_path_factory.mktemp("fleet"), seed, RULES)
    story.run()
    yield story
    story.history.close()


def as_bytes(alerts: list[Any], name: Any) -> bytes:
    """Encode alerts in whole seconds: live rules look half a second after each was sampled."""
    return msgspec.json.encode(sorted(
        [name(alert), int(alert.since), int(alert.fired_at), alert.value, alert.comebacks,
         None if alert.ended_at is None else int(alert.ended_at)] for alert in alerts))


@pytest.mark.parametrize("is_in_files", [False, True])
def test_live_and_rehearsal_are_the_same_to_the_byte(story: Story, is_in_files: bool) -> None:
    if is_in_files:
        story.history.store.maintain(END + 10_000)
        assert story.history.info().open_seconds == 0
    total = 0
    for rule in RULES:
        past, rehearsal = story.rehearsed(ready(RULES, rule))
        lived, would = story.live[rule], rehearsal.alerts()
        total += len(lived)
        assert as_bytes(lived, lambda alert: alert.target.key) == as_bytes(
            would, lambda alert, past=past: past.name(alert.row).key), rule
    assert total >= len(RULES), "a story in which nothing happens proves nothing"


def test_a_rule_that_was_written_otherwise_is_told_from_it(story: Story) -> None:
    """The control: the comparison sees a limit that is a little off."""
    _, right = story.rehearsed(ready(RULES, "many-silent"))
    _, wrong = story.rehearsed(ready(RULES, "many-silent", fire=">= 80%"))
    assert right.alerts() != wrong.alerts() == []


def test_who_was_sent_away_is_not_missed(story: Story) -> None:
    """A node that belonged to the hub before it was heard of is not taken for one that did not."""
    def most(members: MembershipHistory, signal: str) -> float:
        past = FleetRehearsalSource(story.spans, story.fleet, ready(RULES, "works", signal=signal,
                                                                    fire=">= 0", clear=""), members)
        return max(float(np.nanmax(stretch.values(SignalTerm("last", signal), slice(None))))
                   for stretch in past.stretches(BEGIN, END))

    assert most(MembershipHistory(), "nodes_silent") == len(SILENT) - 1
    assert most(MembershipHistory(revoked=("n1",)), "nodes_silent") == len(SILENT) - 2
    assert most(MembershipHistory(revoked=("n1",)), "nodes") == len(SILENT) - 1
    fleets.add_node(story.fleet, "n9", 2, mono=END)
    assert most(MembershipHistory({"n9": BEGIN - 10_000.0}), "nodes_silent") == len(SILENT)
    assert most(MembershipHistory({"n9": BEGIN - 10_000.0}), "gpus") == 4 * 3 + 2
    assert most(MembershipHistory({"n9": END + 60.0}), "nodes") == len(SILENT)


@pytest.mark.parametrize(("signal", "says"), [
    ("rules_failing", "data about the hub itself"), ("blind_s", "about the hub itself"),
    ("brakes_on", "about the hub itself"), ("is_unrecorded", "about the hub itself"),
    ("gpus_free", "history does not keep gpus_free of the fleet"),
])
def test_what_is_only_the_hubs_own_is_refused(signal: str, says: str) -> None:
    with pytest.raises(CannotRehearseError, match=says):
        FleetRehearsalSource(None, Fleet(1), ready(RULES, "works", signal=signal,  # type: ignore[arg-type]
                                                   fire="> 0",
                                                   clear=""))


def test_bounds_are_said() -> None:
    of_fleet = FleetRehearsalSource(None, fleet := Fleet(1),  # type: ignore[arg-type]
                                    ready(RULES, "works"))
    for at in range(100):
        fleets.add_node(fleet, f"n{at}", 100)
    with pytest.raises(CannotRehearseError, match="over 10,000 GPUs at most 8 hours at once"):
        next(of_fleet.stretches(0, 86_400))


# -- what life says


def test_what_a_silent_gpu_did_is_not_what_it_does() -> None:
    fleet, scenes = Fleet(1), None
    for node_id in ("n1", "n2"):
        node = fleets.add_node(fleet, node_id, 1)
        fleet.frame(node, fleets.frame([{"util_pct": 40.0, "power_w": 300.0}], tasks=fleets.tasks(
            (f"{node_id}:t", 0, "ann"))), fleets.NOW, fleets.MONO)
    scenes = RuleTargetCollector(fleet, RecentEvents())

    def number(of: str, name: str, later_s: float) -> float:
        moment = scenes.look(fleets.NOW + later_s, fleets.MONO + later_s, 0.0)
        return float(moment[of].numbers(SignalTerm("last", name)).values[0])  # type: ignore[index]

    for later_s, util, power, gpus in ((1.0, 40.0, 600.0, 2.0), (6.0, np.nan, np.nan, 2.0)):
        assert number("owner", "util_pct", later_s) == pytest.approx(util, nan_ok=True)
        assert number("fleet", "power_w", later_s) == pytest.approx(power, nan_ok=True)
        assert number("owner", "gpus", later_s) == gpus
