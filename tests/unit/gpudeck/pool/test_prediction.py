"""Run times from earlier runs: from the narrowest group with enough runs, or none."""

import math
import random

import pytest

from gpudeck.pool.core.prediction import FinishedRun, RunTime, predict, proof


def runs(*took: float, owner: str = "ann", shape: str = "train.py", gpus: int = 1,
         team: str = "") -> list[FinishedRun]:
    return [FinishedRun(owner, team, shape, gpus, float(number), seconds)
            for number, seconds in enumerate(took)]


def test_four_runs_say_nothing() -> None:
    assert predict(runs(60, 60, 60, 60), "ann", "", "train.py", 1) is None


def test_the_narrowest_group_with_enough_runs() -> None:
    history = runs(*[100] * 5) + runs(*[200] * 9, gpus=4) + runs(*[900] * 9, owner="bob",
                                                             team="vision")
    for query, of in ((("ann", "", "train.py", 1), "this command on as many GPUs"),
                      (("ann", "", "train.py", 2), "this command"),
                      (("ann", "", "new.py", 1), "runs of ann"),
                      (("eve", "vision", "new.py", 1), "runs of team vision")):
        prediction = predict(history, *query)
        assert _of(prediction).of == of
    assert predict(history, "eve", "", "train.py", 1) is None


def test_a_wide_spread_is_not_known() -> None:
    assert predict(runs(1, 10, 100, 1_000, 10_000, 100_000), "ann", "", "train.py", 1) is None


def test_recent_runs_count_more() -> None:
    longer = predict(runs(*[100] * 10, *[300] * 10), "ann", "", "train.py", 1)
    assert _of(longer).p50_s == pytest.approx(300)


def test_a_run_that_lasts_already_is_compared_with_longer_ones() -> None:
    history = runs(*[100] * 8, *[300] * 6)
    assert _of(predict(history, "ann", "", "train.py", 1, ran_s=150)).p25_s == pytest.approx(300)
    assert predict(history, "ann", "", "train.py", 1, ran_s=400) is None


def _of(prediction: RunTime | None) -> RunTime:
    assert prediction is not None
    return prediction


def test_quantiles_rise_and_lie_within_what_was_seen() -> None:
    draw = random.Random()
    took = [math.exp(draw.gauss(7, 0.5)) for _ in range(40)]
    times = _of(predict(runs(*took), "ann", "", "train.py", 1))
    assert min(took) <= times.p25_s <= times.p50_s <= times.p75_s <= times.p90_s <= max(took)
    assert times.runs == 40


def test_it_is_proven_where_it_is_better_than_the_last_run_and_a_line() -> None:
    """Two commands in turn: the last run is of the other one, and both use one GPU."""
    draw = random.Random()
    history = [FinishedRun("ann", "", shape, 1, 2.0 * number + turn, mean * draw.uniform(0.9, 1.1))
               for number in range(30) for turn, (shape, mean) in enumerate((("a", 60.0),
                                                                            ("b", 6_000.0)))]
    evidence = proof(history)
    assert evidence.is_proven
    assert evidence.why_not() == ""
    assert 1 < evidence.off_by(evidence.error) < 1.2
    assert 0 < evidence.inside < evidence.runs
    assert not proof(history[:20]).is_proven
    assert "of the 20 predictions" in proof(history[:20]).why_not()


def test_where_the_last_run_tells_more_it_says_nothing() -> None:
    """A run takes a tenth longer than the one before."""
    evidence = proof(runs(*[100 * 1.1 ** number for number in range(60)]))
    assert not evidence.is_proven
    assert "(the last one) by 1.10" in evidence.why_not()
