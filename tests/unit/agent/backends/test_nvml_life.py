"""The life of a driver under a reader: what is open is no longer what is there. Each case names
its trouble, ends the process or stays, and never gives one board's numbers under another's UUID."""

import os
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from agent.backends import ReaderUnavailableError, StaleReaderError
from agent.backends.nvml.board import FAILED_READS_MAX
from agent.backends.nvml.driver import driver_version
from agent.backends.nvml.errors import LIFE
from agent.backends.nvml.reader import BLIND_READS_MAX, NvmlReader
from agent.backends.nvml.session import RENEW_ALL_LOST_S, RENEW_SOME_LOST_S, library_version
from agent.readings import Reading
from gpudeck.measures.metrics import COLUMN, Absence
from tests.fakes.nvml import FakeGpu, FakeNvml

CALLS = ("nvmlDeviceGetUtilizationRates", "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryInfo",
         "nvmlDeviceGetTemperatureV", "nvmlDeviceGetFieldValues", "nvmlDeviceGetPowerUsage",
         "nvmlDeviceGetClockInfo", "nvmlDeviceGetCurrentClocksEventReasons",
         "nvmlDeviceGetTotalEnergyConsumption", "nvmlGpmSampleGet", "nvmlGpmMetricsGet",
         "nvmlDeviceGetFanSpeed")


class Machine:
    """A fake driver, a clock, and what the kernel reports of the boards."""

    def __init__(self, tmp_path: Path, nvml: FakeNvml) -> None:
        self.nvml, self.now = nvml, 1_000.0
        self.devices, self.kernel = tmp_path / "devices", tmp_path / "gpus"
        self.devices.mkdir()
        for gpu in nvml.gpus:
            self.plug(gpu)

    def plug(self, gpu: FakeGpu, *, has_name: bool = True) -> None:
        folder = self.folder(gpu)
        (folder / "power").mkdir(parents=True)
        (folder / "vendor").write_text("0x10de\n")
        (folder / "class").write_text("0x030200\n")
        self.power(gpu, "active")
        if has_name:
            about = self.kernel / folder.name
            about.mkdir(parents=True)
            (about / "information").write_text(
                f"Model: \t {gpu['name']}\nGPU UUID: \t {gpu.uuid}\nGPU Excluded:\t No\n")

    def folder(self, gpu: FakeGpu) -> Path:
        return self.devices / str(gpu["pci"])[4:].lower()

    def power(self, gpu: FakeGpu, status: str, state: str = "D0") -> None:
        (self.folder(gpu) / "power" / "runtime_status").write_text(f"{status}\n")
        (self.folder(gpu) / "power_state").write_text(f"{state}\n")

    def reader(self) -> NvmlReader:
        return NvmlReader(lambda: self.now, self.kernel, self.devices)

    def read(self, reader: NvmlReader, after_s: float = 1.0) -> Reading:
        self.now += after_s
        return reader.read()


@pytest.fixture
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml(tmp_path, gpus=3)
    fake.use(monkeypatch)
    return fake


@pytest.fixture
def machine(tmp_path: Path, nvml: FakeNvml) -> Machine:
    return Machine(tmp_path, nvml)


def test_every_way_to_have_nothing_says_what_to_do() -> None:
    for state, detail in LIFE.values():
        assert state not in ("ok", "starting", "hung")
        assert len(detail) > 30


@pytest.mark.parametrize("call", ["read", "fresh"])
def test_renumbered_under_our_handles_tells_nothing_at_all(
    machine: Machine, nvml: FakeNvml, call: str
) -> None:
    """Pitfall 13, trap A.6: after a reload indices mean other boards. Not one number, nor one
    process list that an act is judged by, goes out under a wrong UUID; a fresh reader has all."""
    reader = machine.reader()
    machine.read(reader)
    order = [1, 2, 0]
    nvml.renumber(order)
    with pytest.raises(ReaderUnavailableError, match="renumbered") as error:
        machine.read(reader) if call == "read" else reader.fresh()
    assert error.value.state == "no_driver"
    reading = machine.read(machine.reader())
    temperatures = {gpu.uuid: float(gpu["temp"]) for gpu in nvml.gpus}



    assert {gpu.uuid: gpu.values[COLUMN["temp_c"]] for gpu in reading.gpus} == temperatures


def test_a_handle_that_means_nothing_any_more(machine: Machine, nvml: FakeNvml) -> None:
    """trap A.1, InvalidArgument: a reload left fewer boards."""
    reader = machine.reader()
    machine.read(reader)
    nvml.lines = ["error 2 nvmlDeviceGetUUID 2"]
    nvml.save()
    with pytest.raises(ReaderUnavailableError, match="renumbered"):
        machine.read(reader)


def test_another_driver_needs_a_fresh_process(machine: Machine, nvml: FakeNvml) -> None:
    """trap A.1: after an upgrade a process still has the old library mapped."""
    reader = machine.reader()
    machine.read(reader)
    nvml.driver = "575.57.08"
    nvml.save()
    with pytest.raises(ReaderUnavailableError, match=r"550\.54\.15 is now 575\.57\.08") as error:
        machine.read(reader)
    assert error.value.state == "no_driver"


def test_unloaded_and_loaded(machine: Machine, nvml: FakeNvml) -> None:
    reader = machine.reader()
    machine.read(reader)
    nvml.unload()
    with pytest.raises(ReaderUnavailableError) as error:
        machine.read(reader)
    assert error.value.state == "no_driver"
    with pytest.raises(ReaderUnavailableError, match="modprobe"):
        machine.reader()
    nvml.load()
    assert len(machine.read(machine.reader()).gpus) == 3


def blind(nvml: FakeNvml) -> None:
    nvml.lines = [f"error * {name} 999" for name in CALLS]
    nvml.save()


def test_devices_taken_from_a_container_are_said_once_not_every_few_seconds(
    machine: Machine, nvml: FakeNvml
) -> None:
    """trap A.1 code 999, A.6 step 5, pitfall 11: one fresh process, and where that is blind too
    it says so at its first reading, not after some seconds of being "ok"."""
    reader = machine.reader()
    machine.read(reader)
    blind(nvml)
    for _ in range(BLIND_READS_MAX - 1):
        machine.read(reader)
    with pytest.raises(ReaderUnavailableError, match="restart the container"):
        machine.read(reader)
    with pytest.raises(ReaderUnavailableError, match="restart the container"):
        machine.read(machine.reader())


def test_no_board_opens_for_unknown_error_is_not_no_gpus(nvml: FakeNvml) -> None:
    nvml.lines = ["error * nvmlDeviceGetHandleByIndex_v2 999"]
    nvml.save()
    with pytest.raises(ReaderUnavailableError, match="restart the container") as error:
        NvmlReader()
    assert error.value.state == "failed"


def test_all_lost_before_we_came_is_not_no_gpus(nvml: FakeNvml, tmp_path: Path) -> None:
    for gpu in nvml.gpus:
        gpu.lose()
    nvml.save()
    with pytest.raises(ReaderUnavailableError, match="every GPU is lost") as error:
        NvmlReader(kernel=tmp_path)
    assert error.value.state == "failed"


def test_a_board_that_supports_nothing_is_not_blind(machine: Machine, nvml: FakeNvml) -> None:
    for gpu in nvml.gpus:
        gpu.lack("name", "pci")
    nvml.save()
    reader = machine.reader()
    for _ in range(BLIND_READS_MAX + 2):
        assert {gpu.state for gpu in machine.read(reader).gpus} == {"ok"}


@pytest.mark.parametrize("answers", ["", "Memory", "Gpm", "Memory|Gpm"])
def test_a_board_that_fails_at_every_question_is_called_that(machine: Machine, nvml: FakeNvml,
                                                             answers: str) -> None:
    """The second most frequent fault in a year of a public trace: it must not look "ok"."""
    failing = random.choice(nvml.gpus)
    reader = machine.reader()
    machine.read(reader)
    for call in CALLS:
        if not (answers and re.search(answers, call)):
            failing.error(call, 999)
    nvml.save()
    for _ in range(FAILED_READS_MAX):
        time.sleep(0.11 if "Gpm" in answers else 0.0)  # or GPM has nothing to compare
        assert {gpu.state for gpu in machine.read(reader).gpus} <= {"ok", "error"}
    reading = machine.read(reader)
    assert {gpu.uuid: gpu.state for gpu in reading.gpus} == {
        gpu.uuid: "error" if gpu is failing else "ok" for gpu in nvml.gpus}
    assert f"GPU {failing.number} fails every driver call" in reading.detail
    failing.heal()
    nvml.save()
    reading = machine.read(reader)
    assert ({gpu.state for gpu in reading.gpus}, reading.detail) == ({"ok"}, "")


def test_a_lost_gpu_is_named_and_the_others_go_on(machine: Machine, nvml: FakeNvml) -> None:
    """Pitfall 11, trap A.1 code 15."""
    lost_gpu = random.choice(nvml.gpus)
    reader = machine.reader()
    assert machine.read(reader).detail == ""
    lost_gpu.lose()
    nvml.save()
    reading = machine.read(reader)
    assert {gpu.uuid: gpu.state for gpu in reading.gpus} == {
        gpu.uuid: "lost" if gpu is lost_gpu else "ok" for gpu in nvml.gpus}
    assert f"GPU {lost_gpu.number} is lost" in reading.detail
    lost_gpu.heal()
    nvml.save()
    assert machine.read(reader, after_s=20).detail == ""


@pytest.mark.parametrize(("lost_count", "after_s"), [(1, RENEW_SOME_LOST_S), (3, RENEW_ALL_LOST_S)])
def test_a_lost_gpu_may_come_back_to_a_fresh_process_only(
    machine: Machine, nvml: FakeNvml, lost_count: int, after_s: float
) -> None:
    """The pace is bounded: trap A.1 code 15, "do not loop"."""
    reader = machine.reader()
    machine.read(reader)
    for gpu in nvml.gpus[:lost_count]:
        gpu.lose()
    nvml.save()
    machine.read(reader, after_s=2 * after_s)  # it counts from the loss, not from our start
    machine.read(reader, after_s=after_s - 1)
    with pytest.raises(StaleReaderError):
        machine.read(reader, after_s=3)
    nvml.lines = []
    for gpu in nvml.gpus:
        gpu.heal()
    nvml.save()
    well = machine.reader()
    machine.read(well)
    machine.read(well, after_s=10 * after_s)


def test_a_board_that_needs_a_reset_is_marked(machine: Machine, nvml: FakeNvml) -> None:
    """trap A.1 code 16."""
    nvml.gpus[1].error("nvmlDeviceGetUtilizationRates", 16)
    nvml.save()
    reader = machine.reader()
    reading = machine.read(reader)
    assert "GPU 1 must be reset" in reading.detail
    assert nvml.gpus[1].uuid in reading.detail
    nvml.gpus[1].heal()
    nvml.save()
    assert machine.read(reader).detail == ""


def test_a_mode_that_waits_for_a_reset_is_said(machine: Machine, nvml: FakeNvml) -> None:
    """The mode that is set is not the one in force (trap A.2: current and pending)."""
    now = random.randrange(2)
    nvml.gpus[1].update(ecc=now, ecc_pending=1 - now, mig_pending=1)
    nvml.save()
    reader = machine.reader()
    switch = ("off", "on")
    assert machine.read(reader).detail == (
        f"GPU 1 waits for a reset: ECC is {switch[now]}, and {switch[1 - now]} from its next reset "
        "on; MIG is off, and on from its next reset on.")
    nvml.gpus[1].update(ecc_pending=now, mig_pending=2**31)
    nvml.save()
    machine.read(reader, 60)
    assert machine.read(reader).detail == ""


@pytest.mark.parametrize(("status", "state"), [("suspended", "D3hot"), ("active", "D3cold")])
def test_a_sleeping_gpu_is_left_asleep(
    machine: Machine, nvml: FakeNvml, status: str, state: str
) -> None:
    """Pitfall 22: any call about it would wake it; the control is an error on every call."""
    reader = machine.reader()
    machine.read(reader)
    sleeper = random.choice(nvml.gpus)
    machine.power(sleeper, status, state)
    for call in ("nvmlDeviceGetUUID", *CALLS):
        sleeper.error(call, 15)
    nvml.save()
    reading = machine.read(reader)
    asleep = next(gpu for gpu in reading.gpus if gpu.uuid == sleeper.uuid)
    assert (asleep.state, set(asleep.absent)) == ("ok", {Absence.UNKNOWN})
    assert f"GPU {sleeper.number} is asleep" in reading.detail
    assert reader.fresh().mem_used_bytes[sleeper.uuid] is None
    machine.power(sleeper, "active")
    sleeper.heal()
    nvml.save()
    awake = machine.read(reader)
    assert Absence.PRESENT in next(g for g in awake.gpus if g.uuid == sleeper.uuid).absent
    assert awake.detail == ""


def test_a_gpu_that_sleeps_at_our_start_is_listed_and_not_opened(
    machine: Machine, nvml: FakeNvml
) -> None:
    sleeper = nvml.gpus[1]
    machine.power(sleeper, "suspended", "D3cold")
    for call in ("nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByUUID",
                 "nvmlDeviceGetUUID"):
        sleeper.error(call, 999)
    nvml.save()
    reader = machine.reader()
    reading = machine.read(reader)
    assert [gpu.uuid for gpu in reading.gpus] == [gpu.uuid for gpu in nvml.gpus]
    assert reading.facts[1].name == sleeper["name"]
    machine.power(sleeper, "active")
    sleeper.heal()
    nvml.save()
    assert Absence.PRESENT in machine.read(reader).gpus[1].absent


def test_a_sleeper_without_a_name_is_listed_when_it_wakes(
    machine: Machine, nvml: FakeNvml
) -> None:
    """The kernel module has the UUID of a board only once the board was initialised."""
    sleeper = nvml.gpus[2]
    shutil.rmtree(machine.kernel / machine.folder(sleeper).name)
    machine.power(sleeper, "suspended")
    reader = machine.reader()
    assert len(machine.read(reader).gpus) == 2
    machine.power(sleeper, "active")
    reader.fresh()
    with pytest.raises(StaleReaderError):
        machine.read(reader)
    assert len(machine.read(machine.reader()).gpus) == 3


def test_all_asleep_and_nameless_says_so(machine: Machine, nvml: FakeNvml) -> None:
    shutil.rmtree(machine.kernel)
    for gpu in nvml.gpus:
        machine.power(gpu, "suspended")
    with pytest.raises(ReaderUnavailableError, match="asleep") as error:
        machine.reader()
    assert error.value.state == "no_gpus"


def test_an_index_is_not_guessed(machine: Machine, nvml: FakeNvml) -> None:
    """Kernel and driver count differently (a board without our driver): no other board is taken
    for the sleeper."""
    stranger = FakeGpu("9", {"pci": "00000000:00:02.0", "name": "x", "uuid": "GPU-x"})
    machine.plug(stranger, has_name=False)
    machine.power(stranger, "suspended")
    assert [gpu.uuid for gpu in machine.read(machine.reader()).gpus] == [
        gpu.uuid for gpu in nvml.gpus]


def test_another_makers_device_at_a_known_place_is_not_asked(
    machine: Machine, nvml: FakeNvml
) -> None:
    gpu = nvml.gpus[0]
    (machine.folder(gpu) / "vendor").write_text("0x1b36\n")
    machine.power(gpu, "suspended")
    assert Absence.PRESENT in machine.read(machine.reader()).gpus[0].absent


def test_versions_of_module_and_library(tmp_path: Path, nvml: FakeNvml) -> None:
    path = tmp_path / "version"
    assert driver_version(path) is None
    path.write_text("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  595.45.04  Release "
                    "Build  (dvs)  Tue\nGCC version:  gcc version 12.2.0\n")
    assert driver_version(path) == "595.45.04"
    library = tmp_path / "libnvidia-ml.so.550.54.15"
    shutil.copy(nvml.library, library)
    (tmp_path / "libnvidia-ml.so.1").symlink_to(library.name)
    code = ("from agent.backends.nvml.session import library_version\n"
            "import pynvml\nassert library_version() is None\npynvml.nvmlInit()\n"
            "print(library_version())")
    env: dict[str, Any] = {**os.environ, **nvml.env(), "LD_LIBRARY_PATH": str(tmp_path)}
    child = subprocess.run([sys.executable, "-c", code], env=env, cwd=Path(__file__).parents[4],
                           capture_output=True, text=True, check=True)
    assert child.stdout == "550.54.15\n"
    assert library_version() is None or library_version() != "550.54.15"
