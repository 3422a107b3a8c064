"""Wait of the head of the queue: from earlier runs of those it waits for, or unknown."""

from dataclasses import replace

from gpudeck.pool.core.claims import Grant, Lease
from gpudeck.pool.core.estimates import estimate
from gpudeck.pool.core.prediction import RunTime
from tests.unit.gpudeck.pool.inventories import claim, node

TERM_S = 36_000.0


def lease(name: str, place: int, since: float = 0.0) -> Lease:
    return Lease(id=name, claim=claim(0), grants=(Grant("id0", (f"GPU-0-{place}",)),),
                 since=since, until=since + TERM_S)


def run_time(minutes: float, runs: int = 6) -> RunTime:
    return RunTime(30 * minutes, 60 * minutes, 120 * minutes, 240 * minutes, runs, "this command")


def waits(gpus: int, leases: list[Lease], predicted: dict[str, RunTime], now: float = 0.0
          ) -> tuple[float, float, float, int] | None:
    free = node(0, gpus=2)
    for running in leases:
        free = free.after_grant(running.grants[0].uuids, running.claim)
    wait = estimate(claim(9, gpus=gpus), {"id0": free}, leases, (), predicted, now)
    return None if wait is None else (wait.low_s, wait.likely_s, wait.high_s, wait.runs)


def test_it_waits_for_the_first_that_is_likely_to_end() -> None:
    leases = [lease("a", 0), lease("b", 1)]
    assert waits(1, leases, {"a": run_time(20), "b": run_time(10)}) == (300, 600, 1_200, 6)
    assert waits(1, leases, {"a": run_time(20)}) == (600, 1_200, 2_400, 6)
    assert waits(1, leases, {"a": run_time(20)}, now=300.0) == (300, 900, 2_100, 6)


def test_for_several_it_waits_for_the_last_of_them() -> None:
    leases = [lease("a", 0), lease("b", 1)]
    assert waits(2, leases, {"a": run_time(20), "b": run_time(10)}) == (600, 1_200, 2_400, 12)


def test_it_does_not_wait_for_what_another_node_calls_by_the_same_name() -> None:
    leases = [lease("a", 0), lease("b", 1)]
    elsewhere = replace(lease("c", 1), grants=(Grant("id1", ("GPU-0-1",)),))
    free = node(0, gpus=2)
    for running in leases:
        free = free.after_grant(running.grants[0].uuids, running.claim)
    predicted = {"a": run_time(20), "b": run_time(10), "c": run_time(5, runs=1_000)}
    wait = estimate(claim(9), {"id0": free}, [*leases, elsewhere], (), predicted, 0.0)
    assert wait is not None
    assert wait.runs == 6


def test_of_what_nothing_is_known_nothing_is_said() -> None:
    assert waits(1, [lease("a", 0), lease("b", 1)], {}) is None
    assert waits(3, [lease("a", 0)], {"a": run_time(20)}) is None
