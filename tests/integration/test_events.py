"""Events of the real agent: each once, over its end and a hanging driver too; and a recording of
them played by another agent."""

import json
import os
import random
import signal
import time
from pathlib import Path

import pytest

from gpudeck.contract.wire import Event, Frame, unpack
from gpudeck.measures.metrics import COLUMN, WIDTH
from tests.fakes.hub import FakeHub, wait_for
from tests.fakes.nvml import FakeGpu, FakeNvml
from tests.integration.test_agent_process import an_agent, flags, frames

CODES = (31, 48, 79, 119)


@pytest.fixture
def nvml(tmp_path: Path) -> FakeNvml:
    return FakeNvml(tmp_path / "nvml.txt", gpus=2)


def events(hub: FakeHub, kind: str) -> list[Event]:
    messages = hub.messages[hub.stream] if hub.hellos else {}
    return [event for _, event in sorted(messages.items())
            if isinstance(event, Event) and event.kind == kind]


def xids(hub: FakeHub) -> list[int]:
    return [int(event.numbers["xid"]) for event in events(hub, "xid")]


def test_an_xid_is_told_once_whatever_ends_the_agent(
    hub: FakeHub, nvml: FakeNvml, tmp_path: Path
) -> None:
    codes = random.sample(CODES, 2)
    gpu = random.choice(nvml.gpus)
    with an_agent(*flags(hub, tmp_path), "--backend", "nvml", env=nvml.env()) as agent:
        wait_for(lambda: frames(hub))
        wait_for(lambda: _write_xid(nvml, gpu, codes[0]) or xids(hub))
        [event] = events(hub, "xid")
        assert event.gpu_uuid == gpu.uuid
        assert abs(event.taken_at - time.time()) < 10
        agent.send_signal(signal.SIGKILL)
        agent.wait()
    nvml.xid(gpu, 92)  # nobody listens: what is before the registration is not told (nvml.h)
    with an_agent(*flags(hub, tmp_path), "--backend", "nvml", env=nvml.env()):
        wait_for(lambda: len(events(hub, "agent_began")) == 2)
        wait_for(lambda: _write_xid(nvml, gpu, codes[1]) or codes[1] in xids(hub))
        for code in {*xids(hub), *codes}:
            counts = [event.numbers["count"] for event in events(hub, "xid")
                      if event.numbers["xid"] == code]
            assert 0 < sum(counts) <= _count_sent(nvml, code), code
        assert set(xids(hub)) == set(codes)
        assert events(hub, "agent_began")[1].numbers["away_s"] < 60
        assert events(hub, "node_began") == []


def _write_xid(nvml: FakeNvml, gpu: FakeGpu, code: int) -> bool:
    """Write the Xid; called again until the agent has registered. Its storm is one Event."""
    nvml.xid(gpu, code)
    time.sleep(0.2)
    return False


def _count_sent(nvml: FakeNvml, code: int) -> int:
    return sum(line.startswith("event") and line.endswith(f" {code}") for line in nvml.lines)


def test_an_xid_just_before_the_driver_hangs_is_told(
    hub: FakeHub, nvml: FakeNvml, tmp_path: Path
) -> None:
    """The reader hangs in the driver, and the Xid that says why arrives all the same."""
    with an_agent(*flags(hub, tmp_path), "--backend", "nvml", env=nvml.env()):
        wait_for(lambda: len(frames(hub)) > 2)
        nvml.gpus[0].hang("nvmlDeviceGetUtilizationRates")
        nvml.save()
        wait_for(lambda: _write_xid(nvml, nvml.gpus[1], 119) or xids(hub) == [119], 5)
        assert events(hub, "reader_hung") == []
        wait_for(lambda: events(hub, "reader_hung"))
        nvml.gpus[0].heal()
        nvml.save()
        wait_for(lambda: events(hub, "reader_back"))


def test_a_recording_of_an_agent_is_played_by_another(tmp_path: Path) -> None:
    """Values, tasks and Events are those of the recording; nothing can be done to its tasks."""
    recorded, played = FakeHub(), FakeHub()
    world, file = tmp_path / "world", tmp_path / "night.jsonl.gz"
    for folder in (world, tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
    try:
        with an_agent(*flags(recorded, tmp_path / "a"), "--backend", "simulated", "--simulate",
                      f"node=n001,gpus=2,seed={random.randrange(999)},world={world}",
                      "--record", str(file)) as agent:
            wait_for(lambda: len(frames(recorded)) > 3)
            (world / "new").write_text(json.dumps(
                {"gpus": {uuid: {"xid": 48} for uuid in _uuids(recorded)[:1]}}))
            os.replace(world / "new", world / "control.json")
            wait_for(lambda: xids(recorded) == [48])
            at = len(frames(recorded))
            wait_for(lambda: len(frames(recorded)) > at + 1)
            agent.send_signal(signal.SIGKILL)
            agent.wait()
        with an_agent(*flags(played, tmp_path / "b"), "--backend", "recorded", "--replay",
                      str(file), "--replay-speed", "4", "--replay-loop"):
            wait_for(lambda: xids(played) == [48])
            assert events(played, "xid")[0].gpu_uuid == events(recorded, "xid")[0].gpu_uuid
            # At this speed several readings may fall into one: then it is their mean.
            of_gpus = list(zip(*map(_power, frames(recorded)), strict=True))
            for power, of_gpu in zip(zip(*map(_power, frames(played)), strict=True), of_gpus,
                                     strict=True):
                assert min(of_gpu) <= min(power) <= max(power) <= max(of_gpu)
            tasks = {task.id for frame in frames(recorded) if frame.tasks
                     for task in frame.tasks.began}
            replayed = {task.id for frame in frames(played) if frame.tasks
                        for task in frame.tasks.began}
            assert replayed
            assert replayed <= tasks
            preview = played.look(random.choice(sorted(replayed)))
            assert ["recording" in refusal.sentence for refusal in preview.refusals] == [True]
            assert preview.victims == ()
    finally:
        recorded.close()
        played.close()


def _uuids(hub: FakeHub) -> list[str]:
    return [gpu.uuid for gpu in hub.inventories[max(hub.inventories)].gpus]


def _power(frame: Frame) -> tuple[float, ...]:
    return tuple(unpack(frame.values)[COLUMN["power_w"]::WIDTH])
