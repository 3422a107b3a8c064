"""A rehearsal promises only what could have been done: each reason, out of what history keeps."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gevent
import pytest
from msgspec import UNSET, to_builtins
from msgspec.structs import replace

from dashboard.access.policy import Actor, Role, Scope
from dashboard.alerts.core.measure import Measure
from dashboard.alerts.core.rule import check, read
from dashboard.alerts.core.rung_facts import manager_of
from dashboard.alerts.rehearsal.engine import RehearsalEngine, RehearsedAlert
from dashboard.alerts.rehearsal.service import RehearsalService
from dashboard.alerts.rehearsal.tasks import TaskRehearsalSource
from dashboard.alerts.rehearsal.views import backtest_view
from dashboard.alerts.store import AlertsStore
from dashboard.audit.recorder import AuditRecorder
from dashboard.audit.store import AuditStore
from dashboard.cli.rules_hub import rehearsal_lines
from dashboard.fleet.fleet import Fleet
from dashboard.history.columns.rows import HistoryMessage
from dashboard.history.reads.embedded import EmbeddedHistory
from dashboard.runtime.dispatcher import Dispatcher
from dashboard.state import HubState
from gpudeck.contract.rungs import RulesCeiling
from gpudeck.contract.wire import Inventory, Task, Tasks, Use
from tests.unit import fleets

MINUTES = 40
BEGIN = 1_700_000_000 - 1_700_000_000 % 3_600
LADDER = [{"do": "tell"}, {"do": "pause", "after": "5m"}, {"do": "end", "after": "5m"}]
PERMITS = RulesCeiling(may_act=True, may_hit_managed=False)


def task(name: str, job: str, **more: Any) -> Task:
    return Task(name, 7, 1, float(BEGIN), "ann", "python", job_id=job, **more)


# On n0: one alone, two of one tree, one of Slurm, one that Slurm's agent runs inside of, a client
# of MPS; and a launch that came to a second node for its first 20 minutes.
TASKS = {
    "n0": (task("alone", "j1"), task("one", "j2"), task("two", "j2"),
           task("slurm", "slurm job 12", manager="slurm job 12"),
           task("ours", "j3", manager="slurm job 13"), task("client", "j4", kind="mps_client"),
           task("rank0", "j5", launch="torchrun a:1")),
    "n1": (task("rank1", "j6", launch="torchrun a:1"), task("other", "j7")),
}


class Past:
    def __init__(self, folder: Path) -> None:
        self.fleet, self.history = Fleet(1), EmbeddedHistory(folder / "history")
        self.history.open()
        for node_id in TASKS:
            node = fleets.add_node(self.fleet, node_id, 1, mono=0.0)
            self.history.append([HistoryMessage(node_id, "s1", 0.0, node.hello), HistoryMessage(
                node_id, "s1", 0.0, Inventory(1, (fleets.facts(node_id, 0),)))], 1)
        for second in range(BEGIN, BEGIN + MINUTES * 60):
            for node_id, tasks in TASKS.items():
                here = [one for one in tasks if one.id != "rank1" or second < BEGIN + 1_200]
                frame = fleets.frame(
                    [{"util_pct": 0.0, "util_max_pct": 0.0, "mem_used_bytes": 1e9}],
                    second - BEGIN + 1, second + 0.2, tasks=Tasks(True, tuple(here), tuple(
                        Use(one.id, 0, 1e9, 0.0) for one in here)))
                self.history.append([HistoryMessage(node_id, "s1", second + 0.5, frame, second)], 1)

    def permit(self, actions: tuple[str, ...] = ("notify", "pause", "end"),
               rules: RulesCeiling = PERMITS) -> None:
        for node in self.fleet.nodes.values():
            node.hello = replace(node.hello, actions=actions, rules=rules)

    def rehearse(self, of: str, **more: Any) -> dict[str, RehearsedAlert]:
        rule = check(read({"id": "idle", "title": "t", "of": of, "scope": "*", "signal": "sm_pct",
                           "fire": "<= 1", "for": "5m", "ladder": LADDER} | more))
        past = TaskRehearsalSource(self.history.rules, self.fleet, rule)
        rehearsal = RehearsalEngine(past.ready, refusal=past.refusal)
        for stretch in past.stretches(BEGIN, BEGIN + MINUTES * 60 - 60):
            rehearsal.take(stretch)
            past.settle(rehearsal.alerts())
        return {past.name(alert.row).key.partition(" ")[0]: alert for alert in rehearsal.alerts()}


@pytest.fixture(name="past", scope="module")
def a_past(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Past]:
    past = Past(tmp_path_factory.mktemp("past"))
    yield past
    past.history.close()


def acts_of(alert: RehearsedAlert) -> list[str]:
    return [do for do, _ in alert.acts]


def refusals(alert: RehearsedAlert) -> list[tuple[str, str]]:
    return [(do, why) for do, _, why in alert.refusals]


def test_each_victim_for_its_own_reason(past: Past) -> None:
    past.permit()
    alerts = past.rehearse("task")
    for free in ("alone", "ours", "other"):
        assert acts_of(alerts[free]) == ["tell", "pause", "end"], free
        assert refusals(alerts[free]) == []
    for task_id, why in (("one", "one job with task two"), ("slurm", "scancel 12"),
                         ("client", "an MPS client")):
        assert acts_of(alerts[task_id]) == ["tell"], "and there it stops, as in life"
        [(do, sentence)] = refusals(alerts[task_id])
        assert (do, why in sentence) == ("pause", True), sentence


def test_a_job_over_two_nodes_waits_until_it_is_on_one(past: Past) -> None:
    past.permit()
    jobs = past.rehearse("job")
    assert acts_of(jobs["n0/j2"]) == ["tell", "pause", "end"], "both tasks of the tree are meant"
    launch = jobs["torchrun"]
    assert "runs on 1 more node" in refusals(launch)[0][1]
    assert acts_of(launch) == ["tell", "pause", "end"]
    [paused] = [at for do, at in launch.acts if do == "pause"]
    assert paused >= BEGIN + 1_200


def test_what_is_refused_is_skipped_where_the_rule_says_so(past: Past) -> None:
    past.permit()
    stopped, skipped = past.rehearse("task"), past.rehearse("task", when_refused="skip")
    assert acts_of(stopped["client"]) == ["tell"]
    assert acts_of(skipped["client"]) == ["tell", "end"]
    [(_, refused_at, _)] = skipped["client"].refusals
    assert skipped["client"].acts[-1][1] - refused_at == 300, "at its time"
    assert acts_of(skipped["slurm"]) == ["tell"]
    assert [do for do, _ in refusals(skipped["slurm"])] == ["pause", "end"]


@pytest.mark.parametrize(("actions", "rules", "acts", "do"), [
    (("notify", "pause", "end"), RulesCeiling(False, False), ["tell"], "pause"),
    (("notify", "end"), PERMITS, ["tell"], "pause"),
    (("pause", "end"), PERMITS, [], "tell"),
])
def test_what_no_node_permits_is_promised_for_nobody(past: Past, actions: tuple[str, ...],
                                                     rules: RulesCeiling, acts: list[str], do: str
                                                     ) -> None:
    past.permit(actions, rules)
    for alert in past.rehearse("task", when_refused="skip" if do == "tell" else "stop").values():
        assert acts_of(alert) == acts, "a warning that is refused is never skipped"
        assert [refused_do for refused_do, _ in refusals(alert)] == [do]


def test_for_what_a_node_never_said_nothing_is_refused(past: Past) -> None:
    for node in past.fleet.nodes.values():
        node.hello = replace(node.hello, actions=(), rules=UNSET)
    alerts = past.rehearse("task")
    assert acts_of(alerts["alone"]) == acts_of(alerts["slurm"]) == ["tell", "pause", "end"]


def test_it_is_said_in_the_record_the_answer_and_the_terminal(past: Past, tmp_path: Path) -> None:
    past.permit()
    state = HubState.open(tmp_path)
    service = RehearsalService(
        state.store(AlertsStore), AuditRecorder(state.store(AuditStore), None, Dispatcher()),
        past.fleet, past.history.rules, lambda: (), lambda actor: actor.name)
    admin = Actor("person", "ada", Role.ADMIN, Scope(("*",)), "s", 1e12)
    rule = read({"id": "idle", "title": "t", "of": "task", "scope": "*", "signal": "sm_pct",
                 "fire": "<= 1", "for": "5m", "ladder": LADDER})
    rehearsal = service.begin(admin, rule, BEGIN, BEGIN + MINUTES * 60 - 60)
    while service.get(rehearsal.id).state == "running":
        gevent.sleep(0.01)
    view = backtest_view(service.get(rehearsal.id))
    assert view.state == "done", view.why
    # `rank0` and `rank1` are tasks of their own here.
    assert sorted(victim.target for victim in view.victims) == [
        "alone", "other", "ours", "rank0", "rank1"]
    assert {(refusal.target, refusal.do) for refusal in view.refused} == {
        (task_id, "pause") for task_id in ("one", "two", "slurm", "client")}
    assert (view.victims_count, view.refused_count) == (5, 4)
    assert view.gpu_hours == pytest.approx(sum(victim.gpu_hours or 0.0 for victim in view.victims))
    host = past.fleet.nodes["n0"].hello.host
    text = "\n".join(rehearsal_lines(to_builtins(view), Measure()))
    assert f"would end {host} alone of ann, 0." in text
    assert f"pause {host} client of ann would be refused: it is an MPS client: " in text
    short = backtest_view(service.get(rehearsal.id), is_short=True)
    assert (short.refused, short.refused_count) == ([], 4)
    state.close()


def test_a_jobs_number_alone_is_enough_not_to_act() -> None:
    """A node refuses it, so a hub need not order it."""
    assert manager_of([task("numbered", "j9", slurm_job="14")]) == "slurm job 14"
    assert manager_of([task("ours", "j3", manager="slurm job 13", slurm_job="13")]) is None
    assert manager_of([task("alone", "j1")]) is None
