"""The driver's own events, through unmodified pynvml on the C fake (pitfalls.md A.2 Events)."""

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pynvml
import pytest

from agent.backends.nvml.events import NvmlEventWatcher
from agent.backends.nvml.reader import NvmlReader
from agent.readings import BackendEvent
from tests.fakes.nvml import FakeNvml
from tests.patience import GIVE_UP_S

WAIT = "nvmlEventSetWait_v2"
REGISTER = "nvmlDeviceRegisterEvents"


@pytest.fixture
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml(tmp_path, gpus=3)
    fake.use(monkeypatch)
    return fake


class EventLog:
    def __init__(self) -> None:
        self.all: list[BackendEvent] = []

    def __call__(self, event: BackendEvent) -> None:
        self.all.append(event)

    @property
    def xids(self) -> list[tuple[str | None, float]]:
        return [(event.gpu_uuid, event.numbers["xid"]) for event in self.all if event.kind == "xid"]


@contextmanager
def watching(nvml: FakeNvml) -> Iterator[EventLog]:
    log = EventLog()
    reader = NvmlReader()
    reader.watch(log)
    await_registration(nvml, log)
    try:
        yield log
    finally:
        reader.close()


def await_registration(nvml: FakeNvml, log: EventLog) -> None:
    """Raise Xids until one is reported, as none is before the registration (nvml.h). Any
    GPU that can be registered will do."""
    deadline = time.monotonic() + 10
    while not log.all and time.monotonic() < deadline:
        for gpu in nvml.gpus:
            nvml.xid(gpu, 1)
        time.sleep(0.05)
    soon(lambda: len(log.all) > 0)
    settle(log)


def settle(log: EventLog) -> None:
    while True:
        count = len(log.all)
        time.sleep(0.15)
        if len(log.all) == count:
            log.all.clear()
            return


def soon(condition: Callable[[], bool], within_s: float = GIVE_UP_S) -> None:
    deadline = time.monotonic() + within_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert condition()


def test_an_xid_is_told_with_its_gpu_and_its_time(nvml: FakeNvml) -> None:
    with watching(nvml) as log:
        xids = [(random.choice(nvml.gpus), random.randrange(1, 200)) for _ in range(5)]
        before = time.time()
        for gpu, code in xids:
            nvml.xid(gpu, code)
        soon(lambda: len(log.xids) == 5)
        assert log.xids == [(gpu.uuid, code) for gpu, code in xids]
        assert all(before <= event.at <= time.time() for event in log.all)
        assert all(set(event.numbers) == {"xid"} for event in log.all)  # off MIG: no instance


def test_the_xid_of_a_gpu_that_fell_off_the_bus_has_its_name(nvml: FakeNvml) -> None:
    """trap A.1: a lost GPU does not say who it is any more"""
    with watching(nvml) as log:
        nvml.gpus[1].lose()
        nvml.xid(nvml.gpus[1], 79)
        soon(lambda: len(log.xids) == 1)
        assert log.xids == [(nvml.gpus[1].uuid, 79)]


def test_memory_errors_are_told_as_such(nvml: FakeNvml) -> None:
    with watching(nvml) as log:
        nvml.lines += ["event 900001 0 1 0", "event 900002 2 2 0"]
        nvml.save()
        soon(lambda: len(log.all) == 2)
        assert [(event.kind, event.gpu_uuid) for event in log.all] == [
            ("ecc_corrected", nvml.gpus[0].uuid), ("ecc_uncorrected", nvml.gpus[2].uuid)]


@pytest.mark.parametrize("code", [3, 15, 999])
def test_a_gpu_that_cannot_be_registered_does_not_take_the_others(
    nvml: FakeNvml, code: int
) -> None:
    """trap A.2: UNKNOWN at registration spoils the set: it is freed, and the others get another"""
    nvml.gpus[1].error(REGISTER, code)
    nvml.save()
    with watching(nvml) as log:
        for gpu in nvml.gpus:
            nvml.xid(gpu, 48)
        soon(lambda: len(log.xids) == 2)
        assert {uuid for uuid, _ in log.xids} == {nvml.gpus[0].uuid, nvml.gpus[2].uuid}


def test_a_gpu_without_events_does_not_take_the_others(nvml: FakeNvml) -> None:
    nvml.gpus[0]["no_events"] = 1
    nvml.save()
    with watching(nvml) as log:
        nvml.xid(nvml.gpus[2], 31)
        soon(lambda: log.xids == [(nvml.gpus[2].uuid, 31)])


@pytest.mark.parametrize("code", [15, 999])
def test_an_error_of_the_wait_is_no_error_of_the_gpus(
    nvml: FakeNvml, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """trap A.2: NVIDIA's own loop marks all devices unhealthy and spins"""
    with watching(nvml) as log:
        nvml.lines = [f"error * {WAIT} {code}"]
        nvml.save()
        time.sleep(0.5)
        before = nvml.call_count(WAIT)
        time.sleep(1.5)
        assert nvml.call_count(WAIT) - before <= 3  # it does not spin
        assert log.all == []
        nvml.lines = []
        nvml.save()
        reader = NvmlReader()
        assert [gpu.state for gpu in reader.read().gpus] == ["ok"] * 3
        reader.close()
        nvml._events = iter(range(10**6, 10**7))  # type: ignore[assignment]
        await_registration(nvml, log)
        nvml.xid(nvml.gpus[0], 62)
        soon(lambda: (nvml.gpus[0].uuid, 62.0) in log.xids)
    assert capsys.readouterr().err.count("cannot wait for events") == 1


def test_a_driver_without_events_ends_the_thread_and_nothing_else(nvml: FakeNvml) -> None:
    nvml.lines = ["error * nvmlEventSetCreate 13"]
    nvml.save()
    reader = NvmlReader()
    reader.watch(EventLog())
    soon(lambda: not any(thread.name == "nvml-events" for thread in threading.enumerate()))
    assert len(reader.read().gpus) == 3
    reader.close()


def test_the_readings_go_on_while_the_thread_waits(nvml: FakeNvml) -> None:
    with watching(nvml):
        reader = NvmlReader()
        began = time.monotonic()
        for _ in range(20):
            reader.read()
        assert time.monotonic() - began < 2.0
        reader.close()


def test_the_driver_is_not_shut_down_under_a_thread_that_hangs(nvml: FakeNvml) -> None:
    """Use a child process, as the fake's hang outlives its thread."""
    script = (
        "import time\nfrom agent.backends.nvml.reader import NvmlReader\n"
        "from pynvml import nvmlDeviceGetHandleByIndex, nvmlDeviceGetUUID\n"
        "reader = NvmlReader()\nreader.watch(print)\ntime.sleep(0.5)\n"
        "open('hang', 'w').close()\ntime.sleep(1)\nreader.close()\n"
        "print(nvmlDeviceGetUUID(nvmlDeviceGetHandleByIndex(0)), flush=True)\n"
        "import os; os._exit(0)\n"
    )
    folder = nvml.path.parent
    child = subprocess.Popen(
        [sys.executable, "-c", script], cwd=folder, stdout=subprocess.PIPE, text=True,
        env={**nvml.env(), "PYTHONPATH": os.getcwd()})
    soon(lambda: (folder / "hang").exists())
    nvml.lines = [f"hang {WAIT}"]
    nvml.save()
    out, _ = child.communicate(timeout=20)
    assert out.strip() == nvml.gpus[0].uuid


def test_events_may_be_closed_at_any_time(nvml: FakeNvml) -> None:
    pynvml.nvmlInit()
    handles = {"A": pynvml.nvmlDeviceGetHandleByIndex(0)}
    for _ in range(5):
        assert NvmlEventWatcher(handles, EventLog()).close()
    pynvml.nvmlShutdown()
