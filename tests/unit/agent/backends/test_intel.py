"""Boards of Intel, from public captures of four of them and of two processors
(tests/captures/intel). What an open file says is made up from the kernel's source."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from agent.backends import BACKENDS, ReaderUnavailableError
from agent.backends.intel.doctor import boards, checks
from agent.backends.intel.engines import counts, own_memory
from agent.backends.intel.processes import TURNS
from agent.backends.intel.reader import IntelReader
from agent.readings import GpuReading, ProcessReading
from agent.tasks import privileges
from gpudeck.contract.vendors import INTEL, is_nvidia, vendor_of
from gpudeck.measures.metrics import COLUMN, Absence
from tests.fakes.amd import open_file
from tests.fakes.intel import FakeIntel

MIB = 2**20


class Machine(FakeIntel):
    """A machine whose /sys and /proc stand in a folder."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.now, self.proc = 100.0, root / "proc"
        self.proc.mkdir()
        (root / "machine-id").write_text("4f2c0f9e6d5b4a7c8e1f2a3b4c5d6e7f\n")

    def reader(self) -> IntelReader:
        return IntelReader(self.drm, self.proc, self.modules, (self.root / "machine-id",),
                           lambda: self.now)

    def open_file(self, pid: int, number: int, lines: str, device: str = "/dev/dri/renderD128"
                  ) -> None:
        open_file(self.proc / f"{pid}", number, lines, device)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr("agent.backends.drm_clients.sees_all", lambda proc: True)
    return Machine(tmp_path)


def values(gpu: GpuReading, *keys: str) -> dict[str, float | None]:
    return {key: gpu.value(key) for key in keys}


def listed(reader: IntelReader) -> list[ProcessReading]:
    processes = reader.read().processes
    assert processes is not None
    return list(processes)


# What LACT reads out of the same files; but for the clock of a part that is switched off, for which
# it shows the wanted one, and fan_pct and temp_margin_c, which are quotients and differences.
EXPECTED: dict[str, dict[str, float | None]] = {
    "a380-i915": {"temp_c": 55, "mem_temp_c": None, "energy_j": 25_637.161804, "sm_clock_mhz": 600,
                  "fan_rpm": 0, "fan_pct": None, "power_limit_w": 55, "power_limit_set_w": 55,
                  "throttle_bits": 0, "mem_clock_mhz": None, "temp_margin_c": None,
                  "pcie_gen": None, "pcie_width": None},
    "a380-xe": {"temp_c": 56, "mem_temp_c": 54, "energy_j": 59_540.97052, "sm_clock_mhz": 0,
                "fan_rpm": 945, "fan_pct": None, "power_limit_w": 55, "throttle_bits": 0,
                "temp_margin_c": None},
    "b580": {"temp_c": 54, "mem_temp_c": 56, "energy_j": 11_031.745544, "sm_clock_mhz": 0,
             "fan_rpm": 1_116, "fan_pct": 1_116 / 2_160 * 100, "power_limit_w": 190,
             "throttle_bits": 0, "temp_margin_c": 46, "pcie_gen": None, "pcie_width": None},
    # Its counter of the card stands at 0: what counts is that of the chip.
    "b580-6.16": {"temp_c": 46, "mem_temp_c": 48, "energy_j": 29_523.753173, "sm_clock_mhz": 400,
                  "fan_rpm": 0, "power_limit_w": None, "throttle_bits": 0},
}
FACTS: dict[str, dict[str, Any]] = {
    "a380-i915": {"pci_bus_id": "0000:0b:00.0", "sm_clock_max_mhz": 2_450, "power_limit_w": 55,
                  "power_limit_max_w": None, "temp_slowdown_c": None},
    "a380-xe": {"pci_bus_id": "0000:08:00.0", "sm_clock_max_mhz": 2_450, "power_limit_w": 55,
                "numa_node": None},
    "b580": {"pci_bus_id": "0000:09:00.0", "sm_clock_max_mhz": 2_850, "power_limit_w": 190,
             "temp_slowdown_c": 100, "temp_shutdown_c": 125, "mem_temp_max_c": 105},
    "b580-6.16": {"pci_bus_id": "0000:0b:00.0", "sm_clock_max_mhz": 2_850, "power_limit_w": None},
}


@pytest.mark.parametrize("board", EXPECTED)
def test_a_board_reads_as_its_second_reader_has_it(machine: Machine, board: str) -> None:
    machine.add(board)
    gpu, = machine.reader().read().gpus
    assert gpu.state == "ok"
    assert values(gpu, *EXPECTED[board]) == pytest.approx(EXPECTED[board])


@pytest.mark.parametrize("board", FACTS)
def test_facts_of_a_board(machine: Machine, board: str) -> None:
    machine.add(board)
    facts, = machine.reader().read().facts
    assert {key: getattr(facts, key) for key in FACTS[board]} == FACTS[board]
    assert (vendor_of(facts.uuid), is_nvidia(facts.uuid)) == (INTEL, False)
    assert facts.mem_total_bytes is None, "neither driver of the captures shows it"
    assert facts.missing["sm_active_pct"] == facts.missing["mem_clock_mhz"] == "unsupported"


def test_the_name_is_of_the_machines_list_of_devices(machine: Machine, tmp_path: Path) -> None:
    from agent.backends.intel.board import IntelBoard

    ids = tmp_path / "pci.ids"
    ids.write_text("1002  AMD\n\te20b  wrong\n8086  Intel Corporation\n"
                   "\te20b  Battlemage G21 [Arc B580]\n")
    folder = machine.add("b580")
    assert IntelBoard(folder, 0, names=(ids,)).facts.name == "Intel Battlemage G21 [Arc B580]"
    assert IntelBoard(folder, 0, names=()).facts.name == "Intel GPU 8086:e20b"


def test_a_board_is_known_by_machine_and_place(machine: Machine) -> None:
    machine.add("a380-xe")
    machine.add("b580", 1)
    here = [facts.uuid for facts in machine.reader().read().facts]
    (machine.root / "machine-id").write_text("another\n")
    there = [facts.uuid for facts in machine.reader().read().facts]
    assert len({*here, *there}) == 4


@pytest.mark.parametrize("content", ["inf\n", "nan\n", "1e999\n", "9" * 400])
def test_a_counter_that_is_no_number_takes_nothing_else_away(machine: Machine, content: str
                                                            ) -> None:
    device = machine.add("b580")
    for path in device.glob("hwmon/hwmon*/energy*_input"):
        path.write_text(content)
    reader = machine.reader()
    for _ in range(2):
        gpu, = reader.read().gpus
        machine.now += 1.0
    assert gpu.state == "ok"
    assert values(gpu, "energy_j", "power_w") == {"energy_j": None, "power_w": None}
    assert gpu.value("temp_c") is not None


def test_a_machine_without_a_name_lends_its_boards_none(machine: Machine) -> None:
    """Images of containers have no machine-id, or an empty one: the boards of all machines would
    have the same UUIDs."""
    machine.add("b580")
    name = machine.root / "machine-id"
    for content in ("", "uninitialized\n"):
        name.write_text(content)
        with pytest.raises(ReaderUnavailableError, match="mount the machine's file"):
            machine.reader()
    (machine.root / "of-the-machine").write_text("4f2c0f9e6d5b4a7c8e1f2a3b4c5d6e7f\n")
    places = (machine.root / "of-the-machine", name)
    uuids = []
    for content in ("", "the image's own\n"):
        name.write_text(content)
        facts, = IntelReader(machine.drm, machine.proc, machine.modules, places).read().facts
        uuids.append(facts.uuid)
    assert uuids[0] == uuids[1]


@pytest.mark.parametrize("processor", ["cometlake", "tigerlake"])
def test_the_graphics_of_a_processor_are_no_board(machine: Machine, processor: str) -> None:
    machine.add(processor)
    with pytest.raises(ReaderUnavailableError, match="processor's own") as none:
        machine.reader()
    assert none.value.state == "no_gpus"
    machine.add("b580", 1)
    assert [facts.pci_bus_id for facts in machine.reader().read().facts] == ["0000:09:00.0"]


def test_a_board_at_that_place_is_one(machine: Machine) -> None:
    """A virtual machine may have it there."""
    folder = machine.add("b580")
    lines = (folder / "uevent").read_text()
    (folder / "uevent").write_text(lines.replace("0000:09:00.0", "0000:00:02.0"))
    assert len(machine.reader().read().gpus) == 1


def test_power_is_the_difference_of_energy(machine: Machine) -> None:
    folder = machine.add("b580-6.16")
    counter = folder / "hwmon/hwmon4/energy2_input"
    reader = machine.reader()
    assert reader.read().gpus[0].value("power_w") is None
    for seconds, microjoules, watts in ((1.0, 60_000_000, 60.0), (2.0, 300_000_000, 150.0)):
        counter.write_text(f"{int(counter.read_text()) + microjoules}\n")
        machine.now += seconds
        assert reader.read().gpus[0].value("power_w") == pytest.approx(watts)
    # The other counter begins to count: it is another sensor, not the same one set back.
    (folder / "hwmon/hwmon4/energy1_input").write_text("7\n")
    counter.write_text(f"{int(counter.read_text()) + 10_000_000}\n")
    machine.now += 1.0
    assert reader.read().gpus[0].value("power_w") == pytest.approx(10.0)
    # The driver was loaded again: nobody knows how far it had come.
    counter.write_text("5\n")
    machine.now += 1.0
    assert reader.read().gpus[0].value("power_w") is None


def test_the_memory_of_all_tiles_is_the_boards(machine: Machine) -> None:
    folder = machine.add("b580")
    for tile, size in (("tile0", 12 * 2**30), ("tile1", 4 * 2**30)):
        (folder / tile).mkdir(exist_ok=True)
        (folder / tile / "physical_vram_size_bytes").write_text(f"{size}\n")
    assert machine.reader().read().facts[0].mem_total_bytes == 16 * 2**30


@pytest.mark.parametrize(("reasons", "bits"), [
    ((), 0), (("pl1",), 0x4), (("thermal", "pl2"), 0x24), (("prochot",), 0x40),
    (("vr_thermalert", "ratl"), 0x60), (("a_reason_to_come",), 0x4)])
def test_reasons_of_throttling_are_ours(machine: Machine, reasons: tuple[str, ...], bits: int
                                        ) -> None:
    throttle = machine.add("b580") / "tile0/gt0/freq0/throttle"
    for reason in reasons:
        (throttle / f"reason_{reason}").write_text("1\n")
    (throttle / "status").write_text(f"{int(bool(reasons))}\n")
    assert machine.reader().read().gpus[0].value("throttle_bits") == bits


def test_i915_has_its_reasons_in_another_place(machine: Machine) -> None:
    part = machine.add("a380-i915").parent / "gt/gt0"
    (part / "throttle_reason_status").write_text("1\n")
    (part / "throttle_reason_pl4").write_text("1\n")
    assert machine.reader().read().gpus[0].value("throttle_bits") == 0x4


def test_the_link_is_that_of_the_switch_before_the_board(machine: Machine) -> None:
    """A board reports one lane of 2.5 GT/s, whatever its slot gives."""
    folder = machine.add("b580")
    port = machine.root / "pci/0000:07:00.0"
    real = port / "0000:08:01.0/0000:09:00.0"
    real.parent.mkdir(parents=True)
    for name, content in (("vendor", "0x8086"), ("class", "0x060400"), ("max_link_width", "8"),
                          ("current_link_speed", "16.0 GT/s PCIe"), ("current_link_width", "8"),
                          ("max_link_speed", "16.0 GT/s PCIe")):
        (port / name).write_text(f"{content}\n")
    folder.rename(real)
    folder.symlink_to(real)
    reading = machine.reader().read()
    assert values(reading.gpus[0], "pcie_gen", "pcie_width") == {"pcie_gen": 4, "pcie_width": 8}
    assert (reading.facts[0].pcie_gen_max, reading.facts[0].pcie_width_max) == (4, 8)


XE = ("drm-driver:\txe\ndrm-client-id:\t{client}\ndrm-pdev:\t0000:09:00.0\n"
      "drm-total-system:\t0\ndrm-resident-system:\t0\ndrm-total-gtt:\t384 KiB\n"
      "drm-resident-gtt:\t384 KiB\ndrm-total-vram0:\t{total}\ndrm-shared-vram0:\t0\n"
      "drm-resident-vram0:\t{resident}\ndrm-resident-stolen:\t0\n"
      "drm-cycles-rcs:\t{rcs}\ndrm-total-cycles-rcs:\t{all}\n"
      "drm-cycles-ccs:\t{ccs}\ndrm-total-cycles-ccs:\t{all}\ndrm-engine-capacity-ccs:\t{ccses}\n"
      "drm-cycles-bcs:\t{all}\ndrm-total-cycles-bcs:\t{all}\n")


def xe(client: int, **changed: object) -> str:
    fields: dict[str, object] = {"total": "0", "resident": "0", "rcs": 0, "ccs": 0, "all": 1_000,
                                 "ccses": 1}
    return XE.format(**fields | {"client": client} | changed)


@pytest.mark.parametrize(("resident", "count"), [
    ("0", 0), ("23992 KiB", 23_992 * 1_024), ("16 MiB", 16 * MIB), ("8 GiB", 8 * 2**30),
    ("4096", 4_096), ("7 XiB", None), ("many", None)])
def test_memory_comes_in_several_units(resident: str, count: int | None) -> None:
    assert own_memory({"drm-resident-vram0": resident, "drm-resident-gtt": "9 GiB"}) == count


def test_memory_of_all_tiles_and_of_both_drivers() -> None:
    assert own_memory({"drm-resident-vram0": "1 MiB", "drm-resident-vram1": "2 MiB"}) == 3 * MIB
    assert own_memory({"drm-resident-local0": "1 MiB", "drm-total-local0": "5 MiB",
                       "drm-resident-stolen-local0": "8 MiB"}) == MIB
    assert own_memory({"drm-total-local0": "5 MiB"}) == 5 * MIB
    assert own_memory({"drm-resident-system0": "5 MiB"}) is None, "it is not the board's own"


def test_what_counts_nothing_has_no_counters() -> None:
    assert counts({"drm-driver": "i915", "drm-client-id": "7"}) == {}
    assert counts({"drm-cycles-rcs": "7"}) == {}, "a share of what?"
    assert counts({"drm-engine-render": "7 ns", "drm-engine-copy": "9 ns"}).keys() == {"render"}


def test_use_of_a_board_is_the_sum_of_its_processes(machine: Machine) -> None:
    machine.add("b580")
    machine.open_file(50, 3, xe(1, resident="100 MiB", rcs=0, ccs=0, all=1_000))
    machine.open_file(50, 4, xe(1, resident="100 MiB", rcs=0, ccs=0, all=1_000))  # the same one
    machine.open_file(51, 3, xe(2, resident="50 MiB", rcs=0, ccs=0, all=1_000))
    machine.open_file(52, 3, "pos: 0\n", "/dev/null")
    reader = machine.reader()
    first = reader.read().gpus[0]
    assert values(first, "util_pct", "mem_used_bytes") == {
        "util_pct": None, "mem_used_bytes": 150 * MIB}
    assert first.absent[COLUMN["util_pct"]] == Absence.UNKNOWN
    machine.now += 1.0
    machine.open_file(50, 3, xe(1, resident="100 MiB", rcs=100, ccs=300, all=2_000))
    machine.open_file(50, 4, xe(1, resident="100 MiB", rcs=100, ccs=300, all=2_000))
    machine.open_file(51, 3, xe(2, resident="50 MiB", rcs=500, ccs=0, all=2_000))
    reading = reader.read()
    assert reading.gpus[0].value("util_pct") == pytest.approx(60), "the busier of the two engines"
    assert [(p.pid, p.mem_used_bytes, p.kind) for p in reading.processes or ()] == [
        (50, 100 * MIB, "compute"), (51, 50 * MIB, "graphics")]
    assert [p.sm_pct for p in reading.processes or ()] == pytest.approx([30, 50])


def test_a_class_of_several_engines_is_busy_when_all_are(machine: Machine) -> None:
    machine.add("b580")
    machine.open_file(50, 3, xe(1, ccs=0, all=0, ccses=4))
    reader = machine.reader()
    reader.read()
    machine.now += 1.0
    machine.open_file(50, 3, xe(1, ccs=1_000, all=1_000, ccses=4))
    assert reader.read().gpus[0].value("util_pct") == pytest.approx(25)


I915 = ("drm-driver:\ti915\ndrm-client-id:\t7\ndrm-pdev:\t0000:0b:00.0\n"
        "drm-total-local0:\t2048 KiB\ndrm-resident-local0:\t1024 KiB\n"
        "drm-engine-render:\t{render} ns\ndrm-engine-compute:\t{compute} ns\n")


def test_i915_counts_nanoseconds(machine: Machine) -> None:
    machine.add("a380-i915")
    machine.open_file(50, 3, I915.format(render=5, compute=9))
    reader = machine.reader()
    reader.read()
    machine.now += 2.0
    machine.open_file(50, 3, I915.format(render=5, compute=9 + 1_500_000_000))
    process, = listed(reader)
    assert (process.mem_used_bytes, process.kind) == (MIB, "compute")
    assert process.sm_pct == pytest.approx(75)


def test_a_kernel_without_counters_shows_no_utilization(machine: Machine) -> None:
    """i915 leaves them out of kernels that cannot ask the firmware: 0 would be a lie."""
    machine.add("a380-i915")
    lines = I915.partition("drm-total")[0]
    machine.open_file(50, 3, lines)
    reader = machine.reader()
    reader.read()
    machine.now += 1.0
    gpu = reader.read().gpus[0]
    assert [gpu.absent[COLUMN[key]] for key in ("util_pct", "mem_used_bytes")] == [
        Absence.UNKNOWN] * 2
    machine.now += 1.0
    assert [(p.pid, p.mem_used_bytes, p.sm_pct) for p in listed(reader)] == [(50, None, None)]
    # Nor next to one that has them.
    for seconds in (1, 2):
        machine.open_file(51, 3, I915.replace("id:\t7", "id:\t8").format(
            render=seconds * 10**8, compute=0))
        machine.now += 1.0
        gpu = reader.read().gpus[0]
    assert gpu.absent[COLUMN["util_pct"]] == Absence.UNKNOWN


def test_an_unused_board_is_idle_and_empty(machine: Machine) -> None:
    machine.add("b580")
    gpu = machine.reader().read().gpus[0]
    assert values(gpu, "util_pct", "mem_used_bytes") == {"util_pct": 0, "mem_used_bytes": 0}


def test_where_a_process_may_be_hidden_use_is_denied(
        machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum of those that can be seen is too small: the board would look free."""
    machine.add("b580")
    machine.open_file(50, 3, xe(1, resident="100 MiB"))
    monkeypatch.setattr("agent.backends.drm_clients.sees_all", lambda proc: False)
    reader = machine.reader()
    reading = reader.read()
    assert [reading.gpus[0].absent[COLUMN[key]] for key in ("util_pct", "mem_used_bytes")] == [
        Absence.DENIED] * 2
    assert reading.facts[0].missing["util_pct"] == "denied"
    assert "GPU 0 shows neither utilization nor memory" in reading.detail
    assert reader.fresh().mem_used_bytes == {reading.facts[0].uuid: None}
    assert [process.pid for process in reading.processes or ()] == [50]


def test_a_process_that_may_not_be_looked_at_is_a_hidden_one(
        machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.add("b580")
    machine.open_file(50, 3, xe(1, resident="100 MiB"))
    real = os.listdir

    def refuse(path: Any) -> list[str]:
        if str(path) == f"{machine.proc}/50/fd":
            raise PermissionError(13, "denied")
        return real(path)

    monkeypatch.setattr(os, "listdir", refuse)
    reader = machine.reader()

    def why() -> int:
        machine.now += 1.0
        return reader.read().gpus[0].absent[COLUMN["mem_used_bytes"]]

    assert {why() for _ in range(2 * TURNS)} == {Absence.DENIED}
    shutil.rmtree(machine.proc / "50")
    assert why() == Absence.PRESENT


@pytest.mark.parametrize(("mask", "is_host", "sees"), [
    (1 << 19, True, True), (1 << 19, False, False), (0, True, False)])
def test_only_who_may_look_at_everybody_sees_all(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mask: int, is_host: bool, sees: bool
        ) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self/status").write_text(f"Name:\tx\nCapEff:\t{mask:016x}\n")
    monkeypatch.setattr(privileges, "in_host_namespace", lambda proc: is_host)
    assert privileges.sees_all(tmp_path) == sees


def test_a_sleeping_board_is_not_woken_by_its_clients(machine: Machine) -> None:
    folder = machine.add("b580")
    (folder / "drm/renderD128").mkdir(parents=True)
    machine.open_file(50, 3, xe(1, resident="100 MiB", ccs=1))
    reader = machine.reader()
    reader.read()
    (folder / "power/runtime_status").write_text("suspended\n")
    pipe = folder / "tile0/gt0/freq0/act_freq"
    pipe.unlink()
    os.mkfifo(pipe)  # whoever opens it never comes back
    machine.open_file(50, 3, xe(1, resident="999 MiB", ccs=1))  # nobody reads that
    machine.now += 1.0
    reading = reader.read()
    assert values(reading.gpus[0], "util_pct", "mem_used_bytes", "power_w", "temp_c") == {
        "util_pct": 0, "mem_used_bytes": 100 * MIB, "power_w": None, "temp_c": None}
    assert "asleep" in reading.detail
    assert [(p.pid, p.mem_used_bytes, p.sm_pct) for p in reading.processes or ()] == [
        (50, 100 * MIB, None)]


def test_a_board_that_is_gone_is_lost_and_one_in_a_reset_in_error(machine: Machine) -> None:
    away, silent = machine.add("a380-xe"), machine.add("b580", 1)
    reader = machine.reader()
    reader.read()
    away.parent.rename(machine.root / "away")
    for path in [*silent.rglob("*")]:
        if path.is_file() and path.name not in ("vendor", "uevent"):
            path.unlink()
            path.mkdir()  # to read it is an error that is none of those known
    machine.open_file(50, 3, "drm-pdev:\t0000:09:00.0\ndrm-client-id:\t1\n")
    for _ in range(5):
        machine.now += 1
        reading = reader.read()
    assert [gpu.state for gpu in reading.gpus] == ["lost", "error"]
    assert "look for xe in `dmesg`" in reading.detail


def test_without_boards_it_says_what_to_do(machine: Machine) -> None:
    with pytest.raises(ReaderUnavailableError, match="lspci") as none:
        machine.reader()
    assert none.value.state == "no_gpus"
    shutil.rmtree(machine.modules)
    with pytest.raises(ReaderUnavailableError, match="modprobe xe") as unloaded:
        machine.reader()
    assert unloaded.value.state == "no_driver"


def test_the_version_is_of_the_driver_that_has_the_boards(machine: Machine) -> None:
    machine.add("a380-i915")
    version = machine.reader().read().driver_version
    assert version is not None
    assert version.startswith("i915, Linux ")


def test_the_doctor_names_it_only_where_there_is_a_board(machine: Machine) -> None:
    places = {"drm": machine.drm, "modules": machine.modules, "pci": machine.root / "pci"}
    machine.add("tigerlake")
    pci_board(machine.root, "0000:00:02.0")
    assert list(checks("", False, **places)) == []
    assert boards(machine.root / "pci") == 0
    pci_board(machine.root, "0000:09:00.0")
    without, = checks("", False, **places)
    assert (without.verdict, without.says.startswith("1 board,")) == ("warning", True)
    assert "modprobe xe" in without.remedy
    machine.add("b580", 1)
    board, *_ = checks("", False, **places)
    assert (board.verdict, "--backend intel" in board.says) == ("ok", True)


def test_the_doctor_says_that_use_is_not_known(machine: Machine, tmp_path: Path) -> None:
    machine.add("b580")
    _, hidden = checks("", False, machine.drm, machine.modules, machine.root / "pci", tmp_path)
    assert (hidden.key, hidden.verdict) == ("intel-processes", "warning")
    assert "CAP_SYS_PTRACE" in hidden.remedy


def pci_board(root: Path, address: str) -> None:
    folder = root / "pci" / address
    folder.mkdir(parents=True)
    (folder / "vendor").write_text("0x8086\n")
    (folder / "class").write_text("0x030000\n")


def test_it_sets_no_limits_and_is_not_chosen_by_itself() -> None:
    backend = BACKENDS["intel"]
    assert not backend.capabilities.can_set_limits("")
    assert (backend.repair_module(), backend.suspend_module()) == (None, None)
    assert {name for name in BACKENDS if "," in name} == {
        "nvml,amd", "nvml,intel", "amd,intel", "nvml,amd,intel"}
