"""The demo's past ends as its present begins."""

import io
import random
from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec
import pytest

from agent.backends.simulation.jobs import jobs_at, next_change_at
from agent.backends.simulation.reader import SimulatedReader
from agent.backends.simulation.world import SimulationOptions, units_of
from agent.simulator.nodes import boot_id_of
from agent.simulator.past import (
    BLOCK_S,
    CHUNK_S,
    LENGTH,
    OPENING_NODES,
    DemoHistoryNode,
    chunks,
    idle_since,
    write_past,
)
from agent.tasks.task_table import TaskTable
from gpudeck.contract.wire import Event, Frame, Inventory, decode_from_agent, unpack
from gpudeck.measures.metrics import COLUMN, WIDTH, Absence

NOW = 1_800_000_000 + random.randrange(10**6)
KEYS = ("temp_c", "mem_used_bytes", "power_w", "energy_j", "util_pct")


def frames(node: DemoHistoryNode, span: range) -> Iterator[Frame]:
    for at in span:
        for message in node.second(at):
            if isinstance(message, Frame):
                yield message


def rows(frame: Frame) -> list[dict[str, float | None]]:
    values = unpack(frame.values)
    return [{key: None if frame.absent[at * WIDTH + COLUMN[key]] != Absence.PRESENT
             else values[at * WIDTH + COLUMN[key]] for key in KEYS}
            for at in range(len(frame.states))]


def draw_with_the_same_jobs(profile: str) -> SimulationOptions:
    """Draw a node on which no job begins or ends between the last second of the past and the first
    one of the live simulation."""
    while True:
        options = SimulationOptions("n007", profile, 8, seed=random.randrange(10**6))
        uuids, instances = units_of(options)
        if next_change_at(options.seed, options.node, len(uuids) - instances, NOW - 0.5,
                          instances) > NOW + 0.5:
            return options


@pytest.mark.parametrize("profile", ["h100", "h100-mig", "4090"])
def test_no_seam(profile: str) -> None:
    """Compare the live simulation as it begins at that moment, with the same jobs. It begins with
    GPUs as warm as their work makes them; one whose work just changed is still on its way."""
    options = draw_with_the_same_jobs(profile)
    span = range(NOW - 400, NOW)
    past = list(frames(DemoHistoryNode(options, None, span), span))
    assert len(past) == 400
    live = SimulatedReader(options, None, clock=lambda: NOW + 0.5, steady=lambda: NOW + 0.5).read()
    before_s = [rows(frame) for frame in past]
    for at, (was, now) in enumerate(zip(before_s[-1], live.gpus, strict=True)):
        mem_bytes = [second[at]["mem_used_bytes"] or 0.0 for second in before_s]
        is_settled = max(mem_bytes) - min(mem_bytes) < 2**30
        for key, most in (("temp_c", 4.0 if is_settled else 60.0), ("mem_used_bytes", 3 * 2**30)):
            before, after = was[key], now.values[COLUMN[key]]
            assert (before is None) == (now.absent[COLUMN[key]] != Absence.PRESENT)
            if before is not None:
                assert abs(before - after) <= most, key
    described = TaskTable(boot_id_of(options.seed, options.node)).describe(live.processes or ())
    last = next(frame.tasks for frame in reversed(past) if frame.tasks is not None)
    assert {use.task_id for use in last.uses} == {gpu_task.task.id for gpu_task in described}


def blocks(out: io.BytesIO) -> Iterator[tuple[str, list[bytes]]]:
    at, content = 0, out.getvalue()
    while at < len(content):
        size, = LENGTH.unpack_from(content, at)
        yield msgspec.msgpack.decode(content[at + 4 : at + 4 + size], type=tuple[str, list[bytes]])
        at += 4 + size


@pytest.mark.parametrize("name", ["n001", "n002", "n005"])
def test_counters_are_what_power_adds_up_to_and_end_where_the_live_ones_are(name: str) -> None:
    """Sums hold over all chunks; a median of 0.7 % and 28 % of one board were between them."""
    options = SimulationOptions(name, "h100", 8, seed=random.randrange(10**6))
    span = range(NOW - 2_500, NOW)
    uuids, _ = units_of(options)
    live = {uuid: float(random.randrange(10**8, 10**9)) for uuid in uuids}
    out, opened, seconds, seqs = io.BytesIO(), list[int](), dict[int, list[Any]](), list[int]()
    write_past([partial(DemoHistoryNode, options, None)], span, dict(live), out,
               lambda: opened.append(1))
    inventories = 0
    for host, payloads in blocks(out):
        messages = [decode_from_agent(payload) for payload in payloads]
        inventories += sum(isinstance(message, Inventory) for message in messages)
        frames = [message for message in messages if isinstance(message, Frame)]
        assert host in (name, "")
        assert len({int(frame.taken_at) // BLOCK_S for frame in frames}) <= 1, "none is cut"
        seconds |= {int(frame.taken_at): rows(frame) for frame in frames}
        seqs += [message.seq for message in messages if isinstance(message, Frame | Event)]
    assert opened == [1]
    assert sorted(seconds) == list(span)
    assert next(iter(seconds)) <= span.stop - CHUNK_S, "the newest quarter of an hour comes first"
    assert len(set(seqs)) == len(seqs)
    assert inventories == len(chunks(span)) >= 2
    for gpu, uuid in enumerate(uuids):
        joules = [seconds[second][gpu]["energy_j"] for second in sorted(seconds)]
        watts = [seconds[second][gpu]["power_w"] for second in sorted(seconds)]
        assert joules == sorted(joules)
        assert joules[-1] == pytest.approx(live[uuid], abs=0.01)
        assert joules[-1] - joules[0] == pytest.approx(sum(watts[1:]), rel=0.01)


def test_who_starts_a_large_demo_waits_for_some_of_its_nodes_only() -> None:
    count = OPENING_NODES + 2
    makers = [partial(DemoHistoryNode, SimulationOptions(f"n{number:03}", gpus=1, seed=1), None)
              for number in range(1, count + 1)]
    out, before = io.BytesIO(), list[int]()
    write_past(makers, range(NOW - 30, NOW), {}, out, lambda: before.append(len(list(blocks(out)))))
    parts = [host for host, _ in blocks(out)]
    first = parts.index("")
    assert set(parts[:first]) == {f"n{number:03}" for number in range(1, OPENING_NODES + 1)}
    assert len(set(parts)) == count + 1
    assert before == [first + 1]


def test_the_processes_that_are_there_now_ran_before() -> None:
    options = SimulationOptions("n001", "h100", 8, seed=random.randrange(10**6))
    uuids, instances = units_of(options)
    planned = jobs_at(options.seed, "n001", uuids, NOW, instances)
    hog = next(job for job in planned if job.kind == "hog")
    real = msgspec.structs.replace(hog, pid=random.randrange(1_000, 100_000), start_ticks=77)
    span = range(NOW - 60, NOW)
    past = list(frames(DemoHistoryNode(options, (real,), span), span))
    tasks = [frame.tasks for frame in past if frame.tasks is not None]
    began = {task.id: task for delta in tasks for task in delta.began}
    mine = [task for task in began.values() if task.pid == real.pid]
    assert len(mine) == 1
    assert mine[0].user == hog.user
    assert hog.pid not in {task.pid for task in began.values()}
    then = {job.pid for at in range(NOW - 60, NOW, 5)
            for job in jobs_at(options.seed, "n001", uuids, at, instances)}
    other_pids = {task.pid for task in began.values()} - {real.pid}
    assert {job.pid for job in planned} - {hog.pid} <= other_pids | {
        job.pid for job in planned if job.pid not in then}, "all others are as planned"
    assert other_pids <= then, "and nobody else"


@pytest.mark.parametrize("mps", [True, False])
def test_where_mps_was_tasks_on_whole_boards_were_its_clients(mps: bool) -> None:
    options = SimulationOptions("n004", "h100-mig", 8, seed=random.randrange(10**6), mps=mps)
    span = range(NOW - 20, NOW)
    past = list(frames(DemoHistoryNode(options, None, span), span))
    facts = SimulatedReader(options, None).read().facts
    whole = {at for at, gpu in enumerate(facts) if gpu.parent_uuid is None}
    tasks = [frame.tasks for frame in past if frame.tasks is not None]
    began = {task.id: task for delta in tasks for task in delta.began}
    for use in (use for delta in tasks for use in delta.uses):
        assert (began[use.task_id].kind == "mps_client") == (mps and use.gpu in whole)
    assert began


@pytest.mark.parametrize("name", ["n001", "n004", "n007"])
def test_since_when_a_gpu_idles_is_known_before_the_past_is_made(name: str) -> None:
    options = SimulationOptions(name, "h100", 8, seed=random.randrange(10**6))
    uuids, instances = units_of(options)
    span = range(NOW - 900, NOW)
    hogs = [job for job in jobs_at(options.seed, name, uuids, NOW, instances) if job.kind == "hog"]
    idle = idle_since(options, None, span)
    assert set(idle) == {uuid for job in hogs for uuid in job.gpus}
    assert idle_since(options, (), span) == {}
    units = SimulatedReader(options, None).read().facts
    for at, facts in enumerate(units):
        if facts.uuid in idle:
            past = list(frames(DemoHistoryNode(options, None, span),
                               range(int(idle[facts.uuid]) + 1, NOW, 60)))
            assert {rows(frame)[at]["util_pct"] for frame in past} <= {0.0}
