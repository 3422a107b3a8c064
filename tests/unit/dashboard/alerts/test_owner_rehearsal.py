"""Rules of owners, or of the fleet, over the past come to the same as when they were live."""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from dashboard.alerts.core.rule_signal import SignalTerm
from dashboard.alerts.core.target_collector import RuleTargetCollector
from dashboard.alerts.rehearsal.engine import RehearsalChunk, RehearsalEngine
from dashboard.alerts.rehearsal.fleet import FleetRehearsalSource
from dashboard.alerts.rehearsal.owners import OwnerRehearsalSource
from dashboard.alerts.rehearsal.source import CannotRehearseError, MembershipHistory
from dashboard.fleet.events import RecentEvents
from dashboard.fleet.fleet import Fleet
from dashboard.history.embedded import EmbeddedHistory
from dashboard.history.rows import HistoryMessage
from gpudeck.wire import Inventory, Tasks
from tests.unit import fleets
from tests.unit.owner_story import BEGIN, END, LAST, SILENT, Story, ready

OWNERS: dict[str, dict[str, Any]] = {
    "gpus": {"signal": "gpus", "fire": ">= 4", "clear": "< 4", "for": "5m"},
    "tasks": {"signal": "max(tasks, 5m)", "fire": ">= 3", "clear": "< 3", "for": "5m"},
    "fewest": {"signal": "min(gpus, 5m)", "fire": ">= 2", "clear": "< 2", "for": "5m"},
    "jobs": {"signal": "avg(jobs, 5m)", "fire": ">= 2", "clear": "< 2", "for": "5m",
             "where": ["gpus >= 2"]},
    "held": {"signal": "mem_used_bytes", "fire": ">= 8GiB", "clear": "< 8GiB", "for": "5m"},
    "faults": {"signal": "gpus_faulty", "fire": ">= 1", "clear": "< 1", "for": "5m"},
    "near": {"signal": "gpus", "fire": ">= 1", "clear": "< 1", "for": "5m",
             "scope": "node:n0 | node:n1"},
    "quick": {"signal": "gpus", "fire": ">= 4", "clear": "< 4", "for": "20s"},
    "owner-faults": {"signal": "gpus_faulty / gpus", "fire": ">= 20%", "clear": "< 5%",
                     "where": ["gpus >= 2"], "for": "1m", "keep_firing_for": "1m"},
}
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
RULES = {name: {"of": of} | rule for of, rules in (("owner", OWNERS), ("fleet", FLEETS))
         for name, rule in rules.items()}


XID_AT_ONCE = 460  # a seed by which a task fails before the rules first look


@pytest.fixture(name="story", scope="module", params=[XID_AT_ONCE, None], ids=["fixed", "random"])
def _story(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
           ) -> Iterator[Story]:
    seed = random.randrange(10**6) if request.param is None else request.param
    print("seed", seed)
    story = Story(tmp_path_factory.mktemp("owners"), seed, RULES)
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


def test_a_span_may_begin_and_end_at_any_second(story: Story) -> None:
    """Stretches of a rule that reads every second."""
    of, first, last = ready(RULES, "quick", fire=">= 1", clear=""), BEGIN + 707, END - 301
    parts = [OwnerRehearsalSource(story.spans, story.fleet, of).stretches(*span)
             for span in ((BEGIN, END), (first, last))]
    whole, some = (np.concatenate([np.pad(stretch.values(SignalTerm("last", "gpus"), slice(None)),
                                          ((0, 9 - stretch.size), (0, 0)))
                                   for stretch in part], axis=1) for part in parts)
    assert some.shape[1] == last - first
    # Some did not come yet, or had left.
    of_whole, of_some = ({tuple(row) for row in values.tolist() if any(row)}
                         for values in (whole[:, 707 : len(whole[0]) - 301], some))
    assert of_some == of_whole != set()


def test_a_rule_that_was_written_otherwise_is_told_from_it(story: Story) -> None:
    """The control: the comparison sees a limit that is a little off."""
    for rule, fire in (("many-silent", ">= 80%"), ("quick", ">= 40")):
        _, right = story.rehearsed(ready(RULES, rule))
        _, wrong = story.rehearsed(ready(RULES, rule, fire=fire))
        assert right.alerts() != wrong.alerts() == []


def test_a_mean_of_an_owners_gpus_is_that_of_life_where_they_stay(story: Story) -> None:
    """History has the mean of each GPU's minute, in sixteenths."""
    of = ready(RULES, "gpus", signal="util_pct", fire=">= 1", clear="")
    past, compared, unknown = OwnerRehearsalSource(story.spans, story.fleet, of), 0, 0
    for stretch in past.stretches(BEGIN, LAST):
        values = stretch.values(SignalTerm("last", "util_pct"), slice(None))
        for row in range(stretch.size):
            owner = past.name(row).key
            for column in np.flatnonzero(stretch.there[row]):  # type: ignore[index]
                ends_at = int(stretch.ends_at(int(column)))
                if (owner, ends_at) not in story.uneven:
                    assert values[row, column] == pytest.approx(
                        story.utils[owner, ends_at], abs=1 / 16, nan_ok=True), (owner, ends_at)
                    compared += 1
                    unknown += bool(np.isnan(values[row, column]))
    assert compared > 20
    assert unknown > 0, "while some of them are silent, nobody knows"


def test_an_owner_is_meant_while_all_they_use_is(story: Story) -> None:
    """The rule "near" above shows an owner who is meant no longer."""
    for scope, targets in (("user:nobody", 0), ("user:ann", 1)):
        _, rehearsal = story.rehearsed(ready(RULES, "quick", fire=">= 1", clear="", scope=scope))
        assert rehearsal.targets == targets
        assert (len(rehearsal.alerts()) > 0) is (scope == "user:ann")


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


def short_story(folder: Path, tasks: Tasks, *parts: tuple[Sequence[int], bool]) -> EmbeddedHistory:
    """Write a history of one node: which seconds it sent, part by part, and whether late."""
    history, facts = EmbeddedHistory(folder / "history"), [fleets.facts("n1", at)
                                                           for at in range(2)]
    history.open()
    greetings = [HistoryMessage("n1", "s1", 0.0, message) for message in (
        fleets.hello("n1"), Inventory(1, tuple(facts)))]
    for seconds, is_late in parts:
        history.append([*greetings, *(HistoryMessage("n1", "s1", at + 0.5, fleets.frame(
            [{"util_pct": 50.0}] * 2, at - BEGIN + 1, at + 0.2, tasks=tasks), at, is_late)
            for at in seconds)], 1)
        history.store.maintain(BEGIN + 1_000.0)
    return history


def test_what_came_late_is_as_if_it_had_come_in_time(tmp_path: Path) -> None:
    """Messages that a node brings after an outage lie in separate files at first."""
    late = range(BEGIN + 290, BEGIN + 490)  # from within a minute to within one
    history = short_story(
        tmp_path, fleets.tasks(("t", 0, "ann")),
        ([at for at in range(BEGIN, BEGIN + 900) if at not in late], False), (late, True))
    past = OwnerRehearsalSource(history.rules, Fleet(1), ready(RULES, "held"))
    [stretch] = past.stretches(BEGIN, BEGIN + 840)
    values = stretch.values(SignalTerm("last", "mem_used_bytes"), slice(None))
    assert values.tolist() == [[1e9] * 14]
    history.close()


def test_whose_task_nobody_knows_is_in_nobodys_row(tmp_path: Path) -> None:
    history = short_story(tmp_path, fleets.tasks(("a", 0, "ann"), ("b", 1, None)),
                          (range(BEGIN, BEGIN + 900), False))
    past = OwnerRehearsalSource(history.rules, Fleet(1), ready(RULES, "gpus"))
    [stretch] = past.stretches(BEGIN, BEGIN + 840)
    assert stretch.values(SignalTerm("last", "gpus"), slice(None)).tolist() == [[1.0] * 14]
    assert past.name(0).users == ("ann",)
    history.close()


@pytest.mark.parametrize("rule", [name for name, rule in RULES.items() if rule["of"] == "owner"])
def test_where_nobody_holds_anything_nothing_would_be(tmp_path: Path, rule: str) -> None:
    history, fleet = EmbeddedHistory(tmp_path / "history"), Fleet(1)
    history.open()
    for change in ({}, {"scope": "user:ann"}):
        past = OwnerRehearsalSource(history.rules, fleet,
                                    ready(RULES, rule, **change))
        rehearsal = RehearsalEngine(ready(RULES, rule))
        for stretch in past.stretches(BEGIN, LAST):
            rehearsal.take(stretch)
        assert (rehearsal.targets, rehearsal.alerts()) == (0, [])
    history.close()


@pytest.mark.parametrize(("change", "says"), [
    ({"signal": "mem_used_bytes", "fire": "> 1GiB", "for": "1m"}, "by the minute"),
    ({"signal": "max(mem_used_bytes, 5m)", "fire": "> 1GiB"}, r"not its max .* write avg\("),
    ({"signal": "min(util_pct, 5m)", "fire": "< 1"}, "not its min"),
])
def test_what_history_does_not_keep_of_an_owner_is_refused(change: dict[str, Any], says: str
                                                           ) -> None:
    with pytest.raises(CannotRehearseError, match=says):
        OwnerRehearsalSource(None, Fleet(1),  # type: ignore[arg-type]
                             ready(RULES, "gpus", clear="", **change))


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
    past = OwnerRehearsalSource(None, Fleet(1), ready(RULES, "quick"))  # type: ignore[arg-type]
    with pytest.raises(CannotRehearseError, match="at most 7 days at once"):
        next(past.stretches(0, 8 * 86_400))
    of_fleet = FleetRehearsalSource(None, fleet := Fleet(1),  # type: ignore[arg-type]
                                    ready(RULES, "works"))
    for at in range(100):
        fleets.add_node(fleet, f"n{at}", 100)
    with pytest.raises(CannotRehearseError, match="over 10,000 GPUs at most 8 hours at once"):
        next(of_fleet.stretches(0, 86_400))


def firing_minutes(in_scope: Sequence[bool], came: Sequence[int] = ()
                   ) -> list[tuple[int, int | None]]:
    """Minutes in which the rule would fire and end, for one owner who holds enough all the time."""
    of, width = ready(RULES, "gpus", clear="", scope="node:n0"), len(in_scope)
    rehearsal = RehearsalEngine(of)
    rehearsal.take(RehearsalChunk(
        0, 60, width, 1, lambda term, rows: np.full((1, width), 8.0)[rows], np.ones(1, bool),
        scope_at=np.array([in_scope]),
        fresh=np.array([[column in came for column in range(width)]])))
    return [(int(alert.fired_at) // 60,
             None if alert.ended_at is None else int(alert.ended_at) // 60)
            for alert in rehearsal.alerts()]


def test_who_came_anew_is_another() -> None:
    assert firing_minutes([True] * 20) == [(6, None)]
    assert firing_minutes([True] * 20, came=[3, 11]) == [(9, 12), (17, None)]


def test_who_is_not_meant_any_more_is_at_rest() -> None:
    assert firing_minutes([True] * 10 + [False] * 10) == [(6, 11)]


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
