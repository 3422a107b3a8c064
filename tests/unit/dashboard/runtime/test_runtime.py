"""Dispatcher and runner: nobody's failure is another's."""

from dataclasses import dataclass

import gevent
import pytest
from gevent.event import Event

from dashboard.runtime.dispatcher import Dispatcher
from dashboard.runtime.runner import Loop, Runner


@dataclass(frozen=True)
class Happened:
    what: str


@dataclass(frozen=True)
class HappenedElsewhere(Happened):
    pass


def broken(*_: object) -> None:
    raise ValueError("a listener's own fault")


def test_each_hears_of_its_own_kind_though_one_fails() -> None:
    events, inbox = Dispatcher(), list[Happened]()
    events.listen(Happened, broken)
    events.listen(Happened, inbox.append)
    events.listen(HappenedElsewhere, broken)
    with pytest.raises(ValueError, match="own fault"):
        events.dispatch(Happened("x"))
    events.dispatch("of no interest to anybody")
    assert inbox == [Happened("x")]
    assert events.failures == 1


def test_a_loop_goes_on_after_a_failure_and_wakes_early() -> None:
    wake, steps = Event(), list[float]()

    def step(now: float, mono: float) -> None:
        steps.append(mono)
        if len(steps) == 1:
            raise ValueError
    runner = Runner([Loop("one", step, 60.0, wake)], lambda: None)
    greenlets = runner.start()
    for count in (1, 2):
        wake.set()
        with gevent.Timeout(5):
            while len(steps) < count:
                gevent.sleep(0.001)
    gevent.killall(greenlets)
    assert runner.failures == {"one": 1}


def test_a_vital_loop_ends_with_its_failure() -> None:
    with pytest.raises(ValueError, match="own fault"):
        Runner((), lambda: None).once(Loop("clock", broken, 1.0, is_vital=True))
