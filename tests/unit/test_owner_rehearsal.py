"""A rule of owners, or of the fleet, over the past comes to what it came to when it was live."""

import random
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest

from dashboard.core.alerts.signal import Term
from dashboard.core.fleet import Fleet
from dashboard.fleet_past import FleetPast, Members
from dashboard.owner_past import OwnerPast
from dashboard.rule_past import CannotRehearse
from tests.unit.owner_story import BEGIN, END, LAST, Story, ready

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


@pytest.fixture(name="story", scope="module")
def _story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    found = Story(tmp_path_factory.mktemp("owners"), random.randrange(10**6), RULES)
    found.run()
    yield found
    found.history.close()


def as_bytes(alerts: list[Any], name: Any) -> bytes:
    """In whole seconds: life looks half a second after each was sampled."""
    return msgspec.json.encode(sorted(
        [name(each), int(each.since), int(each.fired_at), each.value, each.comebacks,
         None if each.ended_at is None else int(each.ended_at)] for each in alerts))


@pytest.mark.parametrize("is_in_files", [False, True])
def test_live_and_rehearsal_are_the_same_to_the_byte(story: Story, is_in_files: bool) -> None:
    if is_in_files:
        story.history.store.tend(END + 10_000)
        assert story.history.info().open_seconds == 0
    total = 0
    for rule in RULES:
        past, rehearsal = story.rehearsed(ready(RULES, rule))
        lived, would = story.live[rule], rehearsal.alerts()
        total += len(lived)
        assert as_bytes(lived, lambda each: each.target.key) == as_bytes(
            would, lambda each, past=past: past.name(each.row).key), rule
    assert total >= len(RULES), "a story in which nothing happens proves nothing"
