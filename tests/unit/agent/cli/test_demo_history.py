"""The demo's past ends as its present begins."""

import io
import random
from collections.abc import Iterator
from functools import partial

import msgspec
import pytest

from agent.backends.simulation.jobs import jobs_at
from agent.backends.simulation.reader import SimulatedReader
from agent.backends.simulation.world import SimulationOptions, units_of
from agent.cli.demo_history import (
    LENGTH,
    DemoHistoryNode,
    EnergyHistory,
    chunks,
    idle_since,
    tell,
)
from agent.cli.simulated_nodes import boot_id_of
from agent.tasks.task_table import TaskTable
from gpudeck.metrics import COLUMN, WIDTH, Absence
from gpudeck.wire import Event, Frame, Inventory, decode_from_agent, unpack

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


@pytest.mark.parametrize("profile", ["h100", "h100-mig", "4090"])
def test_no_seam(profile: str) -> None:
    """Beside the live simulation as it begins at that moment, with the same jobs. It begins with
    GPUs as warm as their work makes them; one whose work just changed is still on its way."""
    options = SimulationOptions("n007", profile, 8, seed=random.randrange(10**6))
    span = range(NOW - 400, NOW)
    told = list(frames(DemoHistoryNode(options, None, EnergyHistory(options, span), span), span))
    assert len(told) == 400
    live = SimulatedReader(options, None, clock=lambda: NOW + 0.5, steady=lambda: NOW + 0.5).read()
    before_s = [rows(frame) for frame in told]
    for at, (was, now) in enumerate(zip(before_s[-1], live.gpus, strict=True)):
        held = [second[at]["mem_used_bytes"] or 0.0 for second in before_s]
        is_settled = max(held) - min(held) < 2**30
        for key, most in (("temp_c", 4.0 if is_settled else 60.0), ("mem_used_bytes", 3 * 2**30)):
            before, after = was[key], now.values[COLUMN[key]]
            assert (before is None) == (now.absent[COLUMN[key]] != Absence.PRESENT)
            if before is not None:
                assert abs(before - after) <= most, key
        if was["energy_j"] is not None:
            gained_j = now.values[COLUMN["energy_j"]] - was["energy_j"]
            assert 0 <= gained_j <= 3 * 700
    described = TaskTable(boot_id_of(options.seed, options.node)).describe(live.processes or ())
    last = next(frame.tasks for frame in reversed(told) if frame.tasks is not None)
    assert {use.task_id for use in last.uses} == {seen.task.id for seen in described}


def test_counters_only_rise_over_all_chunks() -> None:
    options = SimulationOptions("n005", "h100", 2, seed=random.randrange(10**6))
    span = range(NOW - 1_000, NOW)
    out = io.BytesIO()
    tell([partial(DemoHistoryNode, options, None, EnergyHistory(options, span))], span, out)
    at, seconds, seqs, inventories = 0, dict[int, list[float]](), list[int](), 0
    said = out.getvalue()
    while at < len(said):
        size, = LENGTH.unpack_from(said, at)
        host, payload = msgspec.msgpack.decode(said[at + 4 : at + 4 + size], type=tuple[str, bytes])
        at += 4 + size
        message = decode_from_agent(payload)
        assert host == "n005"
        inventories += isinstance(message, Inventory)
        if isinstance(message, Frame):
            seconds[int(message.taken_at)] = [row["energy_j"] or 0.0 for row in rows(message)]
        if isinstance(message, Frame | Event):
            seqs.append(message.seq)
    assert sorted(seconds) == list(span)
    assert next(iter(seconds)) >= span.stop - 900, "the newest comes first"
    assert len(set(seqs)) == len(seqs)
    assert inventories == len(chunks(span)) >= 2
    for gpu in range(2):
        joules = [seconds[second][gpu] for second in sorted(seconds)]
        assert joules == sorted(joules)
        watts = (joules[-1] - joules[0]) / (span.stop - span.start)
        assert 20 < watts < 720


def test_the_processes_that_are_there_now_ran_before() -> None:
    options = SimulationOptions("n001", "h100", 8, seed=random.randrange(10**6))
    uuids, instances = units_of(options)
    planned = jobs_at(options.seed, "n001", uuids, NOW, instances)
    hog = next(job for job in planned if job.kind == "hog")
    real = msgspec.structs.replace(hog, pid=random.randrange(1_000, 100_000), start_ticks=77)
    span = range(NOW - 60, NOW)
    told = list(frames(DemoHistoryNode(options, (real,), EnergyHistory(options, span), span), span))
    tasks = [frame.tasks for frame in told if frame.tasks is not None]
    began = {task.id: task for each in tasks for task in each.began}
    mine = [task for task in began.values() if task.pid == real.pid]
    assert len(mine) == 1
    assert mine[0].user == hog.user
    assert hog.pid not in {task.pid for task in began.values()}
    then = {job.pid for at in range(NOW - 60, NOW, 5)
            for job in jobs_at(options.seed, "n001", uuids, at, instances)}
    others = {task.pid for task in began.values()} - {real.pid}
    assert {job.pid for job in planned} - {hog.pid} <= others | {
        job.pid for job in planned if job.pid not in then}, "all others are as planned"
    assert others <= then, "and nobody else"


@pytest.mark.parametrize("mps", [True, False])
def test_where_mps_was_tasks_on_whole_boards_were_its_clients(mps: bool) -> None:
    options = SimulationOptions("n004", "h100-mig", 8, seed=random.randrange(10**6), mps=mps)
    span = range(NOW - 20, NOW)
    told = list(frames(DemoHistoryNode(options, None, EnergyHistory(options, span), span), span))
    facts = SimulatedReader(options, None).read().facts
    whole = {at for at, each in enumerate(facts) if each.parent_uuid is None}
    tasks = [frame.tasks for frame in told if frame.tasks is not None]
    began = {task.id: task for each in tasks for task in each.began}
    for use in (use for each in tasks for use in each.uses):
        assert (began[use.task_id].kind == "mps_client") == (mps and use.gpu in whole)
    assert began


@pytest.mark.parametrize("name", ["n001", "n004", "n007"])
def test_since_when_a_gpu_idles_is_known_before_the_past_is_made(name: str) -> None:
    options = SimulationOptions(name, "h100", 8, seed=random.randrange(10**6))
    uuids, instances = units_of(options)
    span = range(NOW - 900, NOW)
    hogs = [job for job in jobs_at(options.seed, name, uuids, NOW, instances) if job.kind == "hog"]
    found = idle_since(options, None, span)
    assert set(found) == {uuid for job in hogs for uuid in job.gpus}
    assert idle_since(options, (), span) == {}
    units = SimulatedReader(options, None).read().facts
    for at, facts in enumerate(units):
        if facts.uuid in found:
            told = list(frames(DemoHistoryNode(options, None, EnergyHistory(options, span), span),
                               range(int(found[facts.uuid]) + 1, NOW, 60)))
            assert {rows(frame)[at]["util_pct"] for frame in told} <= {0.0}
