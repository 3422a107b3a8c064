"""A real MPS daemon in its own folders: a client leaves it by terminate_client, and another one
works on; settings are read back. Changes no setting of the card; skipped where the compute mode
forbids it."""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.backends import NVML
from agent.backends.nvml.driver import driver_version
from agent.limits.apply import MODES, LimitApplier
from agent.limits.mps import PROGRAM, LocalMpsDaemons, MpsDaemonHandle, shown_limit
from agent.limits.mps_doctor import findings
from agent.limits.mps_view import view
from gpudeck.contract.limits import MpsStart
from tests.gpu.conftest import MIB, Busy, capture
from tests.integration.hubs import wait_for


@pytest.fixture
def pipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    if shutil.which(PROGRAM) is None:
        pytest.skip(f"{PROGRAM} is not installed here")
    # The path of a socket has at most 107 characters.
    folder = Path("/tmp") / f"gpudeck-mps-{os.getpid()}"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(folder))
    monkeypatch.setenv("CUDA_MPS_LOG_DIRECTORY", str(tmp_path))
    started = subprocess.run([PROGRAM, "-d"], capture_output=True, text=True, timeout=20,
                             check=False)
    if started.returncode:
        pytest.skip(f"no MPS daemon can be started here: {started.stderr.strip()[:120]}")
    try:
        yield folder
    finally:
        subprocess.run([PROGRAM], input="quit -t 10\n", text=True, timeout=60, check=False,
                       capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)


def ask(command: str) -> str:
    return subprocess.run([PROGRAM], input=command + "\n", capture_output=True, text=True,
                          timeout=30, check=False).stdout


def test_a_client_leaves_and_the_other_works_on(
    pipes: Path, busy: Callable[..., Busy]
) -> None:
    try:
        bystander, client = busy(128 * MIB), busy(128 * MIB)
    except pytest.fail.Exception as why:
        pytest.skip(f"MPS serves no client on this machine: {why}")
    mps = LocalMpsDaemons(pipes=pipes)
    assert mps.trouble() == ""
    servers = ask("get_server_list").split()
    capture("mps", {"servers": len(servers),
                    "clients": [len(ask(f"get_client_list {pid}").split()) for pid in servers]})
    assert mps.terminate(client.pid) == ""
    client.close()
    rounds = bystander.rounds
    wait_for(lambda: bystander.rounds > rounds + 50, why="the bystander's work")
    assert bystander.process.poll() is None
    assert str(client.pid) not in "".join(ask(f"get_client_list {pid}") for pid in servers)


def test_what_is_set_on_a_real_server_is_read_back(
    pipes: Path, busy: Callable[..., Busy]
) -> None:
    """The output of commands with a server was not known before, so it is captured."""
    try:
        client = busy(128 * MIB)
    except pytest.fail.Exception as why:
        pytest.skip(f"MPS serves no client on this machine: {why}")
    daemon = MpsDaemonHandle(pipes)
    [server] = daemon.servers() or ()
    answers = {line: ask(line) for line in (
        f"get_server_status {server}", "get_default_client_priority", "ps",
        f"set_active_thread_percentage {server} 40",
        f"set_device_pinned_mem_limit {server} 0 1536M", "set_default_client_priority 1")}
    capture("mps_settings", {
        line.replace(str(server), "SERVER"): text.replace(str(server), "SERVER")
        for line, text in answers.items() if line != "ps"})
    daemon.set_percent(60, server)
    assert daemon.percent(server) == 60.0
    daemon.set_percent(30)
    assert (daemon.percent(), daemon.percent(server)) == (30.0, 60.0)
    for mem_mib in (900, 2_048, None):
        daemon.set_memory(0, mem_mib, server)
        assert daemon.memory(0, server) == shown_limit(mem_mib)
    daemon.set_priority(0)
    assert daemon.priority() == 0
    assert client.pid in daemon.clients(server)
    rounds = client.rounds
    wait_for(lambda: client.rounds > rounds + 10, why="the client's work: settings do not touch it")


def test_the_doctor_finds_no_fault_in_a_daemon_at_work(
    pipes: Path, busy: Callable[..., Busy]
) -> None:
    """Findings in a healthy log are captured, and so is the log."""
    try:
        client = busy(128 * MIB)
    except pytest.fail.Exception as why:
        pytest.skip(f"MPS serves no client on this machine: {why}")
    limits = LimitApplier(NVML, "", lambda _: "")
    modes = {uuid: limits.read([uuid])[uuid].compute_mode for uuid in query_gpus("uuid")}
    reported = findings(LocalMpsDaemons(pipes=pipes, is_alone=True), driver_version(), modes)
    log = Path(os.environ["CUDA_MPS_LOG_DIRECTORY"], "control.log")
    capture("mps_doctor", {"findings": [[finding.code, finding.cause] for finding in reported],
                           "log": log.read_text(errors="replace").splitlines()[-200:]})
    assert [finding.code for finding in reported if finding.weight == "fault"] == []
    assert ("exclusive" in [finding.code for finding in reported]) == (
        set(modes.values()) != {MODES["exclusive_process"]})
    daemon = view(LocalMpsDaemons(pipes=pipes, is_alone=True).daemons()[0], [0],
                  driver=driver_version())
    assert client.pid in [row.pid for row in daemon.clients]


def test_a_daemon_that_was_killed_is_found_dead_and_starts_again(pipes: Path) -> None:
    """The daemon is ours and has no server, which would be left behind."""
    mps = LocalMpsDaemons(pipes=pipes, is_alone=True)
    assert mps.daemons()[0].servers() == ()
    os.kill(pid_of(pipes), signal.SIGKILL)
    wait_for(lambda: not mps.daemons()[0].is_alive(), why="its end")
    [dead] = findings(mps)
    assert (dead.code, dead.fixes) == ("dead", (MpsStart(str(pipes)),))
    assert mps.daemons()[0].start() == ""
    assert mps.daemons()[0].percent() == 100.0


def pid_of(pipes: Path) -> int:
    """Return the pid of the control daemon: drivers before 550 write no file with it."""
    variable = f"CUDA_MPS_PIPE_DIRECTORY={pipes}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            program = (folder / "cmdline").read_bytes().partition(b"\0")[0]
            if program.endswith(PROGRAM.encode()) and variable in (
                    folder / "environ").read_bytes().split(b"\0"):
                return int(folder.name)
    pytest.fail(f"no control daemon of {pipes} is running")


MODE_OF = {"Default": 0, "Prohibited": 2, "Exclusive_Process": 3}


def query_gpus(*names: str) -> dict[str, list[str]]:
    """Return the values by UUID, which has to be the first of the names."""
    listed = subprocess.run(["nvidia-smi", f"--query-gpu={','.join(names)}",
                             "--format=csv,noheader,nounits"], capture_output=True, text=True,
                            check=True, timeout=60).stdout
    rows = [line.split(", ") for line in listed.splitlines() if line]
    return {uuid: rest for uuid, *rest in rows}


def test_limits_of_a_real_card_are_read() -> None:
    """A test sets no limit: the card may be somebody's."""
    for uuid, (watts, mode) in query_gpus("uuid", "power.limit", "compute_mode").items():
        limits = LimitApplier(NVML, "", lambda _: "").read([uuid])[uuid]
        assert limits.trouble == ""
        assert limits.compute_mode == MODE_OF.get(mode)
        if watts.replace(".", "").isdigit():
            assert limits.power_w is not None
            assert abs(limits.power_w - float(watts)) < 1
            assert limits.power_min_w is not None and limits.power_max_w is not None  # noqa: PT018
            assert limits.power_min_w <= limits.power_w <= limits.power_max_w
