"""Boards of AMD, from public captures of four of them (tests/captures/amd) and a made-up MI300."""

import base64
import os
import random
import struct
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agent.backends import BACKENDS, ReaderUnavailableError
from agent.backends.amd import doctor as amd_doctor
from agent.backends.amd.board import AmdBoard
from agent.backends.amd.doctor import checks
from agent.backends.amd.gpu_metrics import LAYOUTS, read_gpu_metrics
from agent.backends.amd.reader import AmdReader
from agent.backends.check import DoctorCheck, checks_of, doctor_modules
from agent.backends.drm_clients import TURNS
from agent.backends.nvml import doctor as nvml_doctor
from agent.backends.nvml.report import DriverReport
from agent.readings import GpuReading, Reading
from gpudeck.contract.pool_messages import Leased, LeasedGpu
from gpudeck.contract.vendors import PCI
from gpudeck.measures.metrics import COLUMN, SLOW_COLUMN, Absence
from gpudeck.pool.environment import environment
from tests.fakes.amd import BOARDS, grow, open_file


class Machine:
    """A machine whose /sys and /proc stand in a folder."""

    def __init__(self, root: Path) -> None:
        self.root, self.now = root, 100.0
        (root / "module").mkdir()
        (root / "proc").mkdir()
        (root / "machine-id").write_text("4f2c0f9e6d5b4a7c8e1f2a3b4c5d6e7f\n")

    def add(self, files: Mapping[str, Any], card: int = 0) -> Path:
        moved = {name.replace(name.split("/")[0], f"card{card}", 1) if name.startswith("card")
                 else name: content for name, content in files.items()}
        grow(self.root / "drm", {k: v for k, v in moved.items() if k.startswith("card")})
        grow(self.root, {k: v for k, v in moved.items() if not k.startswith("card")})
        return self.root / f"drm/card{card}/device"

    def reader(self) -> AmdReader:
        return AmdReader(self.root / "drm", self.root / "proc", self.root / "kfd",
                         self.root / "module", (self.root / "machine-id",), lambda: self.now)

    def open_file(self, pid: int, number: int, lines: str, device: str = "/dev/dri/renderD128"
                  ) -> None:
        open_file(self.root / f"proc/{pid}", number, lines, device)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def values(gpu: GpuReading, *keys: str) -> dict[str, float | None]:
    return {key: gpu.value(key) for key in keys}


def missing(reading: Reading, key: str) -> str | None:
    return reading.facts[0].missing.get(key)


# What LACT reads out of the same files.
EXPECTED: dict[str, dict[str, float | None]] = {
    "rx6900xt": {"util_pct": 3, "mem_util_pct": 0, "mem_used_bytes": 668_274_688, "temp_c": 56,
                 "mem_temp_c": 54, "power_w": 36, "sm_clock_mhz": 500, "mem_clock_mhz": 1_000,
                 "fan_pct": 0, "fan_rpm": 0, "power_limit_w": 289, "pcie_gen": 4,
                 "pcie_width": 16, "pcie_replays": 0, "temp_margin_c": 44},
    "vega56": {"util_pct": 0, "mem_util_pct": None, "mem_used_bytes": 16_613_376, "temp_c": 38,
               "mem_temp_c": 39, "power_w": 8, "sm_clock_mhz": 26, "mem_clock_mhz": 167,
               "energy_j": None, "fan_rpm": 5, "power_limit_w": 260, "pcie_gen": 3},
    # It works with the processor's memory, too: 1,272,893,440 of its own and 211,398,656 of that.
    "phoenix": {"util_pct": 0, "mem_used_bytes": 1_484_292_096, "temp_c": 25, "mem_temp_c": None,
                "power_w": 3.103, "sm_clock_mhz": 800, "mem_clock_mhz": 400, "fan_pct": None,
                "energy_j": None, "power_limit_w": None},
    # The capture lacks its memory.
    "rx9070": {"util_pct": 25, "mem_used_bytes": None, "temp_c": 48, "mem_temp_c": 72,
               "power_w": 49, "sm_clock_mhz": 900, "mem_clock_mhz": 1_124, "energy_j": None,
               "fan_rpm": 1_944, "power_limit_w": 200, "pcie_gen": 5},
}


@pytest.mark.parametrize("board", BOARDS)
def test_a_board_reads_as_its_second_reader_has_it(machine: Machine, board: str) -> None:
    machine.add(BOARDS[board])
    gpu, = machine.reader().read().gpus
    assert gpu.state == "ok"
    assert values(gpu, *EXPECTED[board]) == pytest.approx(EXPECTED[board])


def test_facts_of_a_board(machine: Machine) -> None:
    machine.add(BOARDS["rx6900xt"])
    facts, = machine.reader().read().facts
    assert (facts.uuid, facts.pci_bus_id, facts.vbios) == (
        "GPU-946d7e1ef9b172dd", "0000:0c:00.0", "113-D4121EXT-CO1")
    assert (facts.mem_total_bytes, facts.power_limit_max_w, facts.sm_clock_max_mhz) == (
        17_163_091_968, 332, 2_660)
    assert (facts.temp_slowdown_c, facts.temp_shutdown_c, facts.mem_temp_max_c) == (100, 105, 100)
    assert (facts.numa_node, facts.pcie_gen_max, facts.pcie_width_max) == (None, 4, 16)
    assert facts.missing["sm_active_pct"] == "unsupported"


def test_a_board_without_a_number_of_its_own_is_known_by_machine_and_place(
        machine: Machine, tmp_path: Path) -> None:
    machine.add(BOARDS["vega56"])
    machine.add({name: content.replace("0000:0b:00.0", "0000:0d:00.0")
                 for name, content in BOARDS["vega56"].items()}, 1)
    here = [facts.uuid for facts in machine.reader().read().facts]
    (machine.root / "machine-id").write_text("another\n")
    there = [facts.uuid for facts in machine.reader().read().facts]
    assert len({*here, *there}) == 4


def test_the_name_is_of_the_machines_list_of_devices(
        machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = tmp_path / "pci.ids"
    ids.write_text("1002  AMD\n\t687f  Vega 10 XL/XT\n\t\t1043 0555  another\n"
                   "10de  NVIDIA\n\t73bf  wrong\n")
    monkeypatch.setattr(AmdBoard.__init__, "__defaults__",
                        ((machine.root / "machine-id",), (ids,)))
    machine.add(BOARDS["vega56"])
    machine.add(BOARDS["rx6900xt"], 1)
    assert [facts.name for facts in machine.reader().read().facts] == [
        "AMD Vega 10 XL/XT", "AMD GPU 1002:73bf"]


def table(version: tuple[int, int], **numbers: int) -> bytes:
    layout = LAYOUTS[version]
    table_bytes = bytearray(b"\xff" * layout.size)
    struct.pack_into("<HBB", table_bytes, 0, layout.size, *version)
    for name, value in numbers.items():
        struct.pack_into("<Q", table_bytes, getattr(layout, name), value)
    return bytes(table_bytes)


@pytest.mark.parametrize(("version", "at"), [
    ((1, 3), 24), ((1, 4), 24), ((1, 5), 88), ((1, 6), 16), ((1, 7), 24), ((1, 8), 24)])
def test_energy_stands_where_the_kernel_puts_it(version: tuple[int, int], at: int) -> None:
    table_bytes = bytearray(table(version))
    struct.pack_into("<Q", table_bytes, at, 10_000_000)
    metrics = read_gpu_metrics(bytes(table_bytes))
    assert metrics is not None
    assert metrics.energy_j == pytest.approx(152.59)


def test_a_table_is_believed_only_where_its_size_is_that_of_its_version() -> None:
    whole = table((1, 3), energy=1)
    assert read_gpu_metrics(whole + bytes(4_000)) is not None
    assert read_gpu_metrics(whole[:-1]) is None
    assert read_gpu_metrics(struct.pack("<HBB", 120, 1, 9) + bytes(116)) is None
    assert read_gpu_metrics(struct.pack("<HBB", 121, 1, 3) + bytes(200)) is None
    assert read_gpu_metrics(b"") is None
    nothing = read_gpu_metrics(table((1, 3)))
    assert nothing is not None
    assert (nothing.energy_j, nothing.throttle_bits) == (None, None)


def test_reasons_of_throttling_are_ours() -> None:
    for bit, reason in ((0, 0x4), (16, 0x4), (36, 0x20), (47, 0x40), (57, 0)):
        metrics = read_gpu_metrics(table((1, 3), throttle=1 << bit))
        assert metrics is not None
        assert metrics.throttle_bits == reason


# Made up from the kernel's source: no public capture of one was found.
MI300: dict[str, Any] = {
    "card0/device/vendor": "0x1002\n",
    "card0/device/uevent": "DRIVER=amdgpu\nPCI_ID=1002:74A1\nPCI_SLOT_NAME=0000:05:00.0\n",
    "card0/device/unique_id": "f2c1b0a993847566\n",
    "card0/device/product_name": "AMD Instinct MI300X OAM\n",
    "card0/device/gpu_busy_percent": "97\n",
    "card0/device/mem_busy_percent": "41\n",
    "card0/device/mem_info_vram_total": "206141652992\n",
    "card0/device/mem_info_vram_used": "150323855360\n",
    "card0/device/pp_dpm_sclk": "0: 132Mhz\n1: 2100Mhz *\n",
    "card0/device/pp_dpm_mclk": "0: 900Mhz\n1: 1300Mhz *\n",
    "card0/device/ras/umc_err_count": "ue: 1\nce: 20\nde: 0\n",
    "card0/device/ras/gfx_err_count": "ue: 0\nce: 3\n",
    "card0/device/ras/gpu_vram_bad_pages":
        "0x00000001 : 0x00001000 : R\n0x00000002 : 0x00001000 : P\n",
    "card0/device/hwmon/hwmon3/name": "amdgpu\n",
    "card0/device/hwmon/hwmon3/power1_input": "612000000\n",
    "card0/device/hwmon/hwmon3/power1_cap": "750000000\n",
    "card0/device/hwmon/hwmon3/temp2_label": "junction\n",
    "card0/device/hwmon/hwmon3/temp2_input": "68000\n",
    "card0/device/hwmon/hwmon3/temp3_label": "mem\n",
    "card0/device/hwmon/hwmon3/temp3_input": "55000\n",
    "card0/device/gpu_metrics": {"base64": base64.b64encode(
        table((1, 5), energy=10**9)).decode()},
    "kfd/topology/nodes/1/gpu_id": "4711\n",
    "kfd/topology/nodes/1/properties": "domain 0\nlocation_id 1280\n",
    "kfd/proc/900/vram_4711": "75161927680\n",
    "kfd/proc/901/vram_4711": "0\n",
    "kfd/proc/902/vram_815": "1000\n",
}


def test_a_made_up_mi300(machine: Machine) -> None:
    machine.add(MI300)
    gpu, = machine.reader().read().gpus
    truth = {"temp_c": 68, "mem_temp_c": 55, "power_w": 612, "sm_clock_mhz": 2_100,
                "mem_clock_mhz": 1_300, "energy_j": 15_259, "fan_pct": None, "util_pct": 97,
                "ecc_corrected": 23, "ecc_uncorrected": 1, "pages_uncorrected": 1,
                "pages_pending": 1, "power_limit_w": 750}
    assert values(gpu, *truth) == pytest.approx(truth)


def test_errors_that_cannot_be_asked_are_unknown_and_not_none(machine: Machine) -> None:
    machine.add(MI300 | {"card0/device/ras/gfx_err_count": "Query currently inaccessible\n"})
    gpu, = machine.reader().read().gpus
    assert gpu.slow_absent[SLOW_COLUMN["ecc_uncorrected"]] == Absence.UNKNOWN


def test_compute_is_listed_by_memory_and_not_by_who_opened_the_driver(machine: Machine) -> None:
    machine.add(MI300)
    machine.open_file(900, 5, "drm-pdev:\t0000:05:00.0\ndrm-client-id:\t7\n"
                              "drm-memory-vram:\t73400320 KiB\n")
    processes = machine.reader().read().processes
    assert processes is not None
    assert [(p.pid, p.kind, p.mem_used_bytes, p.sm_pct) for p in processes] == [
        (900, "compute", 75_161_927_680.0, None)]


CLIENT = ("drm-driver:\tamdgpu\ndrm-pdev:\t0000:0c:00.0\ndrm-client-id:\t{client}\n"
          "drm-memory-vram:\t1024 KiB\ndrm-memory-gtt: \t50 KiB\n"
          "drm-engine-gfx:\t{gfx} ns\n")


def test_a_client_that_is_open_twice_counts_once(machine: Machine) -> None:
    machine.add(BOARDS["rx6900xt"])
    for number in (3, 4):
        machine.open_file(50, number, CLIENT.format(client=9, gfx=1_000))
    machine.open_file(50, 5, CLIENT.format(client=10, gfx=1_000))
    machine.open_file(51, 3, "pos: 0\n", "/dev/null")
    reader = machine.reader()
    first = reader.read().processes
    assert first is not None
    assert [(p.pid, p.mem_used_bytes, p.sm_pct) for p in first] == [(50, 2 * 2**20, None)]
    machine.now += 2.0
    for number in (3, 4):
        machine.open_file(50, number, CLIENT.format(client=9, gfx=1_000 + 500_000_000))
    second = reader.read().processes
    assert second is not None
    assert second[0].sm_pct == pytest.approx(25)


def test_a_list_on_request_looks_at_every_process_and_the_others_at_few(machine: Machine) -> None:
    machine.add(BOARDS["rx6900xt"])
    first, start = random.sample(range(50, 1_000, TURNS), 2)
    quiet = {start + turn for turn in range(TURNS)}
    machine.open_file(first, 3, CLIENT.format(client=1, gfx=1))
    for pid in quiet:
        machine.open_file(pid, 3, "pos: 0\n", "/dev/null")
    reader = machine.reader()

    def listed() -> set[int]:
        machine.now += 2.0
        processes = reader.read().processes
        assert processes is not None
        return {process.pid for process in processes}

    def begin() -> None:
        for pid in quiet:
            machine.open_file(pid, 4, CLIENT.format(client=pid, gfx=1))

    assert listed() == {first}
    begin()
    assert {process.pid for process in reader.fresh().processes} == {first, *quiet}
    for pid in quiet:
        (machine.root / f"proc/{pid}/fd/4").unlink()
    assert listed() == {first}
    # They hold none any more: the next one of each is seen when its turn comes, and from then on.
    begin()
    assert [len(listed() & quiet) for _ in range(2 * TURNS)] == [
        *range(1, TURNS + 1), *[TURNS] * TURNS]
    newcomer = 1_000 + first
    machine.open_file(newcomer, 3, CLIENT.format(client=9, gfx=1))
    assert newcomer in listed()


def test_a_sleeping_board_is_not_woken(machine: Machine) -> None:
    folder = machine.add(BOARDS["rx6900xt"])
    (folder / "power/runtime_status").write_text("suspended\n")
    (folder / "gpu_busy_percent").unlink()
    os.mkfifo(folder / "gpu_busy_percent")  # whoever opens it never comes back
    reader = machine.reader()
    reading = reader.read()
    assert reading.gpus[0].state == "ok"
    assert values(reading.gpus[0], "util_pct", "mem_used_bytes", "power_w", "temp_c") == {
        "util_pct": 0, "mem_used_bytes": 0, "power_w": None, "temp_c": None}
    assert "asleep" in reading.detail
    assert reader.fresh().mem_used_bytes == {"GPU-946d7e1ef9b172dd": 0}


def test_a_board_that_is_gone_is_lost_and_one_in_a_reset_in_error(machine: Machine) -> None:
    away = machine.add(BOARDS["vega56"])
    silent = machine.add(BOARDS["rx6900xt"], 1)
    reader = machine.reader()
    reader.read()
    away.parent.rename(machine.root / "away")
    for path in [*silent.iterdir(), *silent.glob("hwmon/hwmon5/*")]:
        if path.is_file() and path.name not in ("vendor", "uevent"):
            path.unlink()
            path.mkdir()  # to read it is an error that is none of those known
    for _ in range(5):
        machine.now += 1
        reading = reader.read()
    assert [gpu.state for gpu in reading.gpus] == ["lost", "error"]


def test_denied_is_not_unsupported(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = machine.add(BOARDS["rx6900xt"])
    real = os.open

    def refuse(path: Any, *args: Any, **options: Any) -> int:
        if str(path) == f"{folder}/gpu_busy_percent":
            raise PermissionError(13, "denied")
        return real(path, *args, **options)

    monkeypatch.setattr(os, "open", refuse)
    gpu, = machine.reader().read().gpus
    assert gpu.absent[COLUMN["util_pct"]] == Absence.DENIED


def test_boards_count_as_programs_of_rocm_count_them(machine: Machine) -> None:
    """A chip on which they do not run may come first on the bus."""
    machine.add(BOARDS["vega56"])
    machine.add(MI300 | {
        "card0/device/uevent": "PCI_SLOT_NAME=0000:c1:00.0\n",
        "kfd/topology/nodes/1/properties": f"domain 0\nlocation_id {0xc100}\n"}, 1)
    assert [facts.pci_bus_id for facts in machine.reader().read().facts] == [
        "0000:c1:00.0", "0000:0b:00.0"]


def test_a_run_on_a_leased_board_sees_that_board(machine: Machine) -> None:
    machine.add(MI300)
    facts, = machine.reader().read().facts
    lease = Leased("l1", "n1", (LeasedGpu(facts.uuid, facts.name, facts.index),), 2e9, 1_000, None,
                   60.0, (facts.uuid,))
    assert environment(lease, "auto", ()).set["ROCR_VISIBLE_DEVICES"] == "GPU-f2c1b0a993847566"


def test_sensors_that_come_again_under_another_number_are_read(machine: Machine) -> None:
    folder = machine.add(BOARDS["rx6900xt"])
    reader = machine.reader()
    reader.read()
    (folder / "hwmon/hwmon5").rename(folder / "hwmon/hwmon7")
    machine.now += 1
    assert reader.read().gpus[0].value("temp_c") == 56


def test_connectors_and_boards_of_others_are_no_boards(machine: Machine) -> None:
    machine.add(BOARDS["vega56"])
    machine.add(BOARDS["rx6900xt"] | {"card0/device/vendor": "0x10de\n"}, 1)
    grow(machine.root / "drm", {"card0-DP-1/device/vendor": "0x1002\n"})
    assert len(machine.reader().read().gpus) == 1


def test_without_boards_it_says_what_to_do(machine: Machine) -> None:
    with pytest.raises(ReaderUnavailableError, match="lspci") as none:
        machine.reader()
    assert none.value.state == "no_gpus"
    (machine.root / "module").rmdir()
    with pytest.raises(ReaderUnavailableError, match="modprobe amdgpu") as unloaded:
        machine.reader()
    assert unloaded.value.state == "no_driver"


def test_the_doctor_names_it_only_where_there_is_a_board(machine: Machine) -> None:
    places = {"drm": machine.root / "drm", "module": machine.root / "module",
              "kfd": machine.root / "kfd", "pci": machine.root / "pci"}
    assert list(checks("", False, **places)) == []
    machine.add(BOARDS["vega56"])
    board, compute = checks("", False, **places)
    assert board.verdict == "ok"
    assert "--backend amd" in board.says
    assert compute.verdict == "warning"


def test_the_doctor_says_that_a_board_has_no_driver(machine: Machine) -> None:
    grow(machine.root / "pci", a_pci_board("0x1002", "0x120000") | {
        "0000:00:00.0/vendor": "0x1022\n", "0000:00:00.0/class": "0x060000\n"})
    check, = checks("", False, machine.root / "drm", machine.root / "none",
                    pci=machine.root / "pci")
    assert (check.verdict, "modprobe amdgpu" in check.remedy) == ("warning", True)
    assert check.says.startswith("1 board,")


def a_pci_board(vendor: str, kind: str) -> dict[str, str]:
    return {f"{vendor}/vendor": f"{vendor}\n", f"{vendor}/class": f"{kind}\n"}


@pytest.mark.parametrize(("present", "problems"), [
    ((), ["library"]), (("0x1002",), []), (("0x10de",), ["library"]),
    (("0x1002", "0x10de"), ["library"])])
def test_the_doctor_misses_no_driver_of_boards_that_are_not_there(
        machine: Machine, monkeypatch: pytest.MonkeyPatch, present: tuple[str, ...],
        problems: list[str]) -> None:
    pci = machine.root / "pci"
    pci.mkdir()
    for vendor in present:
        grow(pci, a_pci_board(vendor, "0x030000"))
    monkeypatch.setattr(nvml_doctor, "checks", lambda released, is_alone: iter(
        [DoctorCheck("library", "NVIDIA library", "problem", "it is not there")]))
    monkeypatch.setattr(nvml_doctor, "driver_version", lambda: None)
    monkeypatch.setattr(nvml_doctor, "boards", partial(nvml_doctor.boards, pci, machine.root))
    count = amd_doctor.boards(pci)
    monkeypatch.setattr(amd_doctor, "boards", lambda *_: count)
    reported = list(checks_of(doctor_modules(), lambda vendor: ""))
    assert [check.key for check in reported if check.verdict == "problem"] == problems
    skipped = [check for check in reported if check.key == "no_nvidia"]
    assert [check.verdict for check in skipped] == ["not checked"] * (present == ("0x1002",))


@pytest.mark.parametrize("present", [("0x10de",), ("0x10de", "0x1002"), ("0x10de", "0x8086")])
def test_beside_boards_of_others_a_driver_that_hangs_is_not_waited_for_long(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, present: tuple[str, ...]) -> None:
    for vendor in present:
        grow(tmp_path / "pci", a_pci_board(vendor, "0x030000"))
    waits: list[float] = []

    def hangs(within_s: float) -> DriverReport:
        waits.append(within_s)
        return DriverReport()

    monkeypatch.setattr(nvml_doctor, "ask_driver", hangs)
    for module in doctor_modules():
        monkeypatch.setattr(module, "boards", partial(
            lambda vendor, *_: int(vendor in present), PCI[module.VENDOR]))
    driver, = [check for check in checks_of(doctor_modules(), lambda vendor: "")
               if check.key == "driver"]
    assert waits == [nvml_doctor.DRIVER_WITHIN_S if len(present) == 1
                     else nvml_doctor.BESIDE_OTHERS_WITHIN_S]
    assert f"nothing came within {waits[0]:.0f} s" in driver.says


def test_it_sets_no_limits_and_is_not_chosen_by_itself() -> None:
    assert not BACKENDS["amd"].capabilities.can_set_limits("")
    assert BACKENDS["nvml"].capabilities.can_set_limits("")
