"""Bounds of what a node may cause hold over restarts of the hub: by its log, by a checkpoint, and
by both, which say the same twice."""

import random
from collections.abc import Callable

import pytest

from dashboard.fleet.effects import Effect, MessageReceived, SendMessage, StreamRecord
from dashboard.fleet.node_budget import HOUR_S
from dashboard.fleet.state_machine import OWN_STREAM, FleetStateMachine
from dashboard.nodes.checkpoint import encode_nodes, restore
from gpudeck.contract.wire import (
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


class FakeHub:
    """A hub that restarts: its disk outlives it, its monotonic clock does not."""

    def __init__(self, has_log: bool, has_checkpoint: bool) -> None:
        self.has_log, self.has_checkpoint = has_log, has_checkpoint
        self.log: list[StreamRecord] = []
        self.answers: list[object] = []
        self.now, self.mono, self.links = NOW, MONO, 0
        self.machine = FleetStateMachine("hub", 1)

    def send(self, message: FromAgent) -> object:
        """Send a message; return its answer if that is Welcome or Refused."""
        self.now, self.mono = self.now + 0.05, self.mono + 0.05
        self.links += isinstance(message, Hello)
        effects = self.machine.handle(
            MessageReceived(f"link {self.links}", message, encode(message)), self.now, self.mono)
        return self._answer(effects)

    def _answer(self, effects: list[Effect]) -> object:
        self.log += [effect for effect in effects if isinstance(effect, StreamRecord)]
        messages = [effect.message for effect in effects if isinstance(effect, SendMessage)]
        self.answers += messages
        return next((answer for answer in messages if isinstance(answer, Welcome | Refused)), None)

    def answers_to(self, messages: list[FromAgent]) -> str:
        """Return all answers to these messages as text."""
        self.answers.clear()
        for message in messages:
            self.send(message)
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
        return self.send(hello())


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set low bounds by the hour, so that few messages reach them."""
    for bound, most in (("HELLOS", CONNECTIONS), ("NEW_NAMES", 20), ("NEW_USES", 20)):
        monkeypatch.setattr(f"dashboard.fleet.node_budget.{bound}", ((HOUR_S, most),))


@pytest.fixture(params=[(True, False), (False, True), (True, True)],
                ids=["log", "checkpoint", "both"])
def hub(request: pytest.FixtureRequest) -> FakeHub:
    hub = FakeHub(*request.param)
    assert isinstance(hub.send(hello()), Welcome)
    return hub


def _gpus(turn: int) -> Inventory:
    return Inventory(turn, tuple(GpuFacts(f"U{turn}-{at}", at, "H100") for at in range(AT_ONCE)))


def _tasks(turn: int) -> FromAgent:
    task_list = tasks(*((f"{turn}-{at}", 0, "alice") for at in range(AT_ONCE)))
    return frame([{}] * AT_ONCE, turn, tasks=task_list)


@pytest.mark.parametrize("invent", [_gpus, _tasks], ids=["GPUs", "tasks"])
def test_a_restart_gives_no_node_more(hub: FakeHub, invent: Callable[[int], FromAgent]) -> None:
    hub.send(_gpus(1))
    invented = int(invent is _gpus)
    for turn in range(2, 50):
        if isinstance(hub.send(invent(turn)), Refused):
            break
        invented += 1
        assert isinstance(hub.restart(), Welcome)
    assert invented == FITS + int(invent is _tasks)


def test_connections_are_counted_on(hub: FakeHub) -> None:
    for _ in range(CONNECTIONS - 3):
        hub.send(hello())
    assert isinstance(hub.restart(), Welcome)
    assert "more connections" in hub.answers_to([hello(), hello()])


def test_who_was_refused_stays_so_and_then_may_come(hub: FakeHub) -> None:
    hub.restart()
    for turn in range(1, 50):
        if isinstance(answer := hub.send(_gpus(turn)), Refused):
            break
    assert isinstance(answer, Refused)
    hub.now += answer.retry_after_s - RESTARTED_EVERY_S - 1.0
    repeated = hub.restart()
    assert isinstance(repeated, Refused)
    assert 0.0 < repeated.retry_after_s <= 1.0
    refusal = hub.machine.fleet.nodes["n1"].refusal
    assert refusal is not None
    assert "new GPUs" in refusal.why
    hub.now += 1.0
    assert isinstance(hub.restart(), Welcome)


@pytest.mark.parametrize("numbers", [{}, {"seconds": 1e12}, {"seconds": -1.0}])
def test_a_node_cannot_say_that_it_is_refused(hub: FakeHub, numbers: dict[str, float]) -> None:
    """The node chooses the name of its stream; this one is the hub's."""
    hub.send(hello(stream=OWN_STREAM))
    hub.send(Event(1, hub.now, "node_refused", numbers=numbers, text="refused: why"))
    assert isinstance(hub.restart(), Welcome)


def test_a_hub_whose_clock_was_set_back_forgives_nothing(hub: FakeHub) -> None:
    for turn in range(1, 4):
        assert hub.send(_gpus(turn)) is None
    hub.now -= 86_400.0
    hub.restart()
    assert isinstance(hub.send(_gpus(6)), Refused)
