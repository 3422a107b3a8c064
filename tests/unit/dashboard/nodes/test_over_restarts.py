"""What a node may cause is bounded over restarts of the hub, too: by its log, by a checkpoint, and
by both, which say the same twice."""

import random
from collections.abc import Callable

import pytest

from dashboard.fleet.effects import Effect, MessageReceived, SendMessage, StreamRecord
from dashboard.fleet.node_budget import HOUR_S
from dashboard.fleet.state_machine import OWN_STREAM, FleetStateMachine
from dashboard.nodes.checkpoint import encode_nodes, restore
from gpudeck.wire import (
    Event,
    FromAgent,
    GpuFacts,
    Hello,
    Inventory,
    Refused,
    Welcome,
    encode,
)
from tests.unit.fleets import MONO, NOW, frame, hello, tasks

RESTARTED_EVERY_S = 60.0
CONNECTIONS, AT_ONCE = 30, 5
FITS = 20 // AT_ONCE - 1  # one new name is the model's, or the owner's


class Life:
    """A hub that restarts: its disk outlives it, its monotonic clock does not."""

    def __init__(self, has_log: bool, has_checkpoint: bool) -> None:
        self.has_log, self.has_checkpoint = has_log, has_checkpoint
        self.log: list[StreamRecord] = []
        self.answers: list[object] = []
        self.now, self.mono, self.links = NOW, MONO, 0
        self.machine = FleetStateMachine("hub", 1)

    def say(self, message: FromAgent) -> object:
        """What it is answered, if that is Welcome or Refused."""
        self.now, self.mono = self.now + 0.05, self.mono + 0.05
        self.links += isinstance(message, Hello)
        effects = self.machine.handle(
            MessageReceived(f"link {self.links}", message, encode(message)), self.now, self.mono)
        return self._answer(effects)

    def _answer(self, effects: list[Effect]) -> object:
        self.log += [each for each in effects if isinstance(each, StreamRecord)]
        told = [each.message for each in effects if isinstance(each, SendMessage)]
        self.answers += told
        return next((each for each in told if isinstance(each, Welcome | Refused)), None)

    def whole(self, messages: list[FromAgent]) -> str:
        """All that is answered to these."""
        self.answers.clear()
        for each in messages:
            self.say(each)
        return str(self.answers)

    def restart(self) -> object:
        saved = encode_nodes(self.machine, self.now, self.mono)
        self.now += RESTARTED_EVERY_S
        self.mono = random.uniform(1.0, 1e6)  # of a machine that may have been, too
        self.machine = FleetStateMachine("hub", 1)
        for _, data in saved if self.has_checkpoint else ():
            restore(self.machine, data)
        for record in self.log if self.has_log else ():
            self.machine.recover(record)
        self.machine.recovered(self.now, self.mono)
        return self.say(hello())


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many would fit of what is bounded, only fewer."""
    for bound, most in (("HELLOS", CONNECTIONS), ("NEW_NAMES", 20), ("NEW_USES", 20)):
        monkeypatch.setattr(f"dashboard.fleet.node_budget.{bound}", ((HOUR_S, most),))


@pytest.fixture(params=[(True, False), (False, True), (True, True)],
                ids=["log", "checkpoint", "both"])
def life(request: pytest.FixtureRequest) -> Life:
    made = Life(*request.param)
    assert isinstance(made.say(hello()), Welcome)
    return made


def _gpus(turn: int) -> Inventory:
    return Inventory(turn, tuple(GpuFacts(f"U{turn}-{at}", at, "H100") for at in range(AT_ONCE)))


def _tasks(turn: int) -> FromAgent:
    named = tasks(*((f"{turn}-{at}", 0, "alice") for at in range(AT_ONCE)))
    return frame([{}] * AT_ONCE, turn, tasks=named)


@pytest.mark.parametrize("invent", [_gpus, _tasks], ids=["GPUs", "tasks"])
def test_a_restart_gives_no_node_more(life: Life, invent: Callable[[int], FromAgent]) -> None:
    life.say(_gpus(1))
    taken = int(invent is _gpus)
    for turn in range(2, 50):
        if isinstance(life.say(invent(turn)), Refused):
            break
        taken += 1
        assert isinstance(life.restart(), Welcome)
    assert taken == FITS + int(invent is _tasks)


def test_connections_are_counted_on(life: Life) -> None:
    for _ in range(CONNECTIONS - 3):
        life.say(hello())
    assert isinstance(life.restart(), Welcome)
    assert "more connections" in life.whole([hello(), hello()])


def test_who_was_refused_stays_so_and_then_may_come(life: Life) -> None:
    life.restart()
    for turn in range(1, 50):
        if isinstance(told := life.say(_gpus(turn)), Refused):
            break
    assert isinstance(told, Refused)
    life.now += told.retry_after_s - RESTARTED_EVERY_S - 1.0
    again = life.restart()
    assert isinstance(again, Refused)
    assert 0.0 < again.retry_after_s <= 1.0
    refusal = life.machine.fleet.nodes["n1"].refusal
    assert refusal is not None
    assert "new GPUs" in refusal.why
    life.now += 1.0
    assert isinstance(life.restart(), Welcome)


@pytest.mark.parametrize("numbers", [{}, {"seconds": 1e12}, {"seconds": -1.0}])
def test_a_node_cannot_say_that_it_is_refused(life: Life, numbers: dict[str, float]) -> None:
    """It chooses the name of its stream: this one is the hub's own."""
    life.say(hello(stream=OWN_STREAM))
    life.say(Event(1, life.now, "node_refused", numbers=numbers, text="refused: why"))
    assert isinstance(life.restart(), Welcome)


def test_a_hub_whose_clock_was_set_back_forgives_nothing(life: Life) -> None:
    for turn in range(1, 4):
        assert life.say(_gpus(turn)) is None
    life.now -= 86_400.0
    life.restart()
    assert isinstance(life.say(_gpus(6)), Refused)
