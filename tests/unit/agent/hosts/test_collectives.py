"""NCCL's RAS service: asked about jobs that look stuck and no others, only at the job's own port,
and what two of its answers say."""

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import UNSET, structs

from agent.hosts.collective_watch import (
    ASK_EVERY_S,
    LOOK_EVERY_S,
    MOST_AT_ONCE,
    SUSPECT_S,
    CollectiveWatch,
)
from agent.hosts.collector import HostCollector
from agent.hosts.listeners import listens
from agent.hosts.ras_core import (
    MOST_KINDS,
    OTHER_ANSWER,
    OTHER_JOB,
    STILL_S,
    RasUnreadableError,
    StandstillTracker,
    SuspectJob,
    parse,
    port_of,
    standstill,
    suspect_jobs,
)
from agent.hosts.ras_query import TOO_OLD, Meant, ask
from agent.readings import GpuReading, Reading
from agent.tasks.seen import GpuTask
from gpudeck.contract.collectives import MOST_NAMED, CollectiveSample
from gpudeck.contract.wire import GpuFacts, Task
from gpudeck.measures.metrics import COLUMN, WIDTH, Absence
from tests.fakes import nccl_ras
from tests.fakes.hub import wait_for
from tests.fakes.nccl_ras import communicator, missing, rank, status
from tests.ports import free_port

from .test_serving import dripping, endless, send, served, silent

CAPTURES = Path(__file__).parents[3] / "captures"


def judged(*answers: str, apart_s: float = STILL_S) -> CollectiveSample | None:
    """Judge the last of these answers, each `apart_s` after the one before."""
    tracker, result = StandstillTracker(), None
    for at, answer in enumerate(answers):
        communicators = parse(answer.encode())
        result = standstill("t", communicators, tracker.update(communicators, at * apart_s))
    return result


def test_the_rank_that_has_launched_less_is_behind() -> None:
    size = random.randrange(3, 40)
    slow, launched = random.randrange(size), random.randrange(1, 10**9)
    ranks = [rank(at, launched - (at == slow), pid=7_000 + at) for at in range(size)]
    answer = status(communicator(ranks))
    sample = judged(answer, answer)
    assert sample is not None
    assert [(one.rank, one.pid, one.gpu, one.host) for one in sample.behind] == [
        (slow, 7_000 + slow, slow, "10.0.0.5")]
    assert (sample.size, sample.ahead, sample.least, sample.most, sample.still_s) == (
        size, size - 1, launched - 1, launched, STILL_S)
    assert judged(answer) is None, "one answer says nothing: ranks differ at any moment"
    assert judged(answer, answer, apart_s=STILL_S - 0.1) is None
    ranks[(slow + 1) % size] = rank((slow + 1) % size, launched + 1, pid=1)
    assert judged(answer, status(communicator(ranks))) is None, "one goes on: nothing stands still"


def test_what_stands_still_together_is_not_stuck() -> None:
    """A communicator that was used once, and a job between two steps."""
    even = status(communicator([rank(at, 12, pid=9) for at in range(8)]))
    assert judged(even, even, even) is None


def test_ranks_that_do_not_answer_are_named_and_those_that_are_no_members_are_not() -> None:
    ranks = [rank(at, 70, pid=9) for at in range(6)]
    silent_rank = status(communicator(ranks, [missing(6), missing(7, False, is_dead=True)]))
    sample = judged(silent_rank, silent_rank)
    assert sample is not None
    assert ([one.rank for one in sample.missing], sample.missing_count) == ([6, 7], 2)
    assert (sample.behind, sample.behind_count) == ((), 0)
    leaving = status(communicator(ranks, [missing(6, is_unresponsive=False)]))
    assert judged(leaving, leaving) is None


def test_different_collectives_of_one_number_are_said() -> None:
    ranks = [rank(0, 9, pid=9), rank(1, 9, pid=9, kind="AllGather")]
    answer = status(communicator(ranks))
    sample = judged(answer, answer)
    assert sample is not None
    assert (sample.is_mixed, sample.behind_count, sample.least) == (True, 0, 9)


def test_of_several_the_largest_is_said_and_of_many_ranks_the_first() -> None:
    small = communicator([rank(0, 1), rank(1, 2)], name="0x1")
    many = MOST_NAMED + random.randrange(1, 50)
    large = communicator([rank(at, int(at >= many)) for at in range(2 * many)], name="0x2")
    sample = judged(status(small, large), status(small, large))
    assert sample is not None
    assert (sample.communicator, sample.behind_count, sample.ahead) == ("0x2", many, many)
    assert [one.rank for one in sample.behind] == [*range(MOST_NAMED)]


def test_numbers_that_nccl_does_not_know_are_none() -> None:
    ranks = [rank(0, 1, pid=-1), rank(1, 2)]
    ranks[0]["nvml_dev"] = -1
    ranks[0]["host"] = "unknown"
    sample = judged(*[status(communicator(ranks))] * 2)
    assert sample is not None
    assert (sample.behind[0].pid, sample.behind[0].gpu) == (None, None)


@pytest.mark.parametrize("change", [
    lambda one: one.update(host="<script>"), lambda one: one.update(host="x" * 99),
    lambda one: one.update(rank=-4), lambda one: one.update(pid=2**40),
    lambda one: one["collective_counts"].update(AllReduce=-1),
    lambda one: one["collective_counts"].update(AllReduce=2**53),
    lambda one: one["collective_counts"].update(AllReduce=float("nan")),
    lambda one: one.pop("collective_counts"), lambda one: one.update(collective_counts=[])])
def test_lies_are_no_answer(change: Callable[[Any], object]) -> None:
    one = rank(0, 5)
    change(one)
    with pytest.raises(RasUnreadableError, match="not known here"):
        parse(status(communicator([one])).encode())


def test_whatever_the_service_counts_the_hub_takes_the_sample() -> None:
    """Otherwise one user's service would make the hub refuse all that the node sends."""
    for most in (2**power for power in range(64)):
        ranks = [rank(0, 0), rank(1, 0)]
        ranks[0]["collective_counts"] = dict.fromkeys(map(str, range(MOST_KINDS)), most)
        try:
            sample = judged(*[status(communicator(ranks))] * 2)
        except RasUnreadableError:
            break
        assert sample is not None
        wire = msgspec.msgpack.encode(sample)
        assert msgspec.msgpack.decode(wire, type=CollectiveSample) == sample
    assert most > 2**40


def test_the_example_of_its_own_guide_is_read() -> None:
    guide = (CAPTURES / "nccl" / "ras_2.29.1.json").read_bytes()
    [one] = parse(guide)
    assert ([rank.rank for rank in one.ranks], [rank.rank for rank in one.silent]) == ([0], [1])
    without_comma = re.sub(rb'("nvml_dev": 1),', rb"\1", guide)
    assert without_comma != guide
    assert parse(without_comma) == parse(guide), "as NCCL 2.28.9 writes a rank that is missing"
    made_up = json.loads(status(communicator([rank(0, 0)], [missing(1)])))
    assert _keys(made_up) == _keys(json.loads(guide)), "the fake writes what NCCL writes"
    deep = b'{"communicators": [], "x": ' + b"[" * 1_000_000
    for junk in (b"", b"\xff\xfe", b"[]", b"{}", b'{"communicators": 1}', b"OK\n", deep):
        with pytest.raises(RasUnreadableError):
            parse(junk)


@pytest.mark.parametrize(("text", "port"), [
    ("localhost:4321", 4_321), (":4321", 4_321), ("[::1]:99", 99), ("4321", 4_321), ("", None),
    ("localhost:", None), ("localhost:0", None), ("localhost:70000", None), ("a:٣٤", None),
    ("localhost:" + "9" * 5_000, None)])
def test_its_address_is_as_nccl_takes_it(text: str, port: int | None) -> None:
    assert port_of(text) == port


def _keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _keys(part) for key, part in value.items()}
    return [_keys(part) for part in value] if isinstance(value, list) else None


# -- jobs worth asking about


def reading(uuid: str, **values: float) -> GpuReading:
    absent = bytearray([Absence.UNSUPPORTED]) * WIDTH
    numbers = [0.0] * WIDTH
    for key, value in values.items():
        absent[COLUMN[key]], numbers[COLUMN[key]] = Absence.PRESENT, value
    return GpuReading(uuid, "ok", tuple(numbers), bytes(absent))


def gpu_task(task_id: str, gpu: str, job: str, pid: int) -> GpuTask:
    return GpuTask(Task(task_id, pid, 1, None, "ann", "x", job_id=job), gpu, None, None, None)


def test_a_job_is_asked_about_with_all_its_ranks_where_one_of_its_gpus_looks_stuck() -> None:
    facts = [GpuFacts(f"g{at}", at, "NVIDIA H100", power_limit_w=700.0) for at in range(4)]
    spins = {"util_pct": 100.0, "power_w": 130.0}
    tasks = [gpu_task("a0", "g0", "j", 10), gpu_task("a1", "g1", "j", 11),
             gpu_task("b", "g2", "k", 12), gpu_task("c", "g3", "l", 13)]
    gpus = [reading("g0", **spins), reading("g1", util_pct=0.0, power_w=70.0),
            reading("g2", util_pct=100.0, power_w=600.0), reading("g3", util_pct=100.0)]
    assert suspect_jobs(gpus, facts, tasks) == (SuspectJob("j", (("a0", 10), ("a1", 11))),)
    capped = [structs.replace(fact, power_limit_w=200.0, power_limit_max_w=700.0) for fact in facts]
    assert [job.id for job in suspect_jobs(gpus, capped, tasks)] == ["j"], "as the hub judges it"
    lost_gpu = structs.replace(gpus[0], state="lost")
    assert suspect_jobs([lost_gpu, *gpus[1:]], facts, tasks) == ()
    assert suspect_jobs(gpus, facts[1:], tasks) == (), "without a limit nothing is known"
    server = structs.replace(tasks[0], task=structs.replace(tasks[0].task, kind="mps_server"))
    assert suspect_jobs(gpus, facts, [server, *tasks[1:]]) == ()


def test_a_sample_of_the_host_carries_what_nccl_says_of_suspects() -> None:
    watch = CollectiveWatch()
    watch._thread = threading.current_thread()  # none of its own
    collector = HostCollector(collectives=watch)
    spins = reading("g0", util_pct=100.0, power_w=130.0)
    frame = Reading(1.0, 1.0, (spins,), (GpuFacts("g0", 0, "NVIDIA H100", power_limit_w=700.0),),
                    None)
    host = collector.with_host(frame, [gpu_task("a", "g0", "j", os.getpid())], 10.0).host
    assert host is not None
    assert host.collectives is UNSET, "nothing is known yet"
    assert watch._suspects == (SuspectJob("j", (("a", os.getpid()),)),)
    watch.samples = (CollectiveSample("a", "older"),)
    host = collector.with_host(structs.replace(frame, gpus=(reading("g0", util_pct=3.0),)), [],
                               float("inf")).host
    assert host is not None
    assert host.collectives == watch.samples
    assert not watch._suspects
    collector.close()
    assert watch._stopping.is_set()


# -- the service itself


@contextmanager
def ras_rank(path: Path, port: int, *flags: str, **env: str) -> Iterator[int]:
    process = subprocess.Popen(
        [sys.executable, nccl_ras.__file__, str(port), str(path), *flags], text=True,
        stdout=subprocess.PIPE, env=os.environ | env)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        process.stdout and process.stdout.close()


@contextmanager
def waiting_process(address: str) -> Iterator[int]:
    """A process with this address of RAS in its environment, which listens nowhere."""
    process = subprocess.Popen(
        [sys.executable, "-c", "input(1)"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env=os.environ | {"NCCL_RAS_ADDR": address})
    try:
        assert process.stdout is not None
        process.stdout.read(1)  # only then its environment is there for sure
        yield process.pid
    finally:
        process.communicate(b"\n")


class Clock:
    def __init__(self) -> None:
        self.at = 1_000.0

    def __call__(self) -> float:
        return self.at


def watch_of(clock: Clock, *jobs: SuspectJob, **options: Any) -> CollectiveWatch:
    """A watch to which these jobs have looked stuck for long enough, and which has asked."""
    watch = CollectiveWatch(clock=clock, start=lambda query: query(), **options)
    watch._suspects = jobs
    watch.step()
    assert watch.samples == (), "a moment is no reason to ask"
    clock.at += SUSPECT_S
    watch.step()
    return watch


def test_a_stuck_job_names_its_rank_within_a_minute_and_a_job_that_goes_on_says_nothing(
        tmp_path: Path) -> None:
    path, port, clock = tmp_path / "state", free_port(), Clock()
    path.write_text(status(communicator([rank(0, 41), rank(1, 42, 9)])))
    with ras_rank(path, port, NCCL_RAS_ADDR=f"localhost:{port}") as pid:
        job = SuspectJob("j", (("t", pid),))
        watch = watch_of(clock, job)
        clock.at += ASK_EVERY_S
        watch.step()
        [sample] = watch.samples
        assert (sample.trouble, [one.rank for one in sample.behind]) == ("", [0])
        assert sample.behind[0].pid == pid
        assert clock.at - 1_000.0 <= 60.0
        path.write_text(status(communicator([rank(0, 42), rank(1, 42, 9)])))
        clock.at += ASK_EVERY_S
        watch.step()
        assert watch.samples == ()
        watch._suspects = ()
        watch.step()
        watch._suspects = (job,)
        watch.step()
        assert watch.samples == (), "a job that was well again is not asked at once"


def test_another_jobs_answer_is_not_believed(tmp_path: Path) -> None:
    """The port of a node is of the job that came first."""
    path, port = tmp_path / "state", free_port()
    path.write_text(status(communicator([rank(0, 41, pid=2**30), rank(1, 42, pid=2**30 + 1)])))
    with ras_rank(path, port, NCCL_RAS_ADDR=f":{port}") as pid:
        [sample] = watch_of(Clock(), SuspectJob("j", (("t", pid),))).samples
        assert (sample.task_id, sample.trouble, sample.behind) == ("t", OTHER_JOB, ())


def test_what_another_process_of_its_user_says_is_not_believed(tmp_path: Path) -> None:
    """Users' containers on the host's network have one user, root, and often the same pids."""
    path, port, clock, ports = tmp_path / "state", free_port(), Clock(), list[int]()

    def ask_and_note(port: int, is_meant: Meant) -> bytes:
        ports.append(port)
        return ask(port, is_meant)

    with waiting_process(f"localhost:{port}") as pid, ras_rank(path, port):
        path.write_text(status(communicator([rank(0, 41, pid), rank(1, 42, 9)])))
        watch = watch_of(clock, SuspectJob("j", (("t", pid),)), ask=ask_and_note)
        clock.at += ASK_EVERY_S
        watch.step()
        [sample] = watch.samples
        assert (sample.trouble, sample.behind, ports) == (OTHER_JOB, (), [])


def test_two_jobs_of_one_user_that_share_the_port_each_say_their_own(tmp_path: Path) -> None:
    """Share the default port: the kernel gives each connection to one of all ranks of a user."""
    port, clock, paths = free_port(), Clock(), [tmp_path / "a", tmp_path / "b"]
    address = f"localhost:{port}"
    with ras_rank(paths[0], port, NCCL_RAS_ADDR=address) as first, ras_rank(
            paths[1], port, NCCL_RAS_ADDR=address) as second:
        for path, pids in zip(paths, ((first, 9), (second, 9)), strict=True):
            path.write_text(status(communicator([rank(0, 41, pids[0]), rank(1, 42, pids[1])])))
        watch = watch_of(clock, *(SuspectJob(str(pid), ((str(pid), pid),))
                                  for pid in (first, second)))
        for _ in range(3):
            clock.at += ASK_EVERY_S
            watch.step()
            assert {(sample.task_id, sample.trouble, sample.behind[0].pid)
                    for sample in watch.samples} == {
                        (str(pid), "", pid) for pid in (first, second)}


def test_a_stopped_rank_does_not_hide_what_the_others_say(tmp_path: Path) -> None:
    """Stop one that shares the port, and accepts nothing: another rank of the job is tried."""
    path, port, clock = tmp_path / "state", free_port(), Clock()
    address = f"localhost:{port}"
    with ras_rank(path, port, NCCL_RAS_ADDR=address) as pid, ras_rank(
            path, port, NCCL_RAS_ADDR=address) as stopped:
        path.write_text(status(communicator([rank(0, 42, pid)], [missing(1)])))
        os.kill(stopped, signal.SIGSTOP)
        watch = watch_of(clock, SuspectJob("j", (("a", stopped), ("b", pid))))
        clock.at += ASK_EVERY_S
        watch.step()
        [sample] = watch.samples
        assert (sample.trouble, [one.rank for one in sample.missing]) == ("", [1])


def test_services_that_hang_delay_only_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Query several at once: one by one, 16 of them kept all others waiting for three minutes."""
    clock, hangs = Clock(), threading.Event()
    queries: list[str] = []

    def read(job: SuspectJob, _: object) -> CollectiveSample:
        queries.append(job.id)
        if job.id != "well":
            hangs.wait(30.0)
        return CollectiveSample(job.id, "" if job.id == "well" else "it did not answer")

    watch = CollectiveWatch(clock=clock)
    monkeypatch.setattr(watch, "_read", read)
    watch._suspects = (*(SuspectJob(str(at), ((str(at), at),)) for at in range(3 * MOST_AT_ONCE)),
                       SuspectJob("well", (("w", 1),)))
    watch.step()
    clock.at += SUSPECT_S

    def is_asked(count: int) -> bool:
        watch.step()
        return len(queries) >= count

    wait_for(lambda: is_asked(MOST_AT_ONCE), 10.0)
    assert len(queries) == MOST_AT_ONCE, "no more than so many at once"
    hangs.set()
    wait_for(lambda: is_asked(len(watch._suspects)), 10.0)
    wait_for(lambda: not any(entry.is_asked for entry in watch._jobs.values()), 10.0)
    hangs.clear()
    queries.clear()
    clock.at += ASK_EVERY_S + LOOK_EVERY_S
    wait_for(lambda: is_asked(MOST_AT_ONCE), 10.0)
    assert "well" in queries, "whoever answered last time goes first"
    hangs.set()


def test_a_listener_that_cannot_be_looked_up_is_nobodys(
        monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_folder: Path) -> Iterator[Path]:
        raise PermissionError

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert listens([os.getpid()], port, Path("/proc")) is True
        assert listens([2**30], port, Path("/proc")) is False
        monkeypatch.setattr(Path, "iterdir", refuse)
        assert listens([os.getpid()], port, Path("/proc")) is None


def test_an_older_nccl_is_not_guessed_at(tmp_path: Path) -> None:
    path, port = tmp_path / "state", free_port()
    path.write_text("Job summary\n")
    with ras_rank(path, port, "--old", NCCL_RAS_ADDR=f":{port}") as pid:
        [sample] = watch_of(Clock(), SuspectJob("j", (("t", pid),))).samples
        assert sample.trouble == TOO_OLD


def test_a_port_at_which_the_job_does_not_listen_is_never_asked() -> None:
    asked_ports: list[int] = []
    port = free_port()

    def note(port: int, _: object) -> bytes:
        asked_ports.append(port)
        return b"{}"

    with waiting_process(f"localhost:{port}") as pid:
        [sample] = watch_of(Clock(), SuspectJob("j", (("t", pid),)), ask=note).samples
        assert f"port {port}" in sample.trouble
        assert asked_ports == []


def anybody(_: int) -> bool:
    return True


def slow_greeting(connection: socket.socket) -> None:
    connection.sendall(b"SERVER PROTOCOL 2\n")
    while True:
        time.sleep(0.02)
        connection.sendall(b"x")


def endless_status(connection: socket.socket) -> None:
    for line in (b"SERVER PROTOCOL 2\n", b"OK\n", b"OK\n"):
        connection.sendall(line)
        connection.recv(4_096)
    while True:
        connection.sendall(b"[" * 100_000)


@pytest.mark.parametrize(("answer", "why"), [
    (silent, "within"), (dripping, "within|not known here"),
    (slow_greeting, "within|not known here"),
    (endless, "not known here"), (endless_status, "longer than"),
    (send(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "not known here"), (send(b""), "not known here")])
def test_a_hostile_service_is_bounded(answer: Callable[[socket.socket], None], why: str) -> None:
    with served(answer) as port:
        began = time.monotonic()
        with pytest.raises(RasUnreadableError, match=why):
            ask(port, anybody, 1.0)
        assert time.monotonic() - began < 4.0


def test_what_is_no_such_service_gets_one_line_and_no_more() -> None:
    lines: list[bytes] = []

    def other(connection: socket.socket) -> None:
        connection.sendall(b"hello\n")
        lines.append(connection.recv(4_096))

    with served(other) as port, pytest.raises(RasUnreadableError, match=OTHER_ANSWER):
        ask(port, anybody, 1.0)
    assert lines in ([], [b""])


def test_nobody_at_the_port_is_a_sentence() -> None:
    with pytest.raises(RasUnreadableError, match="no connection"):
        ask(free_port(), anybody, 1.0)
