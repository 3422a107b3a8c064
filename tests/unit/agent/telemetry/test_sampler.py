import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from agent.readings import GpuReading, Reading
from agent.tasks.seen import GpuTask
from agent.telemetry.sampler import (
    SamplerState,
    SamplerStep,
    events_only,
    reader_changed,
    sample,
    snapshot_wanted,
)
from gpudeck.contract.wire import (
    MAX_GPUS,
    MAX_MESSAGE_BYTES,
    Event,
    Frame,
    GpuFacts,
    GpuLink,
    GpuState,
    Task,
    decode_from_agent,
    encode,
    unpack,
)
from gpudeck.measures.metrics import COLUMN, COLUMNS, SLOW, SLOW_COLUMN, SLOW_WIDTH, WIDTH, Absence

ALL_PRESENT = bytes(WIDTH)


def a_gpu(uuid: str, state: GpuState = "ok", **values: float) -> GpuReading:
    row = [1.0] * WIDTH
    for key, value in values.items():
        row[COLUMN[key]] = value
    return GpuReading(uuid, state, tuple(row), ALL_PRESENT)


def a_reading(*gpus: GpuReading, at: float = 100.0) -> Reading:
    facts = tuple(
        GpuFacts(uuid=gpu.uuid, index=index, name="a board") for index, gpu in enumerate(gpus)
    )
    return Reading(at, 1.0, gpus, facts, None)


def task(name: str, gpu: str = "A", command: str = "python", **more: Any) -> GpuTask:
    task = Task(id=name, pid=1, start_ticks=2, started_at=None, user="alice", command=command)
    return GpuTask(task, gpu, more.get("mem", 5.0), more.get("sm"), more.get("state"))


def frame_of(step: SamplerStep) -> Frame:
    frame = step.messages[-1]
    assert isinstance(frame, Frame)
    return frame


def events_of(step: SamplerStep) -> list[tuple[str, str | None, str | None]]:
    return [(event.kind, event.gpu_uuid, event.task_id)
            for event in step.messages if isinstance(event, Event)]


def test_first_reading_brings_the_inventory_and_a_frame_of_its_generation() -> None:
    step = sample(SamplerState(generation=4), a_reading(a_gpu("A"), a_gpu("B")), None, 9, 0.0)
    assert step.inventory is not None
    assert [gpu.uuid for gpu in step.inventory.gpus] == ["A", "B"]
    frame = frame_of(step)
    assert (frame.seq, frame.generation, step.inventory.generation) == (9, 5, 5)
    assert (frame.tasks, events_of(step)) == (None, [])


def test_generation_changes_with_facts_and_with_their_order_only() -> None:
    one = sample(SamplerState(), a_reading(a_gpu("A"), a_gpu("B")), None, 1, 0.0)
    same = sample(one.memory, a_reading(a_gpu("A"), a_gpu("B")), None, 2, 1.0)
    turned = sample(same.memory, a_reading(a_gpu("B"), a_gpu("A")), None, 3, 2.0)
    assert (same.inventory, frame_of(same).generation) == (None, 1)
    assert turned.inventory is not None
    assert frame_of(turned).generation == 2


def test_sentinels_and_lies_become_unknown() -> None:
    gpu = a_gpu("A", util_pct=101.0, temp_c=math.nan, power_w=math.inf, fan_pct=-1.0,
                mem_used_bytes=0.0, mem_util_pct=100.0)
    frame = frame_of(sample(SamplerState(), a_reading(gpu), None, 1, 0.0))
    for key in ("util_pct", "temp_c", "power_w", "fan_pct"):
        assert frame.absent[COLUMN[key]] == Absence.UNKNOWN
        assert unpack(frame.values)[COLUMN[key]] == 0.0
    for key, value in (("mem_used_bytes", 0.0), ("mem_util_pct", 100.0)):
        assert frame.absent[COLUMN[key]] == Absence.PRESENT
        assert unpack(frame.values)[COLUMN[key]] == value


def test_reasons_of_absence_are_kept_and_their_values_are_not() -> None:
    absent = bytes([Absence.UNSUPPORTED, Absence.DENIED, Absence.LOST]) + bytes(WIDTH - 3)
    gpu = GpuReading("A", "ok", (7.0,) * WIDTH, absent)
    frame = frame_of(sample(SamplerState(), a_reading(gpu), None, 1, 0.0))
    assert frame.absent == absent
    assert list(unpack(frame.values))[:4] == [0.0, 0.0, 0.0, 7.0]


def test_a_row_of_the_wrong_width_is_unknown_and_the_others_stand() -> None:
    short = GpuReading("A", "ok", (7.0,), b"\0")
    frame = frame_of(sample(SamplerState(), a_reading(short, a_gpu("B")), None, 1, 0.0))
    assert frame.absent == bytes([Absence.UNKNOWN]) * WIDTH + ALL_PRESENT


def test_tasks_travel_as_a_snapshot_then_as_changes() -> None:
    reading = a_reading(a_gpu("A"), a_gpu("B"))
    one = sample(SamplerState(), reading, [task("t1"), task("t2", "B")], 1, 0.0)
    tasks = frame_of(one).tasks
    assert tasks is not None
    assert (tasks.snapshot, [task.id for task in tasks.began]) == (True, ["t1", "t2"])
    assert [(use.task_id, use.gpu) for use in tasks.uses] == [("t1", 0), ("t2", 1)]

    unasked = sample(one.memory, reading, None, 2, 1.0)
    assert frame_of(unasked).tasks is None

    two = sample(unasked.memory, reading, [task("t2", "B"), task("t3")], 3, 2.0)
    tasks = frame_of(two).tasks
    assert tasks is not None
    assert (tasks.snapshot, [task.id for task in tasks.began]) == (False, ["t3"])
    assert [use.task_id for use in tasks.uses] == ["t2", "t3"]


def test_a_snapshot_after_each_welcome_after_a_minute_and_when_gpus_move() -> None:
    reading = a_reading(a_gpu("A"), a_gpu("B"))
    memory = sample(SamplerState(), reading, [task("t1", "B")], 1, 0.0).memory

    def snapshot(memory: SamplerState, reading: Reading, now: float) -> tuple[bool, int] | None:
        tasks = frame_of(sample(memory, reading, None, 2, now)).tasks
        return None if tasks is None else (tasks.snapshot, tasks.uses[0].gpu)

    assert snapshot(memory, reading, 59.0) is None
    assert snapshot(memory, reading, 60.0) == (True, 1)
    assert snapshot(snapshot_wanted(memory), reading, 1.0) == (True, 1)
    assert snapshot(memory, a_reading(a_gpu("B"), a_gpu("A")), 1.0) == (True, 0)


def test_no_process_list_yet_is_not_an_empty_one() -> None:
    step = sample(SamplerState(), a_reading(a_gpu("A")), None, 1, 100.0)
    assert frame_of(step).tasks is None
    empty = frame_of(sample(step.memory, a_reading(a_gpu("A")), [], 2, 101.0)).tasks
    assert empty is not None
    assert (empty.snapshot, empty.uses) == (True, ())


def test_unknown_memory_stays_unknown() -> None:
    step = sample(SamplerState(), a_reading(a_gpu("A")), [task("t", mem=None, sm=101.0)], 1, 0.0)
    tasks = frame_of(step).tasks
    assert tasks is not None
    assert (tasks.uses[0].mem_used_bytes, tasks.uses[0].sm_pct) == (None, None)


def test_events_stand_before_the_frame_that_they_explain() -> None:
    events = [Event(0, 90.0, "xid", gpu_uuid="A"), Event(0, 91.0, "gpu_lost", gpu_uuid="A")]
    step = sample(SamplerState(), a_reading(a_gpu("A")), None, 7, 0.0, events)
    assert [(message.seq, type(message)) for message in step.messages] == [
        (7, Event), (8, Event), (9, Frame)]
    assert [message.seq for message in events_only(SamplerState(), events, 4).messages] == [4, 5]


def test_when_readings_end_one_frame_says_that_they_are_stale() -> None:
    memory = sample(SamplerState(), a_reading(a_gpu("A")), None, 1, 0.0).memory
    memory = reader_changed(memory, "ok", 2, 100.0).memory
    hung = reader_changed(memory, "hung", 2, 106.0, [Event(0, 106.0, "reader_hung")])
    assert events_of(hung) == [("reader_hung", None, None)]
    frame = frame_of(hung)
    assert (frame.seq, frame.states, set(frame.absent)) == (3, bytes([1]), {Absence.STALE})
    assert decode_from_agent(encode(frame)) == frame
    assert reader_changed(hung.memory, "ok", 4, 110.0).messages == ()


def test_a_node_that_never_had_a_reading_sends_no_frame() -> None:
    assert reader_changed(SamplerState(), "no_library", 1, 0.0).messages == ()


@given(
    st.lists(st.tuples(
        st.sampled_from(["A", "B", "C"]),
        st.lists(st.floats() | st.integers(-5, 2**60).map(float), min_size=WIDTH, max_size=WIDTH),
        st.binary(min_size=WIDTH, max_size=WIDTH),
    ), max_size=3, unique_by=lambda row: row[0]),
    st.lists(st.tuples(
        st.sampled_from(["A", "B", "C"]), st.none() | st.floats(), st.none() | st.floats(),
    ), max_size=5),
    st.floats(allow_nan=False, min_value=-10, max_value=1e9),
)
def test_whatever_a_backend_says_the_frame_is_in_the_contract(
    rows: list[tuple[str, list[float], bytes]],
    uses: list[tuple[str, float | None, float | None]],
    interval_s: float,
) -> None:
    gpus = tuple(GpuReading(uuid, "ok", tuple(values), absent) for uuid, values, absent in rows)
    facts = tuple(GpuFacts(uuid=gpu.uuid, index=0, name="n") for gpu in gpus)
    tasks = [task(f"t{at}", gpu, mem=mem, sm=sm) for at, (gpu, mem, sm) in enumerate(uses)]
    step = sample(SamplerState(), Reading(0.0, interval_s, gpus, facts, ()), tasks, 1, 0.0)
    for message in step.messages:
        assert decode_from_agent(encode(message)) == message
    values, absent = unpack(frame_of(step).values), frame_of(step).absent
    for at, (value, why) in enumerate(zip(values, absent, strict=True)):
        metric = COLUMNS[at % WIDTH]
        assert why != Absence.PRESENT or metric.low <= value <= metric.high


NAMES = ("user", "manager", "job_id", "container", "container_name", "pod", "namespace",
         "slurm_job", "unit", "notebook", "launch")


@pytest.mark.parametrize("names", [{}, dict.fromkeys(NAMES, "x" * 128)], ids=["bare", "named"])
def test_the_longest_command_lines_still_fit_a_message(names: dict[str, str]) -> None:
    tasks = [task(f"{at:0128}", gpu="7", command="\U0001f600" * 1_024) for at in range(4_096)]
    tasks = [structs.replace(row, task=structs.replace(row.task, **names)) for row in tasks]
    gpus = (slowly(a_gpu(str(at), util_pct=at / 3)) for at in range(MAX_GPUS))
    step = sample(SamplerState(), a_reading(*gpus), tasks, 1, 0.0)
    assert frame_of(step).slow is not None
    body = encode(frame_of(step))
    assert len(body) < MAX_MESSAGE_BYTES
    assert decode_from_agent(body) == frame_of(step)


def slowly(gpu: GpuReading, **values: float) -> GpuReading:
    """The same with the slow metrics, as every 15 s."""
    row = [min(3.0, metric.high) for metric in SLOW]
    for key, value in values.items():
        row[SLOW_COLUMN[key]] = value
    return structs.replace(gpu, slow=tuple(row), slow_absent=bytes(SLOW_WIDTH))


def slow_of(frame: Frame, key: str, gpu: int = 0) -> float | Absence | None:
    if frame.slow is None:
        return None
    at = gpu * SLOW_WIDTH + SLOW_COLUMN[key]
    why = Absence(frame.slow.absent[at])
    return unpack(frame.slow.values)[at] if why is Absence.PRESENT else why


def test_slow_values_travel_when_one_changed_and_every_minute() -> None:
    replays = random.randrange(1, 1_000)
    memory, slow_values = SamplerState(), []
    for second in range(200):
        gpu = a_gpu("A")
        if second % 15 == 0:
            gpu = slowly(gpu, pcie_replays=replays + (second >= 90))
        step = sample(memory, a_reading(gpu, at=second), None, second + 1, float(second))
        memory = step.memory
        if frame_of(step).slow is not None:
            slow_values.append((second, slow_of(frame_of(step), "pcie_replays")))
    assert slow_values == [(0, replays), (60, replays), (90, replays + 1), (150, replays + 1)]


def test_slow_values_follow_a_new_inventory_and_a_new_hub() -> None:
    """Frames of a generation are read by its Inventory: the order of the rows is another."""
    gpus = (slowly(a_gpu("A"), pstate=1), slowly(a_gpu("B"), pstate=2))
    memory = sample(SamplerState(), a_reading(*gpus), None, 1, 0.0).memory
    turned = sample(memory, a_reading(a_gpu("B"), a_gpu("A")), None, 2, 1.0)
    assert (slow_of(frame_of(turned), "pstate"), slow_of(frame_of(turned), "pstate", 1)) == (2, 1)
    quiet = sample(turned.memory, a_reading(a_gpu("B"), a_gpu("A")), None, 3, 2.0)
    assert frame_of(quiet).slow is None
    renamed = a_reading(a_gpu("B"), a_gpu("A"))
    renamed = structs.replace(renamed, facts=tuple(
        structs.replace(facts, name="another") for facts in renamed.facts))
    assert slow_of(frame_of(sample(quiet.memory, renamed, None, 4, 3.0)), "pstate") == 2
    fresh = sample(snapshot_wanted(quiet.memory), a_reading(a_gpu("B"), a_gpu("A")), None, 4, 3.0)
    assert slow_of(frame_of(fresh), "pstate") == 2
    assert decode_from_agent(encode(frame_of(fresh))) == frame_of(fresh)


def test_slow_values_of_a_lost_gpu_are_lost_and_do_not_come_back_by_themselves() -> None:
    """Pitfall 4: the last value is not passed off as live."""
    reading = a_reading(slowly(a_gpu("A")), slowly(a_gpu("B")))
    memory = sample(SamplerState(), reading, None, 1, 0.0).memory
    lost_step = sample(memory, a_reading(a_gpu("A", "lost"), a_gpu("B")), None, 2, 1.0)
    assert slow_of(frame_of(lost_step), "pstate") is Absence.LOST
    assert slow_of(frame_of(lost_step), "pstate", 1) == 3.0
    back = sample(lost_step.memory, a_reading(a_gpu("A"), a_gpu("B")), None, 3, 2.0)
    assert slow_of(frame_of(back), "pstate") is Absence.UNKNOWN
    read = sample(back.memory, a_reading(slowly(a_gpu("A")), a_gpu("B")), None, 4, 3.0)
    assert slow_of(frame_of(read), "pstate") == 3.0


def test_slow_sentinels_become_unknown() -> None:
    """Pitfall 1."""
    gpu = slowly(a_gpu("A"), recovery_action=2**31, ecc_corrected=9223372036854775794.0,
                 temp_margin_c=math.nan, pstate=32, pcie_gen=0)
    frame = frame_of(sample(SamplerState(), a_reading(gpu), None, 1, 0.0))
    for key in ("recovery_action", "ecc_corrected", "temp_margin_c", "pstate"):
        assert slow_of(frame, key) is Absence.UNKNOWN, key
    assert slow_of(frame, "pcie_gen") == 0.0  # pitfall 2: zero is a number


def test_links_are_part_of_the_inventory() -> None:
    reading = a_reading(a_gpu("A"), a_gpu("B"))
    first = sample(SamplerState(), reading, None, 1, 0.0)
    linked = structs.replace(reading, links=(GpuLink(0, 1, "numa node", 18),))
    second = sample(first.memory, linked, None, 2, 1.0)
    assert second.inventory is not None
    assert second.inventory.links == linked.links
    assert sample(second.memory, linked, None, 3, 2.0).inventory is None
