"""Checkpoints, as they look from outside."""

import random

import pytest

from agent.telemetry.write_bursts import SPREAD, CheckpointPace, TaskWrites

LOOK_S = 5.0


def training(every_s: float, times: int, bytes_per_s: float = 2e9, rest_w: float | None = 110.0,
             jitter: float = 0.0, lasts: int = 2, logs: float = 1e4) -> tuple[TaskWrites, float]:
    """Training at 600 W that writes so often, and when it was looked at last."""
    writes, at = TaskWrites(), random.uniform(0, 1e9)
    for number in range(times):
        apart = every_s * (1 + jitter * (-1) ** number)
        for _ in range(round(apart / LOOK_S) - lasts):
            at += LOOK_S
            writes.observe(at, LOOK_S, random.uniform(0, logs), random.uniform(540, 660))
        for _ in range(lasts):
            at += LOOK_S
            writes.observe(at, LOOK_S, bytes_per_s, rest_w)
    at += LOOK_S
    writes.observe(at, LOOK_S, 0.0, 600.0)
    return writes, at


def test_three_alike_make_a_rhythm() -> None:
    every_s = LOOK_S * random.randint(8, 200)
    assert training(every_s, 2)[0].pace(0.0) is None
    for times in (3, 9):
        writes, at = training(every_s, times)
        pace = writes.pace(at)
        assert isinstance(pace, CheckpointPace)
        assert pace.every_s == pytest.approx(every_s)
        assert pace.last.ended_at == at - LOOK_S
        assert pace.last.written_bytes == pytest.approx(2e9 * 2 * LOOK_S)
        assert pace.count == min(times, 5)


def test_a_rhythm_ends_with_its_job() -> None:
    writes, at = training(300.0, 4)
    assert writes.pace(at + 599.0 - LOOK_S) is not None
    assert writes.pace(at + 601.0) is None


@pytest.mark.parametrize("how", [
    {"rest_w": 590.0},  # asynchronous: it trains on
    {"rest_w": None},  # nobody knows whether it does
    {"bytes_per_s": 5e6},  # a log
    {"bytes_per_s": 2.5e7, "lasts": 0},
    {"jitter": SPREAD},  # by twice as much
    {"logs": 1e9},  # it writes all the time
])
def test_what_is_none_is_not_called_one(how: dict[str, float]) -> None:
    writes, at = training(200.0, 8, **how)  # type: ignore[arg-type]
    assert writes.pace(at) is None


def test_sizes_that_differ_are_not_one_kind() -> None:
    writes, at = TaskWrites(), 0.0
    for size in (1e9, 4e9, 1e9, 4e9):
        for look in range(20):
            at += LOOK_S
            writes.observe(at, LOOK_S, size if look == 19 else 0.0, 100.0 if look == 19 else 600.0)
    writes.observe(at + LOOK_S, LOOK_S, 0.0, 600.0)
    assert len(writes.checkpoints) == 4
    assert writes.pace(at) is None


def test_what_was_not_seen_to_its_end_is_none() -> None:
    writes, at = training(200.0, 2)
    writes.observe(at + 5, LOOK_S, 2e9, 100.0)
    writes.observe(at + 10, LOOK_S, None, 100.0)  # its writes cannot be read any more
    assert len(writes.checkpoints) == 2
