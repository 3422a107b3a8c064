"""Run times of leases and waits of claims, from earlier ones: as the pool predicts them, and only
where that was better than the best naive guess."""

import math
import random
from collections.abc import Callable

from dashboard.insight.core.demand import DAY, LEARNS_FROM, LEAST_FOLDS
from dashboard.insight.core.pool_outlook import PoolOutlook, outlook, waited
from dashboard.insight.demand_history import HOUR_S
from dashboard.insight.pool_outlook_views import run_time_view, wait_view
from dashboard.insight.queue_history import LEAST_NOTES, QueueHours
from dashboard.insight.service import EVERY_S
from gpudeck.pool.core.claims import Claim, Grant, Lease
from gpudeck.pool.core.prediction import FinishedRun, RunTimeProof, predict, proof

NOW = 1_700_000_000 // HOUR_S * HOUR_S + 100.0


def lease(name: str, *, owner: str = "ann", gpus: int = 1, nodes: int = 1, asked_at: float = NOW,
          since: float = NOW, node: str = "n1", starts_at: float | None = None,
          ended_at: float | None = None) -> Lease:
    claim = Claim(id=name, owner=owner, gpus=gpus, nodes=nodes, submitted_at=asked_at,
                  starts_at=starts_at, shape="train.py")
    return Lease(id=name, claim=claim, grants=(Grant(node, ("GPU-1",) * gpus),), since=since,
                 until=since + 9e4, ended_at=ended_at)


def runs(draw: random.Random, mean_s: float = 3_600.0) -> list[FinishedRun]:
    """Two commands in turn, so that the last run says nothing of the next."""
    return [FinishedRun("ann", "", shape, 1, 2.0 * number + turn, mean * draw.uniform(0.9, 1.1))
            for number in range(40)
            for turn, (shape, mean) in enumerate((("train.py", mean_s), ("eval.py", 60.0)))]


def host_of(node: str) -> str | None:
    return {"n1": "host1"}.get(node)


def test_what_is_left_of_a_lease_is_as_the_pool_predicts_it() -> None:
    earlier = runs(random.Random())
    leases = [lease("late", since=NOW - 600), lease("soon", since=NOW - 1_800),
              lease("hidden", since=NOW - 900, node="n2"), lease("new", owner="bob")]
    predicted = {running.id: took for running in leases if (took := predict(
        earlier, running.claim.owner, "", "train.py", 1, NOW - running.since)) is not None}
    result = outlook(leases, (), predicted)
    view = run_time_view(result.leases, proof(earlier), host_of, NOW)
    assert [item.lease for item in view.items] == ["soon", "late"], "bob's are not predicted"
    assert view.why == ""
    of = predict(earlier, "ann", "", "train.py", 1, 1_800.0)
    assert of is not None
    rest = view.items[0].left
    assert (rest.p50_s, rest.p90_s, rest.runs) == (of.p50_s - 1_800, of.p90_s - 1_800, of.runs)
    assert rest.p25_s <= rest.p50_s <= rest.p75_s <= rest.p90_s
    assert view.test is not None
    assert view.test.off_by < min(view.test.naive_off_by.values())


def test_without_a_proof_nothing_is_shown_but_why() -> None:
    took = predict(runs(random.Random()), "ann", "", "train.py", 1, 60.0)
    assert took is not None
    result = outlook([lease("a", since=NOW - 60)], (), {"a": took})
    assert len(result.leases) == 1
    worse = RunTimeProof(30, 9.0, {"the last one": 3.0, "a line": 6.0}, 5)
    view = run_time_view(result.leases, worse, host_of, NOW)
    assert view.items == []
    assert "the best naive guess (the last one)" in view.why
    assert view.test is not None
    assert view.test.off_by == math.exp(0.3)
    assert "0 of the 20" in run_time_view(result.leases, RunTimeProof(), host_of, NOW).why


def test_waits_by_size_once_for_each_claim() -> None:
    waits = waited([lease("a", asked_at=NOW - 50, gpus=2, nodes=2, since=NOW - 10),
                    lease("a", asked_at=NOW - 50, gpus=2, nodes=2, since=NOW - 20, node="n2"),
                    lease("b", asked_at=NOW - 900, starts_at=NOW - 100, since=NOW - 40),
                    lease("c", asked_at=NOW - 5, since=NOW - 5, gpus=16)])
    assert [(wait.owner, wait.took_s) for wait in waits] == [
        ("1 GPU", 60.0), ("2 to 4 GPUs", 30.0), ("9 GPUs and more", 1.0)]


def test_waits_are_shown_where_they_are_better_than_the_last_one_and_a_line() -> None:
    """Waits of a size are alike, and neither rise with the size nor resemble the one before."""
    draw = random.Random()
    mean_s = {1: 60.0, 4: 3_000.0, 8: 600.0}
    finished = [lease(f"{number}", gpus=gpus, since=NOW + 100 * number,
                      asked_at=NOW + 100 * number - mean_s[gpus] * math.exp(draw.gauss(0, 0.5)))
                for number in range(150) for gpus in [draw.choice([*mean_s])]]
    result = outlook((), finished, {})
    view = wait_view(result, is_whole=True)
    assert view.why == ""
    by_size = {item.size: item.wait for item in view.items}
    assert by_size["9 GPUs and more"] is None
    four = by_size["2 to 4 GPUs"]
    assert four is not None
    assert 1_000 < four.p50_s < 9_000
    hidden = wait_view(result, is_whole=False)
    assert (hidden.items, hidden.test) == ([], None)
    assert wait_view(PoolOutlook(), is_whole=True).items == []


class DictStore(dict[str, str]):
    def put(self, key: str, value: str) -> None:
        self[key] = value


def _hour(queue: QueueHours, hour: float, gpus: Callable[[int], int], notes: int = 360) -> None:
    for number in range(notes):
        queue.note(gpus(number), hour * HOUR_S + number * EVERY_S)


def test_the_queue_is_noted_by_the_hour_and_outlives_the_hub() -> None:
    store, first = DictStore(), NOW // HOUR_S
    queue = QueueHours(store)
    _hour(queue, first, lambda number: 8 * (number % 2))
    assert not queue.step(0.0)
    _hour(queue, first + 1, lambda _: 3, LEAST_NOTES - 1)
    assert queue.step(0.0)
    _hour(queue, first + 3, lambda _: 5, 1)
    assert queue.by_hour == {first: 4.0}, "of too few notes no hour is made"
    reopened = QueueHours(store)
    assert reopened.by_hour == queue.by_hour
    hours = reopened.hours((first + 4) * HOUR_S)
    assert hours[0] == 4.0
    assert [math.isnan(value) for value in hours] == [False, True, True, True]


def test_of_the_queue_no_more_is_kept_than_a_forecast_reads() -> None:
    queue, first = QueueHours(DictStore()), int(NOW // HOUR_S)
    queue.by_hour = {first - back: 1.0 for back in range(1, 5_000)}
    _hour(queue, first, lambda _: 2)
    _hour(queue, first + 1, lambda _: 2, 1)
    assert len(queue.by_hour) < 4_000
    assert len(queue.hours((first + 1) * HOUR_S)) >= LEARNS_FROM + LEAST_FOLDS * DAY
