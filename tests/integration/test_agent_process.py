"""The real `python -m agent`, its reading child and the C fake of NVML, against a real hub."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.reader import supervisor as reader_supervisor
from agent.reader.supervisor import DIES_WITHIN_S, ReaderTimeouts, child_environment
from agent.reader.watchdog import ReaderProcess, ThreadedReaderProcess
from gpudeck.contract.wire import Frame, unpack
from gpudeck.measures.metrics import COLUMN, WIDTH, Absence
from tests.fakes.hub import FakeHub, wait_for
from tests.fakes.nvml import FakeNvml

ROOT = Path(__file__).parents[2]


@contextmanager
def an_agent(
    *flags: str, env: dict[str, str] | None = None, program: Sequence[str] = ("-m", "agent")
) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, *program, *flags], cwd=ROOT, env=env or dict(os.environ),
        stderr=subprocess.PIPE, text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=5)
            process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


@pytest.fixture
def nvml(tmp_path: Path) -> FakeNvml:
    return FakeNvml(tmp_path / "nvml.txt", gpus=random.randint(1, 4))


def flags(hub: FakeHub, tmp_path: Path) -> list[str]:
    token = tmp_path / "token"
    if not token.exists():
        token.write_text(hub.token().text + "\n")
    return ["--hub", hub.url, "--data", str(tmp_path / "data"), "--token-file", str(token)]


def frames(hub: FakeHub) -> list[Frame]:
    if not hub.hellos:
        return []
    messages = hub.messages[hub.stream]
    return [messages[seq] for seq in sorted(messages) if isinstance(messages[seq], Frame)]  # type: ignore[misc]


def more_frames(hub: FakeHub, more: int) -> Callable[[], bool]:
    count = len(frames(hub)) + more
    return lambda: len(frames(hub)) >= count


def test_kill_9_loses_nothing_and_gives_no_number_twice(
    hub: FakeHub, nvml: FakeNvml, tmp_path: Path
) -> None:
    hub.ack_every = 3
    nvml.lines = [f"process 0 compute {os.getpid()} 123456789"]
    nvml.write()
    for killed in range(3):
        with an_agent(*flags(hub, tmp_path), env=nvml.env()) as agent:
            wait_for(more_frames(hub, 2))
            time.sleep(random.uniform(0, 1))
            agent.send_signal(signal.SIGKILL if killed < 2 else signal.SIGTERM)
            agent.wait(timeout=3)
    assert hub.broken == []
    assert len({hello.stream for hello in hub.hellos}) == 1
    assert len({hello.node_id for hello in hub.hellos}) == 1
    seqs = hub.seqs(hub.stream)
    assert seqs == list(range(1, len(seqs) + 1))
    used_bytes = unpack(frames(hub)[-1].values)[COLUMN["mem_used_bytes"]]
    assert used_bytes == nvml.gpus[0]["mem_used"]
    tasks = next(frame.tasks for frame in frames(hub) if frame.tasks is not None)
    assert [task.pid for task in tasks.began] == [os.getpid()]
    assert tasks.uses[0].mem_used_bytes == 123456789


def test_reading_child_dies_with_a_killed_agent(
    hub: FakeHub, nvml: FakeNvml, tmp_path: Path
) -> None:
    with an_agent(*flags(hub, tmp_path), env=nvml.env()) as agent:
        wait_for(lambda: frames(hub))
        [child] = children_of(agent.pid)
        agent.kill()
        wait_for(lambda: not Path(f"/proc/{child}").exists() or is_zombie(child), 3)


def test_no_library_is_said_and_the_agent_runs(hub: FakeHub, tmp_path: Path) -> None:
    with an_agent(*flags(hub, tmp_path)) as agent:
        wait_for(lambda: [1 for _, beat in hub.beats if beat.reader == "no_library"])
        beat = hub.beats[-1][1]
        assert "install the NVIDIA driver" in beat.detail
        assert beat.reading_age_s is None
        assert agent.poll() is None


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_stops_cleanly_within_seconds(
    hub: FakeHub, nvml: FakeNvml, tmp_path: Path, signum: signal.Signals
) -> None:
    with an_agent(*flags(hub, tmp_path), env=nvml.env()) as agent:
        wait_for(lambda: frames(hub))
        children = children_of(agent.pid)
        began = time.monotonic()
        agent.send_signal(signum)
        assert agent.wait(timeout=5) == 0
        assert time.monotonic() - began < 4
        assert not any(Path(f"/proc/{child}").exists() for child in children)


def test_what_cannot_start_says_so_in_one_sentence(hub: FakeHub, tmp_path: Path) -> None:
    with an_agent(*flags(hub, tmp_path)):
        wait_for(lambda: hub.hellos)
        second = run_agent(*flags(hub, tmp_path))
    assert (second.returncode, second.stderr.count("\n")) == (3, 1)
    assert "another agent uses" in second.stderr
    (tmp_path / "file").write_text("")
    for arguments, code in (
        (["--data", str(tmp_path / "file" / "x")], 3),
        (["--hub", "nonsense"], 2),
        (["--token-file", str(tmp_path / "nowhere")], 2),
        (["--backend", "cuda"], 2),
    ):
        process = run_agent(*arguments)
        assert process.returncode == code
        assert process.stderr.startswith("gpudeck: ")
        assert process.stderr.count("\n") == 1


def run_agent(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "agent", *arguments], cwd=ROOT, capture_output=True, text=True,
        timeout=20, check=False,
    )


def test_hung_driver_is_seen_and_mends_itself(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole cycle at a tenth of the time: hung, at most three children, then well again."""
    use_fake(nvml, monkeypatch)
    patience = ReaderTimeouts(answer_s=0.5, start_s=1.5, stuck_s=1.5, stuck_max=3)
    source = a_source("nvml", patience=patience)
    try:
        wait_for(source.latest)
        wait_for(lambda: source.state == "ok")
        [first] = children_of(os.getpid())
        nvml.lines = ["hang nvmlDeviceGetClockInfo", "hang nvmlInitWithFlags"]
        nvml.write()
        wait_for(lambda: source.state == "hung", 5)
        assert children_of(os.getpid())[0] == first  # not killed at once
        age = source.age_s
        assert age is not None
        assert age > 1.4
        most = 0
        until = time.monotonic() + 2.5
        while time.monotonic() < until:
            most = max(most, len([pid for pid in children_of(os.getpid()) if not is_zombie(pid)]))
            time.sleep(0.05)
        assert 2 <= most <= 3
        assert source.state == "hung"
        source.latest()
        nvml.lines = []
        nvml.write()
        wait_for(source.latest, 6)
        wait_for(lambda: source.state == "ok")
        wait_for(lambda: len(children_of(os.getpid())) == 1, 5)
    finally:
        source.close()
    assert children_of(os.getpid()) == []


def test_hung_child_that_comes_back_is_taken_on(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_fake(nvml, monkeypatch)
    source = a_source("nvml", patience=ReaderTimeouts(answer_s=0.3, start_s=60, stuck_s=60))
    try:
        wait_for(source.latest)
        [first] = children_of(os.getpid())
        nvml.lines = ["hang nvmlDeviceGetClockInfo", "hang nvmlInitWithFlags"]
        nvml.write()
        wait_for(lambda: source.state == "hung", 5)
        nvml.lines = ["hang nvmlInitWithFlags"]
        nvml.write()
        wait_for(lambda: source.state == "ok", 5)
        assert first in children_of(os.getpid())
    finally:
        nvml.lines = []
        nvml.write()
        source.close()


def test_child_that_dies_is_started_again_and_its_words_are_kept(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    use_fake(nvml, monkeypatch)
    monkeypatch.setenv("GPUDECK_TOKEN", "very-secret")
    source = a_source("nvml", patience=ReaderTimeouts(back_off_s=(0.1, 1.0)))
    try:
        wait_for(source.latest)
        [child] = children_of(os.getpid())
        assert b"very-secret" not in Path(f"/proc/{child}/environ").read_bytes()
        os.kill(child, signal.SIGSEGV)
        wait_for(lambda: source.state == "failed", 5)
        assert "being restarted" in source.detail
        wait_for(lambda: source.state == "ok")
        assert children_of(os.getpid()) != [child]
    finally:
        source.close()


@pytest.mark.parametrize("has_thread", [True, False])
def test_one_that_cannot_be_started_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, has_thread: bool
) -> None:
    with monkeypatch.context() as without_program:
        without_program.setattr(sys, "executable", str(tmp_path / "none"))
        patience = ReaderTimeouts(back_off_s=(0.1, 0.2))
        source = (a_source("simulated", patience=patience) if has_thread else
                  ReaderProcess("simulated", "", lambda _: "", patience=patience))
        try:
            watch_until(source, lambda: source.state == "failed")
            assert "can be started (No such file" in source.detail
            without_program.undo()
            watch_until(source, lambda: source.latest() is not None)
            assert source.state == "ok"
        finally:
            source.close()
    assert children_of(os.getpid()) == []


def test_a_start_that_hangs_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """The start waits for a disk that hangs; its caller is the node, with heartbeats to send."""
    disk = threading.Event()

    def read_from_disk(env: "os._Environ[str]") -> dict[str, str]:
        disk.wait(30)
        return child_environment(env)

    monkeypatch.setattr(reader_supervisor, "child_environment", read_from_disk)
    source = ReaderProcess("simulated", "", lambda _: "")
    try:
        began = time.monotonic()
        for _ in range(5):
            source.wait(0.05)
        assert time.monotonic() - began < 5
        assert (source.state, source.latest(), source.fresh(0.1)) == ("starting", None, None)
        disk.set()
        watch_until(source, lambda: source.latest() is not None)
    finally:
        disk.set()
        source.close()
    assert children_of(os.getpid()) == []


def test_one_that_dies_slowly_holds_up_nobody() -> None:
    """The kernel closes its pipes, and then the driver does not let it end: here it has closed them
    itself and sleeps."""
    program = "import os, time; os.close(1); os.close(2); time.sleep(60)"
    source = ReaderProcess("simulated", "", lambda _: "",
                           patience=ReaderTimeouts(back_off_s=(60, 60)))
    try:
        assert source._supervisors[0]._starting is not None
        source._supervisors[0]._starting.finished.wait(10)
        first = source._supervisors[0]._starting.process
        slow = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
        source._supervisors[0]._starting.process = slow
        assert first is not None
        assert first.stdin is not None
        first.stdin.close()
        longest_s, until = 0.0, time.monotonic() + 30
        while source.state != "failed" and time.monotonic() < until:
            began = time.monotonic()
            source.wait(0.05)
            longest_s = max(longest_s, time.monotonic() - began)
        assert source.state == "failed"
        assert longest_s < DIES_WITHIN_S * 0.8
        slow.kill()
        for process in (first, slow):
            process.wait()
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
    finally:
        source.close()


def test_a_ring_ends_a_wait_of_now_and_the_next_one() -> None:
    source = ReaderProcess("simulated", "", lambda _: "")
    try:
        watch_until(source, lambda: source.latest() is not None)
        for ring_after_s in (0.0, 0.2):
            ringing = threading.Timer(ring_after_s, source.ring)
            ringing.start()
            if not ring_after_s:
                ringing.join()
            began = time.monotonic()
            source.wait(20)
            assert time.monotonic() - began < 5
            ringing.join()
        source.latest()  # it may have come meanwhile
        rounds = [0, 0]
        for at in range(2):
            while source.latest() is None:  # who rings all the time does not keep it from reading
                source.ring()
                source.wait(5)
                rounds[at] += 1
        assert max(rounds) > 5
    finally:
        source.close()
    source.ring()  # late


def watch_until(source: ReaderProcess, condition: Callable[[], bool], seconds: float = 20) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, (source.state, source.detail)
        if not isinstance(source, ThreadedReaderProcess):
            source.wait(0.05)
        else:
            time.sleep(0.02)


def test_driver_gone_and_back(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    use_fake(nvml, monkeypatch)
    source = a_source("nvml", patience=ReaderTimeouts(back_off_s=(0.2, 0.4)))
    try:
        wait_for(source.latest)
        nvml.lines = ["error * nvmlDeviceGetUtilizationRates 1", "error * nvmlInitWithFlags 9"]
        nvml.write()
        wait_for(lambda: source.state == "no_driver" and "modprobe" in source.detail)
        source.latest()
        nvml.lines = []
        nvml.write()
        wait_for(source.latest)
        assert source.state == "ok"
    finally:
        source.close()


def test_an_order_that_comes_and_goes(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    """Taken back before the old process has left: its last answer counts for nothing."""
    use_fake(nvml, monkeypatch)
    orders = [""]
    source = a_source("nvml", patience=ReaderTimeouts(back_off_s=(0.1, 1.0)),
                      order=lambda _: orders[0])
    try:
        wait_for(source.latest)
        for _ in range(3):
            before = source.pids
            orders[0] = f"because {random.random()}"
            wait_for(lambda: source.state == "released" and source.detail == orders[0])
            assert (source.latest(), source.fresh(0.1), source.pids) == (None, None, frozenset())
            assert all(is_zombie(pid) for pid in before)
            orders[0] = ""
            wait_for(lambda: source.latest() is not None and source.state == "ok")
        for _ in range(5):
            orders[0] = "x"
            time.sleep(random.uniform(0.0, 0.7))
            orders[0] = ""
            time.sleep(random.uniform(0.0, 0.7))
        wait_for(lambda: source.latest() is not None and source.state == "ok")
        wait_for(lambda: len(source.pids) == 1)
    finally:
        source.close()


def test_readings_keep_to_whole_seconds(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    use_fake(nvml, monkeypatch)
    phase_s = 0.05
    source = a_source("nvml", phase_s=phase_s)
    try:
        wait_for(source.latest)
        readings = [wait_for(source.latest, 5) for _ in range(3)]
    finally:
        source.close()
    offsets = [(reading.taken_at - phase_s) % 1 for reading in readings]
    assert max(offsets) < 0.3  # a busy test machine; without the schedule it is anything
    absent = readings[-1].gpus[0].absent
    assert len(absent) == WIDTH
    assert absent[COLUMN["fan_pct"]] == Absence.UNSUPPORTED


def a_source(
    backend: str, phase_s: float = 0.0, patience: ReaderTimeouts | None = None,
    order: Callable[[str], str] = lambda _: "",
) -> ThreadedReaderProcess:
    return ThreadedReaderProcess(backend, "", order, lambda: None, phase_s, patience)


def use_fake(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml.use_in_children(monkeypatch)


def children_of(pid: int) -> list[int]:
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
                words = (entry / "cmdline").read_bytes()
                if int(parent) == pid and b"agent.reader.watchdog" in words:
                    pids.append(int(entry.name))
    return sorted(pids)


def is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
