"""The load behind `bench/insight.py`: forecasts, findings and advice over a large fleet."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping

import gevent
import numpy as np

from dashboard.alerts.core.evaluator import RuleEvaluator
from dashboard.alerts.core.rule import CompiledRule, check, read
from dashboard.alerts.core.target_collector import RuleTargetCollector
from dashboard.alerts.rules_file import PACK, parse
from dashboard.fleet.events import RecentEvents
from dashboard.fleet.fleet import Fleet
from dashboard.insight.advice_service import KEPT_S
from dashboard.insight.core.advice import advise
from dashboard.insight.core.demand import forecast
from dashboard.insight.core.outlook import MINUTE_S, PART_S, READS_S, MinuteMemory, growing, score
from dashboard.insight.core.qos import QosPolicy
from dashboard.insight.core.week import MeasuredWeek, WeekGpu
from dashboard.insight.demand_history import HOUR_S, HOURS_KEPT
from dashboard.insight.measured_week import SPAN_H
from dashboard.insight.qos_service import EVERY_S, QosService
from dashboard.runtime.heap import settle_garbage
from gpudeck.contract.hosts import HostSample, HostTask
from gpudeck.contract.wire import Task, Tasks, Use
from gpudeck.pool.core.claims import Claim
from tests.unit import fleets

PER_NODE, OWNERS = 8, 200
RULES = ("memory-leak", "memory-full-soon", "no-progress", "job-unlike-itself", "job-stuck",
         "rank-lagging", "job-starved")
OF_GPUS = {"id": "gpu-unlike-itself", "title": "Power unlike the GPU's own past", "scope": "*",
           "signal": "anomaly(power_w, 2h)", "fire": ">= 12", "clear": "< 4"}
QOS_LOOKS = 20
WARM_MINUTES, SECONDS = 140, 120
CORE_PCT, STEP_MS = 5.0, 5.0

FigureRow = tuple[str, float, str, float | None]  # name, value, unit, goal


def measure(nodes: int, warm_minutes: int) -> Iterator[FigureRow]:
    """`warm_minutes`: minutes before measuring; all windows are full after WARM_MINUTES."""
    gpus, fleet = nodes * PER_NODE, _fleet(nodes)
    settle_garbage()  # as the hub does when it has started
    rules_s, steps = _rules_cost(fleet, warm_minutes * MINUTE_S)
    qos = [*_qos(fleet)]
    draw = np.random.default_rng(1)
    memory, week, hours = _memory(draw, gpus), _week(draw, gpus), 50 + 10 * draw.random(HOURS_KEPT)
    parts = {
        "rules for anomalies, leaks and findings": rules_s,
        "forecasts of memory and their scores": _cpu_s(
            lambda: (growing(memory), score(memory, 0))) / PART_S,
        "forecast of demand and its backtest": _cpu_s(lambda: forecast(hours)) / HOUR_S,
        "advice": _cpu_s(lambda: advise(week, (), Counter(), "pack")) / KEPT_S,
        "quality of service": sum(qos) / QOS_LOOKS / EVERY_S,
    }
    yield (f"insight, {gpus:,} GPUs, all of it: of one core", 100 * sum(parts.values()), "%",
           CORE_PCT)
    for name, share in parts.items():
        yield f"  {name}", 100 * share, "%", None
    for name, took in (("longest step on the hub's loop", steps), ("of quality of service", qos)):
        yield f"  {name}", 1e3 * max(took), "ms", STEP_MS
        yield "    99.9 % of them", 1e3 * float(np.quantile(took, 0.999)), "ms", None


def _cpu_s(work: Callable[[], object]) -> float:
    before = time.thread_time()
    work()
    return time.thread_time() - before


def _rules_cost(fleet: Fleet, warm_s: int) -> tuple[float, list[float]]:
    """CPU seconds of a second, and of each step: what runs before others get their turn."""
    collector, evaluator = RuleTargetCollector(fleet, RecentEvents()), RuleEvaluator()
    evaluator.set_rules(_rules())
    draw = np.random.default_rng(1)
    spent_s, steps = 0.0, list[float]()
    for second in (*range(0, warm_s, MINUTE_S // 2), *range(warm_s, warm_s + SECONDS)):
        now, mono = fleets.NOW + second, fleets.MONO + second
        _update(fleet, second, now, mono, draw)
        for took_s in _turns(collector, evaluator, now, mono):
            steps.append(took_s)
            spent_s += took_s * (second >= warm_s)
    return spent_s / SECONDS, steps


def _turns(collector: RuleTargetCollector, evaluator: RuleEvaluator, now: float, mono: float
           ) -> Iterator[float]:
    """CPU seconds of each step of an evaluation, taken as the hub's service takes it."""
    yield from _step_times(collector.prepare())
    before = time.thread_time()
    targets = collector.look(now, mono, 0.0)
    yield time.thread_time() - before
    yield from _step_times(evaluator.step(targets, now))


class _Pool:
    """Pool with 5,000 waiting claims."""

    nodes = ()
    claims = tuple(Claim(id=f"c{at}", owner=f"u{at % OWNERS}", gpus=2, submitted_at=fleets.NOW - at)
                   for at in range(5_000))

    def waiting(self, _nodes: object) -> tuple[Claim, ...]:
        return self.claims


class _Teams:
    def teams_of(self, users: Collection[str]) -> Mapping[str, str]:
        return {user: f"team{int(user[1:]) % 20}" for user in users}


class _Words(dict[str, str]):
    def put(self, key: str, value: str) -> None:
        self[key] = value


def _qos(fleet: Fleet) -> Iterator[float]:
    """CPU seconds of each step of the service, with as many promises as fit."""
    service = QosService(fleet, _Teams(), _Pool(), _Words(), None,  # type: ignore[arg-type]
                         lambda: fleets.NOW)
    service.policies = tuple(QosPolicy(name, gpus=40, wait_s=600.0, throttled_pct=5.0) for name in (
        *(f"team:team{at}" for at in range(20)), *(f"user:u{at}" for at in range(180))))
    for look in range(QOS_LOOKS):
        at_s = EVERY_S * look
        doing = gevent.spawn(service.step, fleets.NOW + at_s, fleets.MONO + at_s)
        while not doing.ready():
            before = time.thread_time()
            gevent.sleep(0)
            yield time.thread_time() - before
        doing.get()


def _step_times(turns: Iterator[object]) -> Iterator[float]:
    is_over = False
    while not is_over:
        before = time.thread_time()
        is_over = next(turns, turns) is turns
        yield time.thread_time() - before


def _rules() -> dict[str, CompiledRule]:
    pack = parse(PACK.read_text()).rules
    return {name: pack[name] for name in RULES} | {str(OF_GPUS["id"]): check(read(OF_GPUS))}


def _fleet(nodes: int) -> Fleet:
    fleet = Fleet(1)
    for at in range(nodes):
        node = fleets.add_node(fleet, f"n{at}", PER_NODE)
        began = tuple(Task(f"b{at}:{number}:1", 2 + number, 1, fleets.NOW, f"u{at % OWNERS}",
                           "python", job_id="job") for number in range(PER_NODE))
        fleet.frame(node, fleets.frame(
            [{"util_pct": 90.0, "power_w": 500.0, "mem_used_bytes": 6e10, "mem_util_pct": 40.0}
             ] * PER_NODE, tasks=Tasks(True, began, tuple(
                 Use(task.id, number, 6e10, 90.0) for number, task in enumerate(began)))),
            fleets.NOW, fleets.MONO)
    return fleet


def _update(fleet: Fleet, second: int, now: float, mono: float, draw: np.random.Generator) -> None:
    fleet.sampled_at[: len(fleet)], fleet.sampled_mono[: len(fleet)] = now, mono
    power = fleet.column("power_w", mono).values
    power[: len(fleet)] = draw.normal(500.0, 20.0, len(fleet))
    for at, node in enumerate(fleet.nodes.values()):
        if at % 2 == second % 2:  # processes are read every two seconds
            node.tasks = dict(node.tasks)
        if at % 5 == second % 5:
            node.take_host(HostSample({"io_pressure_pct": 1.0}, {}, tuple(
                HostTask(task_id, 90.0, 1e9, 1e6, 1e6, 0.0) for task_id in node.tasks)), mono)


def _memory(draw: np.random.Generator, gpus: int) -> MinuteMemory:
    """Memory of tasks, a tenth of which grow."""
    slope = np.where(draw.random(gpus) < 0.1, 1e7, 0.0)[:, None]
    minutes = np.arange(READS_S // MINUTE_S)
    return MinuteMemory([(f"b:{at}:1", f"GPU-{at}", f"n{at // PER_NODE}") for at in range(gpus)],
                        ["ana"] * gpus,
                        4e10 + slope * minutes + draw.normal(0, 1e6, (gpus, len(minutes))))


def _week(draw: np.random.Generator, gpus: int) -> MeasuredWeek:
    """A week of which a third of the held hours is idle."""
    week_gpus = tuple(WeekGpu(f"GPU-{at}", f"n{at // PER_NODE}", f"n{at // PER_NODE}",
                              str(at % PER_NODE), "NVIDIA H100 80GB HBM3", 8e10, f"u{at % OWNERS}")
                      for at in range(gpus))
    holds = (draw.random((SPAN_H, gpus)) < 0.8).astype(float)
    uses = holds * (draw.random((SPAN_H, gpus)) < 0.67)
    load = uses * draw.uniform(5, 95, gpus)
    of_owners = [share.reshape(SPAN_H, -1, OWNERS).sum(axis=1) for share in (holds, uses)]
    return MeasuredWeek(week_gpus, tuple(f"u{at}" for at in range(OWNERS)), holds, uses, load, load,
                        load / 3, holds * draw.uniform(1e10, 8e10, gpus), load * 7.0,
                        1_400.0 + load, *of_owners)
