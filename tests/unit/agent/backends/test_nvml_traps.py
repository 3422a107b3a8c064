"""Traps of pynvml and of NVML's answers that no other test is about (pitfalls.md A)."""

import ast
import inspect
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pynvml
import pytest

from agent.backends.nvml.ask import NvmlDevice
from agent.backends.nvml.reader import NvmlReader
from gpudeck.measures.metrics import COLUMN, SLOW_COLUMN, Absence, metric
from tests.fakes.nvml import FakeNvml
from tests.unit.readings import Clock, fill, read, value

ROOT = Path(__file__).resolve().parents[4]
SOURCES = sorted((ROOT / "agent").rglob("*.py"))
# What is answered by another call then, which need not say the same on a fake of random values.
INSTEAD = {"nvmlDeviceGetMarginTemperature": {"temp_margin_c"}}


@pytest.fixture
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml(tmp_path, gpus=2)
    fake.use(monkeypatch)
    return fake


@pytest.fixture
def clock() -> Clock:
    return Clock()


def wrappers() -> list[ast.FunctionDef]:
    return [node for node in ast.parse(inspect.getsource(pynvml)).body
            if isinstance(node, ast.FunctionDef) and node.name.startswith("nvml")]


def losing_their_verdict() -> set[str]:
    """Return the wrappers that call the library and never look at what it returned."""
    return {node.name for node in wrappers() if "_nvmlGetFunctionPointer" in ast.dump(node)
            and "_nvmlCheckReturn" not in ast.dump(node)} - {"nvmlErrorString"}


def sharing_an_argument() -> set[str]:
    """Return the wrappers whose default is an object, one and the same in all calls and threads."""
    return {node.name for node in wrappers()
            if any(isinstance(default, ast.Call) for default in node.args.defaults)}


def asked_for_in(text: str) -> set[str]:
    """Functions of NVML that this source uses, as attributes or by name."""
    nodes = list(ast.walk(ast.parse(text)))
    return {node.attr for node in nodes if isinstance(node, ast.Attribute)
            and node.attr.startswith("nvml")} | {
        node.value for node in nodes if isinstance(node, ast.Constant)
        and isinstance(node.value, str) and re.fullmatch(r"nvml[A-Z]\w+", node.value)}


@pytest.mark.parametrize(("find_trapped", "example"), [
    (losing_their_verdict, "nvmlDeviceSetPowerManagementLimit_v2"),
    (sharing_an_argument, "nvmlDeviceGetMinMaxFanSpeed"),
])
def test_no_call_that_pynvml_spoils(find_trapped: Callable[[], set[str]], example: str) -> None:
    """trap A.1: some always report success, some share their default argument."""
    trapped = find_trapped()
    assert example in trapped
    uses = {path.relative_to(ROOT).as_posix(): asked_for_in(path.read_text()) for path in SOURCES}
    assert "nvmlDeviceGetClockInfo" in uses["agent/backends/nvml/metrics.py"]
    assert {name: hits for name, calls in uses.items() if (hits := calls & trapped)} == {}
    # The control arm: both ways to use it are seen.
    for line in (f"pynvml.{example}(handle)", f"ask({example!r})"):
        assert asked_for_in(line) & trapped


def test_nothing_that_waits_in_the_driver_and_no_truth_of_a_c_number() -> None:
    """trap A.2: PCIe throughput takes 20 ms a call. A.1: nvmlDeviceIsMigDeviceHandle gives a
    c_uint, whose comparison with 1 or True is never true."""
    for path in SOURCES:
        assert "nvmlDeviceGetPcieThroughput" not in asked_for_in(path.read_text()), path
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare):
                assert "nvmlDeviceIsMigDeviceHandle" not in ast.dump(node), path


def test_what_is_no_nvml_error_is_understood_too(nvml: FakeNvml) -> None:
    """trap A.1: NVMLLibraryMismatchError is not an NVMLError."""
    nvml.lines = ["error * nvmlDeviceGetComputeRunningProcesses_v3 13",
                  "error * nvmlDeviceGetComputeRunningProcesses_v2 13"]
    nvml.save()
    NvmlReader()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    with pytest.raises(Exception, match=r".") as raised:
        pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    assert not isinstance(raised.value, pynvml.NVMLError)
    asker = NvmlDevice(handle, nvml.gpus[0].uuid)
    assert asker.ask("nvmlDeviceGetComputeRunningProcesses") is Absence.UNSUPPORTED
    assert asker.ask("nvmlDeviceOfTheFuture") is Absence.UNSUPPORTED


def test_only_the_reading_process_has_the_driver_open() -> None:
    """trap A.1: NVML does not survive a fork, and A.5: a process that has it open keeps the
    driver loaded. The reader is a separate program; no other process loads pynvml."""
    output = subprocess.run(
        [sys.executable, "-c", "import sys, agent.cli.main, agent.node, agent.reader.watchdog\n"
         "print('pynvml' in sys.modules)\n"
         "import agent.backends.nvml.reader\nprint('pynvml' in sys.modules)"],
        cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert output == ["False", "True"]


@pytest.mark.parametrize("code", [4, 17])
def test_a_board_that_is_counted_and_not_given(nvml: FakeNvml, clock: Clock, code: int) -> None:
    """trap A.1: GetCount counts boards whose handle is then refused. The others are read, under
    their own names, and the missing one is reported."""
    nvml.gpus[0].error("nvmlDeviceGetHandleByIndex_v2", code)
    nvml.save()
    reading = read(NvmlReader(clock), clock)
    assert [(gpu.uuid, value(gpu, "temp_c")) for gpu in reading.gpus] == [
        (nvml.gpus[1].uuid, nvml.gpus[1]["temp"])]
    assert [facts.index for facts in reading.facts] == [1]
    assert "0" in reading.detail


@pytest.mark.parametrize("code", [13, 25, 2])
def test_a_struct_too_new_for_the_driver(nvml: FakeNvml, clock: Clock, code: int) -> None:
    """trap A.1 code 25, ArgumentVersionMismatch: the older layout is asked for."""
    nvml.lines = [f"error * nvmlDeviceGetMemoryInfo_v2 {code}"]
    nvml.save()
    for gpu, board in zip(read(NvmlReader(clock), clock).gpus, nvml.gpus, strict=True):
        assert value(gpu, "mem_used_bytes") == board["mem_used"]


def test_a_success_that_is_an_error(nvml: FakeNvml, clock: Clock) -> None:
    """trap A.1: where the sizing call of GetProcessUtilization succeeds, pynvml raises NVMLError
    of value 0. That is no answer, and no reason to stop asking."""
    nvml.lines = ["error * nvmlDeviceGetProcessesUtilizationInfo 13"]
    nvml.gpus[0].process(1, 2**30, sm_pct=random.randint(1, 100))
    nvml.gpus[0]["busy_none"] = 1
    nvml.save()
    reader = NvmlReader(clock)
    with pytest.raises(pynvml.NVMLError) as raised:
        pynvml.nvmlDeviceGetProcessUtilization(pynvml.nvmlDeviceGetHandleByIndex(0), 0)
    assert raised.value.value == 0
    for _ in range(2):
        before = nvml.call_count("nvmlDeviceGetProcessUtilization")
        processes = read(reader, clock, after_s=2.0).processes
        assert processes is not None
        assert [(process.pid, process.sm_pct) for process in processes] == [(1, None)]
        assert nvml.call_count("nvmlDeviceGetProcessUtilization") > before


def test_power_of_boards_that_average_it_and_of_those_that_do_not(
    nvml: FakeNvml, clock: Clock
) -> None:
    """trap A.2 power: from Ampere on the call gives the mean of a second. The peak is then the
    instant value, where there is one; it never is below the mean."""
    mean_mw = random.randint(100_000, 400_000)
    for board, instant_mw in zip(nvml.gpus, (mean_mw + 90_000, mean_mw - 90_000), strict=True):
        board.update(power_mw=mean_mw, power_instant_mw=instant_mw)
    nvml.save()
    gpus = read(NvmlReader(clock), clock).gpus
    assert [value(gpu, "power_w") for gpu in gpus] == pytest.approx([mean_mw / 1_000] * 2)
    assert [value(gpu, "power_max_w") for gpu in gpus] == pytest.approx(
        [mean_mw / 1_000 + 90, mean_mw / 1_000])


def test_memory_that_has_no_total_of_its_own(nvml: FakeNvml, clock: Clock) -> None:
    """Pitfall 28, unified memory: the board is there, its memory is not supported, the rest is
    as ever. So where a right is wanting, as under MIG: denied."""
    for board, code in zip(nvml.gpus, (3, 4), strict=True):
        fill(board, random.Random(random.random()))
        board.error("nvmlDeviceGetMemoryInfo", code).error("nvmlDeviceGetMemoryInfo_v2", code)
    nvml.save()
    reading = read(NvmlReader(clock), clock)
    for gpu, facts, board, why in zip(reading.gpus, reading.facts, nvml.gpus,
                                      (Absence.UNSUPPORTED, Absence.DENIED), strict=True):
        assert (gpu.state, facts.mem_total_bytes) == ("ok", None)
        assert {value(gpu, key) for key in ("mem_used_bytes", "mem_reserved_bytes",
                                            "mem_unseen_bytes")} == {why}
        assert value(gpu, "temp_c") == board["temp"]
        assert facts.missing["mem_used_bytes"] == why.word


def test_the_words_beside_the_numbers_say_what_they_are_not() -> None:
    """Pitfalls 5 and 6; trap A.2 utilisation."""
    assert "not share of the chip" in metric("util_pct").meaning
    assert "Not memory used" in metric("mem_util_pct").meaning


def test_what_profilers_need_is_left_to_them() -> None:
    """Pitfall 19: DCGM's profiling takes the counters for itself; GPM, from Hopper on, does not.
    Nothing else is asked for them."""
    for path in SOURCES:
        assert not re.search(r"^\s*(import|from) (dcgm|pydcgm|cupti)", path.read_text(), re.M)


def calls() -> list[str]:
    return sorted(name for path in SOURCES for name in asked_for_in(path.read_text())
                  if name.startswith(("nvmlDevice", "nvmlGpm")) and hasattr(pynvml, name)
                  and name not in ("nvmlDeviceGetUUID", "nvmlDeviceGetCount"))


ALL = (*COLUMN, *SLOW_COLUMN)


def test_a_call_that_fails_takes_nothing_else_with_it(nvml: FakeNvml, clock: Clock) -> None:
    """Pitfall 3; trap A.1. Each call fails on one board: what that board still reports is
    true, and the other board reports all that it did before."""
    for board in nvml.gpus:
        fill(board, random.Random(random.random()))
    nvml.save()
    before = [{key: value(gpu, key) for key in ALL} for gpu in read(NvmlReader(clock), clock).gpus]
    assert sum(not isinstance(number, Absence) for number in before[1].values()) > 40
    failed = 0
    for name in calls():
        code = random.choice((2, 3, 4, 7, 13, 16, 17, 25, 999))
        for version in ("", "_v2", "_v3"):
            if "GetHandleBy" not in name:
                nvml.gpus[0].error(name + version, code)
        nvml.save()
        after = [{key: value(gpu, key) for key in ALL}
                 for gpu in read(NvmlReader(clock), clock).gpus]
        assert after[1] == before[1], (name, code)
        wrong = {key: number for key, number in after[0].items()
                 if not isinstance(number, Absence) and number != pytest.approx(before[0][key])}
        assert wrong.keys() <= INSTEAD.get(name, set()), (name, code)
        failed += after[0] != before[0]
        nvml.gpus[0].heal()
    assert failed > 15
