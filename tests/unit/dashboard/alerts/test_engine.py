"""Rules over the past come to the same as when they were live, to the byte."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.alerts.core.evaluator import RuleEvaluator
from dashboard.alerts.core.firing_alerts import FiringAlerts
from dashboard.alerts.core.numbers import number_of_nodes
from dashboard.alerts.core.rule import CompiledRule, check, read
from dashboard.alerts.core.rule_signal import Floats, SignalTerm
from dashboard.alerts.core.target_collector import RuleTargetCollector
from dashboard.alerts.rehearsal.engine import RehearsalChunk, RehearsalEngine, RehearsedAlert
from dashboard.alerts.rehearsal.gpus import LIVE, GpuRehearsalSource, closed_minute
from dashboard.alerts.rehearsal.nodes import NodeRehearsalSource
from dashboard.alerts.rehearsal.service import SOURCES, whole_steps
from dashboard.alerts.rehearsal.source import CannotRehearseError, RehearsalSource
from dashboard.alerts.rehearsal.tasks import TaskRehearsalSource
from dashboard.fleet.events import RecentEvents
from dashboard.fleet.fleet import Fleet
from dashboard.history.columns.rows import HistoryMessage
from dashboard.history.reads.embedded import EmbeddedHistory
from gpudeck.contract.wire import Inventory, Task, Tasks, Use
from tests.unit import fleets

NODES, GPUS, MINUTES = 3, 4, 100
BEGIN = 1_700_000_000 - 1_700_000_000 % 3_600
END = BEGIN + MINUTES * 60
STEADY, STUCK = (2, 0), (2, 1)  # node and GPU
LAST = END - 60  # the minute after it is not closed when the story ends
TASKS: dict[str, dict[str, Any]] = {
    "task-idle": {"of": "task", "signal": "max(busy_pct, 5m)", "fire": "<= 35", "clear": "> 40",
                  "for": "5m", "where": ["mem_used_bytes >= 1GiB"]},
    "task-big": {"of": "task", "signal": "mem_used_bytes", "fire": ">= 40GiB", "for": "5m"},
    "job-idle": {"of": "job", "signal": "sm_pct", "fire": "<= 1", "clear": "> 5", "for": "10m",
                 "scope": "user:ann"},
    "job-works": {"of": "job", "signal": "max(util_pct, 5m)", "fire": ">= 20", "clear": "< 15",
                  "for": "5m"},
    "job-peak": {"of": "job", "signal": "max(util_max_pct, 5m)", "fire": ">= 20", "clear": "< 15",
                 "for": "5m"},
    "job-busy": {"of": "job", "signal": "max(busy_pct, 5m)", "fire": ">= 20", "clear": "< 15",
                 "for": "5m"},
    "job-held": {"of": "job", "signal": "mem_used_bytes", "fire": ">= 21GiB", "for": "5m"},
    "job-share": {"of": "job", "signal": "max(mem_share, 5m)", "fire": ">= 0.2", "for": "5m"},
    "job-board": {"of": "job", "signal": "max(gpu_mem_share, 5m)", "fire": ">= 0.4", "for": "5m"},
    "job-ranks": {"of": "job", "signal": "tasks / gpus", "fire": ">= 2", "for": "5m"},
    "job-beside": {"of": "job", "signal": "gpu_jobs", "fire": ">= 2", "for": "5m"},
    "task-leaks": {"of": "task", "signal": "growth(mem_used_bytes, 48m)", "fire": ">= 512MiB/h",
                   "clear": "< 256MiB/h"},
    "task-full": {"of": "task", "signal": "time_until(mem_used_bytes, 95%)", "fire": "< 2d"},
    "job-unlike": {"of": "job", "signal": "anomaly(power_w, 1h)", "fire": ">= 12", "clear": "< 4"},
}
RULES: dict[str, dict[str, Any]] = {
    "hot": {"signal": "temp_c", "fire": ">= 60", "clear": "< 50", "for": "5m"},
    "keeps": {"signal": "temp_c", "fire": ">= 60", "clear": "< 55", "for": "5m",
              "keep_firing_for": "3m"},
    "idle": {"signal": "max(util_pct, 5m)", "fire": "<= 35", "clear": "> 38", "for": "5m"},
    "mean": {"signal": "avg(power_w, 5m)", "fire": "> 210", "clear": "< 200", "for": "6m"},
    "held": {"signal": "mem_used_bytes / mem_total_bytes", "fire": ">= 50%", "clear": "< 40%",
             "for": "5m", "where": ["util_pct < 30"]},
    "unlike": {"signal": "anomaly(temp_c, 1h)", "fire": ">= 12", "clear": "< 4"},
    "stuck": {"signal": "avg(no_progress, 30s)", "fire": ">= 90%", "clear": "< 50%", "for": "2m"},
    "near": {"signal": "temp_margin_c", "fire": "<= 30", "clear": "> 40", "for": "5m"},
    "node-hot": {"of": "node", "signal": "temp_c", "fire": ">= 75", "clear": "< 72", "for": "5m"},
    "node-works": {"of": "node", "signal": "avg(power_w, 5m)", "fire": ">= 800", "clear": "< 790",
                   "for": "6m", "where": ["max(temp_c, 5m) > 40"]},
    "node-idle": {"of": "node", "signal": "max(util_pct, 5m)", "fire": "<= 31", "clear": "> 32",
                  "for": "5m"},
    "mean-30s": {"signal": "avg(util_pct, 30s)", "fire": ">= 30", "clear": "< 20", "for": "10s"},
    "low-30s": {"signal": "min(temp_c, 30s)", "fire": ">= 60", "clear": "< 50", "for": "10s"},
    "high-30s": {"signal": "max(temp_c, 30s)", "fire": "<= 50", "clear": "> 60", "for": "10s"},
    "draws": {"signal": "rate(energy_j, 1m)", "fire": "> 210", "clear": "< 190", "for": "10s"},
    "draws-5m": {"signal": "rate(energy_j, 5m)", "fire": "> 210", "clear": "< 200", "for": "5m"},
    "used": {"signal": "increase(energy_j, 1m)", "fire": "> 12600", "clear": "< 11400",
             "for": "10s"},
    "never": {"signal": "rate(energy_j, 1m)", "fire": "> 600", "for": "1s"},
    "node-quick": {"of": "node", "signal": "util_pct", "fire": ">= 27", "clear": "< 26",
                   "for": "20s"},
    **TASKS,
}


def ready(name: str, **change: Any) -> CompiledRule:
    return check(read({"id": name, "title": "t", "scope": "*"} | RULES[name] | change))


class RecordedHub:
    """A hub's live evaluation and its history, fed with the same Frames; now and then none."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.fleet, self.history = Fleet(1), EmbeddedHistory(folder / "history")
        self.history.open()
        self.spans = self.history.rules
        self.evaluator, self.alerts = RuleEvaluator(LIVE), FiringAlerts()
        self.evaluator.set_rules({name: ready(name) for name in RULES})
        self.live: dict[str, list[Any]] = {name: [] for name in RULES}
        self.collector = RuleTargetCollector(self.fleet, RecentEvents())
        for at in range(NODES):
            node = fleets.add_node(self.fleet, f"n{at}", GPUS, mono=0.0)
            self.history.append([HistoryMessage(f"n{at}", "s1", 0.0, node.hello), HistoryMessage(
                f"n{at}", "s1", 0.0, Inventory(1, tuple(fleets.facts(f"n{at}", gpu)
                                                        for gpu in range(GPUS))))], 1)
        self.on: dict[tuple[int, int], list[tuple[Task, float, float]]] = {}
        self.jobs = 0
        self.joules = {(at, gpu): 5e6 for at in range(NODES) for gpu in range(GPUS)}
        self.level = {(at, gpu): 40.0 for at in range(NODES) for gpu in range(GPUS)}

    def run(self) -> None:
        for second in range(MINUTES * 60):
            self.second(BEGIN + second)

    def second(self, second: int) -> None:
        now = second + 0.5
        for at in range(NODES):
            if at == 1 and 2_000 < second - BEGIN < 2_400:
                continue  # nobody hears of it for some minutes
            self.frame(at, second, now)
        asks = self.evaluator.minutes_request(now)
        minute = None if asks is None else closed_minute(
            self.spans.minute(asks.start, asks.ends), self.fleet, asks)
        scenes = self.collector.look(now, now, 0.0)
        for changes in self.evaluator.step(scenes, now, minute):
            for change in changes:
                for alert in self.alerts.take(change, lambda of, row: scenes[of].name(row)):
                    self.keep(alert)

    def frame(self, at: int, second: int, now: float) -> None:
        rows, slow = [], []
        for gpu in range(GPUS):
            if self.random.random() < 1 / 240:
                self.level[at, gpu] = self.random.uniform(0, 100)
            if (at, gpu) == STEADY:  # until it is unlike itself
                self.level[STEADY] = 50.0 if second - BEGIN < 3_500 else 75.0
            level = self.level[at, gpu]
            noisy = min(100.0, max(0.0, level + self.random.gauss(0, 4)))
            # In the steps that history keeps.
            self.joules[at, gpu] += float(round(4 * noisy))
            if self.random.random() < 1 / 900:  # a recording that loops, or a driver that reloads
                self.joules[at, gpu] = self.random.choice([0.0, 4e6, 9e6])
            rows.append({"temp_c": float(round(noisy)), "util_pct": round(noisy) / 2,
                         "energy_j": self.joules[at, gpu],
                         "util_max_pct": round(noisy) / 2 + 5, "power_w": float(round(4 * noisy)),
                         "mem_used_bytes": float(round(level * 8e8))})
            if (at, gpu) == STUCK and 4_000 <= second - BEGIN < 4_300:
                rows[-1] |= {"util_pct": 99.0, "power_w": 70.0}
            slow.append({"temp_margin_c": round(90 - level), "power_limit_w": 400.0})
        frame = fleets.frame(rows, second - BEGIN + 1, second + 0.2, slow=slow,
                             tasks=self.tasks(at, second) if (second + at) % 2 == 0 else None)
        node = self.fleet.nodes[f"n{at}"]
        node.hear(now, now)
        self.fleet.frame(node, frame, now, now)
        self.history.append([HistoryMessage(f"n{at}", "s1", now, frame, second)], 1)

    def tasks(self, at: int, second: int) -> Tasks:
        """Return one to three Tasks of one or two Jobs on each GPU, which stay for some minutes or
        for all of it, idle or not. They come in the middle of a minute: whether one of 48 seconds
        or of 47 counts hangs on the second in which its list came."""
        may_come = 20 <= second % 60 <= 50
        for gpu in range(GPUS):
            if (at, gpu) not in self.on or (
                    gpu > 0 and may_come and self.random.random() < 1 / 350):
                self.jobs += 1
                self.on[at, gpu] = [self.task(at, gpu) for _ in range(
                    self.random.choice([1, 2, 2, 3]))]
        now = [(gpu, *use) for gpu in range(GPUS) for use in self.on[at, gpu]]
        if at == 0:  # one of bob's leaks, from minute to minute
            gpu, task, mem, sm = now[0]
            now[0] = gpu, task, mem + (second - BEGIN) // 60 * 24.0 * 2**20, sm
        return Tasks(True, tuple(task for _, task, _, _ in now), tuple(
            Use(task.id, gpu, mem, sm) for gpu, task, mem, sm in now))

    def task(self, at: int, gpu: int) -> tuple[Task, float, float]:
        """Return a Task of the same Job as the one before it, or of the next. Bob's are one Job
        each, or a rule about tasks could not end any."""
        self.jobs += self.random.random() < 0.3 or gpu == 0
        pid = self.random.randrange(10**6)
        task = Task(f"b{at}:{pid}:1", pid + 2, 1, float(BEGIN), f"{'ann' if gpu else 'bob'}",
                    "python", job_id=f"j{self.jobs}")
        return (task, float(self.random.choice([1, 20, 50]) * 2**30),
                float(self.random.choice([0, 0, 30])))

    def keep(self, alert: Any) -> None:
        """Keep the alert with the value by which it began to fire."""
        mine = {entry.id: entry for entry in self.live[alert.rule_id]}
        first = mine.get(alert.id, alert)
        mine[alert.id] = msgspec.structs.replace(alert, value=first.value)
        self.live[alert.rule_id] = list(mine.values())

    def rehearse(self, of: CompiledRule) -> tuple[RehearsalSource, RehearsalEngine]:
        past = SOURCES[of.rule.of](self.spans, self.fleet, of)
        rehearsal = RehearsalEngine(past.ready, refusal=past.refusal)
        for stretch in past.stretches(BEGIN, LAST if past.ready.is_by_minutes else END):
            rehearsal.take(stretch)
            past.settle(rehearsal.alerts())
        return past, rehearsal


@pytest.fixture(name="recorded", scope="module")
def _recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RecordedHub]:
    recording = RecordedHub(tmp_path_factory.mktemp("rehearsal"), random.randrange(10**6))
    recording.run()
    yield recording
    recording.history.close()


def as_bytes(alerts: list[Any], name: Any) -> bytes:
    """Encode alerts in whole seconds: live rules look half a second after each was sampled."""
    return msgspec.json.encode(sorted(
        [name(alert), int(alert.since), int(alert.fired_at), alert.value, alert.comebacks,
         None if alert.ended_at is None else int(alert.ended_at)] for alert in alerts))


@pytest.mark.parametrize(("rule", "is_in_files"), [  # all of memory before it goes into files
    (name, is_in_files) for is_in_files in (False, True) for name in RULES if name != "near"])
def test_live_and_rehearsal_are_the_same_to_the_byte(recorded: RecordedHub, rule: str,
                                                     is_in_files: bool) -> None:
    if is_in_files:
        recorded.history.store.maintain(END + 10_000)
        assert recorded.history.info().open_seconds == 0
    past, rehearsal = recorded.rehearse(ready(rule))
    lived, would = recorded.live[rule], rehearsal.alerts()
    assert (len(lived) >= 1) == (rule != "never"), "a story of nothing proves nothing"
    assert as_bytes(lived, lambda alert: alert.target.key) == as_bytes(
        would, lambda alert: past.name(alert.row).key)


def test_whom_a_ladder_would_have_reached_and_what_they_held(recorded: RecordedHub) -> None:
    """Bob's tasks are there from the first second, on one GPU each."""
    of = ready("task-big", fire=">= 1GiB", scope="user:bob", cooldown="0s",
               ladder=[{"do": "tell"}, {"do": "end", "after": "10m"}])
    past, rehearsal = recorded.rehearse(of)
    reached = [alert for alert in rehearsal.alerts() if alert.acted_at is not None]
    assert {past.name(alert.row).users for alert in reached} == {("bob",)}
    first = min(reached, key=lambda alert: alert.acted_at or 0.0)
    assert first.acted_at is not None
    held_h = past.hours[first.row, first.acted_at]
    assert held_h == pytest.approx((first.acted_at - BEGIN) / 3_600, abs=0.02)
    assert len(reached) >= NODES - 1


def test_what_is_told_seldom_comes_close(recorded: RecordedHub) -> None:
    """History has fewer numbers within the minute of a change than a live rule saw."""
    past, rehearsal = recorded.rehearse(ready("near"))
    lived = {alert.target.key for alert in recorded.live["near"]}
    assert lived
    assert {past.name(alert.row).key for alert in rehearsal.alerts()} == lived


def test_what_is_told_seldom_says_nothing_of_a_node_that_is_silent(tmp_path: Path) -> None:
    """A board of n1, by this seed, is near its limit when n1 falls silent. History holds such a
    number for three minutes more; a live rule has no sample by which to read it."""
    recorded = RecordedHub(tmp_path, 428)
    recorded.evaluator.set_rules({"near": ready("near")})
    for second in range(2_700):
        recorded.second(BEGIN + second)
    past, rehearsal = recorded.rehearse(ready("near"))
    n1s = [{key for key in keys if key.startswith("GPU-n1")} for keys in (
        {alert.target.key for alert in recorded.live["near"]},
        {past.name(alert.row).key for alert in rehearsal.alerts()
         if alert.fired_at < BEGIN + 2_700})]
    recorded.history.close()
    assert n1s[0] == n1s[1]


def test_a_rule_that_was_written_otherwise_is_told_from_it(recorded: RecordedHub) -> None:
    """The control: the comparison sees a limit that is a little off."""
    _, right = recorded.rehearse(ready("hot"))
    _, wrong = recorded.rehearse(ready("hot", fire=">= 66"))
    assert right.alerts() != wrong.alerts()


def test_what_history_does_not_keep_is_refused() -> None:
    for flaw, hold in (("less than 1m", {"for": "59s"}), ("and acts, less than 5m", {
            "for": "4m", "ladder": [{"do": "tell"}]})):
        with pytest.raises(CannotRehearseError, match=flaw):
            TaskRehearsalSource(None, Fleet(1),  # type: ignore[arg-type]
                                ready("task-big", **hold))
    with pytest.raises(CannotRehearseError, match="does not keep age_s of a task"):
        TaskRehearsalSource(None, Fleet(1),  # type: ignore[arg-type]
                            ready("task-big", signal="age_s", fire="> 5"))
    for signal in ("silent_s", "gpus_lost", "tasks"):
        with pytest.raises(CannotRehearseError, match=f"does not keep {signal} of a node"):
            NodeRehearsalSource(None, Fleet(1), ready("node-hot", signal=signal, fire="> 5",  # type: ignore[arg-type]
                                                      clear=""))
    for signal in ("sample_age_s", "lost", "jobs"):
        with pytest.raises(CannotRehearseError, match=f"does not keep {signal}"):
            GpuRehearsalSource(None, Fleet(1), check(read(  # type: ignore[arg-type]
                {"id": "r", "title": "t", "scope": "*", "signal": signal, "fire": "> 5"})))


def test_a_window_of_a_node_that_is_silent_clears_nothing(tmp_path: Path) -> None:
    """The increase of energy, by this seed, falls below its limit for lack of samples."""
    recorded = RecordedHub(tmp_path, 924256)
    recorded.evaluator.set_rules({"used": ready("used")})
    for second in range(2_500):
        recorded.second(BEGIN + second)
    past, rehearsal = recorded.rehearse(ready("used"))
    recorded.history.close()
    ends = [{(name(alert).key, int(alert.ended_at)) for alert in alerts
             if alert.ended_at is not None and alert.ended_at < BEGIN + 2_400} for name, alerts in (
        (lambda alert: alert.target, recorded.live["used"]),
        (lambda alert: past.name(alert.row), rehearsal.alerts()))]
    assert ends[0] == ends[1] != set()


# -- ladders, without any history


def rehearse_story(story: list[float], **change: Any) -> list[RehearsedAlert]:
    """Rehearse one row, minute by minute, in stretches of random length."""
    of = check(read({"id": "r", "title": "t", "scope": "*", "of": "task",
                     "signal": "mem_used_bytes", "fire": ">= 10", "clear": "< 5", "for": "5m",
                     "cooldown": "0s", "ladder": [{"do": "tell"}, {"do": "tell", "after": "10m"},
                                {"do": "end", "after": "10m"}]} | change))
    rehearsal, numbers = RehearsalEngine(of), np.array([[0.0] * len(story), story])
    cut = random.randint(1, len(story) - 1)
    for first, last in ((0, cut), (cut, len(story))):
        part = numbers[:, first:last]

        def values(_: SignalTerm, rows: Any, part: Floats = part) -> Floats:
            return np.asarray(part[rows])

        rehearsal.take(RehearsalChunk(first * 60, 60, last - first, 2, values, np.ones(2, bool)))
    return rehearsal.alerts()


def test_whom_the_ladder_would_have_reached() -> None:
    [alert] = rehearse_story([20.0] * 60)
    assert alert.row == 1
    assert [(do, (at - alert.fired_at) / 60) for do, at in alert.acts] == [
        ("tell", 0), ("tell", 10), ("end", 20)]
    assert alert.acted_at == alert.fired_at + 1_200


@given(now=st.floats(1.7e9, 1.8e9), span_s=st.sampled_from([3_600, 604_800, 2_592_000]),
       step_s=st.sampled_from([1, 60]), kept_s=st.floats(0, 5e6))
def test_a_week_that_is_asked_for_is_a_week(now: float, span_s: int, step_s: int, kept_s: float
                                            ) -> None:
    """Spans that the page asks for would else never be long enough to prove anything."""
    begins = now - kept_s
    first, last = whole_steps(now - span_s, now, begins, step_s)
    assert first % step_s == last % step_s == 0
    assert now - step_s < last <= now
    assert first >= begins
    if begins <= now - span_s - step_s:
        assert last - first == span_s


def test_what_was_at_rest_in_between_begins_at_the_first_step() -> None:
    [alert] = rehearse_story([20.0] * 17 + [0.0] * 2 + [20.0] * 30, keep_firing_for="5m")
    assert [do for do, _ in alert.acts] == ["tell", "tell", "tell", "tell", "end"]
    assert alert.comebacks == 1
    assert [alert.acted_at for alert in rehearse_story([20.0] * 15 + [0.0] * 40)] == [None]


def test_a_rest_of_its_own_holds_the_next_ladder() -> None:
    first, second = rehearse_story([20.0] * 10 + [0.0] * 2 + [20.0] * 60, cooldown="30m")
    assert first.acted_at is None
    assert second.acts[0][1] >= first.ended_at + 1_800  # type: ignore[operator]


def test_a_node_is_meant_where_all_of_its_gpus_are(recorded: RecordedHub) -> None:
    past, all_of_them = recorded.rehearse(ready("node-quick"))
    some, one = recorded.rehearse(ready("node-quick", scope="node:n0"))
    assert {past.name(alert.row).key for alert in all_of_them.alerts()} > {"n0"}
    assert {some.name(alert.row).key for alert in one.alerts()} == {"n0"}
    assert recorded.rehearse(ready("node-quick", scope="gpu:0"))[1].alerts() == []


def test_the_power_of_a_node_is_not_known_while_a_board_does_not_tell() -> None:
    nan = np.nan
    values = np.array([[10.0, nan, nan], [20.0, 30.0, nan], [7.0, nan, 5.0]])
    all_of_them = np.ones(3, bool)
    for name, node_values in {"util_pct": [[15.0, 30.0, nan], [7.0, nan, 5.0]],
                              "power_w": [[30.0, nan, nan], [7.0, nan, 5.0]],
                              "temp_c": [[20.0, 30.0, nan], [7.0, nan, 5.0]]}.items():
        np.testing.assert_array_equal(number_of_nodes(
            name, values, np.array([0, 0, 1]), all_of_them, all_of_them, 2), node_values)
