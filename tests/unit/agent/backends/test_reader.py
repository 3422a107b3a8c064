"""The nvml backend: unmodified pynvml on the C fake, values random per run."""

import os
import random
import time
from pathlib import Path
from typing import Any

import pytest

from agent.backends import ReaderUnavailableError
from agent.backends.metric_row import MonotonicCounter
from agent.backends.nvml.board import LOST_ASKED_EVERY_S
from agent.backends.nvml.reader import BLIND_READS_MAX, NvmlReader, open_reader
from gpudeck.measures.metrics import COLUMN, WIDTH, Absence
from tests.fakes.nvml import FakeGpu, FakeNvml
from tests.unit.readings import Clock, read, value

ME = os.getpid()


@pytest.fixture
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml(tmp_path, gpus=2)
    fake.use(monkeypatch)
    return fake


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_every_metric_is_what_the_board_says(nvml: FakeNvml, clock: Clock) -> None:
    reader = NvmlReader(clock)
    read(reader, clock)
    for board in nvml.gpus:
        board["pcie_tx"] = int(board["pcie_tx"]) + 5_000
        board["pcie_rx"] = int(board["pcie_rx"]) + 2**33
    nvml.write()
    time.sleep(0.11)  # GPM wants its two samples that far apart, by the driver's own clock
    reading = read(reader, clock, after_s=2.0)
    assert reading.interval_s == 2.0
    assert (reading.driver_version, reading.cuda_version) == ("550.54.15", "12.4")
    for index, (gpu, fake) in enumerate(zip(reading.gpus, nvml.gpus, strict=True)):
        assert (gpu.uuid, gpu.state, len(gpu.values)) == (fake["uuid"], "ok", WIDTH)
        numbers = {
            "util_pct": fake["util"], "util_max_pct": fake["util"],
            "mem_util_pct": fake["mem_util"], "sm_active_pct": fake["sm_active"],
            "mem_used_bytes": fake["mem_used"], "temp_c": fake["temp"],
            "mem_temp_c": fake["mem_temp"], "power_w": int(fake["power_mw"]) / 1_000,
            "power_max_w": int(fake["power_mw"]) / 1_000,
            "energy_j": int(fake["energy_mj"]) / 1_000, "sm_clock_mhz": fake["sm_clock"],
            "mem_clock_mhz": fake["mem_clock"], "fan_pct": Absence.UNSUPPORTED,
            "throttle_bits": fake["throttle"], "pcie_tx_bytes_per_s": 2_500.0,
            "pcie_rx_bytes_per_s": 2**32,
        }
        assert set(numbers) == set(COLUMN)
        assert {key: value(gpu, key) for key in numbers} == pytest.approx(numbers)
        facts = reading.facts[index]
        assert facts.missing["fan_pct"] == "unsupported"
        assert set(facts.missing).isdisjoint(set(COLUMN) - {"fan_pct"})
        assert (facts.index, facts.name, facts.pci_bus_id) == (index, fake["name"], fake["pci"])
        assert (facts.mem_total_bytes, facts.power_limit_w) == (fake["mem_total"], 700.0)
        assert (facts.temp_slowdown_c, facts.temp_shutdown_c) == (90, 95)
        assert (facts.sm_clock_max_mhz, facts.mem_clock_max_mhz) == (1_980, 2_619)


@pytest.mark.parametrize("number", [0, "maximum"])
def test_zero_and_the_maximum_are_numbers(nvml: FakeNvml, clock: Clock, number: Any) -> None:
    top = {"util": 100, "mem_util": 100, "mem_used": nvml.gpus[0]["mem_total"], "temp": 149,
           "power_mw": 4_999_000, "energy_mj": 2**53, "sm_clock": 9_999, "fan": 250,
           "throttle": 2**40, "sm_active": 100}
    nvml.gpus[0].update({key: 0 if number == 0 else most for key, most in top.items()})
    nvml.write()
    reader = NvmlReader(clock)
    read(reader, clock)
    time.sleep(0.11)
    gpu = read(reader, clock).gpus[0]
    for key, raw, scale in (("util_pct", "util", 1), ("mem_used_bytes", "mem_used", 1),
                            ("temp_c", "temp", 1), ("power_w", "power_mw", 1e-3),
                            ("energy_j", "energy_mj", 1e-3), ("fan_pct", "fan", 1),
                            ("throttle_bits", "throttle", 1), ("sm_active_pct", "sm_active", 1),
                            ("sm_clock_mhz", "sm_clock", 1)):
        assert value(gpu, key) == pytest.approx(float(nvml.gpus[0][raw]) * scale), key


OPTIONAL = {
    "util": ("util_pct", "util_max_pct", "mem_util_pct"), "mem_used": ("mem_used_bytes",),
    "temp": ("temp_c",), "mem_temp": ("mem_temp_c",), "power_mw": ("power_w", "power_max_w"),
    "energy_mj": ("energy_j",), "sm_clock": ("sm_clock_mhz",), "mem_clock": ("mem_clock_mhz",),
    "throttle": ("throttle_bits",), "pcie_tx": ("pcie_tx_bytes_per_s",),
    "pcie_rx": ("pcie_rx_bytes_per_s",), "sm_active": ("sm_active_pct",),
}


def test_what_a_board_lacks_is_unsupported_there_and_nowhere_else(
    nvml: FakeNvml, clock: Clock
) -> None:
    lacking = random.sample(sorted(OPTIONAL), 6)
    for key in lacking:
        del nvml.gpus[0][key]
    nvml.write()
    reader = NvmlReader(clock)
    read(reader, clock)
    time.sleep(0.11)
    first, second = read(reader, clock).gpus
    missing = {metric for key in lacking for metric in OPTIONAL[key]} | {"fan_pct"}
    for key in COLUMN:
        assert (value(first, key) is Absence.UNSUPPORTED) == (key in missing), key
        assert (value(second, key) is Absence.UNSUPPORTED) == (key == "fan_pct"), key
    assert set(read(reader, clock).facts[0].missing) & set(COLUMN) == missing


@pytest.mark.parametrize(("code", "absence", "asked_again"), [
    (3, Absence.UNSUPPORTED, False), (13, Absence.UNSUPPORTED, False),
    (4, Absence.DENIED, False), (2, Absence.UNSUPPORTED, False), (999, Absence.UNKNOWN, True),
    (17, Absence.UNKNOWN, True), (16, Absence.UNKNOWN, True),
])
def test_errors_of_one_call_touch_one_metric(
    nvml: FakeNvml, clock: Clock, code: int, absence: Absence, asked_again: bool
) -> None:
    nvml.lines = [f"error 0 nvmlDeviceGetFanSpeed {code}"]
    for gpu in nvml.gpus:
        gpu["fan"] = 40
    nvml.write()
    reader = NvmlReader(clock)
    first, second = read(reader, clock).gpus
    assert (value(first, "fan_pct"), value(second, "fan_pct")) == (absence, 40)
    assert value(first, "temp_c") == nvml.gpus[0]["temp"]
    nvml.lines = []
    nvml.write()
    assert value(read(reader, clock).gpus[0], "fan_pct") == (40 if asked_again else absence)


def test_one_clock_missing_does_not_take_the_other(nvml: FakeNvml, clock: Clock) -> None:
    del nvml.gpus[0]["sm_clock"]
    nvml.write()
    gpu = read(NvmlReader(clock), clock).gpus[0]
    assert value(gpu, "sm_clock_mhz") is Absence.UNSUPPORTED
    assert value(gpu, "mem_clock_mhz") == 2_619


def test_gpm_samples_too_close_are_no_missing_feature(nvml: FakeNvml, clock: Clock) -> None:
    reader = NvmlReader(clock)
    read(reader, clock)
    assert value(read(reader, clock).gpus[0], "sm_active_pct") is Absence.UNKNOWN
    time.sleep(0.11)
    gpu = read(reader, clock).gpus[0]
    assert value(gpu, "sm_active_pct") == pytest.approx(float(nvml.gpus[0]["sm_active"]))


def test_an_old_driver_is_asked_by_the_old_names(nvml: FakeNvml, clock: Clock) -> None:
    nvml.lines = ["error * nvmlDeviceGetTemperatureV 13", "error * nvmlDeviceGetMemoryInfo_v2 13",
                  "error * nvmlDeviceGetFieldValues 13", "error * nvmlGpmQueryDeviceSupport 13",
                  "error * nvmlDeviceGetEnforcedPowerLimit 3"]
    nvml.write()
    reading = read(NvmlReader(clock), clock)
    gpu, board = reading.gpus[1], nvml.gpus[1]
    assert value(gpu, "temp_c") == board["temp"]
    assert value(gpu, "mem_used_bytes") == board["mem_used"]
    assert value(gpu, "energy_j") == pytest.approx(int(board["energy_mj"]) / 1_000)
    assert value(gpu, "pcie_tx_bytes_per_s") is Absence.UNSUPPORTED
    assert value(gpu, "sm_active_pct") is Absence.UNSUPPORTED
    assert reading.facts[1].power_limit_w == 700.0


def test_bursts_between_two_readings_count(nvml: FakeNvml, clock: Clock) -> None:
    nvml.lines = ["samples 0 util 10 100 40", "samples 0 power 100000 650000"]
    nvml.write()
    reader = NvmlReader(clock)
    for _ in range(2):
        first, second = read(reader, clock).gpus
        assert (value(first, "util_pct"), value(first, "util_max_pct")) == (50.0, 100.0)
        assert (value(first, "power_w"), value(first, "power_max_w")) == (375.0, 650.0)
        assert value(second, "util_pct") == nvml.gpus[1]["util"]
        time.sleep(0.01)


def test_a_lost_gpu_stays_in_the_list_and_the_other_goes_on(nvml: FakeNvml, clock: Clock) -> None:
    reader = NvmlReader(clock)
    read(reader, clock)
    nvml.lines = ["lost 0"]
    nvml.write()
    for _ in range(3):
        reading = read(reader, clock)
        first, second = reading.gpus
        assert (first.uuid, first.state) == (nvml.gpus[0]["uuid"], "lost")
        assert set(first.absent) == {Absence.LOST}
        assert (second.state, value(second, "temp_c")) == ("ok", nvml.gpus[1]["temp"])
        assert [facts.uuid for facts in reading.facts] == [gpu["uuid"] for gpu in nvml.gpus]
    nvml.lines = []
    nvml.write()
    back = read(reader, clock, after_s=LOST_ASKED_EVERY_S + 1).gpus[0]
    assert (back.state, value(back, "temp_c")) == ("ok", nvml.gpus[0]["temp"])


def kernel_knows(folder: Path, *boards: FakeGpu, excluded: str = "No") -> Path:
    """Write the boards as nv-procfs.c of the open kernel module prints them; return the folder."""
    for board in boards:
        place = folder / str(board["pci"])[4:].lower()
        place.mkdir(parents=True)
        (place / "information").write_text(
            f"Model: \t\t {board['name']}\nIRQ:   \t\t 77\nGPU UUID: \t {board.uuid}\n"
            f"Bus Location: \t {place.name}\nGPU Excluded:\t {excluded}\n")
    return folder


def test_a_gpu_lost_before_we_knew_it_is_listed_too(
    nvml: FakeNvml, clock: Clock, tmp_path: Path
) -> None:
    """gpustat and nvitop list it, by index; we find its UUID, so that it is the same GPU."""
    sick, well = nvml.gpus
    sick.process(ME, 2**20).lose()
    nvml.save()
    kernel = kernel_knows(tmp_path / "gpus", sick, well)
    kernel_knows(kernel, nvml.gpu(), excluded="Yes")
    del nvml.gpus[2]
    reader = NvmlReader(clock, kernel)
    for _ in range(2):
        reading = read(reader, clock)
        assert [(gpu.uuid, gpu.state) for gpu in reading.gpus] == [
            (sick.uuid, "lost"), (well.uuid, "ok")]
        assert (reading.facts[0].name, reading.facts[0].pci_bus_id) == (sick["name"], sick["pci"])
        assert value(reading.gpus[1], "temp_c") == well["temp"]
    sick.heal()
    nvml.save()
    back = read(reader, clock, after_s=LOST_ASKED_EVERY_S + 1)
    assert (back.gpus[0].state, value(back.gpus[0], "temp_c")) == ("ok", sick["temp"])
    assert [process.pid for process in read(reader, clock, 2.0).processes or ()] == [ME]


def test_a_lost_gpu_that_might_be_either_gets_no_name(
    nvml: FakeNvml, clock: Clock, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nvml.gpus[0].lose()
    nvml.save()
    stranger = FakeGpu("7", {**nvml.gpus[0], "pci": "00000000:09:00.0",
                             "uuid": "GPU-00000000-0000-4000-8000-000000000000"})
    kernel = kernel_knows(tmp_path / "gpus", *nvml.gpus, stranger)
    [only] = read(NvmlReader(clock, kernel), clock).gpus
    assert only.uuid == nvml.gpus[1].uuid
    assert "which one is not known" in capsys.readouterr().err


@pytest.mark.parametrize(("lines", "state", "words"), [
    (["error * nvmlInitWithFlags 9"], "no_driver", "modprobe"),
    (["error * nvmlInitWithFlags 18"], "no_driver", "reboot"),
    (["error * nvmlInitWithFlags 13"], "no_driver", "too old"),
    (["error * nvmlInitWithFlags 4"], "failed", "/dev/nvidia"),
    (["error * nvmlInitWithFlags 999"], "failed", "does not work"),
    (["error * nvmlDeviceGetHandleByIndex_v2 4"], "no_gpus", "lspci"),
])
def test_why_there_is_nothing_to_read(
    nvml: FakeNvml, lines: list[str], state: str, words: str
) -> None:
    nvml.lines = lines
    nvml.write()
    with pytest.raises(ReaderUnavailableError, match=words) as error:
        open_reader()
    assert error.value.state == state


def test_no_gpus(nvml: FakeNvml) -> None:
    nvml.gpus = []
    nvml.write()
    with pytest.raises(ReaderUnavailableError, match="lists no GPU") as error:
        open_reader()
    assert error.value.state == "no_gpus"


@pytest.mark.parametrize("code", [1, 9, 18])
def test_driver_that_goes_away(nvml: FakeNvml, clock: Clock, code: int) -> None:
    reader = NvmlReader(clock)
    read(reader, clock)
    nvml.lines = [f"error * nvmlDeviceGetUtilizationRates {code}"]
    nvml.write()
    with pytest.raises(ReaderUnavailableError) as error:
        read(reader, clock)
    assert error.value.state == "no_driver"


def test_access_that_was_taken_away(nvml: FakeNvml, clock: Clock) -> None:
    """A container whose devices were taken gets Unknown Error for everything: after a while
    only a fresh process may find them again."""
    reader = NvmlReader(clock)
    read(reader, clock)
    nvml.lines = [f"error * {name} 999" for name in (
        "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetTemperatureV",
        "nvmlDeviceGetFieldValues", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetClockInfo",
        "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetTotalEnergyConsumption",
        "nvmlGpmSampleGet", "nvmlGpmMetricsGet", "nvmlDeviceGetFanSpeed")]
    nvml.write()
    for _ in range(BLIND_READS_MAX - 1):
        read(reader, clock)
    with pytest.raises(ReaderUnavailableError) as error:
        read(reader, clock)
    assert error.value.state == "failed"


@pytest.mark.parametrize(("before", "after", "bits", "rate"), [
    (100, 300, 64, 200.0),
    (100, 100, 64, 0.0),
    (2**32 - 50, 150, 32, 200.0),
    (2**32 - 50, 150, 64, 200.0),  # a counter of 32 bits in a type of 64
    (2**40, 5, 64, Absence.UNKNOWN),  # it was reset
])
def test_byte_counters(before: int, after: int, bits: int, rate: float | Absence) -> None:
    counter = MonotonicCounter(hides_32=True)
    assert counter.rate(before, bits, 10.0) is Absence.UNKNOWN
    assert counter.rate(after, bits, 11.0) == rate
    assert counter.rate(after, bits, 11.0) is Absence.UNKNOWN  # no time has passed
