"""An act that waits for the next checkpoint of its task: real processes, and a node that reads what
they write."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.actions import guard
from agent.readings import GpuReading, ProcessReading, Reading
from agent.telemetry import checkpoint_watch
from gpudeck.contract.hosts import HostSample, HostTask
from gpudeck.contract.wire import Frame, GpuFacts
from gpudeck.measures.metrics import COLUMN, WIDTH, Absence
from tests.fakes.children import Child, Children, a_ceiling
from tests.fakes.hub import FakeHub, wait_for
from tests.integration.test_actions_agent import Bed, a_running_node

EVERY_S, LOOK_S = 100.0, 20.0
LOOKS = 5  # an interval
BURST = 4  # which of them writes


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bed]:
    hub, children = FakeHub(), Children(detail="")
    a_ceiling(tmp_path)
    monkeypatch.setattr(guard, "YOUNGEST_S", 0.0)
    monkeypatch.setattr(checkpoint_watch, "MOST_APART_S", 3_600.0)  # of a machine that is busy
    try:
        with a_running_node(hub, children, tmp_path):
            yield Bed(hub, children, tmp_path)
    finally:
        children.close()
        hub.close()


def add_reading(bed: Bed, child: Child, at: float, is_burst: bool) -> None:
    power = 100.0 if is_burst else 600.0
    absent = bytearray([Absence.UNSUPPORTED]) * WIDTH
    absent[COLUMN["power_w"]] = Absence.PRESENT
    values = tuple(power if key == COLUMN["power_w"] else 0.0 for key in range(WIDTH))
    bed.children.readings.append(Reading(
        at, LOOK_S, (GpuReading("GPU-1", "ok", values, bytes(absent)),),
        (GpuFacts("GPU-1", 0, "NVIDIA H100"),),
        (ProcessReading(child.pid, "GPU-1", child.mem_used_bytes, 1.0),),
        host=HostSample({}, {}, (HostTask(child.task_id, 50.0, 1e9, 0.0,
                                          2e9 if is_burst else 1e4, 0.0),))))
    bed.children.wake()


def with_rhythm(bed: Bed) -> Child:
    """A task that has written three; the last was done two looks ago."""
    child, now = bed.children.start(), time.time()
    looks = 3 * LOOKS + 2
    for look in range(looks):
        add_reading(bed, child, now - LOOK_S * (looks - look), look % LOOKS == BURST)
    wait_for(lambda: any(isinstance(message, Frame) and isinstance(message.host, HostSample)
                         and message.host.checkpoints for messages in bed.hub.messages.values()
                         for message in [*messages.values()]))
    return child


def test_it_is_offered_waited_for_and_proved(bed: Bed) -> None:
    child = with_rhythm(bed)
    assert any("checkpoint every 1 min" in words for words in bed.preview(child).warnings)
    preview = bed.preview(child, checkpoint_within_s=3_600.0)
    assert any("waited for, up to 3 min" in words for words in preview.warnings)  # two intervals
    command = bed.hub.send(bed.hub.order(preview))
    bed.hub.acting(command, "waiting for its next checkpoint")
    assert child.is_alive()
    now = time.time()
    add_reading(bed, child, now + LOOK_S, True)
    add_reading(bed, child, now + 2 * LOOK_S, False)
    reply = bed.hub.reply(command)
    assert reply.state == "done", reply
    assert reply.verified is not None
    assert reply.verified.checkpoint_at == now + LOOK_S
    assert reply.verified.exited
    assert "its checkpoint was done at" in reply.step
    bed.check()


def test_where_none_comes_nothing_is_touched(bed: Bed) -> None:
    child = with_rhythm(bed)
    reply = bed.act(child, "pause", checkpoint_within_s=0.8)
    assert (reply.state, reply.refusal and reply.refusal.code) == ("refused", "condition")
    assert "no checkpoint was written within" in reply.step
    assert child.is_alive()
    bed.check()


def test_who_stops_actions_ends_the_wait(bed: Bed) -> None:
    child = with_rhythm(bed)
    command = bed.hub.send(bed.hub.order(bed.preview(child, checkpoint_within_s=3_600.0)))
    bed.hub.acting(command, "waiting for its next checkpoint")
    (bed.data / "hold").touch()
    reply = bed.hub.reply(command)
    assert (reply.state, reply.refusal and reply.refusal.code) == ("refused", "hold")
    assert child.is_alive()
    bed.check()


def test_without_a_rhythm_there_is_nothing_to_wait_for(bed: Bed) -> None:
    preview = bed.hub.look(bed.children.start().task_id, "end", checkpoint_within_s=60.0)
    assert [refusal.code for refusal in preview.refusals] == ["condition"]
