"""NCCL's word on a job that stands still: on its page, in its finding, and as a number of rules."""

import random
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from dashboard.alerts.core.rule import check, read
from dashboard.alerts.core.rule_signal import SignalTerm
from dashboard.alerts.core.target_collector import RuleTargetCollector
from dashboard.fleet.events import RecentEvents
from dashboard.fleet.fleet import HOST_STALE_AFTER_S, Fleet
from dashboard.fleet.host_views import CollectivesView, collectives_of
from dashboard.jobs.core.collectives import collective_words, with_collectives
from dashboard.jobs.core.findings import JobFinding
from gpudeck.contract.collectives import CollectiveRank, CollectiveSample
from gpudeck.contract.hosts import HostSample
from tests.unit import fleets
from tests.unit.fleets import MONO, NOW

BEHIND = CollectiveSample(
    "a", communicator="0xae94", size=16, still_s=90.0, ahead=15, least=6_649, most=6_650,
    behind=(CollectiveRank(3, "10.0.0.5", 4_711, 3),), behind_count=1)


def fleet_with(*samples: CollectiveSample) -> Fleet:
    fleet = Fleet(1)
    node = fleets.add_node(fleet)
    tasks = fleets.tasks(("a", 0, "ann"), ("b", 1, "ann"), ("c", 1, "bob"))
    jobs = {"a": "j", "b": "j", "c": "k"}
    began = tuple(structs.replace(task, job_id=jobs[task.id]) for task in tasks.began)
    node.set_clock(NOW, MONO, NOW, MONO)
    host = HostSample({}, {}, collectives=samples) if samples else HostSample({}, {})
    message = fleets.frame([{"util_pct": 100.0}] * 2, tasks=structs.replace(tasks, began=began))
    fleet.frame(node, structs.replace(message, host=host), NOW, MONO)
    return fleet


def view(sample: CollectiveSample = BEHIND) -> CollectivesView:
    fleet = fleet_with(sample)
    return collectives_of(fleet, fleet.nodes["n1"], MONO)["a"]


def test_it_is_of_now_or_not_there() -> None:
    fleet = fleet_with(BEHIND)
    node = fleet.nodes["n1"]
    assert view().behind[0].pid == 4_711
    assert collectives_of(fleet, node, MONO + HOST_STALE_AFTER_S + 1) == {}
    quiet = fleet_with()
    assert collectives_of(quiet, quiet.nodes["n1"], MONO) == {}


@pytest.mark.parametrize(("fields", "words"), [
    ({}, "NCCL: rank 3 (process 4711, GPU 3, host 10.0.0.5) has launched 6649 collectives, 15 of "
         "16 ranks up to 6650. None has launched another one for 1 min."),
    ({"behind": (CollectiveRank(0, "unknown", None, None), CollectiveRank(1, "h", 2, None)),
      "behind_count": 9, "ahead": 7},
     "rank 0 (host unknown), rank 1 (process 2, host h) and 7 more have launched 6649"),
    ({"behind": (), "behind_count": 0, "least": 70, "most": 70, "missing_count": 1,
      "missing": (CollectiveRank(5, "10.0.0.6", 88, 1),)},
     "NCCL: rank 5 (process 88, GPU 1, host 10.0.0.6) does not answer. None"),
    ({"behind": (), "behind_count": 0, "least": 70, "most": 70, "is_mixed": True},
     "its 16 ranks have launched 70 collectives each, but not the same ones"),
    ({"trouble": "it listens elsewhere"}, "NCCL was not read: it listens elsewhere.")])
def test_what_it_says_in_words(fields: dict[str, Any], words: str) -> None:
    assert words in collective_words(view(structs.replace(BEHIND, **fields)))


def test_the_finding_names_the_rank_and_others_stay_as_they_are() -> None:
    stuck = JobFinding("stuck", "All its GPUs look stuck.", None, [0])
    slow = JobFinding("slow_rank", "Rank 1 lags.", None, [1])
    smaller = structs.replace(view(), size=2, behind=[])
    unread = structs.replace(view(), size=99, trouble="older")
    reports = [smaller, view(), unread]
    random.shuffle(reports)
    assert [one.sentence for one in with_collectives([stuck, slow], reports)] == [
        f"All its GPUs look stuck. {collective_words(view())}", "Rank 1 lags."]
    assert with_collectives([stuck], [unread]) == [stuck], "why it was not read is no finding"
    assert with_collectives([stuck], []) == [stuck]


def test_rules_read_it_of_all_tasks_of_the_job_and_of_no_other() -> None:
    rule = check(read({"id": "collective-stuck", "title": "x", "of": "job", "scope": "*",
                       "signal": "collective_still_s", "fire": ">= 1m", "no_data": "ok"}))
    assert rule.rule.of == "job"

    def numbers(fleet: Fleet, of: str) -> dict[str, float]:
        targets: Any = RuleTargetCollector(fleet, RecentEvents()).look(NOW, MONO, 0.0)
        values = targets[of].numbers(SignalTerm("last", "collective_still_s")).values
        return {targets[of].name(row).key: float(values[row])
                for row in np.flatnonzero(targets[of].there).tolist()}

    of_tasks = numbers(fleet_with(BEHIND), "task")
    assert (of_tasks["a"], of_tasks["b"]) == (90.0, 90.0)
    assert np.isnan(of_tasks["c"])
    unread = structs.replace(BEHIND, trouble="older")
    for fleet in (fleet_with(), fleet_with(unread)):
        assert np.isnan([*numbers(fleet, "job").values()]).all(), "not known is not 0"
