"""Readings of several vendors' drivers, put together second by second."""

import math
import random
from collections.abc import Callable

import pytest
from msgspec import structs

from agent.backends import BACKENDS
from agent.reader.inbox import ReaderInbox
from agent.reader.mixed import MixedInbox, ReaderPart
from agent.readings import BoardNote, GpuReading, OnDemandReading, ProcessReading, Reading
from gpudeck.contract.wire import GpuFacts, GpuLink
from gpudeck.measures.metrics import COLUMN, WIDTH, Absence

MIXED = BACKENDS["nvml,amd"]
NVIDIA = ("GPU-5d0a1c7e-0000-4000-8000-000000000001", "GPU-5d0a1c7e-0000-4000-8000-000000000002")
AMD = ("GPU-946d7e1ef9b172dd", "AMD-0b6ff2cc-5a0e-5c38-8f0c-2f1d4d0f4a11")
GIB = 2**30


def gpu(uuid: str, util: float = 0.0) -> GpuReading:
    values = [0.0] * WIDTH
    values[COLUMN["util_pct"]] = util
    return GpuReading(uuid, "ok", tuple(values), bytes(WIDTH))


class Machine:
    """Two parts and the node's inbox; `second` is one tick of both."""

    def __init__(self, begin_within_s: float = math.inf) -> None:
        self.node, self.at = ReaderInbox(), 1_000.0
        self.parts = [ReaderPart(part, ReaderInbox(), place > 0, count)
                      for place, (part, count) in enumerate(zip(
                          MIXED.parts, (len(NVIDIA), len(AMD)), strict=True))]
        self.nvidia, self.amd = (part.inbox for part in self.parts)
        self.starts = {7: 70, 8: 80}  # of processes, by pid
        self.mixed = MixedInbox(self.node, self.parts, self.starts.get, begin_within_s)

    def put(self, inbox: ReaderInbox, uuids: tuple[str, ...], util: float = 0.0,
            **changed: object) -> None:
        inbox.set_state("ok", "")
        inbox.put(structs.replace(Reading(
            self.at, 1.0, tuple(gpu(uuid, util) for uuid in uuids),
            tuple(GpuFacts(uuid, place, "a board") for place, uuid in enumerate(uuids)), None),
            **changed), self.at)

    def collect(self) -> Reading | None:
        self.mixed.collect(self.at, self.at)
        return self.node.latest()

    def second(self) -> Reading:
        self.at += 1.0
        self.put(self.nvidia, NVIDIA)
        self.put(self.amd, AMD)
        reading = self.collect()
        assert reading is not None
        return reading

    def kinds(self) -> list[str]:
        return [event.kind for event in self.node.take_events()]


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_both_are_one_reading_a_second(machine: Machine) -> None:
    machine.put(machine.nvidia, NVIDIA, driver_version="575.57", links=(GpuLink(0, 1, "board"),))
    assert machine.collect() is None, "the other one is waited for"
    machine.put(machine.amd, AMD, driver_version="Linux 6.8", links=(GpuLink(0, 1, "system"),))
    reading = machine.collect()
    assert reading is not None
    assert [facts.uuid for facts in reading.facts] == [*NVIDIA, *AMD]
    assert [gpu.uuid for gpu in reading.gpus] == [*NVIDIA, *AMD]
    assert [facts.index for facts in reading.facts] == [0, 1, 2, 3]
    assert [facts.driver for facts in reading.facts] == ["575.57"] * 2 + ["Linux 6.8"] * 2
    assert [(link.a, link.b) for link in reading.links] == [(0, 1), (2, 3)]
    assert reading.driver_version == "575.57", "what limits and suspensions are judged by"
    assert machine.collect() is None


def test_the_first_readings_wait_until_each_driver_has_answered_or_failed(machine: Machine) -> None:
    """Else the boards of the slower one would be reported as removed, and added a moment later."""
    machine.put(machine.amd, AMD)
    assert machine.collect() is None
    assert machine.node.state == "starting"
    machine.nvidia.set_state("no_driver", "load it")
    machine.put(machine.amd, AMD)
    reading = machine.collect()
    assert reading is not None
    assert [facts.uuid for facts in reading.facts] == [*AMD]
    assert (machine.node.state, machine.node.detail) == ("ok", "NVIDIA: load it")
    assert machine.kinds() == ["driver_gone"]


def test_who_only_looks_waits_for_no_driver_that_hangs_from_the_start(machine: Machine) -> None:
    """The boards of the other one are shown, under the numbers that they will have then; nothing is
    done by such a reading."""
    impatient = Machine(begin_within_s=3.0)
    for waits in (machine, impatient):
        waits.put(waits.amd, AMD, 10.0)
        assert waits.collect() is None
        waits.at += 3.0
        waits.put(waits.amd, AMD, 20.0)
    assert machine.collect() is None
    reading = impatient.collect()
    assert reading is not None
    assert [(facts.uuid, facts.index) for facts in reading.facts] == [(AMD[0], 2), (AMD[1], 3)]
    assert [gpu.value("util_pct") for gpu in reading.gpus] == [20.0, 20.0]
    assert reading.detail == impatient.node.detail == "NVIDIA: the driver has not answered yet."
    assert impatient.node.state == "ok"
    assert demand(impatient, None, OnDemandReading((), {})) is None
    impatient.put(impatient.nvidia, NVIDIA)
    impatient.put(impatient.amd, AMD)
    reading = impatient.collect()
    assert reading is not None
    assert [facts.index for facts in reading.facts] == [0, 1, 2, 3]
    assert reading.detail == ""


def test_people_know_a_board_by_its_number_on_the_node(machine: Machine) -> None:
    """Do not say the number by which its vendor counts: both count from 0."""
    asleep = (BoardNote(0, "is asleep."), BoardNote(1, "answers nothing."))
    for _ in range(2):
        machine.put(machine.nvidia, NVIDIA)
        machine.put(machine.amd, AMD, notes=asleep, detail="GPU 0 is asleep.")
        reading = machine.collect()
    assert reading is not None
    words = "AMD: GPU 2 is asleep. GPU 3 answers nothing."
    assert reading.detail == words
    machine.collect()
    assert machine.node.detail == words


def test_a_note_on_a_board_that_is_left_out_is_left_out(machine: Machine) -> None:
    machine.put(machine.nvidia, NVIDIA)
    machine.put(machine.amd, (AMD[0], NVIDIA[0]), notes=(BoardNote(1, "is asleep."),))
    reading = machine.collect()
    assert reading is not None
    assert "asleep" not in reading.detail


def test_one_that_is_late_is_not_waited_for_and_its_numbers_are_not_said_again(
        machine: Machine) -> None:
    machine.second()
    machine.put(machine.nvidia, NVIDIA, 30.0)
    assert machine.collect() is None
    machine.put(machine.nvidia, NVIDIA, 40.0)
    reading = machine.collect()
    assert reading is not None
    assert [gpu.value("util_pct") for gpu in reading.gpus] == [30.0, 30.0, None, None]
    assert [gpu.state for gpu in reading.gpus] == ["ok"] * 4, "late, and not yet in trouble"
    assert {*reading.gpus[2].absent} == {Absence.STALE}


@pytest.mark.parametrize("is_first", [True, False])
def test_one_that_hangs_is_stale_and_the_other_is_read_on(machine: Machine, is_first: bool) -> None:
    machine.second()
    hung, well = (machine.nvidia, machine.amd) if is_first else (machine.amd, machine.nvidia)
    hung.set_state("hung", "it does not answer")
    for util in random.sample(range(1, 100), 3):
        machine.put(well, AMD if is_first else NVIDIA, util)
        reading = machine.collect()
        assert reading is not None
        states = {gpu.uuid: (gpu.state, gpu.value("util_pct")) for gpu in reading.gpus}
        assert states == {uuid: ("stale", None) if (uuid in NVIDIA) is is_first else ("ok", util)
                          for uuid in (*NVIDIA, *AMD)}
        assert [facts.index for facts in reading.facts] == [0, 1, 2, 3]
    assert machine.node.state == "ok"
    assert machine.kinds() == ["reader_hung"]
    machine.second()
    assert machine.kinds() == ["reader_back"]


def test_when_none_is_read_the_node_is_not(machine: Machine) -> None:
    machine.second()
    machine.nvidia.set_state("hung", "a")
    machine.amd.set_state("no_driver", "b")
    assert machine.collect() is None
    assert (machine.node.state, machine.node.detail) == ("hung", "NVIDIA: a AMD: b")
    for inbox in (machine.nvidia, machine.amd):
        inbox.set_state("released", "for a reset")
    machine.collect()
    assert machine.node.state == "released"


@pytest.mark.parametrize("is_first", [True, False])
def test_boards_of_before_a_restart_keep_their_place(machine: Machine, is_first: bool) -> None:
    before = machine.second().facts
    later = Machine()
    later.mixed.remember(before)
    hung, well = (later.nvidia, later.amd) if is_first else (later.amd, later.nvidia)
    hung.set_state("hung", "")
    later.put(well, AMD if is_first else NVIDIA)
    reading = later.collect()
    assert reading is not None
    assert reading.facts == before
    states = ["stale", "stale", "ok", "ok"]
    assert [gpu.state for gpu in reading.gpus] == (states if is_first else states[::-1])


def test_a_board_with_an_identity_of_another_vendor_is_left_out(machine: Machine) -> None:
    machine.put(machine.nvidia, NVIDIA, 10.0)
    machine.put(machine.amd, (AMD[0], NVIDIA[1], AMD[0], AMD[1]), 90.0, processes=(
        ProcessReading(7, NVIDIA[1], 1.0 * GIB, None), ProcessReading(8, AMD[1], 1.0 * GIB, None)))
    reading = machine.collect()
    assert reading is not None
    assert [(gpu.uuid, gpu.value("util_pct")) for gpu in reading.gpus] == [
        (NVIDIA[0], 10.0), (NVIDIA[1], 10.0), (AMD[0], 90.0), (AMD[1], 90.0)]
    assert [process.pid for process in reading.processes or ()] == [8]
    machine.collect()
    assert "AMD: 2 boards left out" in machine.node.detail


def test_a_list_of_one_is_not_a_list_of_all(machine: Machine) -> None:
    """Tasks on the boards of the other would count as ended."""
    first, second = (ProcessReading(pid, uuid, 1.0 * GIB, None)
                     for pid, uuid in ((7, NVIDIA[0]), (8, AMD[0])))
    machine.put(machine.nvidia, NVIDIA, processes=(first,))
    machine.put(machine.amd, AMD, processes=(second,))
    reading = machine.collect()
    assert reading is not None
    assert reading.processes == (first, second)
    machine.put(machine.nvidia, NVIDIA, processes=(first,))
    machine.put(machine.amd, AMD)
    reading = machine.collect()
    assert reading is not None
    assert reading.processes == (first, second)
    assert machine.second().processes is None


@pytest.mark.parametrize("start", [None, 81])
def test_a_driver_that_hangs_reports_no_end_of_its_processes(machine: Machine, start: int | None
                                                              ) -> None:
    """Leave one out that has ended, or whose number another process has."""
    first, second, third = (ProcessReading(pid, uuid, 1.0 * GIB, None)
                            for pid, uuid in ((7, NVIDIA[0]), (8, AMD[0]), (9, AMD[1])))
    machine.put(machine.nvidia, NVIDIA, processes=(first,))
    machine.put(machine.amd, AMD, processes=(second, third))
    assert machine.collect() is not None
    machine.amd.set_state("hung", "")
    machine.starts |= {} if start is None else {8: start}
    if start is None:
        del machine.starts[8]
    machine.put(machine.nvidia, NVIDIA, processes=(first,))
    reading = machine.collect()
    assert reading is not None
    assert reading.processes == (first, third), "of one that is not seen from here nothing changed"


def demand(machine: Machine, *answers: OnDemandReading | None) -> OnDemandReading | None:
    return machine.mixed.on_demand(answers)


def test_what_an_action_is_judged_by_says_whose_boards_are_not_read(machine: Machine) -> None:
    of_nvidia = OnDemandReading((ProcessReading(7, NVIDIA[0], 1.0 * GIB, None),),
                                dict.fromkeys(NVIDIA, 1.0 * GIB))
    of_amd = OnDemandReading((ProcessReading(8, AMD[0], 2.0 * GIB, None),),
                             dict.fromkeys(AMD, 2.0 * GIB), {AMD[0]: 5.0})
    assert demand(machine, of_nvidia, None) is None, "the other has not begun"
    machine.second()
    answer = demand(machine, of_nvidia, of_amd)
    assert answer is not None
    assert ([process.pid for process in answer.processes], answer.unread) == ([7, 8], ())
    assert answer.energy_j == {AMD[0]: 5.0}
    one = demand(machine, of_nvidia, None)
    assert one is not None
    assert one.mem_used_bytes == {**of_nvidia.mem_used_bytes, **dict.fromkeys(AMD)}
    assert [one.is_read(uuid) for uuid in (*NVIDIA, *AMD)] == [True, True, False, False]
    assert demand(machine, None, None) is None


@pytest.mark.parametrize(("uuid", "part"), [
    (NVIDIA[0], "nvml"), ("MIG-5d0a1c7e-0000-4000-8000-000000000003", "nvml"), (AMD[0], "amd"),
    (AMD[1], "amd"), ("a board of nobody", None)])
def test_each_board_has_the_backend_of_its_vendor(uuid: str, part: str | None) -> None:
    backend = MIXED.part_of(uuid)
    assert (None if backend is None else backend.name) == part
    single: Callable[[str], object] = BACKENDS["nvml"].part_of
    assert single(uuid) is BACKENDS["nvml"]
