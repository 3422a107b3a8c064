"""`gpudeck hold --driver` on a real agent over the C fake: the reading process is really gone, so
that a driver can be reloaded; the agent lives, actions are refused, and `release` undoes it all."""

import itertools
import os
import random
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.backends import BACKENDS, driver_modules
from agent.cli import hold as cli_hold
from agent.runtime.data_lock import DataFolderLock
from agent.tasks.device_users import openers, readers
from gpudeck.contract.wire import Event
from gpudeck.errors import ExitCode
from tests.fakes.hub import FakeHub, wait_for
from tests.fakes.nvml import FakeNvml
from tests.faults.test_driver_life import BEAT_GAP_MAX_S, all_well, frames, states
from tests.integration.test_agent_process import an_agent, children_of, flags
from tests.terminals import ROOT, run

STATUS = "import sys; from agent.cli.main import status; sys.exit(status(sys.argv[1:]))"
DOCTOR = "import sys; from agent.doctor.report import doctor; sys.exit(doctor(sys.argv[1:]))"
BACK_WITHIN_S = 2.0
BUSY_S = 6.0  # by which a loaded test machine may be slower


@pytest.fixture
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml(tmp_path, gpus=random.randint(1, 4))
    fake.save()
    fake.use_in_children(monkeypatch)
    return fake


@pytest.fixture
def bystander(nvml: FakeNvml) -> "Iterator[subprocess.Popen[bytes]]":
    """A task on the first GPU."""
    child = subprocess.Popen(["sleep", "300"])
    nvml.gpus[0].process(child.pid, random.randint(2**28, 2**30))
    nvml.save()
    yield child
    child.kill()
    child.wait()


def mapped_by(nvml: FakeNvml) -> set[int]:
    """Pids of processes of this machine, other than our own, that have this very library open."""
    pids = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                if str(nvml.library) in (folder / "maps").read_text(errors="replace"):
                    pids.add(int(folder.name))
            except OSError:
                continue
    return pids


def events(hub: FakeHub, *kinds: str) -> list[Event]:
    return [message for _, message in sorted(hub.messages[hub.stream].items())
            if isinstance(message, Event) and message.kind in kinds]


def wait_until_well(hub: FakeHub, nvml: FakeNvml) -> None:
    wait_for(lambda: hub.hellos and frames(hub) and all_well(hub, nvml), 20)


def task_id(hub: FakeHub, pid: int) -> str:
    def new_task() -> str | None:
        tasks = {task.id for frame in frames(hub) if frame.tasks for task in frame.tasks.began
                 if task.pid == pid}
        return tasks.pop() if tasks else None

    task: str = wait_for(new_task, 10)
    return task


def test_let_go_and_taken_back(
    hub: FakeHub, nvml: FakeNvml, tmp_path: Path, bystander: "subprocess.Popen[bytes]"
) -> None:
    data, why = str(tmp_path / "data"), f"driver {secrets.token_hex(4)}"
    with an_agent(*flags(hub, tmp_path), env={**os.environ, **nvml.env()}) as agent:
        wait_until_well(hub, nvml)
        assert mapped_by(nvml) == set(children_of(agent.pid)) != set()  # the control arm
        victim = task_id(hub, bystander.pid)
        codes = {refusal.code for refusal in hub.look(victim).refusals}
        assert "hold" not in codes

        result = run("hold", "--driver", "--data", data, "--reason", why, "--json")
        assert result.code == ExitCode.OK, result
        [document] = result.documents
        assert document["readers"] == []
        assert mapped_by(nvml) == set()
        assert children_of(agent.pid) == []

        wait_for(lambda: hub.beats[-1][1].reader == "released", 10)
        wait_for(lambda: set(states(hub).values()) == {"stale"}, 10)
        beat, beats, frame_count = hub.beats[-1][1], len(hub.beats), len(frames(hub))
        assert why in beat.detail
        assert "`gpudeck release` on the node opens it again" in beat.detail
        assert any(why in hold for hold in beat.holds)
        assert "hold" in {refusal.code for refusal in hub.look(victim).refusals}
        nvml.unload()
        nvml.driver = f"575.{random.randint(10, 99)}.08"
        nvml.load()
        wait_for(lambda: len(hub.beats) >= beats + 2, 15)
        assert hub.beats[-1][1].reader == "released"
        assert (len(frames(hub)), mapped_by(nvml)) == (frame_count, set())
        [event] = events(hub, "driver_released")
        assert why in event.text
        assert events(hub, "driver_taken", "driver_gone", "reader_failed", "reader_hung") == []

        assert run("release", "--data", data).code == ExitCode.OK
        released = time.monotonic()
        wait_for(lambda: all_well(hub, nvml), BACK_WITHIN_S + BUSY_S)
        print(f"read again after {time.monotonic() - released:.2f} s")
        wait_for(lambda: hub.hellos[-1].driver_version == nvml.driver, 10)
        wait_for(lambda: len(events(hub, "driver_taken")) == 1, 5)
        wait_for(lambda: hub.beats[-1][1].reader == "ok" and hub.beats[-1][1].holds == (), 10)
        assert len(events(hub, "driver_released")) == 1
        assert agent.poll() is None
    assert bystander.poll() is None
    beats_at = [at for at, _ in hub.beats]
    assert max(later - at for at, later in itertools.pairwise(beats_at)) < BEAT_GAP_MAX_S
    assert hub.broken == []


def test_an_agent_that_is_started_anew_does_not_open_it(
    hub: FakeHub, nvml: FakeNvml, tmp_path: Path
) -> None:
    """The programs of this machine do not open it either: each would then miss the library."""
    data, libraries = tmp_path / "data", tmp_path / "lib"
    libraries.mkdir()
    library = libraries / "libnvidia-ml.so.1"
    library.symlink_to(nvml.library)
    env = {**os.environ, **nvml.env(), "LD_LIBRARY_PATH": str(libraries)}
    with an_agent(*flags(hub, tmp_path), env=env):
        wait_until_well(hub, nvml)
        assert run("hold", "--driver", "--data", str(data)).code == ExitCode.OK
    library.unlink()
    beats = len(hub.beats)
    started: set[int] = set()
    with an_agent(*flags(hub, tmp_path), env=env) as agent:

        def is_released() -> bool:
            started.update(children_of(agent.pid))
            return bool(hub.beats[beats:]) and hub.beats[-1][1].reader == "released"

        wait_for(is_released, 20)
        assert started == set(), "what it says in between is soon said over"
        wait_for(lambda: set(states(hub).values()) == {"stale"}, 10)
        for code in (STATUS, DOCTOR):
            cli = subprocess.run([sys.executable, "-c", code, "--data", str(data)], cwd=ROOT,
                                 env=env, capture_output=True, text=True, timeout=60, check=False)
            assert "driver released by" in cli.stdout + cli.stderr, cli
            assert "libnvidia-ml.so.1 is not" not in cli.stdout + cli.stderr, cli
        result = run("end", "x", "--data", str(data), "--backend", "nvml", "--reason", "x", env=env,
                     answers=["y"])
        assert "driver released by" in result.err, result
        assert {beat.reader for _, beat in hub.beats[beats:]} <= {"starting", "released"}
        library.symlink_to(nvml.library)
        assert run("release", "--driver", "--data", str(data)).code == ExitCode.OK
        wait_until_well(hub, nvml)


def test_a_reading_process_that_hangs_has_not_let_go(
    hub: FakeHub, nvml: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(cli_hold, "IN_EFFECT_WITHIN_S", 2.0)
    data = tmp_path / "data"
    with an_agent(*flags(hub, tmp_path), env={**os.environ, **nvml.env()}) as agent:
        wait_until_well(hub, nvml)
        [child] = children_of(agent.pid)
        nvml.lines = ["hang nvmlDeviceGetUtilizationRates"]
        nvml.save()
        wait_for(lambda: hub.beats[-1][1].reader == "hung", 20)
        assert cli_hold.hold(["--driver", "--data", str(data)]) == ExitCode.UNKNOWN
        assert f"reading process {child} STILL has the driver open" in capsys.readouterr().out
        wait_for(lambda: f"process {child} still has it open" in hub.beats[-1][1].detail, 20)
        assert "released" not in {beat.reader for _, beat in hub.beats}
        nvml.lines = []
        nvml.save()
        wait_for(lambda: hub.beats[-1][1].reader == "released", 15)
        assert mapped_by(nvml) == set()


def test_who_has_it_open_is_named(nvml: FakeNvml, tmp_path: Path) -> None:
    other = subprocess.Popen(
        [sys.executable, "-c", "import ctypes, sys, time; ctypes.CDLL(sys.argv[1]); "
         "print('open', flush=True); time.sleep(300)", str(nvml.library)], stdout=subprocess.PIPE)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        assert other.pid in dict(openers(driver_modules(BACKENDS.values())).processes)
        assert other.pid not in readers(None)
    finally:
        other.send_signal(signal.SIGKILL)
        other.wait()
        if other.stdout is not None:
            other.stdout.close()
    assert other.pid not in dict(openers(driver_modules(BACKENDS.values())).processes)


@pytest.mark.parametrize("verb", ["hold", "release"])
def test_the_driver_is_let_go_of_on_the_machine_itself(verb: str) -> None:
    result = run(verb, "--driver", "--hub", "http://127.0.0.1:9", "--fleet")
    assert (result.code, "without --hub" in result.err) == (ExitCode.USAGE, True), result


def test_a_release_of_the_driver_leaves_other_holds(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with DataFolderLock(data):
        assert run("hold", "--data", str(data), "--reason", "flaky").code == ExitCode.OK
        assert run("hold", "--driver", "--data", str(data)).code == ExitCode.OK
        assert {path.name for path in data.iterdir()} == {"lock", "hold", "driver-hold"}
        assert run("release", "--driver", "--data", str(data)).code == ExitCode.OK
        assert {path.name for path in data.iterdir()} == {"lock", "hold"}
        assert run("hold", "--driver", "--data", str(data)).code == ExitCode.OK
        assert run("release", "--data", str(data)).code == ExitCode.OK
        assert {path.name for path in data.iterdir()} == {"lock"}
