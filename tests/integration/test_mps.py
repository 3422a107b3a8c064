"""MPS by its control program: what the program prints (535 to 555), and that nothing which it
would misread ever reaches it. The first part runs against NVIDIA's own program too, where one is
installed."""

import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
import pytest

from agent.limits.mps import (
    PROGRAM,
    LocalMpsDaemons,
    MpsControlError,
    MpsDaemonHandle,
    found_pipes,
    path_trouble,
    shown_limit,
)
from gpudeck.contract.limits import PIPES_MAX, MpsMemory, MpsPercent, Setting
from tests.fakes.children import Children
from tests.fakes.mps_control import NO_DAEMON, FakeMps


@dataclass(frozen=True)
class Ask:
    program: str
    env: dict[str, str]

    def __call__(self, lines: str) -> "subprocess.CompletedProcess[str]":
        argv, stdin = (["-d"], "") if lines == "-d" else ([], lines)
        return subprocess.run([self.program, *argv], input=stdin, capture_output=True, text=True,
                              timeout=20, env=self.env, check=False)


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMps]:
    control = FakeMps(tmp_path / "mps")
    for name, value in control.env().items():
        monkeypatch.setenv(name, value)
    yield control
    control.close()


@pytest.fixture
def daemon_of_ask(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> MpsDaemonHandle:
    for name, value in ask.env.items():
        monkeypatch.setenv(name, value)
    return MpsDaemonHandle(program=ask.program)


@pytest.fixture(params=["fake", "real"])
def ask(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ask]:
    """A control program and its environment, with separate folders where nothing runs yet."""
    control: FakeMps | None = None
    if request.param == "fake":
        control = FakeMps(tmp_path / "mps")
        program, env = str(control.program), {**os.environ, **control.env()}
    else:
        program = shutil.which(PROGRAM) or ""
        if not program:
            pytest.skip(f"{PROGRAM} is not installed here: only the fake was asked")
        env = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(tmp_path / "p"),
               "CUDA_MPS_LOG_DIRECTORY": str(tmp_path)}

    asking = Ask(program, env)
    try:
        yield asking
    finally:
        asking("quit -t 1\n")
        if control is not None:
            control.close()


# What is asked, what is printed; in this order, each on the state that the former left.
TABLE = (
    ("get_server_list", ""), ("ps", "Server not found\n"),
    ("get_default_active_thread_percentage", "100.0\n"),
    ("set_default_active_thread_percentage 50", "50.0\n"),
    ("set_default_active_thread_percentage 0", "50.0\n"),
    ("set_default_active_thread_percentage 101", "50.0\n"),
    ("set_default_active_thread_percentage -5", "50.0\n"),
    ("set_default_active_thread_percentage abc", "50.0\n"),
    ("set_default_active_thread_percentage", "50.0\n"),
    ("set_default_active_thread_percentage 0 50", "50.0\n"),
    ("set_default_active_thread_percentage 1 50", "1.0\n"),
    ("set_default_active_thread_percentage 33.3", "33.3\n"),
    ("set_default_active_thread_percentage 0.5", "0.5\n"),
    ("set_default_device_pinned_mem_limit 0 2G", ""),
    ("get_default_device_pinned_mem_limit 0", "2G\n"),
    ("get_default_device_pinned_mem_limit 1", ""),
    *(step for value, back in (
        ("900M", "900M\n"), ("2048M", "2G\n"), ("1536M", "1G\n"), ("2g", "2G\n"),
        ("2048m", "2G\n"), ("2GB", "2G\n"), ("2048", "2G\n"), ("2.5G", "2M\n"), ("2T", "2M\n"),
        ("1024K", "1G\n"), ("-1G", "17179869183G\n"), ("0M", ""), ("0G", ""))
      for step in ((f"set_default_device_pinned_mem_limit 3 {value}", ""),
                   ("get_default_device_pinned_mem_limit 3", back))),
    # A UUID takes away the limit of device 0, a missing device that of another one.
    ("set_default_device_pinned_mem_limit GPU-4a1f2c 2G", ""),
    ("get_default_device_pinned_mem_limit 0", ""),
    ("set_default_device_pinned_mem_limit 2 3G", ""),
    ("set_default_device_pinned_mem_limit 2G", ""),
    ("get_default_device_pinned_mem_limit 2", ""),
    ("set_default_device_pinned_mem_limit 32 3G", ""),
    ("set_default_device_pinned_mem_limit 31 3G", ""),
    ("get_default_device_pinned_mem_limit 31", "3G\n"),
    ("banana", 'Unknown command "banana"\n'),
    ("GET_SERVER_LIST", 'Unknown command "GET_SERVER_LIST"\n'),
    ("set_pinned_mem_limit 0 4G", 'Unknown command "set_pinned_mem_limit"\n'),
    ("set_active_thread_percentage 0 60", "Server 0 not found\n"),
    ("get_client_list 999999", "Server 999999 not found\n"),
    ("terminate_client 1 2", "Server 1 not found\nServer 1 not found!\n1\n"),
    ("set_default_client_priority 2", "Invalid priority value - must be 0 or 1!\n"),
)


def test_the_control_program_prints_what_is_known_of_it(ask: Ask) -> None:
    none = ask("get_server_list\n")
    assert (none.returncode, none.stdout, none.stderr) == (1, "", NO_DAEMON)
    assert ask("-d").returncode == 0
    second = ask("-d")
    assert second.returncode == 1
    assert "An instance of this daemon is already running" in second.stdout + second.stderr
    for line, printed in TABLE:
        answer = ask(line + "\n")
        assert (line, answer.returncode, answer.stdout) == (line, 0, printed)
    pair = ask("get_server_list\nget_default_active_thread_percentage")
    assert (pair.returncode, pair.stdout) == (0, "0.5\n")  # nothing says which is which
    assert ask("quit\n").returncode == 0
    assert ask("ps\n").returncode == 1


# --- ours


def test_our_own_lines_on_either(ask: Ask, daemon_of_ask: MpsDaemonHandle) -> None:
    """Our lines are obeyed and read back, by NVIDIA's own program too where there is one."""
    daemon, absent = daemon_of_ask, 2**22 + 5
    assert not daemon.is_alive()
    with pytest.raises(MpsControlError, match="no MPS control daemon answers"):
        daemon.set_percent(50)
    assert ask("-d").returncode == 0
    assert (daemon.servers(), daemon.percent(), daemon.priority()) == ((), 100.0, 0)
    for pct in (1, random.randint(2, 99), 100):
        daemon.set_percent(pct)
        assert daemon.percent() == pct
    for mem_mib in (1, random.randint(2, 1_023), 1_024, 1_536, random.randint(1_025, 2**24), None):
        ordinal = random.randrange(32)
        daemon.set_memory(ordinal, mem_mib)
        assert daemon.memory(ordinal) == shown_limit(mem_mib), mem_mib
    for priority in (1, 0):
        daemon.set_priority(priority)
        assert daemon.priority() == priority
    for call in (partial(daemon.set_percent, 50), partial(daemon.set_memory, 0, 5)):
        with pytest.raises(MpsControlError, match=f"Server {absent} not found"):
            call(absent)
    assert "did not disconnect" in daemon.terminate(absent, absent + 1)
    assert (daemon.percent(absent), daemon.memory(0, absent), daemon.status(absent)) == (None,) * 3
    assert "already running" in daemon.start()
    assert daemon.quit(1) == ""
    assert not daemon.is_alive()
    assert daemon.start() == ""
    assert (daemon.percent(), daemon.memory(0), daemon.priority()) == (100.0, "", 0)


WRONG = (
    '{"type": "mps_memory", "pipes": "/p", "ordinal": 0, "mem_mib": "2.5G"}',
    '{"type": "mps_memory", "pipes": "/p", "ordinal": 0, "mem_mib": 2.5}',
    '{"type": "mps_memory", "pipes": "/p", "ordinal": "GPU-4a1f2c", "mem_mib": 2048}',
    '{"type": "mps_memory", "pipes": "/p", "mem_mib": 2048}',
    '{"type": "mps_memory", "pipes": "/p", "ordinal": 32, "mem_mib": 2048}',
    '{"type": "mps_memory", "pipes": "/p", "ordinal": 0, "mem_mib": -1}',
    '{"type": "mps_memory", "pipes": "/p", "ordinal": 0, "mem_mib": 0}',
    '{"type": "mps_percent", "pipes": "/p", "pct": 150}',
    '{"type": "mps_percent", "pipes": "/p", "pct": 0}',
    '{"type": "mps_percent", "pipes": "/p", "pct": 33.3}',
    '{"type": "mps_percent", "pipes": "/p", "pct": "banana"}',
    '{"type": "mps_percent", "pipes": "/p", "pct": true}',
    '{"type": "mps_percent", "pipes": "p", "pct": 50}',
    '{"type": "mps_percent", "pipes": "/p\\nquit", "pct": 50}',
    '{"type": "mps_percent", "pipes": "/p", "pct": 50, "device": 0}',
    '{"type": "mps_priority", "pipes": "/p", "priority": 2}',
    '{"type": "mps_banana", "pipes": "/p"}',
)


@pytest.mark.parametrize("text", WRONG)
def test_what_mps_would_misread_is_no_setting(text: str) -> None:
    decoder: msgspec.json.Decoder[Setting] = msgspec.json.Decoder(Setting)
    with pytest.raises(msgspec.ValidationError):
        decoder.decode(text)
    assert decoder.decode('{"type": "mps_percent", "pipes": "/p", "pct": 50}'
                          ) == MpsPercent("/p", 50)
    assert decoder.decode('{"type": "mps_memory", "pipes": "/p", "ordinal": 31, "mem_mib": null}'
                          ) == MpsMemory("/p", 31, None)


def test_nor_does_it_reach_the_daemon_from_within(fake: FakeMps) -> None:
    """Types are not checked at run time: the one place that makes lines looks again."""
    assert fake.start() == 0
    daemon = MpsDaemonHandle()
    before = fake.commands()
    for pct in (0, 101, -5, 33.3, True, "50", "1 50", None):
        with pytest.raises(ValueError, match="whole number"):
            daemon.set_percent(pct)  # type: ignore[arg-type]
    for ordinal, mem_mib in ((32, 1), (-1, 1), ("GPU-4a1f2c", 2_048), (0, "2.5G"), (0, 0),
                             (0, -1), (True, 1), (0, 2.5)):
        with pytest.raises(ValueError, match="whole number"):
            daemon.set_memory(ordinal, mem_mib)  # type: ignore[arg-type]
    for server in (0, 1, -1, "5", 2.0):
        with pytest.raises(ValueError, match="whole number"):
            daemon.set_percent(50, server)  # type: ignore[arg-type]
    for priority in (2, -1, True):
        with pytest.raises(ValueError, match="priority"):
            daemon.set_priority(priority)
    assert fake.commands() == before


def test_set_and_read_back(fake: FakeMps, children: Children) -> None:
    server, client = children.start(), children.start()
    fake.server(server.pid, client.pid)
    assert fake.start() == 0
    daemon = MpsDaemonHandle()
    pct, other = random.sample(range(1, 101), 2)
    daemon.set_percent(pct)
    assert (daemon.percent(), daemon.percent(server.pid)) == (pct, 100.0)  # it took the default
    daemon.set_percent(other, server.pid)
    assert (daemon.percent(), daemon.percent(server.pid)) == (pct, other)
    for mem_mib in (random.randint(1, 1_023), random.randint(1_024, 200_000), 1_536, None):
        ordinal = random.randrange(32)
        daemon.set_memory(ordinal, mem_mib)
        assert daemon.memory(ordinal) == shown_limit(mem_mib)
        daemon.set_memory(ordinal, mem_mib, server.pid)
        assert daemon.memory(ordinal, server.pid) == shown_limit(mem_mib)
    daemon.set_priority(1)
    assert daemon.priority() == 1
    assert daemon.status(server.pid) == "ACTIVE"
    assert daemon.servers() == (server.pid,)
    assert daemon.clients(server.pid) == (client.pid,)
    fake.save(version=535)
    assert daemon.status(server.pid) is None, "a driver that has no such command"


def test_silent_refusals_are_seen(fake: FakeMps, children: Children) -> None:
    """Status 0, and the old value or a sentence instead."""
    assert fake.start() == 0
    daemon, absent = MpsDaemonHandle(), 2**22 + 5
    with pytest.raises(MpsControlError, match=f"Server {absent} not found"):
        daemon.set_percent(50, absent)
    with pytest.raises(MpsControlError, match="not found"):
        daemon.set_memory(0, 5, absent)
    assert (daemon.percent(absent), daemon.memory(0, absent), daemon.status(absent)) == (None,) * 3
    server, client = children.start(), children.start()
    fake.server(server.pid, client.pid)
    fake.save(refuses=True)
    assert "did not disconnect" in daemon.terminate(server.pid, client.pid)
    with pytest.raises(MpsControlError, match="Not enough privilege"):
        daemon.quit(1)
    assert daemon.is_alive()
    fake.save(refuses=False, ignores=True)
    daemon.set_percent(7)  # it says that it obeys
    assert daemon.percent() == 100.0


def test_a_daemon_that_is_dead_stuck_or_cannot_begin(fake: FakeMps, tmp_path: Path) -> None:
    daemon = MpsDaemonHandle()
    assert not daemon.is_alive()
    with pytest.raises(MpsControlError, match="no MPS control daemon answers"):
        daemon.set_percent(50)
    assert daemon.start() == ""
    daemon.set_percent(40)
    assert "already running" in daemon.start()
    fake.kill()
    assert (fake.pipes / "control").exists(), "stale"
    assert not daemon.is_alive()
    assert daemon.start() == ""
    assert daemon.percent() == 100.0, "all settings are back to default"
    long = tmp_path / ("x" * PIPES_MAX)
    assert "more than" in MpsDaemonHandle(long).start()
    assert "more than" in path_trouble(long)
    assert path_trouble(tmp_path / "p") == ""
    assert daemon.quit(1) == ""
    assert not daemon.is_alive()


def test_several_pipe_directories(fake: FakeMps, children: Children,
                                  monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by what runs; a folder of the agent's own is asked first."""
    servers, clients = [children.start() for _ in range(2)], [children.start() for _ in range(2)]
    other = FakeMps(fake.folder / "b")
    try:
        assert fake.start() == other.start() == 0
        fake.server(servers[0].pid, clients[0].pid)
        assert {fake.pipes, other.pipes} <= found_pipes()
        mps = LocalMpsDaemons()
        folders = [daemon.folder for daemon in mps.daemons()]
        assert folders[0] == fake.pipes
        assert other.pipes in folders
        assert mps.clients()[servers[0].pid] == (clients[0].pid,)
        assert mps.terminate(clients[0].pid) == ""
        assert f"terminate_client {servers[0].pid} {clients[0].pid}" in fake.commands()
        assert fake.ask(f"get_client_list {servers[0].pid}") == ""
        assert all(child.is_alive() for child in (*servers, *clients))
    finally:
        other.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make a socket of another user's")
def test_another_users_daemon_is_believed_about_his_own_alone(
    fake: FakeMps, children: Children
) -> None:
    """Else anybody could have anybody's task taken for a client, and so not be paused."""
    server, victim = children.start(), children.start()
    fake.server(server.pid, victim.pid)
    assert fake.start() == 0
    mps = LocalMpsDaemons(is_alone=True)
    assert mps.clients() == {server.pid: (victim.pid,)}
    os.chown(fake.pipes / "control", 65_534, -1)
    assert mps.clients() == {server.pid: ()}
    assert "as its client" in mps.terminate(victim.pid)
    assert not any(line.startswith("terminate") for line in fake.commands())
