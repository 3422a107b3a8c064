"""Usage by any key: its parts add up to the same whole, to the second: over churn, restarts of
the hub, what came late, and after merging."""

import math
import random
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dashboard.history.columns.rows import HistoryMessage
from dashboard.history.columns.usage import PARTS, USAGE_SUMS
from dashboard.history.files.reading import merged
from dashboard.history.reads.coverage import covered_share
from dashboard.history.reads.embedded import EmbeddedHistory
from dashboard.history.reads.protocol import BYS
from dashboard.history.report_views import ReportPrices, report_view
from dashboard.history.usage_names import REPORT_BYS, regrouped, source_of
from gpudeck.contract.wire import Task, Tasks, Use
from gpudeck.measures.metrics import Absence
from tests.unit.fleets import frame
from tests.unit.histories import START, Source

HOUR_S, MINUTE_S = 3_600, 60
EVERY_S = 10
SPAN = (START, START + 2 * HOUR_S)
DIVIDED = ("gpu_s", "util_pct_s", "util_s", "load_s", "idle_s", "energy_j", "energy_s", "mem_s",
           "mem_byte_s", "sm_pct_s", "sm_s")


def opened(folder: Path) -> EmbeddedHistory:
    history = EmbeddedHistory(folder)
    history.open()
    return history


def task_of(lots: random.Random, number: int) -> Task:
    labels: dict[str, Any] = lots.choice(({}, {"slurm_job": "7"}, {"pod": "p", "namespace": "ns"},
                                         {"container": f"c{number % 2}"}, {"unit": "u.service"},
                                         {"launch": "torchrun h:1/default"}))
    return Task(f"b:{number}:1", number, 1, 1.0, lots.choice(("ann", "bob", "cy", None)), "python",
                job_id=lots.choice((None, f"b:{number}:1", "b:1:1")), **labels)


def churn(source: Source, lots: random.Random, minutes: int) -> list[HistoryMessage]:
    """Return every tenth second of some minutes; tasks come and go, and share GPUs."""
    messages = []
    tasks: dict[str, list[tuple[Task, int]]] = {node: [] for node in source.uuids}
    for t in range(START, START + minutes * MINUTE_S, EVERY_S):
        for at, node in enumerate(source.uuids):
            if lots.random() < 0.4:
                tasks[node] = [one for one in tasks[node] if lots.random() < 0.6]
                tasks[node] += [(task_of(lots, lots.randrange(1, 9)), lots.randrange(source.gpus))
                                for _ in range(lots.randrange(3))]
            by_id = {task.id: task for task, _ in tasks[node]}
            uses = {(task.id, gpu): Use(task.id, gpu, lots.uniform(0, 1e10), 5.0)
                    for task, gpu in tasks[node]}
            util = lots.choice((0.0, lots.uniform(0, 100)))
            sm_pct = lots.choice((Absence.UNSUPPORTED, lots.uniform(0, 100)))
            rows = [{"util_pct": util, "util_max_pct": util, "power_w": lots.uniform(50, 700),
                     "sm_active_pct": sm_pct} for _ in range(source.gpus)]
            seq = (t - START) // EVERY_S * 2 + at + 1
            messages.append(HistoryMessage(node, "s", t + 0.5, frame(
                rows, seq, t + 0.5, tasks=Tasks(True, tuple(by_id.values()),
                                                tuple(uses.values()))), t))
    return messages


def whole_of(usage: pd.DataFrame) -> list[float]:
    return [math.fsum(usage[name].tolist()) for name in DIVIDED]


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 2**32), is_late=st.booleans(), is_back=st.booleans(),
       is_restarted=st.booleans())
def test_parts_of_any_kind_are_the_same_whole(seed: int, is_late: bool, is_back: bool,
                                              is_restarted: bool) -> None:
    """`is_back`: what is late comes as a backfill, from nodes that were away."""
    lots, source = random.Random(seed), Source(seed)
    messages = churn(source, lots, 14)
    late = [one for one in messages if is_late and lots.random() < 0.3]
    with TemporaryDirectory() as name:
        history = opened(Path(name))
        history.append(source.greetings(), 1)
        history.append([one for one in messages if one not in late], 1)
        at = START + 500
        if late or is_restarted:
            history.store.maintain(at)
        if is_restarted:
            history.store.maintain(at := START + 1_300)
            history.close()
            history = opened(Path(name))
        if is_restarted or is_back:
            history.append(source.greetings("s2"), 1)  # its nodes come back
        history.append([replace(one, is_backfill=is_back) for one in late], 1)
        _same_by_any(history)
        for now in (at + 1_000, at + 1_100, START + 3 * HOUR_S):
            history.store.maintain(now)
        _same_by_any(history)
        history.close()


def _same_by_any(history: EmbeddedHistory) -> None:
    total = whole_of(history.usage("gpu", 0, *SPAN))
    assert total[0] > 0
    for by in BYS:
        parts = whole_of(history.usage(by, 0, *SPAN))
        assert parts == pytest.approx(total, rel=1e-9, abs=1e-6), by
        assert whole_of(history.usage(by, HOUR_S, *SPAN)) == pytest.approx(total, abs=1e-3), by
    users = history.usage("user", 0, *SPAN)
    teams = regrouped(users, "team", {"ann": "one", "bob": "one"})
    assert whole_of(teams) == pytest.approx(total, abs=1e-3)
    assert set(teams["team"].fillna("?")) <= {"one", "", "?"}  # cy is in none; who knows is not
    gpus = history.usage("gpu", 0, *SPAN)
    models = regrouped(gpus, "model", {uuid: f"board {at % 2}"
                                       for at, uuid in enumerate(gpus["gpu"])})
    assert whole_of(models) == pytest.approx(total, abs=1e-3)
    assert {*BYS, "team", "model"} == {*REPORT_BYS}


def test_an_owner_holds_a_gpu_once_and_its_jobs_divide_that(tmp_path: Path) -> None:
    """Two jobs of one owner on one GPU, a third with another's: by hand."""
    source = Source(1, nodes=1, gpus=1)
    tasks = tuple(Task(f"b:{n}:1", n, 1, 1.0, user, None, job_id=f"j{n}")
                  for n, user in ((1, "ann"), (2, "ann"), (3, "bob")))
    history = opened(tmp_path)
    history.append(source.greetings(), 1)
    for t in range(START, START + MINUTE_S):
        # j1 for the whole minute, j2 for its second half, j3 for its first third
        uses = tuple(Use(f"b:{n}:1", 0, n * 1e9, 5.0) for n, since, until in (
            (1, 0, 60), (2, 30, 60), (3, 0, 20)) if since <= t - START < until)
        history.append([HistoryMessage("n0", "s", t + 0.5, frame(
            [{"power_w": 100.0}], t - START + 1, t + 0.5, tasks=Tasks(True, tasks, uses)), t)], 1)
    by_user = history.usage("user", 0, *SPAN).set_index("user")
    by_job = history.usage("job", 0, *SPAN).set_index("job")
    assert by_user["gpu_s"].to_dict() == {"ann": 60.0, "bob": 20.0}
    assert by_job["gpu_s"].to_dict() == pytest.approx({"j1": 40.0, "j2": 20.0, "j3": 20.0})
    assert by_job["energy_j"].to_dict() == pytest.approx(
        {"j1": 2_000.0, "j2": 1_000.0, "j3": 1_000.0})
    report = report_view(by_job.reset_index(), "job", SPAN, ReportPrices(), {}, None)
    assert {item.of: item.mem_used_bytes for item in report.items} == {
        "j1": 1e9, "j2": 2e9, "j3": 3e9}  # its own, however its hours are divided
    assert {item.of: item.mem_max_bytes for item in report.items} == {
        "j1": 1e9, "j2": 2e9, "j3": 3e9}
    assert report.total.gpu_hours == pytest.approx(80 / HOUR_S)
    history.close()


INSTANCES: dict[str, dict[str, float | Absence]] = {
    "idle": {"sm_active_pct": 1.0}, "busy": {"sm_active_pct": 40.0}, "unknown": {},
    "bursts": {"util_pct": 1.0, "util_max_pct": 70.0, "sm_active_pct": 0.0}}  # no instance


def held_for_an_hour(folder: Path) -> EmbeddedHistory:
    """A GPU of each of INSTANCES, by its own owner, for an hour of which a tenth is told."""
    source, names = Source(1, nodes=1, gpus=len(INSTANCES)), [*INSTANCES]
    tasks = tuple(Task(f"b:{at}:1", at, 1, 1.0, name, None) for at, name in enumerate(names))
    uses = tuple(Use(f"b:{at}:1", at, 2e9, 5.0) for at in range(len(names)))
    rows = [{"util_pct": Absence.UNSUPPORTED} | row for row in INSTANCES.values()]
    history = opened(folder)
    history.append(source.greetings(), 1)
    for t in range(START, START + HOUR_S, EVERY_S):
        history.append([HistoryMessage("n0", "s", t + 0.5, frame(
            rows, t - START + 1, t + 0.5, tasks=Tasks(True, tasks, uses)), t)], 1)
    return history


def test_an_idle_instance_is_idle_in_reports_too(tmp_path: Path) -> None:
    """MIG has no utilization: what makes it wasted, SM activity, makes its hours idle."""
    history = held_for_an_hour(tmp_path)
    for now in (None, START + 3 * HOUR_S):  # in memory, and in files
        if now is not None:
            history.store.maintain(now)
        usage = history.usage("user", 0, *SPAN)
        report = report_view(usage, "user", SPAN, ReportPrices(), {}, None)
        assert {item.of: (item.util_pct, item.idle_hours, item.idle_share)
                for item in report.items} == {
            "idle": (None, 1 / EVERY_S, 1.0), "busy": (None, 0.0, 0.0),
            "unknown": (None, None, None), "bursts": (1.0, 0.0, 0.0)}
        assert {item.of: item.sm_pct for item in report.items} == {
            "idle": 1.0, "busy": 40.0, "unknown": None, "bursts": 0.0}
        assert report.total.sm_pct == pytest.approx(41 / 3)
        assert report.total.sm_share == 0.75
        for of, row in usage.set_index("user").iterrows():
            minutes = history.usage("user", MINUTE_S, *SPAN, of=str(of))
            assert [minutes[name].sum() for name in DIVIDED] == pytest.approx(
                [row[name] for name in DIVIDED], rel=0.01), of
    history.close()


def test_files_that_do_not_say_how_long_the_load_was_known_say_it_of_utilization(
        tmp_path: Path) -> None:
    history = held_for_an_hour(tmp_path)
    history.store.maintain(START + 3 * HOUR_S)
    history.close()
    for path in tmp_path.glob("**/usage*/**/*.parquet"):
        table = pyarrow.parquet.ParquetFile(path).read()
        pyarrow.parquet.write_table(table.drop_columns(["load_s", "sm_pct_s", "sm_s"]), path)
    for path in tmp_path.glob("manifest*"):
        path.unlink()  # it would not know the files
    history = opened(tmp_path)
    usage = history.usage("user", 0, *SPAN).set_index("user")
    assert usage["load_s"].to_dict() == usage["util_s"].to_dict() == {
        "idle": 0.0, "busy": 0.0, "unknown": 0.0, "bursts": HOUR_S / EVERY_S}
    paths = [*tmp_path.glob("**/usage*/**/*.parquet")]
    assert usage["sm_s"].to_dict() == dict.fromkeys(INSTANCES, 0.0)
    [table] = merged("usage", paths, START, START + HOUR_S)
    assert sorted(table.column("load_s").to_pylist()) == [0.0, 0.0, 0.0, HOUR_S / EVERY_S]
    history.close()


def test_models_are_the_same_whole_as_their_gpus(tmp_path: Path) -> None:
    history = held_for_an_hour(tmp_path)
    gpus = history.usage("gpu", 0, *SPAN)
    models = regrouped(gpus, "model", {gpu: f"board {at % 2}" for at, gpu in enumerate(
        gpus["gpu"].tolist()[1:])})  # that of the first is not known any more
    assert whole_of(models) == pytest.approx(whole_of(gpus))
    assert sorted(models["model"].fillna("?")) == ["?", "board 0", "board 1"]
    history.close()


def test_what_is_in_none_is_told_from_what_is_not_known() -> None:
    numbers = dict.fromkeys(USAGE_SUMS, 1.0) | {"mem_max_bytes": math.nan, "t": 0}
    frame_ = pd.DataFrame([numbers | {"pod": pod} for pod in ("", None, "a")])
    report = report_view(frame_, "pod", SPAN, ReportPrices(), {}, None)
    assert {(item.of, item.name) for item in report.items} == {
        ("", "no pod"), (None, None), ("a", "a")}
    assert report.total.mem_max_bytes is None


def test_a_team_is_billed_at_its_own_price() -> None:
    numbers = dict.fromkeys(USAGE_SUMS, 3_600.0) | {"mem_max_bytes": math.nan, "t": 0}
    users = pd.DataFrame([numbers | {"user": user} for user in ("ann", "bob", "cy")])
    of = {"ann": "x", "bob": "y"}
    prices = ReportPrices(1.0, None, {"x": 5.0})
    by_team = report_view(regrouped(users, "team", of), "team", SPAN, prices, {}, None)
    assert {item.of: item.cost for item in by_team.items} == {"x": 5.0, "y": 1.0, "": 1.0}
    by_user = report_view(users, "user", SPAN, prices, {}, None, of)
    assert {item.of: item.cost for item in by_user.items} == {"ann": 5.0, "bob": 1.0, "cy": 1.0}
    assert by_team.total.cost == by_user.total.cost == 7.0


def test_every_by_has_a_source() -> None:
    assert {source_of(by) for by in REPORT_BYS} == {*BYS}
    assert set(PARTS) < set(BYS)


def coverage(*rows: tuple[str, int, int, float, float, float]) -> pd.DataFrame:
    """Hours from START on."""
    return pd.DataFrame([(gpu, START + first * HOUR_S, START + last * HOUR_S, *seconds)
                         for gpu, first, last, *seconds in rows],
                        columns=["gpu", "first", "last", "seconds", "first_s", "last_s"])


def test_how_much_of_a_span_is_known() -> None:
    span = (START, START + 4 * HOUR_S)
    share = random.uniform(0.1, 0.9)
    assert covered_share(coverage(("a", 0, 3, 14_400, 3_600, 3_600)), *span, {"a"}) == 1.0
    half = coverage(("a", 0, 3, 14_400 * share, 3_600 * share, 3_600 * share))
    assert covered_share(half, *span, {"a"}) == pytest.approx(share)
    # history begins after half of it
    assert covered_share(coverage(("a", 2, 3, 7_200, 3_600, 3_600)), *span, {"a"}) == 0.5
    # one GPU came later and one has left: neither is a hole
    came = coverage(("a", 0, 3, 14_400, 3_600, 3_600), ("b", 2, 3, 5_000, 1_400, 3_600),
                    ("c", 0, 1, 5_000, 3_600, 1_400))
    assert covered_share(came, *span, {"a", "b"}) == 1.0
    # but who is still there and says nothing is one
    assert covered_share(came, *span, {"a", "b", "c"}) == pytest.approx(24_400 / (24_400 + 9_400))
    assert covered_share(coverage(), *span, set()) is None
    assert covered_share(coverage(), *span, {"a"}) == 0.0


def test_coverage_is_of_what_the_files_have(tmp_path: Path) -> None:
    source, history = Source(3), opened(tmp_path)
    history.append(source.greetings(), 1)
    seconds: dict[str, int] = defaultdict(int)
    for one in source.span(START, START + 600):
        history.append([one], 1)
    history.store.maintain(START + HOUR_S)
    frame_, until = history.hours_seen(START, START + HOUR_S)
    for gpu, t in source.truth:
        seconds[gpu] += START <= t < START + 600
    assert dict(zip(frame_["gpu"], frame_["seconds"], strict=True)) == seconds
    assert until == START + 600
    share = covered_share(frame_, START, until, {*seconds})
    assert share == pytest.approx(np.mean([*seconds.values()]) / 600)
    history.close()
