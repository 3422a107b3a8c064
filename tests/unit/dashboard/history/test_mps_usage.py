"""Past use of MPS by the minute: from what agents reported, and never made up."""

import random
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from agent.limits.autotune import MpsMinute, MpsTuner, TuneInput, rehearse_minutes
from dashboard.history.mps_usage import USES, MpsUsageView, mps_past
from dashboard.history.reads.embedded import EmbeddedHistory
from dashboard.history.storage.manifest import Manifest, digest
from gpudeck.contract.wire import Task, Tasks, Use
from tests.unit.histories import START, Source

MINUTES, SILENT, UNDESCRIBED = 12, 4, 7


class MpsSource(Source):
    """Node n0 with an MPS server and clients on its first GPU, something else on its second."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.clients = [self.random.randint(0, 5) for _ in range(MINUTES)]

    def _tasks(self, node: str, t: int) -> Tasks:
        minute = (t - START) // 60
        many = self.clients[minute] if node == "n0" else 9
        kinds = ["mps_server", *["mps_client"] * many, "compute"]
        tasks = tuple(Task(f"{node}:{at}:{kind}", 1 + at, 1, 1.0, "eve", "x",
                           kind)  # type: ignore[arg-type]
                      for at, kind in enumerate(kinds))
        uses = [Use(task.id, 0 if task.kind != "compute" else 1, 1e9, 5.0) for task in tasks]
        if minute == UNDESCRIBED:
            uses.append(Use("nobody knows", 1, None, None))
        return Tasks(True, tasks, tuple(uses))

    def write(self, history: EmbeddedHistory) -> None:
        history.append(self.greetings(), 1)
        for t in range(START, START + MINUTES * 60):
            if (t - START) // 60 != SILENT:
                history.append(self.second(t, whole=True), 1)


def usage_view(history: EmbeddedHistory, source: Source) -> MpsUsageView:
    gpus, span, one = source.uuids["n0"], (START, START + MINUTES * 60), frozenset(("n0",))
    return mps_past("n0", gpus, history.tasks(*span, nodes=one, limit=10**6, words=USES),
                    history.series(gpus, ["util_pct"], *span, 60, ("mean", "n"), one), span)


def mean(source: Source, gpu: str, minute: int) -> float:
    readings = [row["util_pct"] for (uuid, t), row in source.truth.items() if uuid == gpu
                and (t - START) // 60 == minute]
    values = [value for value in readings if isinstance(value, float)]
    return sum(values) / len(values)


@pytest.mark.parametrize("is_sealed", [False, True])
def test_clients_and_loads_are_those_that_were_told(tmp_path: Path, is_sealed: bool) -> None:
    source, history = MpsSource(random.randrange(10**9)), EmbeddedHistory(tmp_path / "history")
    history.open()
    source.write(history)
    if is_sealed:
        history.store.maintain(START + 7_200)
        assert history.info().kinds["tasks"]["files"] > 0
    view = usage_view(history, source)
    unknown = {SILENT, UNDESCRIBED}
    assert view.t == [START + 60 * minute for minute in range(MINUTES)]
    assert view.clients == [None if minute in unknown else source.clients[minute]
                            for minute in range(MINUTES)]
    for at, gpu in enumerate(source.uuids["n0"]):
        usage = view.gpus[at]
        assert usage.gpu == gpu
        assert usage.is_mps == [None if minute in unknown else at == 0 for minute in range(MINUTES)]
        assert usage.util_pct[SILENT] is None
        for minute in {*range(MINUTES)} - {SILENT}:
            assert usage.util_pct[minute] == pytest.approx(mean(source, gpu, minute), abs=0.5)


def test_what_older_files_do_not_say_is_not_known(tmp_path: Path) -> None:
    """Files of a version that kept no kind of tasks; what comes later is known beside it."""
    source, history = MpsSource(random.randrange(10**9)), EmbeddedHistory(tmp_path / "history")
    history.open()
    source.write(history)
    history.store.maintain(START + 7_200)
    history.close()
    without_kinds(tmp_path / "history")
    history = EmbeddedHistory(tmp_path / "history")
    history.open()
    assert set(usage_view(history, source).clients) == {None}
    assert usage_view(history, source).gpus[0].util_pct[0] is not None


def without_kinds(folder: Path) -> None:
    manifest = Manifest(folder)
    manifest.read()
    for name, one in list(manifest.segments.items()):
        if one.kind == "tasks":
            table = pq.read_table(folder / name).drop_columns(["kind"])
            pq.write_table(table, folder / name)
            facts: dict[str, Any] = {"size_bytes": (folder / name).stat().st_size,
                                     "sha256": digest(folder / name)}
            manifest.segments[name] = type(one)(**{
                **{field: getattr(one, field) for field in one.__slots__}, **facts})
    manifest.rewrite()


# -- the rehearsal over them


def minutes(*clients: int | None, load_pct: float = 50.0) -> list[MpsMinute]:
    return [MpsMinute(60.0 * (at + 1), many, {"GPU-1": load_pct, "GPU-2": 99.0},
                      frozenset(("GPU-1",)))
            for at, many in enumerate(clients)]


def test_minutes_are_rehearsed_as_life_goes() -> None:
    clients, load_pct = random.randint(1, 20), random.uniform(0, 100)
    now_pct, tuner = float(begin := random.randint(1, 100)), MpsTuner()
    looks = list(rehearse_minutes(minutes(*[clients] * 20, load_pct=load_pct), 60.0, begin))
    assert [look.at for look in looks] == [60.0 * at for at in range(1, 21)]
    for look in looks:
        assert (look.observed.clients, look.observed.now_pct) == (clients, now_pct)
        assert look.observed.load_pct == pytest.approx(load_pct), "of the board that MPS is on"
        observed = TuneInput(clients, look.observed.load_pct, now_pct)
        assert look.tune == tuner.decide(look.at, observed)
        now_pct = now_pct if look.tune.pct is None else float(look.tune.pct)


def test_a_look_takes_its_whole_time_and_nothing_is_said_of_what_is_not_known() -> None:
    looks = list(rehearse_minutes(minutes(4, 4, 4, None, 4, 4, None, 4, 4, 4, 4), 180.0, 50))
    assert [look.at for look in looks] == [180.0, 600.0]
    assert list(rehearse_minutes(minutes(None, None), 60.0, 50)) == []
    [look] = rehearse_minutes([MpsMinute(60.0, 3)], 60.0, 50)
    assert (look.observed.load_pct, look.tune.pct) == (None, None), "not known is not idle"


def test_the_load_is_the_mean_of_the_minutes_since_the_last_look() -> None:
    history = [MpsMinute(60.0 * at, 2, {"GPU-1": load_pct}, frozenset(("GPU-1",)))
               for at, load_pct in enumerate((10.0, 30.0, 80.0, 100.0), 1)]
    assert [look.observed.load_pct for look in rehearse_minutes(history, 120.0, 50)] == [20.0, 90.0]
