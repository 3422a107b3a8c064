"""Wasted GPUs, and since when they are."""

import random
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
import pandas as pd
import pytest

from dashboard.fleet import views
from dashboard.fleet.filters import parse
from dashboard.fleet.fleet import STALE_AFTER_S, Fleet
from dashboard.fleet.idle_history import IdleHistory
from dashboard.fleet.visibility import EVERYTHING_SEEN, focus
from dashboard.fleet.wasted_gpus import note_idle, seconds_idle, wasted
from dashboard.history.columns.rows import HistoryMessage
from dashboard.history.reads.embedded import EmbeddedHistory
from gpudeck.contract.pool_link import PoolReport, ReportedLease
from gpudeck.contract.wire import Inventory, Use
from gpudeck.measures.metrics import COLUMN, Absence
from gpudeck.measures.waste import WASTED_AFTER_S
from gpudeck.pool.core.claims import Claim
from tests.unit.fleets import (
    EMPTY,
    MONO,
    NOW,
    Row,
    add_node,
    facts,
    frame,
    hello,
    task_views,
    tasks,
)

HELD = {"util_pct": 0.0, "util_max_pct": 0.0, "mem_used_bytes": 40e9}


def report(fleet: Fleet, rows: Sequence[Row], seq: int, after_s: float, state: str = "ok",
           uses: str = "running") -> None:
    node = next(iter(fleet.nodes.values()))
    task_list = tasks(*((f"t{at}", at, "bohdan") for at in range(len(rows) - 1)))
    task_list = type(task_list)(True, task_list.began, tuple(
        Use(use.task_id, use.gpu, 40e9, 0.0, uses) for use in task_list.uses))  # type: ignore[arg-type]
    node.heard_mono = MONO + after_s
    fleet.frame(node, frame(rows, seq, NOW + after_s, [state] * len(rows), task_list),
                NOW + after_s, MONO + after_s)
    note_idle(fleet, MONO + after_s)


def matching(fleet: Fleet, state: str, mono: float) -> list[bool]:
    picked = parse(f"state:{state}")
    assert picked is not None
    hits: list[bool] = picked.matches(fleet, mono).tolist()
    return hits


def totals(fleet: Fleet, after_s: float) -> dict[str, object]:
    figures: dict[str, object] = views.totals(
        fleet, focus(fleet, EVERYTHING_SEEN), NOW + after_s, MONO + after_s)["wasted"]
    return figures


@pytest.mark.parametrize(("row", "is_wasted"), [
    (HELD, True),
    (HELD | {"util_pct": 0.3, "util_max_pct": 4.0}, True),
    (HELD | {"util_max_pct": 80.0}, False),  # its second was busy, its mean is not
    (HELD | {"mem_used_bytes": 1e8}, False),
    (HELD | {"util_pct": Absence.UNSUPPORTED, "util_max_pct": Absence.UNSUPPORTED}, False),
    (HELD | {"mem_used_bytes": Absence.DENIED}, False),
])
def test_what_is_wasted(row: Row, is_wasted: bool) -> None:
    fleet = Fleet(1)
    add_node(fleet, gpus=2)
    # The last GPU has no task.
    for seq, after_s in enumerate((0.0, WASTED_AFTER_S - 1, WASTED_AFTER_S), start=1):
        report(fleet, [row, HELD], seq, after_s)
        figures = totals(fleet, after_s)
        assert figures["gpus"] == (is_wasted and after_s == WASTED_AFTER_S)
    if is_wasted:
        assert figures["mem_bytes"] == 40e9
        assert figures["slots"] == np.array([0], "<u4").tobytes()
        assert figures["since"] == np.array([NOW], "<u4").tobytes()
        assert matching(fleet, "wasted", MONO + WASTED_AFTER_S) == [True, False]


def test_work_ends_it_and_what_is_not_read_does_not() -> None:
    fleet = Fleet(1)
    add_node(fleet, gpus=2)
    late = WASTED_AFTER_S
    report(fleet, [HELD, HELD], 1, 0.0)
    report(fleet, [HELD, HELD], 2, late, state="stale")
    assert totals(fleet, late)["gpus"] == 0  # nobody knows now
    report(fleet, [HELD, HELD], 3, late + 1)
    assert totals(fleet, late + 1)["gpus"] == 1
    report(fleet, [HELD | {"util_max_pct": 50.0}, HELD], 4, late + 2)
    report(fleet, [HELD, HELD], 5, late + 3)
    assert totals(fleet, late + 3)["gpus"] == 0


def test_a_task_on_a_gpu_that_is_not_read_idles_for_an_unknown_time() -> None:
    """The time went on by itself while the driver hung."""
    fleet, late = Fleet(1), WASTED_AFTER_S
    add_node(fleet, gpus=2)
    looks = ((0.0, "ok", 0), (late, "ok", late), (late + 9, "stale", None),
             (late + 10, "ok", late + 10))
    for seq, (after_s, state, idle_s) in enumerate(looks, start=1):
        report(fleet, [HELD, HELD], seq, after_s, state)
        assert idle_of(fleet, MONO + after_s) == idle_s
    assert idle_of(fleet, MONO + late + 10 + STALE_AFTER_S + 1) is None


def idle_of(fleet: Fleet, mono: float) -> float | None:
    """Return for how long the only task has been idle."""
    [task] = task_views(fleet, mono=mono)
    return task.idle_s


def test_a_paused_gpu_is_not_wasted_and_says_so() -> None:
    fleet = Fleet(1)
    add_node(fleet, gpus=2)
    for seq, after_s in enumerate((0.0, WASTED_AFTER_S), start=1):
        report(fleet, [HELD, HELD], seq, after_s, uses="paused")
    assert totals(fleet, WASTED_AFTER_S)["gpus"] == 0
    assert views.owners(fleet, focus(fleet, EVERYTHING_SEEN))["paused"] == b"\x01"


def test_a_leased_gpu_is_not_free() -> None:
    fleet = Fleet(1)
    node = add_node(fleet, gpus=3)
    report(fleet, [EMPTY, EMPTY, EMPTY], 1, 0.0)
    visible = focus(fleet, EVERYTHING_SEEN)
    assert views.totals(fleet, visible, NOW, MONO)["free"] == b"\x04"
    claim = Claim(id="c1", owner="li", gpus=1, submitted_at=NOW)
    fleet.take_pool(node, PoolReport((), (), (
        ReportedLease(claim, ("GPU-n1-2",), "active", NOW, NOW + 60, NOW),)))
    sums = views.totals(fleet, visible, NOW, MONO)
    assert (sums["free"], sums["gpus"]["free"]) == (b"\x00", 0)
    assert not any(matching(fleet, "free", MONO))
    fleet.take_pool(node, None)
    assert matching(fleet, "free", MONO) == [False, False, True]


def test_how_long_the_last_minutes_were_idle() -> None:
    count = random.randint(0, 30)
    assert seconds_idle(np.array([True, False] + [True] * count)) == 60 * count
    assert seconds_idle(np.array([True] * count, bool)) == 60 * count


def test_history_says_since_when_before_the_hub_looked(tmp_path: Path) -> None:
    """Three GPUs: idle for all of the past, at work three minutes ago, and one with a hole."""
    fleet, now = Fleet(1), NOW - NOW % 60 + 20.0
    node = add_node(fleet, gpus=4)
    history = EmbeddedHistory(tmp_path)
    history.open()
    assert node.listing is not None
    history.append([HistoryMessage("n1", "s1", 0.0, node.hello),
                    HistoryMessage("n1", "s1", 0.0, node.listing.inventory)], 1)
    for seq, t in enumerate(range(int(now) - 1_800, int(now), 5), start=1):
        busy = HELD | {"util_max_pct": 70.0} if now - 180 <= t < now - 170 else HELD
        hole: Row = {} if now - 400 <= t < now - 200 else HELD
        history.append([HistoryMessage("n1", "s1", t, frame(
            [HELD, busy, hole, {}], seq, t), t)], 1)
    report(fleet, [HELD, HELD, HELD, {}], 1, 0.0)
    idle = IdleHistory(fleet, history)
    idle.step(now, MONO)
    long, short, holed, none = (MONO - fleet.idle_mono[:4]).tolist()
    assert 1_740 <= long <= 1_860  # by whole minutes
    assert 60 <= short <= 180
    assert 60 <= holed <= 200
    assert np.isnan(none)
    # Whoever works is not asked for again before it has rested, and what is known stays.
    idle.step(now, MONO)
    assert (MONO - fleet.idle_mono[0]) == long
    history.close()


def test_what_is_told_of_a_past_that_is_being_made_does_not_grow_with_it() -> None:
    fleet = Fleet(1)
    add_node(fleet, gpus=3)
    report(fleet, [HELD, HELD | {"util_max_pct": 50.0}, HELD], 1, 0.0)
    nobody: Any = SimpleNamespace(
        series=pytest.fail, usage=lambda *_: pd.DataFrame({"gpu": [], "idle_s": []}))
    idle = IdleHistory(fleet, nobody)
    idle.told({"GPU-n1-0": NOW - 7_200.0, "GPU-n1-1": NOW - 7_200.0, "other": 0.0}, NOW + 1,
              MONO + 1)
    idle.step(NOW + 2, MONO + 2)  # asks for no part of the past
    assert fleet.idle_mono[0] == MONO - 7_200.0
    assert np.isnan(fleet.idle_mono[1:3]).all(), "who works, or nobody, wastes nothing"


@pytest.mark.parametrize("day", [(2026, 3, 29), (2026, 10, 25), (2026, 6, 1)])
def test_today_begins_at_midnight_also_when_the_clocks_change(
        day: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    midnight = datetime(*day, tzinfo=ZoneInfo("Europe/Berlin")).timestamp()
    starts: list[float] = []

    def usage(_by: str, _step: int, start: float, _end: float) -> pd.DataFrame:
        starts.append(start)
        return pd.DataFrame({"gpu": [], "idle_s": []})

    fleet = Fleet(1)
    add_node(fleet)
    history: Any = SimpleNamespace(series=pytest.fail, usage=usage)
    with monkeypatch.context() as zone:
        zone.setenv("TZ", "Europe/Berlin")
        time.tzset()
        for hours in range(0, 22, 3):
            IdleHistory(fleet, history).step(midnight + 3_600 * hours + 60, MONO)
    time.tzset()
    assert starts == [midnight] * len(starts)
    assert len(starts) == 8


def test_an_idle_instance_is_wasted_by_its_sm_activity() -> None:
    """MIG has no utilization."""
    fleet = Fleet(1)
    node = fleet.hello(hello("n1"), NOW, MONO)
    parts = tuple(msgspec.structs.replace(
        facts("n1", at), uuid=f"MIG-{at}", parent_uuid="GPU-n1-0") for at in (1, 2, 3))
    fleet.inventory(node, Inventory(1, (facts("n1", 0), *parts)))
    none = Absence.UNSUPPORTED
    rows: list[Row] = [{"util_pct": none, "mem_used_bytes": 60e9}, *(
        {"util_pct": none, "sm_active_pct": sm, "mem_used_bytes": 20e9}
        for sm in (0.0, 40.0, none))]
    for seq, after_s in enumerate((0.0, WASTED_AFTER_S), start=1):
        node.heard_mono = MONO + after_s
        fleet.frame(node, frame(rows, seq, NOW + after_s, tasks=tasks(
            *((f"t{at}", at, "li") for at in (1, 2, 3)))), NOW + after_s, MONO + after_s)
        note_idle(fleet, MONO + after_s)
    assert matching(fleet, "wasted", MONO + WASTED_AFTER_S) == [False, True, False, False]


class SecondsHistory:
    """History that answers from these seconds, of which minutes close when they are over."""

    def __init__(self, busy: "np.ndarray[Any, Any]") -> None:
        self._busy, self.now = busy, 0

    def usage(self, *_: Any) -> pd.DataFrame:
        return pd.DataFrame({"gpu": [], "idle_s": []})

    def series(self, uuids: list[str], metrics: tuple[str, ...], t0: float, t1: float, step: int,
               aggs: tuple[str, ...], nodes: Any) -> pd.DataFrame:
        rows = []
        for uuid in uuids:
            busy = self._busy[int(uuid.rpartition("-")[2])]
            for t in range(max(int(t0), 0), min(int(t1), self.now), step):
                peak = 80.0 if busy[t:min(t + step, self.now)].any() else 0.0
                rows.append({"gpu": uuid, "t": t} | {f"{name}_{agg}": (
                    40e9 if name == "mem_used_bytes" else peak if name == "util_max_pct"
                    else np.nan) for name in metrics for agg in aggs})
        return pd.DataFrame(rows, columns=["gpu", "t", *(
            f"{name}_{agg}" for name in metrics for agg in aggs)])


@pytest.mark.parametrize("hours", [2, 24])
def test_bursty_notebooks_waste_what_their_seconds_say(hours: int) -> None:
    """Restarts of the hub included, no GPU-minute is wrongly called wasted, hardly one is missed.
    Looks at each second in which something changes, and every ten: between these nothing does."""
    dice, count, seconds = random.Random(random.randrange(10**6)), 8, hours * 3_600
    busy = np.zeros((count, seconds), bool)
    for at in range(1, count):  # the first one idles all the time
        t = 0
        while (t := t + dice.choice((3, 20, 61, 240, 590, 610, 700, 1_500, 7_200))) < seconds:
            busy[at, t:t + dice.choice((1, 1, 2, 30, 900))] = True
    restarts = {*dice.sample(range(100, seconds), 2 + hours // 2)}
    changes = np.flatnonzero((busy[:, 1:] != busy[:, :-1]).any(axis=0)) + 1
    looks = sorted({*range(0, seconds, 10), *changes.tolist(), *restarts})
    past: Any = SecondsHistory(busy)
    fleet, idle = Fleet(1), IdleHistory(Fleet(1), past)
    found_s = np.zeros(count)
    for second, until in zip(looks, [*looks[1:], seconds], strict=True):
        if second == 0 or second in restarts:
            fleet = Fleet(1)
            node = add_node(fleet, gpus=count)
            fleet.frame(node, frame([HELD] * count, tasks=tasks(
                *((f"t{at}", at, "li") for at in range(count)))), NOW, MONO)
            idle = IdleHistory(fleet, past)
        mono = MONO + second
        node.heard_mono = mono
        fleet.sampled_mono[:count] = mono
        fleet.values[:count, COLUMN["util_max_pct"]] = np.where(busy[:, second], 80.0, 0.0)
        note_idle(fleet, mono)
        if second % 10 == 0 or second in restarts:
            past.now = second
            idle.step(second, mono)
        for at in np.flatnonzero(wasted(fleet, fleet.statuses(mono), mono)).tolist():
            found_s[at] += until - second
            assert not busy[at, max(0, second - int(WASTED_AFTER_S) + 2):second + 1].any()
            since = second - round(mono - float(fleet.idle_mono[at]))
            assert not busy[at, since + 1:second + 1].any(), "since when it says"
    worked = np.where(busy, np.arange(seconds), -1)
    idle_s = np.arange(seconds) - np.maximum.accumulate(worked, axis=1)
    true_s = (idle_s > WASTED_AFTER_S).sum(axis=1)
    assert found_s[0] == seconds - WASTED_AFTER_S
    assert true_s[1:].any(), "a story of nothing proves nothing"
    missed_s = true_s - found_s
    assert missed_s.max() <= 60 * len(restarts), "a minute that is not told yet, once a restart"
