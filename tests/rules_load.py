"""The load behind `bench/rules.py`: all rules over a large fleet, and one of them over a day."""

import gc
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dashboard.alerts.core.evaluator import RuleEvaluator
from dashboard.alerts.core.rule import CompiledRule
from dashboard.alerts.core.target_collector import RuleTargetCollector
from dashboard.alerts.rehearsal.engine import RehearsalEngine
from dashboard.alerts.rehearsal.gpus import GpuRehearsalSource
from dashboard.alerts.rehearsal.tasks import TaskRehearsalSource
from dashboard.alerts.rules_file import PACK, parse
from dashboard.fleet.events import RecentEvents
from dashboard.fleet.fleet import Fleet
from dashboard.history.columns.arrow_columns import Table
from dashboard.history.columns.layout import KEYS, NO_MEAN, STORED
from dashboard.history.columns.rollup import Rollup
from dashboard.history.columns.slot_names import SlotNames
from dashboard.history.columns.task_minutes import TaskMinuteRows
from dashboard.history.files.parquet import GROUP_GPUS, rollup_table, tasks_table, write
from dashboard.history.files.store import HistoryStore
from dashboard.history.reads.rule_reads import RuleHistoryReader
from gpudeck.contract.wire import Task, Tasks, Use
from tests.unit import fleets

PER_NODE, RULES, SECONDS = 8, 30, 10
DAY_S, ROUNDS = 86_400, 3
BEGIN = 1_700_000_000 - 1_700_000_000 % DAY_S

FigureRow = tuple[str, float, str, float | None]  # name, value, unit, goal


def measure(folder: Path, gpus: int) -> Iterator[FigureRow]:
    yield (f"rules: {RULES} of the pack over {gpus:,} GPUs and {2 * gpus:,} tasks, CPU per s",
           look_s(gpus) * 1_000, "ms", 100.0)
    store, many = _a_day(folder, gpus), 11 * gpus // (10 * USERS)  # a tenth more than most have
    for rule in parse(IN_YAML.replace("MANY", str(many))).rules.values():
        yield (f"rehearsal, 24 h x {gpus:,} GPUs, {rule.rule.title}: CPU",
               min(_rehearsal_s(store, rule, gpus) for _ in range(ROUNDS)), "s", 1.5)


# -- live


def look_s(gpus: int) -> float:
    fleet, nodes = Fleet(1), gpus // PER_NODE
    for at in range(nodes):
        node = fleets.add_node(fleet, f"n{at}", PER_NODE)
        fleet.frame(node, fleets.frame(
            [{key: 10.0 for key in KEYS if key != "throttle_bits"}] * PER_NODE,
            tasks=_tasks(at), slow=[{"temp_margin_c": 30.0, "ecc_corrected": 1.0}] * PER_NODE),
            fleets.NOW, fleets.MONO)
    of_fleets = {key: rule for key, rule in parse(PACK.read_text()).rules.items()
                 if rule.rule.of != "fleet"}  # of one row each: they cost nothing
    rules = dict(list(of_fleets.items())[-RULES:])
    collector, evaluator = RuleTargetCollector(fleet, RecentEvents()), RuleEvaluator()
    evaluator.set_rules(rules)
    spent_s = 0.0
    for second in range(SECONDS + 2):
        now = fleets.NOW + second
        fleet.sampled_at[: len(fleet)] = now
        for at, node in enumerate(fleet.nodes.values()):
            if at % 2 == second % 2:  # processes are read every two seconds
                node.tasks = dict(node.tasks)
        before = time.process_time()
        for _ in evaluator.step(collector.look(now, fleets.MONO + second, 0.0), now):
            pass
        spent_s += (time.process_time() - before) * (second >= 2)
    return spent_s / SECONDS


def _tasks(at: int) -> Tasks:
    began = tuple(Task(f"b{at}:{number}:1", 2 + number, 1, fleets.NOW, f"u{at % 100}", "python",
                       job_id=f"j{number // 2}") for number in range(2 * PER_NODE))
    return Tasks(True, began, tuple(Use(task.id, number // 2, 2e9, 10.0)
                                    for number, task in enumerate(began)))


# -- the past

IN_YAML = """
rules:
  - {id: hot, title: "temp_c >= 85 for 10m", scope: "*", signal: temp_c, fire: ">= 85",
     clear: "< 80", for: 10m}
  - {id: idle, title: "idle by max(util_max_pct, 30m) for 2h", scope: "*",
     signal: "max(util_max_pct, 30m)", fire: "<= 5", clear: "> 10", for: 2h,
     where: [mem_used_bytes >= 1GiB]}
  - {id: many, title: "an owner's gpus >= MANY for 10m", scope: "*", of: owner, signal: gpus,
     fire: ">= MANY", for: 10m}
  - {id: waste, title: "an owner's util_pct and mem_used_bytes for 30m", scope: "*", of: owner,
     signal: util_pct, fire: "<= 40", clear: "> 50", for: 30m, where: [mem_used_bytes >= 1GiB]}
"""
USERS, STAYS = 100, 240  # minutes, of a Task


def _a_day(folder: Path, gpus: int) -> HistoryStore:
    """Write a day in which only what the rules read changes; the rest is there, as in real life."""
    store, rng = HistoryStore(folder / "history", None, None, None, None), np.random.default_rng(1)
    store.open()
    tables = (_minutes(_rollup(many, rng), _names(first, many)) for first, many in _groups(gpus))
    minutes = write(store.files.archive, "minutes", (BEGIN, BEGIN + DAY_S, DAY_S),
                    (1, float(BEGIN)), tables)
    assert minutes is not None
    tasks = write(store.files.archive, "tasks", (BEGIN, BEGIN + DAY_S, DAY_S), (1, float(BEGIN)),
                  (tasks_table(_task_minutes(first, many, rng), _names(first, many))
                   for first, many in _groups(gpus)))
    assert tasks is not None
    store.files.commit([minutes, tasks])
    return store


def _groups(gpus: int) -> Iterator[tuple[int, int]]:
    """Return the first GPU of each group, and its size."""
    return ((first, min(GROUP_GPUS, gpus - first)) for first in range(0, gpus, GROUP_GPUS))


def _task_minutes(first: int, many: int, rng: np.random.Generator) -> TaskMinuteRows:
    """Rows of each GPU's Tasks, one after the other, which begin at any second."""
    minutes = DAY_S // 60
    slot, minute = np.repeat(np.arange(many), minutes), np.tile(np.arange(minutes), many)
    nth = (minute + np.repeat(rng.integers(0, STAYS, many), minutes)) // STAYS
    lanes = slot * (minutes // STAYS + 1) + nth
    changes = np.append(True, np.diff(lanes) != 0)
    ids = [f"b{first}:{lane}:1" for lane in range(int(lanes.max()) + 1)]
    tasks: list[Task | None] = [
        Task(task_id, 2, 1, 0.0, f"u{rng.integers(USERS)}", "python", job_id=task_id)
        for task_id in ids]
    seconds = np.where(changes, rng.integers(1, 60, len(slot)), 60).astype(float)
    mem_bytes = np.full(len(slot), 4e10)
    return TaskMinuteRows(slot, BEGIN + 60 * minute, lanes, ids, tasks, {
        "seconds": seconds, "mem_byte_s": mem_bytes * seconds, "mem_s": seconds,
        "sm_pct_s": 20 * seconds, "sm_s": seconds, "host_cpu_pct_s": 90 * seconds,
        "host_cpu_s": seconds, "mem_max_bytes": mem_bytes, "sm_max_pct": np.full(len(slot), 40.0),
        "host_cpu_max_pct": np.full(len(slot), 95.0)})


def _minutes(rollup: Rollup, names: SlotNames) -> Table:
    return rollup_table("minutes", rollup, names.columns(rollup.slot, rollup.t))


def _names(first: int, many: int) -> SlotNames:
    return SlotNames([f"GPU-{first + at:036d}" for at in range(many)],
                     [f"{(first + at) // PER_NODE:064x}" for at in range(many)], {}, None)


def _rollup(many: int, rng: np.random.Generator) -> Rollup:
    minutes = DAY_S // 60
    size = many * minutes
    slot = np.repeat(np.arange(many), minutes)
    t = np.tile(BEGIN + 60 * np.arange(minutes), many)
    n, zeros = np.full(size, 60), np.zeros(size)
    busy = np.repeat(rng.random((many, 24)) < 0.7, 60, axis=1).reshape(-1)
    hot = np.repeat(rng.random((many, 24)) < 0.002, 60, axis=1).reshape(-1)
    temp = np.where(busy, 70 + np.rint(rng.normal(0, 4, size)), 35.0)
    means = {"temp_c": np.where(hot, 90.0, temp),
             "util_pct": np.where(busy, 60.0, 0.0),
             "util_max_pct": np.where(busy, 100.0, 0.0),
             "mem_used_bytes": np.where(busy, 4e10, 2e9)}
    rollup = Rollup(slot, t, n)
    for column in STORED:
        values = means.get(column.key, zeros)
        total = zeros if column.key in NO_MEAN else values * 60
        rollup.put(column.key, values, values, total, n)
    return rollup


def _rehearsal_s(store: HistoryStore, rule: CompiledRule, gpus: int) -> float:
    gc.collect()
    before = time.process_time()
    kind = TaskRehearsalSource if rule.rule.of == "owner" else GpuRehearsalSource
    past, rehearsal = kind(RuleHistoryReader(store), Fleet(1), rule), RehearsalEngine(rule)
    for stretch in past.stretches(BEGIN, BEGIN + DAY_S):
        rehearsal.take(stretch)
    assert rehearsal.targets == (USERS if rule.rule.of == "owner" else gpus)
    assert rehearsal.alerts()
    return time.process_time() - before
