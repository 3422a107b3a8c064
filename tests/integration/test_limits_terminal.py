"""`gpudeck mps` and `gpudeck gpu` on this machine, with the fake control program; the doctor of
MPS, and the tuning of its share."""


import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.actions import guard
from agent.backends.simulation.reader import SimulatedReader, parse_options
from agent.cli import limits as cli_limits
from agent.cli.limits import gpu, mebibytes, mps
from agent.limits.autotune import DOWN_AFTER_S, MpsTuner, TuneInput
from agent.limits.mps import SERVER_FOLDERS, LocalMpsDaemons
from agent.limits.mps_doctor import findings
from agent.limits.mps_view import view
from gpudeck.contract.limits import PIPES_MAX, ComputeMode, MpsRestart, MpsStart
from gpudeck.errors import CommandError, ExitCode
from tests.fakes.children import Children, a_ceiling
from tests.fakes.mps_control import FakeMps
from tests.integration.test_actions_crash import write_world

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMps]:
    control = FakeMps(tmp_path / "mps")
    for name, value in control.env().items():
        monkeypatch.setenv(name, value)
    yield control
    control.close()


@pytest.fixture
def run(tmp_path: Path, children: Children, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setattr(guard, "YOUNGEST_S", 0.0)
    monkeypatch.setattr(cli_limits, "agent_pid", lambda data: os.getpid())
    children.start()
    write_world(tmp_path, children.all)
    ceiling = a_ceiling(tmp_path)
    (tmp_path / "data").mkdir()

    def run_program(program: Callable[[list[str]], int], *words: str) -> tuple[int, str]:
        capsys.readouterr()
        verb, *rest = words
        code = program(["--data", str(tmp_path / "data"), "--backend", "simulated", "--simulate",
                        f"node=n1,gpus=1,world={tmp_path}", "--ceiling", str(ceiling), verb, *rest])
        return code, capsys.readouterr().out

    return run_program


YES = ("--yes", "--reason", "a test")


@pytest.mark.parametrize("words", [
    ("set", "share", "2.5"), ("set", "share", "150"), ("set", "share", "0"),
    ("set", "share", "banana"), ("set", "share", "50", "--device", "0"),
    ("set", "memory", "2.5MiB", "--device", "0"), ("set", "memory", "2GB", "--device", "0"),
    ("set", "memory", "2X", "--device", "0"), ("set", "memory", "2GiB"),
    ("set", "memory", "2GiB", "--device", "32"), ("set", "memory", "0MiB", "--device", "0"),
    ("set", "priority", "2"), ("set", "preset", "banana"),
    ("set", "share", "50", "--pipes", "relative"),
    ("set", "share", "50", "--pipes", f"/{'x' * PIPES_MAX}"),
    ("set", "share", "50", "--server", "0"), ("set", "share", "50", "--server", "\u0661\u0662"),
    ("set", "share", "\uff15\uff10"), ("set", "share", "5_0"),
    ("set", "memory", "\uff12GiB", "--device", "0"),
    ("set", "memory", "2GiB", "--device", "1_0"), ("set", "memory", "NaN", "--device", "0"),
])
def test_what_mps_would_misread_never_reaches_it(fake: FakeMps, run: Run,
                                                 words: tuple[str, ...]) -> None:
    assert fake.start() == 0
    try:
        code, _ = run(mps, *words, *YES)
    except CommandError as error:
        code = int(error.code or 0)
    assert code in (ExitCode.USAGE, ExitCode.REFUSED)
    assert fake.changed() == ["-d"]


@pytest.mark.parametrize("words", [("--device", "GPU-4a1f2c"), ("--device", "banana")])
def test_a_uuid_is_no_device(fake: FakeMps, run: Run, words: tuple[str, ...]) -> None:
    assert fake.start() == 0
    with pytest.raises(CommandError):
        run(mps, "set", "memory", "2GiB", *words, *YES)
    assert fake.changed() == ["-d"]


def test_a_share_is_set_and_shown(fake: FakeMps, run: Run, children: Children) -> None:
    server, client = children.start(listed=False), children.start(kind="mps_client")
    fake.server(server.pid, client.pid)
    assert fake.start() == 0
    pct = random.randint(1, 99)
    code, text = run(mps, "set", "share", str(pct), "--server", str(server.pid), *YES)
    assert (code, "100 % -> " in text) == (ExitCode.OK, True)
    assert "1 running client keeps the old value" in text
    code, text = run(mps, "show", "--json")
    assert json.loads(text)["items"][0]["daemons"][0]["servers"][0]["pct"] == pct
    code, text = run(mps, "show")
    assert f"server {server.pid}  root  {pct} % for new clients" in text
    assert f"client {client.pid}  root  100 %" in text
    assert run(mps, "set", "memory", "900MiB", "--device", "30", *YES)[0] == ExitCode.OK
    assert "900M on device 30" in run(mps, "show")[1], "also where no GPU has that number"
    with pytest.raises(CommandError, match="somebody's work"):
        run(mps, "stop", *YES)
    assert client.is_alive()
    assert server.is_alive()


def test_a_cap_needs_an_agent_that_takes_it_back(run: Run, tmp_path: Path,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    [facts] = SimulatedReader(parse_options(f"node=n1,gpus=1,world={tmp_path}"), None).read().facts
    code, text = run(gpu, "cap", facts.uuid, "300", "--for", "2h", *YES)
    assert (code, "700 W -> 300 W for 2 h" in text) == (ExitCode.OK, True), text
    code, text = run(gpu, "show")
    assert (code, "300 W until" in text, "in force" in text) == (ExitCode.OK, True, True)
    code, text = run(gpu, "release", facts.uuid, "power", *YES)
    assert code == ExitCode.OK
    text = run(gpu, "show")[1]
    assert text.startswith("gpudeck has set no limit\nGPU memory is limited here by ")
    assert "the driver's own limit: " in text
    code, text = run(gpu, "cap", facts.uuid, "5", "--for", "2h", *YES)
    assert (code, "takes 200 to 700 W" in text) == (ExitCode.REFUSED, True)
    monkeypatch.setattr(cli_limits, "agent_pid", lambda data: None)
    with pytest.raises(CommandError, match="no agent runs"):
        run(gpu, "cap", facts.uuid, "300", "--for", "2h", *YES)


@pytest.mark.parametrize(("word", "mib"), [
    ("2GiB", 2_048), ("2G", 2_048), ("900MiB", 900), ("900M", 900), ("2.5G", 2_560),
    ("none", None)])
def test_sizes(word: str, mib: int | None) -> None:
    assert mebibytes(word) == mib


@pytest.mark.parametrize("word", ["0M", "1KiB", "2GB", "2", "-1G"])
def test_mps_takes_whole_mebibytes(word: str) -> None:
    with pytest.raises(CommandError):
        mebibytes(word)


# --- the doctor


def codes(driver: str | None = None, modes: dict[str, int | None] | None = None) -> list[str]:
    return [finding.code for finding in findings(LocalMpsDaemons(is_alone=True), driver, modes)]


def log_of(fake: FakeMps, age_s: float, *lines: str) -> None:
    at = time.strftime("%Y-%m-%d %H:%M:%S.123", time.localtime(time.time() - age_s))
    with (fake.folder / "control.log").open("a") as file:
        file.writelines(f"[{at} Control  4711] {line}\n" for line in lines)


def test_the_doctor_names_cause_and_remedy(fake: FakeMps, children: Children,
                                           monkeypatch: pytest.MonkeyPatch) -> None:
    assert codes() == [], "none runs, and that is no fault"
    assert fake.start() == 0
    assert codes("580.95.05", {"GPU-1": 3, "GPU-2": None}) == []
    assert codes("535.261.03") == ["version"]
    [shared] = findings(LocalMpsDaemons(is_alone=True), None, {"GPU-1": 0, "GPU-2": 2, "GPU-3": 3})
    assert (shared.code, shared.weight) == ("exclusive", "advice")
    assert [fix.gpu_uuid for fix in shared.fixes if isinstance(fix, ComputeMode)] == ["GPU-1"], (
        "GPU-2 is closed to all processes: no fix opens it")
    fake.server_program.rename(fake.bin / "away")
    if shutil.which("nvidia-cuda-mps-server", path=SERVER_FOLDERS) is None:
        assert codes() == ["server"]
    (fake.bin / "away").rename(fake.server_program)
    server = children.start(listed=False)
    fake.server(server.pid, status="FAULT")
    [fault] = findings(LocalMpsDaemons(is_alone=True))
    assert (fault.code, str(server.pid) in fault.cause, fault.fixes) == (
        "fault", True, (MpsRestart(str(fake.pipes)),))
    fake.server(server.pid)
    log_of(fake, 60.0, "cannot set the default of /home/eve/secret", "Server 12: failed to start")
    [log] = findings(LocalMpsDaemons(is_alone=True), quotes_log=True)
    assert (log.code, log.weight, "failed to start" in log.cause) == ("log", "advice", True)
    [log] = findings(LocalMpsDaemons(is_alone=True))
    assert "trouble in 2 lines of" in log.cause
    assert log.cause.endswith('with "fail", "cannot"'), "what stands there is not told to others"
    for _ in range(500):  # our own questions, until each would be lost in 64 kB of them
        log_of(fake, 1.0, "Accepting connection...", "NEW UI", "Cmd:get_fault", "UI closed")
    assert codes() == ["log"]
    (fake.folder / "control.log").unlink()
    log_of(fake, 2 * 86_400.0, "Server 12: failed to start")
    log_of(fake, 1.0, "Cmd:failed")
    assert codes() == [], "that was another day"
    (fake.folder / "control.log").unlink()
    os.kill(fake.pid, signal.SIGKILL)
    [dead] = findings(LocalMpsDaemons(is_alone=True))
    assert (dead.code, "stale" in dead.cause, dead.fixes) == (
        "dead", True, (MpsStart(str(fake.pipes)),))
    if os.geteuid() == 0:
        os.chown(fake.pipes / "control", 65_534, -1)
        assert codes() == ["owner"]
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", f"/{'x' * PIPES_MAX}")
    assert codes() == ["path"]
    monkeypatch.setenv("PATH", "/nowhere")
    assert codes() == ["not_installed"]


@pytest.mark.parametrize("words", [("start",), ("set", "share", "50")])
def test_a_pipe_directory_that_is_too_long_is_refused_in_words(run: Run, words: tuple[str, ...]
                                                               ) -> None:
    """Found by examiners: the words were those of a schema."""
    with pytest.raises(CommandError, match=f"more than {PIPES_MAX} bytes, .*a shorter one"):
        run(mps, *words, "--pipes", f"/{'x' * PIPES_MAX}", *YES)


def test_a_socket_that_the_agent_may_not_reach_is_not_called_dead(
    fake: FakeMps, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fake.start() == 0
    fake.kill()
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: (
        access(path, mode) and not str(path).endswith("/control")))
    [denied] = findings(LocalMpsDaemons(is_alone=True))
    assert (denied.code, denied.fixes, "may not reach" in denied.cause) == ("denied", (), True)


def test_an_open_folder_is_told_of_with_an_old_driver_alone(fake: FakeMps) -> None:
    assert fake.start() == 0
    fake.pipes.chmod(0o777)
    daemon = LocalMpsDaemons(is_alone=True).daemons()[0]
    troubles = {driver: view(daemon, driver=driver).trouble
                for driver in ("535.261.03", "550.54", "1000.1", None)}
    assert [bool(words) for words in troubles.values()] == [True, False, False, True]
    fake.pipes.chmod(0o750)
    assert view(daemon, driver="535.261.03").trouble == ""


def test_the_doctor_mends_by_acts_like_any_other(fake: FakeMps, run: Run, tmp_path: Path,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_limits, "agent_pid", lambda data: None)
    doctor = ("doctor", "--pipes", str(fake.pipes))  # and not those of other tests
    assert fake.start() == 0
    fake.kill()
    code, text = run(mps, *doctor)
    assert (code, "--fix does it" in text) == (ExitCode.FAILED, True)
    assert fake.changed() == ["-d"], "looking mends nothing"
    code, text = run(mps, *doctor, "--fix", *YES)
    assert (code, fake.changed()) == (ExitCode.OK, ["-d", "-d"])
    assert fake.ask("get_default_active_thread_percentage") == "100.0\n"
    code, text = run(mps, *doctor)
    assert (code, "exclusive:" in text) == (ExitCode.OK, True), "advice is no failure"
    assert run(mps, *doctor, "--fix", *YES)[0] == ExitCode.OK
    assert "exclusive:" in run(mps, *doctor)[1], "nor is it taken by --yes to all"
    assert run(gpu, "mode", board_of(tmp_path), "exclusive_process", *YES)[0] == ExitCode.OK
    assert "nothing is wrong" in run(mps, *doctor)[1]


# --- tuning


@pytest.mark.parametrize(("clients", "load", "now", "pct"), [
    (4, 80.0, 100.0, 75), (4, 80.0, 36.0, 25), (4, 80.0, 30.0, None), (4, 50.0, 25.0, 38),
    (4, 50.0, 37.0, None), (4, 95.0, 40.0, 20), (1, 10.0, 85.0, 100), (48, 95.0, 30.0, 10),
    (48, 95.0, 10.0, None), (0, 95.0, 50.0, None), (4, None, 50.0, None), (4, 50.0, None, None),
])
def test_the_share_moves_in_small_steps(clients: int, load: float | None, now: float | None,
                                        pct: int | None) -> None:
    assert MpsTuner().decide(0.0, TuneInput(clients, load, now)).pct == pct


def test_it_settles_from_anywhere() -> None:
    for _ in range(50):
        clients, load = random.randint(1, 48), random.uniform(0, 100)
        now, tuner = float(random.randint(1, 100)), MpsTuner()
        for at in range(6):
            decision = tuner.decide(at * DOWN_AFTER_S, TuneInput(clients, load, now))
            if decision.pct is None:
                break
            assert abs(decision.pct - now) <= 25
            assert 10 <= decision.pct <= 100 or now < 10
            now = float(decision.pct)
        assert decision.pct is None, (clients, load, now)


def test_a_dry_run_sets_nothing_and_the_rest_is_recorded(fake: FakeMps, run: Run,
                                                         children: Children) -> None:
    server = children.start(listed=False)
    clients = [children.start(kind="mps_client") for _ in range(4)]
    fake.server(server.pid, *(child.pid for child in clients))
    assert fake.start() == 0
    code, text = run(mps, "tune", "--rounds", "1", "--every", "1")
    assert (code, text.startswith("dry run: 100 / 4 clients")) == (ExitCode.OK, True)
    assert fake.changed() == ["-d"]
    with pytest.raises(CommandError, match="--apply"):
        run(mps, "tune", "--rounds", "1", "--apply")
    code, text = run(mps, "tune", "--rounds", "2", "--every", "1", "--apply", *YES)
    assert code == ExitCode.OK
    assert fake.changed() == ["-d", f"set_active_thread_percentage {server.pid} 75"], (
        "the second look comes too soon after a change")
    assert all(child.is_alive() for child in children.all)


@pytest.mark.parametrize("words", [
    ("--rehearse",), ("--rehearse", "--apply", *YES), ("--every", "0"), ("--every", "nan"),
    ("--from", "0"), ("--from", "1_0"), ("--rounds", "-1")])
def test_a_tuning_that_cannot_be_is_told_in_words(fake: FakeMps, run: Run,
                                                  words: tuple[str, ...]) -> None:
    assert fake.start() == 0
    with pytest.raises(CommandError):
        run(mps, "tune", *words)
    assert fake.changed() == ["-d"]


def test_a_journal_that_cannot_be_read_is_told_in_words(run: Run, tmp_path: Path) -> None:
    (tmp_path / "data" / "acts.db").mkdir()
    for program, *words in ((mps, "show"), (mps, "doctor"), (gpu, "show")):
        with pytest.raises(CommandError, match="action journal"):
            run(program, *words)


def board_of(folder: Path) -> str:
    """The one that `run` simulates."""
    [facts] = SimulatedReader(parse_options(f"node=n1,gpus=1,world={folder}"), None).read().facts
    return facts.uuid


def test_a_mode_is_set_from_the_terminal(run: Run, tmp_path: Path,
                                         monkeypatch: pytest.MonkeyPatch) -> None:
    """A mode can be set without an agent too: it has no end that somebody must keep."""
    monkeypatch.setattr(cli_limits, "agent_pid", lambda data: None)
    uuid = board_of(tmp_path)
    code, text = run(gpu, "mode", uuid, "exclusive_process", *YES)
    assert (code, "-> exclusive: one process at a time" in text) == (ExitCode.OK, True), text
    code, text = run(gpu, "show")
    assert (code, f"{uuid}  exclusive process  in force: the driver reports exclusive" in text) == (
        ExitCode.OK, True)
    code, text = run(gpu, "mode", uuid, "default", *YES)
    assert run(gpu, "show")[1].startswith("gpudeck has set no limit\n")
    assert (code, "exclusive: one process at a time -> default" in text) == (ExitCode.OK, True)
    with pytest.raises(CommandError):
        run(gpu, "mode", uuid, "prohibited", *YES)
