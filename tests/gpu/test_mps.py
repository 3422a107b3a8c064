"""A real MPS daemon in folders of its own: a client leaves it by terminate_client, and another
one works on; what is set is read back. Changes no setting of the card; skipped where the compute
mode forbids it."""

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
from gpudeck.limits import MpsStart
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
                    "clients": [len(ask(f"get_client_list {each}").split()) for each in servers]})
    assert mps.terminate(client.pid) == ""
    client.close()
    went = bystander.rounds
    wait_for(lambda: bystander.rounds > went + 50, why="the bystander's work")
    assert bystander.process.poll() is None
    assert str(client.pid) not in "".join(ask(f"get_client_list {each}") for each in servers)


def test_what_is_set_on_a_real_server_is_read_back(
    pipes: Path, busy: Callable[..., Busy]
) -> None:
    """What the forms with a server print when they obey was not seen before: it is captured."""
    try:
        client = busy(128 * MIB)
    except pytest.fail.Exception as why:
        pytest.skip(f"MPS serves no client on this machine: {why}")
    daemon = MpsDaemonHandle(pipes)
    [server] = daemon.servers() or ()
    said = {line: ask(line) for line in (
        f"get_server_status {server}", "get_default_client_priority", "ps",
        f"set_active_thread_percentage {server} 40",
        f"set_device_pinned_mem_limit {server} 0 1536M", "set_default_client_priority 1")}
    capture("mps_settings", {
        line.replace(str(server), "SERVER"): text.replace(str(server), "SERVER")
        for line, text in said.items() if line != "ps"})
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
    went = client.rounds
    wait_for(lambda: client.rounds > went + 10, why="the client's work: settings do not touch it")


def test_the_doctor_finds_no_fault_in_a_daemon_at_work(
    pipes: Path, busy: Callable[..., Busy]
) -> None:
    """What it takes for trouble in a healthy log is captured, and so is the log."""
    try:
        client = busy(128 * MIB)
    except pytest.fail.Exception as why:
        pytest.skip(f"MPS serves no client on this machine: {why}")
    limits = LimitApplier(NVML, "", lambda: "")
    modes = {uuid: limits.read([uuid])[uuid].compute_mode for uuid in asked("uuid")}
    found = findings(LocalMpsDaemons(pipes=pipes, is_alone=True), driver_version(), modes)
    log = Path(os.environ["CUDA_MPS_LOG_DIRECTORY"], "control.log")
    capture("mps_doctor", {"findings": [[each.code, each.cause] for each in found],
                           "log": log.read_text(errors="replace").splitlines()[-200:]})
    assert [each.code for each in found if each.weight == "fault"] == []
    assert ("exclusive" in [each.code for each in found]) == (
        set(modes.values()) != {MODES["exclusive_process"]})
    seen = view(LocalMpsDaemons(pipes=pipes, is_alone=True).daemons()[0], [0],
                driver=driver_version())
    assert client.pid in [each.pid for each in seen.clients]


def test_a_daemon_that_was_killed_is_found_dead_and_starts_again(pipes: Path) -> None:
    """Ours, and without a server: whoever has one would leave it behind."""
    mps = LocalMpsDaemons(pipes=pipes, is_alone=True)
    assert mps.daemons()[0].servers() == ()
    os.kill(pid_of(pipes), signal.SIGKILL)
    wait_for(lambda: not mps.daemons()[0].is_alive(), why="its end")
    [dead] = findings(mps)
    assert (dead.code, dead.fixes) == ("dead", (MpsStart(str(pipes)),))
    assert mps.daemons()[0].start() == ""
    assert mps.daemons()[0].percent() == 100.0


def pid_of(pipes: Path) -> int:
    """Of the control daemon: drivers before 550 write no file with it."""
    wanted = f"CUDA_MPS_PIPE_DIRECTORY={pipes}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            program = (folder / "cmdline").read_bytes().partition(b"\0")[0]
            if program.endswith(PROGRAM.encode()) and wanted in (
                    folder / "environ").read_bytes().split(b"\0"):
                return int(folder.name)
    pytest.fail(f"no control daemon of {pipes} is running")


MODE_OF = {"Default": 0, "Prohibited": 2, "Exclusive_Process": 3}


def asked(*names: str) -> dict[str, list[str]]:
    """By UUID, which is the first of the names."""
    listed = subprocess.run(["nvidia-smi", f"--query-gpu={','.join(names)}",
                             "--format=csv,noheader,nounits"], capture_output=True, text=True,
                            check=True, timeout=60).stdout
    rows = [line.split(", ") for line in listed.splitlines() if line]
    return {uuid: rest for uuid, *rest in rows}


def test_limits_of_a_real_card_are_read() -> None:
    """Nothing is set: a card in a test is somebody's."""
    for uuid, (watts, mode) in asked("uuid", "power.limit", "compute_mode").items():
        found = LimitApplier(NVML, "", lambda: "").read([uuid])[uuid]
        assert found.trouble == ""
        assert found.compute_mode == MODE_OF.get(mode)
        if watts.replace(".", "").isdigit():
            assert found.power_w is not None
            assert abs(found.power_w - float(watts)) < 1
            assert found.power_min_w is not None and found.power_max_w is not None  # noqa: PT018
            assert found.power_min_w <= found.power_w <= found.power_max_w
