"""Forecasts out of a history that the engine itself wrote."""

import random
from collections.abc import Iterator

import numpy as np
import pytest

from dashboard.history.reads.embedded import EmbeddedHistory
from dashboard.insight.demand_history import HeldGpuHours, PowerHours
from dashboard.insight.queue_history import QueueHours
from dashboard.insight.service import InsightService
from dashboard.insight.views import demand_view
from gpudeck.pool.core.claims import Claim
from gpudeck.pool.core.inventory import Node
from tests.pasts import HOUR_S, Past
from tests.unit.dashboard.insight.test_pool_outlook import DictStore, lease
from tests.unit.dashboard.pool.large_pool import LargePool

BEGIN = 1_700_000_000 // HOUR_S * HOUR_S
END = BEGIN + 3 * HOUR_S


@pytest.fixture(name="history", scope="module")
def _history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedHistory]:
    folder = tmp_path_factory.mktemp("insight")
    Past(BEGIN, END).write(folder)
    history = EmbeddedHistory(folder / "history")
    history.open()
    yield history
    history.close()


def test_held_gpus_of_each_hour_and_no_others(history: EmbeddedHistory) -> None:
    """Past that is known for every tenth second. On two nodes one owner holds a GPU, and two share
    another; ten minutes are a hole."""
    demand = HeldGpuHours(history)
    while demand.step(END + 5 * HOUR_S):
        pass
    hours = demand.hours(END + 5 * HOUR_S)
    assert len(hours) == 8
    assert hours[:3] == pytest.approx([0.6, 0.5, 0.6], abs=0.01)
    assert np.isnan(hours[3:]).all(), "of hours in which nobody was there nothing is known"


def test_the_power_of_an_hour_is_that_of_all_boards(history: EmbeddedHistory) -> None:
    boards = sorted(set(history.usage("gpu", HOUR_S, BEGIN, END)["gpu"]))
    of_hour = history.series(boards, ("power_w",), BEGIN, BEGIN + HOUR_S, HOUR_S, ("mean",))
    assert len(of_hour) == 4
    power = PowerHours(history, lambda: boards)
    while power.step(END + 5 * HOUR_S):
        pass
    hours = power.hours(END + 5 * HOUR_S)
    assert hours[0] == pytest.approx(of_hour["power_w_mean"].sum(), rel=1e-6)
    assert np.isnan(hours[3:]).all()
    none = PowerHours(history, lambda: boards[:0])
    while none.step(END):
        pass
    assert none.hours(END).tolist() == []


def test_an_hour_that_was_not_over_is_read_again(history: EmbeddedHistory) -> None:
    demand = HeldGpuHours(history)
    while demand.step(BEGIN + HOUR_S + 10):
        pass
    assert max(demand.by_hour) == BEGIN // HOUR_S
    assert demand.step(BEGIN + 2 * HOUR_S + 10)
    assert max(demand.by_hour) == BEGIN // HOUR_S + 1


def test_a_service_says_what_it_cannot_know_yet(history: EmbeddedHistory) -> None:
    pool = LargePool([Node("n1", "n1", (), ())], [lease("runs", since=END - 300.0)],
                     [Claim(id="c", owner="bob", gpus=3, nodes=2, submitted_at=END)], END,
                     random.Random(1))
    queue = QueueHours(DictStore())
    service = InsightService(history, list, pool.service, queue)
    now = float(END + 100)
    for turn in range(100):
        service.step(now + turn, turn)
    assert service.grown_at is not None
    assert service.growing == [], "nothing grows in this past"
    assert "of the 20 forecasts" in service.record.why_not()
    view, power, waited = demand_view(service.demand, 4, is_whole=True)
    assert (waited.name, waited.recent) == ("gpus_waited_for", [])
    queue.note(6, now + HOUR_S)
    for step in range(400):
        service.step(now + HOUR_S + step * 10, 1e4 + step * 10)
    assert list(queue.by_hour.values()) == [6.0], "three GPUs on each of two nodes"
    assert service.demand["gpus_waited_for"].recent.tolist()[:1] == [6.0]
    assert [wait.waits for wait in service.runs.waits] == [1, 0, 0, 0]
    assert service.runs.leases == [], "of a first run nothing is known"
    pool.close()
    assert (view.name, power.name, power.recent) == ("gpus_held", "power_w", [])
    assert "days" in view.why
    assert view.p50 == []
    assert view.test is None
    assert view.recent_from + HOUR_S * len(view.recent) == view.starts_at == END
    assert demand_view(service.demand, 4, is_whole=False) == []
