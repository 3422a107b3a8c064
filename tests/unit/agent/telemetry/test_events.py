"""Events from one reading to the next: what is reported, once, and what is not. Tables of second,
input, expected; pitfalls.md A.2 Events names the traps."""

import random
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import structs

from agent.backends.nvml.xids import explain
from agent.readings import BackendEvent, GpuReading, ProcessAccounting, Reading
from agent.tasks.seen import GpuTask
from agent.telemetry.events import TASKS_PER_READING, NodeEventDetector
from agent.telemetry.gpu_events import CALM_FOR_S, SLOWED_FOR_S
from gpudeck.contract.wire import Event, GpuFacts, Task, decode_from_agent, encode
from gpudeck.measures.events import KINDS
from gpudeck.measures.metrics import COLUMN, SLOW_COLUMN, SLOW_WIDTH, WIDTH, Absence

POWER_CAP, HEAT, IDLE, SYNC = 0x4, 0x40, 0x1, 0x10
T0 = 1_700_000_000.0


def a_gpu(
    uuid: Any = "A", state: Any = "ok", throttle: Any = 0, **slow: Any
) -> GpuReading:
    """`slow` given: a reading with slow values; None: the board has no such."""
    values, absent = [1.0] * WIDTH, bytearray(WIDTH)
    values[COLUMN["throttle_bits"]] = float(throttle or 0)
    if throttle is None:
        absent[COLUMN["throttle_bits"]] = Absence.UNKNOWN
    row, marks = [0.0] * SLOW_WIDTH, bytearray([Absence.UNSUPPORTED]) * SLOW_WIDTH
    for key, value in slow.items():
        if value is not None:
            row[SLOW_COLUMN[key]], marks[SLOW_COLUMN[key]] = value, Absence.PRESENT
    slow_row = (tuple(row), bytes(marks)) if slow else ((), b"")
    return GpuReading(uuid, state, tuple(values), bytes(absent), *slow_row)


def facts_of(uuid: str, index: int = 0, **more: Any) -> GpuFacts:
    return GpuFacts(uuid=uuid, index=index, name="a board", **more)


def a_reading(*gpus: GpuReading, at: float = T0, driver: str = "550", **more: Any) -> Reading:
    facts = tuple(facts_of(gpu.uuid, index) for index, gpu in enumerate(gpus))
    return Reading(at, 1.0, gpus, more.pop("facts", facts), None, driver, **more)


class Node:
    """A node with a clock, whose event detector can be restarted like an agent."""

    def __init__(self) -> None:
        self.now = random.uniform(0.0, 1e6)
        self.agent = NodeEventDetector()
        self.events: list[Event] = []

    def read(
        self, *gpus: GpuReading, after_s: float = 1.0, tasks: Sequence[GpuTask] | None = None,
        happened: Sequence[BackendEvent] = (), own_ends: int = 0, **more: Any,
    ) -> list[Event]:
        self.now += after_s
        reading = a_reading(*gpus, at=T0 + self.now, **more)
        return self._record(self.agent.reading(reading, happened, tasks, self.now, own_ends))

    def kinds(self, *gpus: GpuReading, **more: Any) -> list[str]:
        return [event.kind for event in self.read(*gpus, **more)]

    def restart(self, away_s: float = 5.0) -> None:
        state = self.agent.state_to_store(self.now, is_due=True)
        self.now += away_s
        self.agent = NodeEventDetector(state)

    def _record(self, events: list[Event]) -> list[Event]:
        for event in events:
            assert event.kind in KINDS
            assert decode_from_agent(encode(structs.replace(event, seq=1)))
        self.events += events
        return events


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.mark.parametrize("kind", ["ecc_corrected", "ecc_uncorrected"])
def test_the_first_value_of_a_counter_is_where_counting_begins(node: Node, kind: str) -> None:
    """pitfall 12, trap A.2: errors of last year are no Event today; zero is a number (pitfall 2)"""
    start, more = random.randrange(1, 10**6), random.randrange(1, 1_000)
    assert node.kinds(a_gpu(**{kind: start})) == []
    assert node.kinds(a_gpu()) == []  # no slow values this time
    assert node.kinds(a_gpu(**{kind: None})) == []
    [event] = node.read(a_gpu(**{kind: start + more}), after_s=15)
    assert (event.kind, event.gpu_uuid, event.numbers) == (
        kind, "A", {"count": more, "total": start + more})
    assert str(more) in event.text
    assert KINDS[kind].advice in event.text
    assert node.kinds(a_gpu(**{kind: start + more}), after_s=60) == []
    node.restart()
    assert node.kinds(a_gpu(**{kind: start + more})) == []
    [event] = node.read(a_gpu(**{kind: start + more + 1}), after_s=60)
    assert event.numbers["count"] == 1


def test_a_counter_from_zero_and_a_driver_loaded_anew(node: Node) -> None:
    """trap A.6: counters restart from 0; a fall is no error, and what comes after it is"""
    assert node.kinds(a_gpu(ecc_uncorrected=0.0)) == []
    assert node.kinds(a_gpu(ecc_uncorrected=3.0), after_s=60) == ["ecc_uncorrected"]
    assert node.kinds(a_gpu(ecc_uncorrected=0.0), after_s=60) == []
    [event] = node.read(a_gpu(ecc_uncorrected=1.0), after_s=15)
    assert event.numbers["count"] == 1


def test_a_storm_of_corrected_errors_is_one_event_a_minute_with_a_count(node: Node) -> None:
    node.read(a_gpu(ecc_corrected=0.0))
    total, minutes = 0, 5
    for _ in range(minutes * 60):
        total += random.randrange(1, 100)
        node.read(a_gpu(ecc_corrected=float(total)))
    node.read(a_gpu(ecc_corrected=float(total)), after_s=61)
    assert minutes <= len(node.events) <= minutes + 2
    assert sum(event.numbers["count"] for event in node.events) == total


def test_an_error_told_by_the_driver_is_not_told_again_by_its_counter(node: Node) -> None:
    node.read(a_gpu(ecc_corrected=10.0))
    happened = [BackendEvent("ecc_corrected", T0, "A")]
    assert node.kinds(a_gpu(), happened=happened) == ["ecc_corrected"]
    assert node.kinds(a_gpu(ecc_corrected=11.0), after_s=14) == []
    assert node.kinds(a_gpu(), happened=happened, after_s=60) == ["ecc_corrected"]
    [rest] = node.read(a_gpu(ecc_corrected=15.0), after_s=60)
    assert rest.numbers == {"count": 3, "total": 15}  # of four, one was told


@pytest.mark.parametrize("key", [
    "rows_pending", "rows_failed", "pages_pending", "recovery_action"])
def test_a_fault_that_stands_is_told_once_and_again_when_it_comes_again(
    node: Node, key: str
) -> None:
    value = float(random.randint(1, 5)) if key == "recovery_action" else 1.0
    kind = "recovery_advised" if key == "recovery_action" else key
    assert node.kinds(a_gpu(**{key: value})) == [kind]  # standing at the first look
    assert node.kinds(a_gpu(**{key: value}), after_s=15) == []
    node.restart()
    assert node.kinds(a_gpu(**{key: value})) == []
    assert node.kinds(a_gpu(**{key: None})) == []  # not known for once: still the same fault
    assert node.kinds(a_gpu(**{key: value})) == []
    assert node.kinds(a_gpu(**{key: 0.0})) == []
    assert node.kinds(a_gpu(**{key: value})) == [kind]


def test_another_recovery_is_told(node: Node) -> None:
    [reset] = node.read(a_gpu(recovery_action=1.0))
    [reboot] = node.read(a_gpu(recovery_action=2.0))
    assert "reset the GPU" in reset.text
    assert "reboot the node" in reboot.text


def test_nvlinks_down_and_up(node: Node) -> None:
    assert node.kinds(a_gpu(nvlinks_up=17.0)) == []  # how it was found is how it is
    [down] = node.read(a_gpu(nvlinks_up=15.0))
    assert (down.kind, down.numbers) == ("nvlink_down", {"up": 15, "before": 17})
    node.restart()
    assert node.kinds(a_gpu(nvlinks_up=15.0)) == []
    assert node.kinds(a_gpu(nvlinks_up=18.0)) == ["nvlink_up"]


def test_a_narrow_pcie_link_is_told_once_and_an_idle_one_is_not(node: Node) -> None:
    facts = (facts_of("A", pcie_width_max=16.0),)
    assert node.kinds(a_gpu(pcie_width=16.0, pcie_gen=1.0), facts=facts) == []
    [event] = node.read(a_gpu(pcie_width=8.0), facts=facts)
    assert (event.kind, event.numbers) == ("pcie_degraded", {"lanes": 8, "lanes_max": 16})
    assert node.kinds(a_gpu(pcie_width=8.0), facts=facts) == []
    assert node.kinds(a_gpu(pcie_width=16.0), facts=facts) == []
    assert node.kinds(a_gpu(pcie_width=1.0), facts=facts) == ["pcie_degraded"]


@pytest.mark.parametrize("bits", [IDLE, 0x2, SYNC, 0x100, IDLE | SYNC])
def test_idle_and_chosen_clocks_are_no_throttling(node: Node, bits: int) -> None:
    """trap A.2: idle (0x1) is not a fault"""
    assert [kind for _ in range(10) for kind in node.kinds(a_gpu(throttle=bits))] == []


def test_throttling_has_to_last_and_so_has_its_end(node: Node) -> None:
    seconds = int(SLOWED_FOR_S)
    for _ in range(seconds):
        assert node.kinds(a_gpu(throttle=HEAT)) == []
    assert node.kinds(a_gpu()) == []  # it was too short
    for _ in range(seconds):
        assert node.kinds(a_gpu(throttle=HEAT | IDLE)) == []
    [event] = node.read(a_gpu(throttle=HEAT))
    assert (event.kind, event.numbers) == ("throttle_began", {"bits": HEAT})
    assert "hardware thermal slowdown" in event.text
    slow_s = random.randint(5, 50)
    assert [k for _ in range(slow_s) for k in node.kinds(a_gpu(throttle=HEAT))] == []
    for _ in range(int(CALM_FOR_S)):
        assert node.kinds(a_gpu()) == []
    assert node.kinds(a_gpu(throttle=HEAT)) == []
    assert [k for _ in range(int(CALM_FOR_S)) for k in node.kinds(a_gpu())] == []
    assert node.kinds(a_gpu()) == ["throttle_ended"]
    assert node.events[-1].numbers["seconds"] == pytest.approx(slow_s + CALM_FOR_S + 2, abs=2)


def test_a_worse_reason_is_told_too_and_an_unknown_one_by_its_number(node: Node) -> None:
    events = [event for _ in range(6) for event in node.read(a_gpu(throttle=POWER_CAP))]
    events += [event for _ in range(6) for event in node.read(a_gpu(throttle=POWER_CAP | 0x8000))]
    assert [event.numbers["bits"] for event in events] == [POWER_CAP, 0x8000]
    assert "software power cap" in events[0].text
    assert "also" in events[1].text
    assert "0x8000" in events[1].text


def test_throttling_goes_on_over_a_restart_of_the_agent(node: Node) -> None:
    for _ in range(6):
        node.read(a_gpu(throttle=HEAT))
    node.restart()
    assert [k for _ in range(9) for k in node.kinds(a_gpu(throttle=HEAT))] == []
    assert [k for _ in range(12) for k in node.kinds(a_gpu())] == ["throttle_ended"]
    assert [event.kind for event in node.events] == ["throttle_began", "throttle_ended"]


def test_an_unknown_throttle_reason_is_not_calm(node: Node) -> None:
    """pitfall 2: missing is not zero"""
    for _ in range(6):
        node.read(a_gpu(throttle=HEAT))
    assert [k for _ in range(30) for k in node.kinds(a_gpu(throttle=None))] == []


def test_a_gpu_lost_and_back(node: Node) -> None:
    """pitfall 11. (second, states of A and B, events)"""
    table: list[tuple[str, str | None, list[tuple[str, str]]]] = [
        ("ok", "ok", []),
        ("lost", "ok", [("gpu_lost", "A")]),
        ("lost", "stale", []),
        ("ok", "ok", [("gpu_back", "A")]),
        ("ok", None, [("gpu_lost", "B")]),
        ("ok", None, []),
        ("ok", "ok", [("gpu_back", "B")]),
        ("error", "ok", [("gpu_error", "A")]),
        ("error", "stale", []),
        ("ok", "ok", [("gpu_back", "A")]),
    ]
    for second, (first, other, events) in enumerate(table):
        gpus = [a_gpu("A", first)] + ([a_gpu("B", other)] if other is not None else [])
        actual = node.read(*gpus)
        assert [(event.kind, event.gpu_uuid) for event in actual] == events, f"second {second}"
    node.read(a_gpu("A", "lost"), a_gpu("B", "error"))
    node.restart()
    assert node.kinds(a_gpu("A", "lost"), a_gpu("B", "error")) == []


def test_a_gpu_that_is_lost_when_the_agent_first_looks_is_told(node: Node) -> None:
    assert node.kinds(a_gpu("A", "lost"), a_gpu("B")) == ["gpu_lost"]


def test_a_loose_contact_is_told_now_and_then_and_its_end_is_told(node: Node) -> None:
    node.read(a_gpu())
    for second in range(600):
        node.read(a_gpu("A", ("ok", "lost")[second % 2]))
    assert len(node.events) < 20
    for _ in range(400):
        node.read(a_gpu())
    assert node.events[-1].kind == "gpu_back"


def test_gpus_that_come_and_instances_that_go(node: Node) -> None:
    def instance(uuid: str) -> GpuFacts:
        return facts_of(uuid, parent_uuid="A", mig_profile="1g.10gb", gpu_instance=7.0,
                        compute_instance=0.0)

    assert node.kinds(a_gpu("A"), a_gpu("MIG-1"), facts=(facts_of("A"), instance("MIG-1"))) == []
    two = (facts_of("A"), instance("MIG-2"), facts_of("B", 1))
    events = node.read(a_gpu("A"), a_gpu("MIG-2"), a_gpu("B"), facts=two)
    assert {(event.kind, event.gpu_uuid) for event in events} == {
        ("gpu_added", "MIG-2"), ("gpu_added", "B"), ("gpu_removed", "MIG-1")}
    # a board that is lost takes its instances with it: one Event
    events = node.read(a_gpu("A", "lost"), a_gpu("MIG-2", "lost"), a_gpu("B"), facts=two)
    assert [(event.kind, event.gpu_uuid) for event in events] == [("gpu_lost", "A")]
    # its board's health is not told for each instance; an Xid is the instance's
    assert node.kinds(a_gpu("A"), a_gpu("MIG-2", rows_pending=1.0, throttle=HEAT), a_gpu("B"),
                      facts=two) == ["gpu_back"]
    [xid] = node.read(a_gpu("A"), a_gpu("MIG-2"), a_gpu("B"), facts=two, happened=[
        explain(BackendEvent("xid", T0, "A", numbers={"xid": 31.0, "gpu_instance": 7.0}), two)])
    assert xid.gpu_uuid == "MIG-2"


def an_xid(code: float, gpu: str | None = "A") -> BackendEvent:
    event = BackendEvent("xid", T0 + random.uniform(0, 9), gpu, numbers={"xid": code})
    return explain(event, ())


def test_an_xid_is_an_event_with_its_time_and_what_to_do(node: Node) -> None:
    """pitfall 12: an Event with a time, not a gauge that never clears"""
    happened = an_xid(79.0)
    [event] = node.read(a_gpu(), happened=[happened])
    assert (event.kind, event.taken_at, event.gpu_uuid) == ("xid", happened.at, "A")
    assert event.numbers == {"xid": 79, "count": 1}
    for words in ("GPU 0", "Xid 79", "fallen off the PCIe bus", "reboot the node"):
        assert words in event.text
    assert node.kinds(a_gpu()) == []
    [stray] = node.read(a_gpu(), happened=[an_xid(48.0, None)])
    assert stray.gpu_uuid is None


def test_a_storm_of_xids_is_one_event_a_minute_for_each_number_and_gpu(node: Node) -> None:
    counts = {"A": 0, "B": 0}
    for _ in range(180):
        for gpu in counts:
            some = random.randrange(1, 4)
            counts[gpu] += some
            node.read(a_gpu("A"), a_gpu("B"), happened=[an_xid(13.0, gpu)] * some, after_s=0.5)
    node.restart()  # what waits to be told is not lost
    node.read(a_gpu("A"), a_gpu("B"))
    for gpu, count in counts.items():
        events = [event for event in node.events if event.gpu_uuid == gpu]
        assert 3 <= len(events) <= 5
        assert sum(event.numbers["count"] for event in events) == count
    # another number, and another GPU, do not wait for it
    assert node.kinds(a_gpu(), a_gpu("B"), happened=[an_xid(79.0)]) == ["xid"]


@pytest.mark.parametrize("own_ends", [0, 1])
def test_the_echo_of_our_own_end_says_so(node: Node, own_ends: int) -> None:
    """trap A.2: Xid 45 appears when work is torn down, so an agent's own kill can raise it"""
    [event] = node.read(a_gpu(), happened=[an_xid(45.0)], own_ends=own_ends)
    assert ("gpudeck has just ended" in event.text) == bool(own_ends)
    [other] = node.read(a_gpu(), happened=[an_xid(31.0)], own_ends=own_ends)
    assert "gpudeck" not in other.text


def test_an_xid_is_told_though_the_driver_hangs(node: Node) -> None:
    node.read(a_gpu())
    [event] = node.agent.beside([an_xid(119.0)], [facts_of("A")], node.now)
    assert "GPU 0: Xid 119" in event.text


def test_the_life_of_the_driver(node: Node) -> None:
    """(state of the reader, events)"""
    node.read(a_gpu())
    table: list[tuple[Any, list[str]]] = [
        ("ok", []), ("hung", ["reader_hung"]), ("hung", []), ("ok", ["reader_back"]),
        ("no_driver", ["driver_gone"]), ("no_driver", []), ("no_library", []),
        ("ok", ["driver_back"]), ("failed", ["reader_failed"]), ("no_gpus", []),
        ("ok", ["reader_back"]), ("starting", []), ("released", ["driver_released"]),
        ("released", []), ("starting", ["driver_taken"]), ("ok", []),
        ("released", ["driver_released"]), ("ok", ["driver_taken"]),
        ("hung", ["reader_hung"]), ("released", ["driver_released"]),
        ("starting", ["driver_taken"]), ("no_driver", ["driver_gone"]), ("ok", ["driver_back"]),
    ]
    for state, kinds in table:
        events = node.agent.reader(state, f"it is {state}", T0)
        assert [event.kind for event in events] == kinds, state
        assert state in ("ok", "starting") or not events or f"it is {state}" in events[0].text
    node.agent.reader("no_driver", "", T0)
    node.restart()
    assert node.agent.reader("no_driver", "", T0) == []
    assert [event.kind for event in node.agent.reader("ok", "", T0)] == ["driver_back"]
    node.agent.reader("released", "", T0)
    node.restart()
    assert node.agent.reader("released", "", T0) == []
    assert [event.kind for event in node.agent.reader("no_driver", "", T0)] == [
        "driver_taken", "driver_gone"]


def test_another_driver_is_told_with_both_versions(node: Node) -> None:
    assert node.kinds(a_gpu(), driver="550.1") == []
    node.restart()
    [event] = node.read(a_gpu(), driver="580.2")
    assert event.kind == "driver_changed"
    assert "550.1" in event.text
    assert "580.2" in event.text
    assert node.kinds(a_gpu(), driver="580.2") == []


def test_the_agent_and_its_node_begin(node: Node) -> None:
    away_s = random.uniform(10, 100)
    [first] = node.agent.began("boot-1", "1.2.3", T0)
    assert (first.kind, first.numbers) == ("agent_began", {})
    assert "1.2.3" in first.text
    node.agent.clock(T0, 5.0)
    node.restart()
    [second] = node.agent.began("boot-1", "1.2.3", T0 + away_s)
    assert second.kind == "agent_began"
    assert second.numbers["away_s"] == pytest.approx(away_s)
    node.restart()
    began = node.agent.began("boot-2", "1.2.3", T0 + away_s)
    assert [event.kind for event in began] == ["node_began", "agent_began"]


@pytest.mark.parametrize(("wall_s", "steady_s", "step_s"), [
    (1.0, 1.0, None), (61.0, 60.0, None), (3_600.0, 3_600.0, None),  # a long sleep is no step
    (3_601.0, 1.0, 3_600.0), (-7_199.0, 1.0, -7_200.0), (3.5, 1.0, 2.5),
])
def test_a_step_of_the_clock(
    node: Node, wall_s: float, steady_s: float, step_s: float | None
) -> None:
    assert node.agent.clock(T0, 77.0) == []
    events = node.agent.clock(T0 + wall_s, 77.0 + steady_s)
    assert [event.numbers["step_s"] for event in events] == (
        [] if step_s is None else [pytest.approx(step_s)])
    assert node.agent.clock(T0 + wall_s + 1, 78.0 + steady_s) == []


def task(name: str, gpu: str = "A", mem: float | None = 5.0, sm: float | None = 50.0) -> GpuTask:
    task = Task(id=name, pid=7, start_ticks=2, started_at=T0, user="alice",
                command="/usr/bin/python3 train.py --password hunter2")
    return GpuTask(task, gpu, mem, sm, None)


def test_tasks_begin_and_end_with_what_they_used(node: Node) -> None:
    node.read(a_gpu(), a_gpu("B"), tasks=[])
    uses = [(random.uniform(1, 9), random.uniform(0, 100)) for _ in range(20)]
    events = [event for mem, sm in uses for event in node.read(
        a_gpu(), a_gpu("B"), tasks=[task("t", "A", mem, sm), task("t", "B", mem, 0.0)], after_s=2)]
    assert [(event.kind, event.task_id) for event in events] == [("task_began", "t")]
    assert "python3 of alice" in events[0].text
    assert "hunter2" not in events[0].text
    [end] = node.read(a_gpu(), a_gpu("B"), tasks=[], after_s=2)
    assert (end.kind, end.task_id) == ("task_ended", "t")
    mems, sms = [2 * mem for mem, _ in uses[1:]], [sm / 2 for _, sm in uses[1:]]
    assert end.numbers["mem_peak_bytes"] == pytest.approx(max(2 * mem for mem, _ in uses))
    assert end.numbers["sm_peak_pct"] == pytest.approx(max(sm / 2 for _, sm in uses))
    assert end.numbers["mem_mean_bytes"] == pytest.approx(sum(mems) / len(mems), rel=1e-3)
    assert end.numbers["sm_mean_pct"] == pytest.approx(sum(sms) / len(sms), rel=1e-3)
    assert end.numbers["seconds"] == pytest.approx(end.taken_at - T0)


def test_what_the_driver_counted_of_an_ended_task(node: Node) -> None:
    peak, util = random.randrange(2**37), random.randint(0, 100)
    uses = [task("t"), task("t", "B")]
    node.read(a_gpu(), a_gpu("B"), tasks=[])
    node.read(a_gpu(), a_gpu("B"), tasks=uses, after_s=2)
    [end] = node.read(a_gpu(), a_gpu("B"), tasks=[], after_s=2, accounted=(
        ProcessAccounting(7, "A", peak, util, 5.0, 60.0),
        ProcessAccounting(7, "B", 1.0, util, None, 50.0),
        ProcessAccounting(8, "A", 9.0, 9.0, 9.0, 9.0)))
    driver_numbers = {key: it for key, it in end.numbers.items() if key.startswith("driver_")}
    assert driver_numbers == {"driver_mem_peak_bytes": peak + 1, "driver_util_pct": util,
                              "driver_seconds": 60.0}
    assert "by the driver" in end.text


def test_half_of_what_a_task_used_is_not_told_for_all(node: Node) -> None:
    node.read(a_gpu(), a_gpu("B"), tasks=[])
    node.read(a_gpu(), a_gpu("B"), tasks=[task("t"), task("t", "B")], after_s=2)
    [end] = node.read(a_gpu(), a_gpu("B"), tasks=[], after_s=2,
                      accounted=(ProcessAccounting(7, "A", 3.0, 4.0, 5.0, 6.0),))
    assert not [key for key in end.numbers if key.startswith("driver_")]
    assert "driver" not in end.text


def test_what_nobody_knows_of_a_task_is_not_zero(node: Node) -> None:
    """pitfall 2: the driver need not say what a process holds"""
    node.read(a_gpu(), tasks=[])
    node.read(a_gpu(), tasks=[task("t", mem=None, sm=None)], after_s=2)
    [end] = node.read(a_gpu(), tasks=[], after_s=2)
    assert set(end.numbers) == {"seconds", "gpus"}


def test_tasks_that_were_there_before_us_did_not_begin(node: Node) -> None:
    assert node.kinds(a_gpu()) == []  # no list yet is not an empty one
    assert node.kinds(a_gpu(), tasks=[task("t1"), task("t2")]) == []
    assert node.kinds(a_gpu()) == []
    assert node.kinds(a_gpu(), tasks=[task("t2"), task("t3")]) == ["task_ended", "task_began"]


def test_tasks_over_a_restart_of_the_agent(node: Node) -> None:
    node.read(a_gpu(), tasks=[task("stays", mem=9.0), task("goes")])
    node.restart()
    events = node.read(a_gpu(), tasks=[task("stays", mem=1.0), task("comes")])
    assert [(event.kind, event.task_id) for event in events] == [
        ("task_ended", "goes"), ("task_began", "comes")]
    assert "while the agent was away" in events[0].text
    [_, end] = node.read(a_gpu(), tasks=[], after_s=2)[::-1]
    assert (end.task_id, end.numbers["mem_peak_bytes"]) == ("stays", 9.0)


def test_a_lost_gpu_ends_no_task_that_nobody_can_see(node: Node) -> None:
    node.read(a_gpu(), a_gpu("B"), tasks=[task("t"), task("other", "B")])
    assert node.kinds(a_gpu("A", "lost"), a_gpu("B"), tasks=[task("other", "B")]) == ["gpu_lost"]
    assert node.kinds(a_gpu("A", "lost"), a_gpu("B"), tasks=[]) == ["task_ended"]
    assert node.events[-1].task_id == "other"
    assert node.kinds(a_gpu(), a_gpu("B"), tasks=[task("t")]) == ["gpu_back"]
    assert node.kinds(a_gpu(), a_gpu("B"), tasks=[]) == ["task_ended"]


def test_a_burst_of_tasks_is_told_in_bounded_portions(node: Node) -> None:
    node.read(a_gpu(), tasks=[])
    many = [task(f"t{number}") for number in range(100)]
    portions = [len(node.read(a_gpu(), tasks=many))]
    portions += [len(node.read(a_gpu())) for _ in range(4)]
    assert max(portions) == TASKS_PER_READING
    assert sum(portions) == 100


def test_what_another_version_kept_is_nothing_to_fail_about() -> None:
    for state in (b"", b"\x00", random.randbytes(50)):
        assert NodeEventDetector(state).began("boot", "1", T0)
