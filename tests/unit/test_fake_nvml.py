"""The C fake itself, through unmodified pynvml: what the file says is what comes out."""

import ctypes
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

from tests.demos import soon
from tests.fakes.nvml import Call, FakeNvml

SET_LIMIT = "nvmlDeviceSetPowerManagementLimit"
UINT_NONE = 0xFFFFFFFF


@pytest.fixture
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeNvml]:
    fake = FakeNvml(tmp_path, gpus=2)
    fake.use(monkeypatch)
    pynvml.nvmlInit()
    yield fake
    pynvml.nvmlShutdown()


@pytest.fixture
def child() -> "Iterator[subprocess.Popen[bytes]]":
    child = subprocess.Popen(["sleep", "600"])
    yield child
    child.kill()
    child.wait()


def handle(gpu: int = 0) -> Any:
    return pynvml.nvmlDeviceGetHandleByIndex(gpu)


def code_of(call: Callable[[], Any]) -> int:
    """0, or the code of the error that it raises."""
    try:
        call()
    except pynvml.NVMLError as error:
        return int(error.value)
    return 0


def number() -> int:
    return random.randrange(1, 2**31)


FIGURES: dict[str, tuple[str, tuple[Any, ...], tuple[str, ...]]] = {
    "fan": ("nvmlDeviceGetFanSpeed", (), ("fan",)),
    "the first fan": ("nvmlDeviceGetFanSpeed_v2", (0,), ("fan",)),
    "the second fan": ("nvmlDeviceGetFanSpeed_v2", (1,), ("fan_1",)),
    "fans": ("nvmlDeviceGetNumFans", (), ("fans",)),
    "rpm": ("nvmlDeviceGetFanSpeedRPM", (), ("fan_rpm",)),
    "P-state": ("nvmlDeviceGetPerformanceState", (), ("pstate",)),
    "temperature": ("nvmlDeviceGetTemperatureV", (0,), ("temp",)),
    "temperature, as ever": ("nvmlDeviceGetTemperature", (0,), ("temp",)),
    "margin": ("nvmlDeviceGetMarginTemperature", (), ("temp_margin",)),
    "memory's maximum": ("nvmlDeviceGetTemperatureThreshold", (2,), ("mem_temp_max",)),
    "graphics clock": ("nvmlDeviceGetClockInfo", (0,), ("graphics_clock",)),
    "video clock": ("nvmlDeviceGetMaxClockInfo", (3,), ("video_clock_max",)),
    "reasons": ("nvmlDeviceGetCurrentClocksEventReasons", (), ("throttle",)),
    "reasons, as ever": ("nvmlDeviceGetCurrentClocksThrottleReasons", (), ("throttle",)),
    "power range": ("nvmlDeviceGetPowerManagementLimitConstraints", (),
                    ("power_min_mw", "power_max_mw")),
    "default power": ("nvmlDeviceGetPowerManagementDefaultLimit", (), ("power_default_mw",)),
    "enforced power": ("nvmlDeviceGetEnforcedPowerLimit", (), ("power_enforced_mw",)),
    "energy": ("nvmlDeviceGetTotalEnergyConsumption", (), ("energy_mj",)),
    "ECC mode": ("nvmlDeviceGetEccMode", (), ("ecc", "ecc_pending")),
    "ECC": ("nvmlDeviceGetTotalEccErrors", (1, 0), ("ecc_uncorrected_volatile",)),
    "ECC of one place": ("nvmlDeviceGetMemoryErrorCounter", (0, 1, 2),
                         ("ecc_corrected_aggregate_2",)),
    "rows": ("nvmlDeviceGetRemappedRows", (), ("rows_corrected", "rows_uncorrected",
                                               "rows_pending", "rows_failure")),
    "pending pages": ("nvmlDeviceGetRetiredPagesPendingStatus", (), ("retired_pending",)),
    "link generation": ("nvmlDeviceGetCurrPcieLinkGeneration", (), ("pcie_gen",)),
    "link width": ("nvmlDeviceGetMaxPcieLinkWidth", (), ("pcie_width_max",)),
    "replays": ("nvmlDeviceGetPcieReplayCounter", (), ("pcie_replays",)),
    "traffic": ("nvmlDeviceGetPcieThroughput", (1,), ("pcie_rx_kib_per_s",)),
    "NVLink": ("nvmlDeviceGetNvLinkState", (3,), ("nvlink_3",)),
    "NVLink version": ("nvmlDeviceGetNvLinkVersion", (3,), ("nvlink_3_version",)),
    "NVLink errors": ("nvmlDeviceGetNvLinkErrorCounter", (3, 1), ("nvlink_3_errors_1",)),
    "capability": ("nvmlDeviceGetCudaComputeCapability", (),
                   ("capability_major", "capability_minor")),
    "NUMA": ("nvmlDeviceGetNumaNodeId", (), ("numa_node",)),
}


@pytest.mark.parametrize("which", FIGURES)
def test_a_figure_is_the_files_or_not_supported(nvml: FakeNvml, which: str) -> None:
    call, arguments, keys = FIGURES[which]
    values = {key: number() for key in keys}
    nvml.gpus[1].update(values)
    nvml.gpus[0].update(dict.fromkeys(keys))
    nvml.save()
    answer = getattr(pynvml, call)(handle(1), *arguments)
    assert tuple(answer if isinstance(answer, list | tuple) else [answer]) == tuple(values.values())
    if which != "enforced power":  # which is the limit that was set, where nobody else limits
        absent = code_of(lambda: getattr(pynvml, call)(handle(0), *arguments))
        assert absent == pynvml.NVML_ERROR_NOT_SUPPORTED
    nvml.gpus[1].update(dict.fromkeys(keys, 0))
    nvml.save()
    zero = getattr(pynvml, call)(handle(1), *arguments)
    assert set(zero if isinstance(zero, list | tuple) else [zero]) == {0}


def test_which_of_several(nvml: FakeNvml) -> None:
    gpu = nvml.gpus[1]
    gpu.update(serial=str(number()), ancestor_0=30, cpu_mask=2**40 + 5, enc=71, retired_1=2)
    nvml.save()
    assert pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByUUID(gpu.uuid)) == 1
    assert pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByPciBusId(gpu["pci"])) == 1
    assert code_of(lambda: pynvml.nvmlDeviceGetHandleByUUID("GPU-0")) == pynvml.NVML_ERROR_NOT_FOUND
    assert code_of(lambda: handle(2)) == pynvml.NVML_ERROR_INVALID_ARGUMENT
    assert pynvml.nvmlDeviceGetSerial(handle(1)) == gpu["serial"]
    assert pynvml.nvmlDeviceGetTopologyCommonAncestor(handle(1), handle(0)) == 30
    assert list(pynvml.nvmlDeviceGetCpuAffinity(handle(1), 2)) == [2**40 + 5, 0]
    assert pynvml.nvmlDeviceGetEncoderUtilization(handle(1))[0] == 71
    assert len(pynvml.nvmlDeviceGetRetiredPages_v2(handle(1), 1)) == 2
    assert pynvml.nvmlSystemGetCudaDriverVersion_v2() == 12_040


def test_memory_apart_and_together(nvml: FakeNvml) -> None:
    gpu = nvml.gpus[0]
    gpu.update(mem_total=2**34, mem_used=number(), mem_reserved=number(), bar1_total=2**31,
               bar1_used=number())
    nvml.save()
    apart = pynvml.nvmlDeviceGetMemoryInfo(handle(), version=pynvml.nvmlMemory_v2)
    assert (apart.used, apart.reserved) == (gpu["mem_used"], gpu["mem_reserved"])
    assert apart.total == apart.used + apart.free + apart.reserved == 2**34
    together = pynvml.nvmlDeviceGetMemoryInfo(handle())
    assert together.used == apart.used + apart.reserved
    assert together.total == together.used + together.free
    assert pynvml.nvmlDeviceGetBAR1MemoryInfo(handle()).bar1Used == gpu["bar1_used"]


def test_fields_by_number_and_scope(nvml: FakeNvml) -> None:
    throttled, link = number() * 2**20, number()
    nvml.gpus[0].update(field_74=throttled, field_138_2=f"ull {link}", field_230="ui 2",
                        field_193="si -7", field_12="double 0.25")
    nvml.save()
    fields = [74, (138, 2), (138, 3), 230, 193, 12, 82]
    values = pynvml.nvmlDeviceGetFieldValues(handle(), fields)
    assert [field.nvmlReturn for field in values] == [0, 0, 3, 0, 0, 0, 0]
    assert (values[0].value.ullVal, values[1].value.ullVal) == (throttled, link)
    assert (values[3].value.uiVal, values[4].value.siVal, values[5].value.dVal) == (2, -7, 0.25)
    assert values[6].value.uiVal == nvml.gpus[0]["mem_temp"]
    assert code_of(lambda: pynvml.nvmlDeviceGetFieldValues(handle(), [999])) == 3


def test_samples_of_every_kind(nvml: FakeNvml) -> None:
    nvml.gpus[0].lines = ["samples 0 enc 1 2 3"]
    nvml.save()
    kind, samples = pynvml.nvmlDeviceGetSamples(handle(), pynvml.NVML_ENC_UTILIZATION_SAMPLES, 0)
    assert (kind, [sample.sampleValue.uiVal for sample in samples]) == (1, [1, 2, 3])
    assert samples[0].timeStamp < samples[2].timeStamp
    nvml.gpus[0].lines = ["samples 0 enc 100:7 200:8 300:9"]
    nvml.save()

    def newer(since: int) -> list[int]:
        batch = pynvml.nvmlDeviceGetSamples(handle(), pynvml.NVML_ENC_UTILIZATION_SAMPLES, since)[1]
        return [sample.sampleValue.uiVal for sample in batch]

    assert (newer(0), newer(100)) == ([7, 8, 9], [8, 9])
    assert code_of(lambda: newer(300)) == pynvml.NVML_ERROR_NOT_FOUND


def gpm(gpu: Any, *metrics: int) -> list[tuple[int, float]]:
    """(code, value) of each, between two samples taken far enough apart."""
    samples = [pynvml.nvmlGpmSampleAlloc() for _ in range(2)]
    try:
        pynvml.nvmlGpmSampleGet(gpu, samples[0])
        time.sleep(0.11)  # nvml.h asks for 100 ms; by the library's clock
        pynvml.nvmlGpmSampleGet(gpu, samples[1])
        request = pynvml.c_nvmlGpmMetricsGet_t(
            version=1, numMetrics=len(metrics), sample1=samples[0], sample2=samples[1])
        for at, metric in enumerate(metrics):
            request.metrics[at].metricId = metric
        pynvml.nvmlGpmMetricsGet(request)
        return [(request.metrics[at].nvmlReturn, request.metrics[at].value)
                for at in range(len(metrics))]
    finally:
        for sample in samples:
            pynvml.nvmlGpmSampleFree(sample)


def test_gpm_by_number_and_on_mig(nvml: FakeNvml) -> None:
    dram, share = random.uniform(0, 100), random.uniform(0, 100)
    nvml.gpus[0]["gpm_10"] = dram
    nvml.mig(nvml.gpus[1], sm_active=share)
    nvml.save()
    assert gpm(handle(0), 10, 2, 60) == [
        (0, dram), (0, nvml.gpus[0]["sm_active"]), (pynvml.NVML_ERROR_NOT_SUPPORTED, 0.0)]
    device = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle(1), 0)
    assert pynvml.nvmlGpmQueryDeviceSupport(device).isSupportedDevice
    assert gpm(device, 2) == [(0, share)]


def pids(kind: str = "Compute", gpu: int = 0) -> list[int]:
    listed = getattr(pynvml, f"nvmlDeviceGet{kind}RunningProcesses_v3")(handle(gpu))
    return [process.pid for process in listed]


def used_bytes(gpu: int = 0) -> int:
    return int(pynvml.nvmlDeviceGetMemoryInfo(handle(gpu), version=pynvml.nvmlMemory_v2).used)


@pytest.mark.parametrize(("after_exit", "listed", "occupied"), [
    ("goes", False, False), ("memory_stays", False, True), ("stays_listed", True, True),
])
def test_what_an_exit_leaves_behind(
    nvml: FakeNvml, child: "subprocess.Popen[bytes]", after_exit: Any, listed: bool, occupied: bool
) -> None:
    base, share, mine = number(), number(), number()
    gpu = nvml.gpus[0]
    gpu.update(mem_total=2**35, mem_used=base, mem_adds=1)
    gpu.process(child.pid, share, after_exit=after_exit).process(child.pid, share, "graphics")
    gpu.process(os.getpid(), mine, "mps")
    nvml.save()
    assert (pids(), pids("Graphics"), pids("MPSCompute")) == (
        [child.pid], [child.pid], [os.getpid()])
    assert used_bytes() == base + share + mine  # in two lists, and counted once
    child.kill()  # a zombie until it is waited for, and a zombie holds no memory
    assert soon(lambda: pids("Graphics") == [], 10)
    assert (pids() == [child.pid], used_bytes() == base + mine + share) == (listed, occupied)
    gpu.forget(child.pid)
    nvml.save()
    assert (pids(), used_bytes(), pids("MPSCompute")) == ([], base + mine, [os.getpid()])


def test_a_pid_that_another_process_has_by_now(nvml: FakeNvml) -> None:
    gpu = nvml.gpus[0].process(os.getpid(), 1)
    gpu.lines[0] += "9"  # it started at another time
    nvml.save()
    assert pids() == []


def test_more_processes_than_there_was_room_for(nvml: FakeNvml) -> None:
    for pid in range(300):
        nvml.gpus[0].process(4_000_000 + pid, pid)
    nvml.save()
    rows = (ctypes.c_char * 24 * 10)()
    room = ctypes.c_uint(10)
    function = nvml.loaded.nvmlDeviceGetComputeRunningProcesses_v3
    assert function(handle(), ctypes.byref(room), rows) == pynvml.NVML_ERROR_INSUFFICIENT_SIZE
    assert room.value == 300
    assert pids() == [4_000_000 + pid for pid in range(300)]


def test_an_error_after_some_calls_and_for_some(nvml: FakeNvml) -> None:
    def ask(gpu: int) -> int:
        return code_of(lambda: pynvml.nvmlDeviceGetTemperature(handle(gpu), 0))

    nvml.gpus[1].error("nvmlDeviceGetTemperature", 999, after=2, times=3)
    nvml.save()
    assert [ask(1) for _ in range(4)] == [0, 0, 999, 999]
    nvml.gpus[1]["temp"] = 40
    nvml.save()  # another change is no new start
    assert [ask(1) for _ in range(3)] == [999, 0, 0]
    assert [ask(0) for _ in range(4)] == [0] * 4
    nvml.gpus[1].heal()
    nvml.save()
    assert ask(1) == 0
    nvml.gpus[1].error("nvmlDeviceGetTemperature", 4, times=1)
    nvml.gpus[0].error("nvmlDeviceGetTemperature", 15, after=1)
    nvml.save()
    assert [ask(1), ask(1)] == [4, 0]
    assert [ask(0) for _ in range(3)] == [0, 15, 15]


def test_one_boards_call_hangs_and_the_other_board_answers(nvml: FakeNvml) -> None:
    nvml.gpus[0].hang("nvmlDeviceGetPowerUsage")
    nvml.save()
    answers: list[int] = []
    asking = threading.Thread(
        target=lambda: answers.append(pynvml.nvmlDeviceGetPowerUsage(handle(0))), daemon=True)
    asking.start()
    for _ in range(20):
        assert pynvml.nvmlDeviceGetPowerUsage(handle(1)) == nvml.gpus[1]["power_mw"]
        assert pynvml.nvmlDeviceGetTemperature(handle(0), 0) == nvml.gpus[0]["temp"]
    assert answers == []
    nvml.gpus[0].heal()
    nvml.save()
    asking.join(10)
    assert answers == [nvml.gpus[0]["power_mw"]]


def test_lost_and_back(nvml: FakeNvml) -> None:
    board = handle(0)
    nvml.gpus[0].lose()
    nvml.save()
    for call in (lambda: handle(0), lambda: pynvml.nvmlDeviceGetName(board),
                 lambda: pynvml.nvmlDeviceSetPersistenceMode(board, 1)):
        assert code_of(call) == pynvml.NVML_ERROR_GPU_IS_LOST
    assert pynvml.nvmlDeviceGetCount() == 2
    assert pynvml.nvmlDeviceGetName(handle(1)) == nvml.gpus[1]["name"]
    nvml.gpus[0].heal()
    nvml.save()
    assert pynvml.nvmlDeviceGetName(board) == nvml.gpus[0]["name"]


def test_setters_are_recorded_and_read_back(nvml: FakeNvml) -> None:
    limit = random.randrange(200_000, 700_000)
    pynvml.nvmlDeviceSetPowerManagementLimit(handle(1), limit)
    assert pynvml.nvmlDeviceGetPowerManagementLimit(handle(1)) == limit
    assert pynvml.nvmlDeviceGetEnforcedPowerLimit(handle(1)) == limit
    assert pynvml.nvmlDeviceGetPowerManagementLimit(handle(0)) == 700_000
    for wrong in (199_999, 700_001):
        assert code_of(lambda mw=wrong: pynvml.nvmlDeviceSetPowerManagementLimit(  # type: ignore[misc]
            handle(1), mw)) == pynvml.NVML_ERROR_INVALID_ARGUMENT
    assert nvml.calls(SET_LIMIT) == [
        Call(SET_LIMIT, "1", 0, (str(limit),)), Call(SET_LIMIT, "1", 2, ("199999",)),
        Call(SET_LIMIT, "1", 2, ("700001",))]
    nvml.save()  # what the file says of a setting counts until somebody sets it
    assert pynvml.nvmlDeviceGetPowerManagementLimit(handle(1)) == limit
    nvml.reload_driver()
    assert pynvml.nvmlDeviceGetPowerManagementLimit(handle(1)) == 700_000


def test_settings_are_the_machines_not_the_processs(nvml: FakeNvml) -> None:
    limit = random.randrange(200_000, 700_000)
    code = ("import pynvml; pynvml.nvmlInit(); handle = pynvml.nvmlDeviceGetHandleByIndex(0);"
            f"pynvml.nvmlDeviceSetPowerManagementLimit(handle, {limit})")
    subprocess.run([sys.executable, "-c", code], env=nvml.env(), check=True)
    assert pynvml.nvmlDeviceGetPowerManagementLimit(handle()) == limit


def test_the_setter_that_always_says_success(nvml: FakeNvml) -> None:
    """pynvml 13.615 drops the code of this one: why nobody may use it."""
    assert pynvml.nvmlDeviceSetPowerManagementLimit_v2(handle(), 0, 1) == pynvml.NVML_SUCCESS
    assert pynvml.nvmlDeviceGetPowerManagementLimit(handle()) == 700_000
    assert nvml.calls()[-1].code == pynvml.NVML_ERROR_INVALID_ARGUMENT
    pynvml.nvmlDeviceSetPowerManagementLimit_v2(handle(), 0, 300_000)
    assert pynvml.nvmlDeviceGetPowerManagementLimit(handle()) == 300_000


def test_a_setter_that_is_ignored_and_one_that_is_denied(nvml: FakeNvml) -> None:
    nvml.gpus[0].ignore(SET_LIMIT)
    nvml.gpus[1].error(SET_LIMIT, 4)
    nvml.save()
    pynvml.nvmlDeviceSetPowerManagementLimit(handle(0), 250_000)
    assert code_of(lambda: pynvml.nvmlDeviceSetPowerManagementLimit(handle(1), 250_000)) == 4
    for gpu in (0, 1):
        assert pynvml.nvmlDeviceGetPowerManagementLimit(handle(gpu)) == 700_000
    assert [(call.gpu, call.code) for call in nvml.calls(SET_LIMIT)] == [("0", 0), ("1", 4)]


def test_modes_and_clock_locks(nvml: FakeNvml) -> None:
    gpu = nvml.gpus[0]
    gpu.update(sm_clock=1_500, mem_clock=2_000, persistence=0)
    nvml.save()
    pynvml.nvmlDeviceSetPersistenceMode(handle(), 1)
    pynvml.nvmlDeviceSetComputeMode(handle(), 3)
    assert pynvml.nvmlDeviceGetPersistenceMode(handle()) == 1
    assert pynvml.nvmlDeviceGetComputeMode(handle()) == 3
    assert code_of(lambda: pynvml.nvmlDeviceSetComputeMode(handle(), 1)) == 2
    pynvml.nvmlDeviceSetGpuLockedClocks(handle(), 300, 900)
    pynvml.nvmlDeviceSetMemoryLockedClocks(handle(), 2_500, 2_600)
    assert [pynvml.nvmlDeviceGetClockInfo(handle(), kind) for kind in (1, 2)] == [900, 2_500]
    pynvml.nvmlDeviceResetGpuLockedClocks(handle())
    assert [pynvml.nvmlDeviceGetClockInfo(handle(), kind) for kind in (1, 2)] == [1_500, 2_500]
    assert [(call.name.removeprefix("nvmlDevice"), call.arguments) for call in nvml.calls()] == [
        ("SetPersistenceMode", ("1",)), ("SetComputeMode", ("3",)), ("SetComputeMode", ("1",)),
        ("SetGpuLockedClocks", ("300", "900")), ("SetMemoryLockedClocks", ("2500", "2600")),
        ("ResetGpuLockedClocks", ())]


def test_mig_devices(nvml: FakeNvml, child: "subprocess.Popen[bytes]") -> None:
    parent = nvml.gpus[1]
    first, second = nvml.mig(parent), nvml.mig(parent, sm_active=12.5)
    second.process(child.pid, 2**20)
    first["uuid"] = None  # destroyed: a gap stays
    nvml.save()
    board = handle(1)
    assert pynvml.nvmlDeviceGetMigMode(board) == [1, 1]
    assert pynvml.nvmlDeviceGetMigMode(handle(0)) == [0, 0]
    assert code_of(lambda: pynvml.nvmlDeviceGetUtilizationRates(board)) == 3
    assert code_of(lambda: pynvml.nvmlDeviceGetMigDeviceHandleByIndex(board, 0)) == 6
    device = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(board, 1)
    assert pynvml.nvmlDeviceGetUUID(device) == second["uuid"]
    assert pynvml.nvmlDeviceIsMigDeviceHandle(device)
    assert not pynvml.nvmlDeviceIsMigDeviceHandle(board)
    assert pynvml.nvmlDeviceGetGpuInstanceId(device) == second["gi"]
    assert code_of(lambda: pynvml.nvmlDeviceGetUtilizationRates(device)) == 3
    memory = pynvml.nvmlDeviceGetMemoryInfo(device, version=pynvml.nvmlMemory_v2)
    assert memory.total == second["mem_total"]
    assert pynvml.nvmlDeviceGetAttributes_v2(device).memorySizeMB == second["mem_total"] >> 20
    back = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device)
    assert pynvml.nvmlDeviceGetUUID(back) == parent.uuid
    for target in (device, board):
        [one] = pynvml.nvmlDeviceGetComputeRunningProcesses_v3(target)
        assert (one.pid, one.gpuInstanceId, one.computeInstanceId) == (child.pid, second["gi"], 0)
    assert pynvml.nvmlDeviceGetComputeRunningProcesses_v3(handle(0)) == []


def test_an_xid_reaches_who_registered_before(nvml: FakeNvml) -> None:
    nvml.xid(nvml.gpus[0], 13)
    events = pynvml.nvmlEventSetCreate()
    try:
        for gpu in (0, 1):
            kinds = pynvml.nvmlDeviceGetSupportedEventTypes(handle(gpu))
            pynvml.nvmlDeviceRegisterEvents(
                handle(gpu), kinds & pynvml.nvmlEventTypeXidCriticalError, events)
        assert code_of(lambda: pynvml.nvmlEventSetWait_v2(events, 1)) == pynvml.NVML_ERROR_TIMEOUT
        threading.Timer(0.05, nvml.xid, (nvml.gpus[1], 79)).start()
        event = pynvml.nvmlEventSetWait_v2(events, 10_000)
        assert (event.eventData, event.eventType) == (79, pynvml.nvmlEventTypeXidCriticalError)
        assert pynvml.nvmlDeviceGetUUID(event.device) == nvml.gpus[1].uuid
        assert event.gpuInstanceId == UINT_NONE
        assert code_of(lambda: pynvml.nvmlEventSetWait_v2(events, 1)) == pynvml.NVML_ERROR_TIMEOUT
    finally:
        pynvml.nvmlEventSetFree(events)


def test_all_that_jupyterlab_nvdashboard_asks_for(nvml: FakeNvml) -> None:
    """Calls as in its apps/gpu.py; what a board lacks is not supported; no function is missing."""
    fields = [(field, link) for link in range(pynvml.NVML_NVLINK_MAX_LINKS) for field in (
        pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX)]
    calls: dict[str, Callable[[], Any]] = {
        "link": lambda: pynvml.nvmlDeviceGetNvLinkVersion(handle(), 0),
        "fields": lambda: pynvml.nvmlDeviceGetFieldValues(handle(), fields),
        "generation": lambda: pynvml.nvmlDeviceGetMaxPcieLinkGeneration(handle()),
        "width": lambda: pynvml.nvmlDeviceGetMaxPcieLinkWidth(handle()),
        "utilization": lambda: pynvml.nvmlDeviceGetUtilizationRates(handle()).gpu,
        "memory": lambda: pynvml.nvmlDeviceGetMemoryInfo(handle()).used,
        "pcie": lambda: pynvml.nvmlDeviceGetPcieThroughput(
            handle(), pynvml.NVML_PCIE_UTIL_TX_BYTES)}
    codes = {name: code_of(call) for name, call in calls.items()}
    assert pynvml.NVML_ERROR_FUNCTION_NOT_FOUND not in codes.values()
    assert codes["memory"] == 0


def test_a_function_that_is_not_there(nvml: FakeNvml) -> None:
    assert code_of(lambda: pynvml.nvmlDeviceGetBoardPartNumber(handle())) == 13
    assert not hasattr(nvml.loaded, "nvmlDeviceGetConfComputeMemSizeInfo")


def test_init_is_counted_and_after_the_last_shutdown_nothing_answers(nvml: FakeNvml) -> None:
    code = """
import pynvml
pynvml.nvmlInit(); pynvml.nvmlInit(); pynvml.nvmlShutdown()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
print(pynvml.nvmlDeviceGetTemperature(handle, 0))
pynvml.nvmlShutdown()
for call in (lambda: pynvml.nvmlDeviceGetTemperature(handle, 0), pynvml.nvmlShutdown):
    try:
        call()
    except pynvml.NVMLError as error:
        print(error.value)
"""
    output = subprocess.run([sys.executable, "-c", code], env=nvml.env(), capture_output=True,
                            text=True, check=True)
    assert output.stdout.split() == [str(nvml.gpus[0]["temp"]), "1", "1"]


def test_saves_in_quick_succession_are_all_seen(nvml: FakeNvml) -> None:
    board = handle()
    for temp in range(200):
        nvml.gpus[0]["temp"] = 20 + temp % 70
        nvml.save()
        assert pynvml.nvmlDeviceGetTemperature(board, 0) == nvml.gpus[0]["temp"]
