"""Run times that are learnt from leases that ended, and when nothing is said of them."""

import random
from collections.abc import Sequence
from dataclasses import replace

from dashboard.pool import run_times
from dashboard.pool.run_times import RunTimes
from gpudeck.pool.core.claims import Claim, Grant, Lease
from tests.unit.gpudeck.pool.inventories import claim

NOW = 1e7
SHAPES = {"short.py": 600.0, "long.py": 20_000.0}


def ended_leases(owners: Sequence[str], spread: float) -> list[Lease]:
    draw = random.Random(1)
    leases = []
    for at in range(200):
        shape = draw.choice([*SHAPES])
        took_s = SHAPES[shape] * draw.uniform(1, spread)
        job = claim(at, owner=owners[at % len(owners)], shape=shape)
        since = NOW - 9e6 + 30_000 * at  # one after the other
        leases.append(Lease(id=job.id, claim=job, grants=(Grant("n", ("G",)),), since=since,
                            until=since + took_s, ended_at=since + took_s))
    return sorted(leases, key=lambda lease: lease.ended_at or 0.0)


def learnt(team_of: dict[str, str], spread: float = 1.2, owners: Sequence[str] = ("ann",)
           ) -> RunTimes:
    times = RunTimes()
    times.learn(ended_leases(owners, spread), team_of, 0.0)
    return times


def of(times: RunTimes, waiting: Claim, mono: float = 0.0) -> float | None:
    return times.whole_s((), [waiting], NOW, mono).get(waiting.id)


def test_it_goes_by_the_command_and_says_nothing_of_strangers() -> None:
    times = learnt({})
    short = of(times, claim(900, shape="short.py"))
    assert short is not None
    assert 600 <= short <= 720
    assert of(times, claim(901, owner="eve", shape="short.py")) is None


def test_what_simpler_guesses_would_have_come_as_near_to_is_not_known() -> None:
    times = RunTimes()
    times.learn([replace(lease, claim=replace(lease.claim, shape=""))
                 for lease in ended_leases(("ann",), 1.2)], {}, 0.0)
    assert of(times, claim(900, shape="short.py")) is None


def test_a_newcomer_is_known_by_their_team() -> None:
    team_of = {"ann": "vision", "bob": "vision", "eve": "vision"}
    for teams, is_known in ((team_of, True), ({}, False)):
        times = RunTimes()
        times.learn([replace(lease, claim=replace(lease.claim, shape="short.py"))
                     for lease in ended_leases(("ann", "bob"), 1.2)
                     if lease.claim.shape == "short.py"], teams, 0.0)
        times.is_proven = True
        assert (of(times, claim(900, owner="eve", shape="short.py")) is not None) == is_known


def test_who_outlived_the_prediction_goes_by_longer_runs_or_by_the_term() -> None:
    times = learnt({})
    lease = replace(ended_leases(("ann",), 1.2)[0], id="c999", claim=claim(999, shape="short.py"),
                    since=NOW - 100.0)
    assert times.whole_s([lease], (), NOW, 0.0)["c999"] <= 720
    later = times.whole_s([replace(lease, since=NOW - 5_000.0)], (), NOW, 1.0).get("c999")
    assert later is None or later > 5_000


def test_of_thousands_some_are_looked_at_in_each_pass_and_all_in_the_end() -> None:
    times = learnt({})
    claims = [claim(1_000 + at, shape="short.py") for at in range(2 * run_times.PREDICTED_AT_ONCE)]
    counts = [len(times.whole_s((), claims, NOW, float(at))) for at in range(3)]
    assert counts == [run_times.PREDICTED_AT_ONCE, len(claims), len(claims)]
