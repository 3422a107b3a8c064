"""nvidia-cuda-mps-control as it is: a daemon behind a real socket, and a front end of one line.

What it prints is the simulation's (mps_answers.py), status 0 also where it refuses. `FakeMps`
installs it into a folder; `FAKE_MPS` names the file that says which servers and clients there are,
and which mode it is in, as mps_answers.World has them; `stuck`: it takes a line and says nothing.

    {"version": 550, "ignores": false, "servers": {"SERVER": {"uid": 0, "clients": [PID]}}}

Run as a program it imports little beside the standard library: the front end is started for every
line.
"""

import ast
import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __name__ != "__main__":
    from agent.backends.simulation.mps_answers import (
        SimulatedMpsDaemon,
        SimulatedMpsSettings,
        SimulatedMpsState,
    )
else:  # the program finds none of our packages
    sys.path.append(str(Path(__file__).resolve().parents[2] / "agent/backends/simulation"))
    from mps_answers import SimulatedMpsDaemon, SimulatedMpsSettings, SimulatedMpsState

PROGRAM = "nvidia-cuda-mps-control"
NO_DAEMON = "Cannot find MPS control daemon process\n"


class FileControl(SimulatedMpsDaemon):
    """Daemon of the world that FAKE_MPS names."""

    def __init__(self, file: Path) -> None:
        percentage = os.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "")
        super().__init__(SimulatedMpsSettings(float(percentage) if percentage else 100.0), {})
        self._file = file

    def look(self) -> SimulatedMpsState:
        world = json.loads(self._file.read_text())
        servers = {int(pid): server for pid, server in world.pop("servers", {}).items()
                   if is_alive(int(pid))}
        world.pop("stuck", None)
        return SimulatedMpsState(
            {pid: [client for client in server.get("clients", []) if is_alive(client)]
             for pid, server in servers.items()},
            {pid: server["status"] for pid, server in servers.items() if "status" in server},
            **world)

    def let_go(self, server: int, client: int) -> None:
        world = json.loads(self._file.read_text())
        world["servers"][str(server)]["clients"].remove(client)
        replace(self._file, world)

    def end_servers(self) -> None:
        for server in self.look().clients:
            os.kill(server, signal.SIGTERM)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def replace(path: Path, world: object) -> None:
    new = path.with_suffix(".new")
    new.write_text(json.dumps(world))
    new.replace(path)


def pipes_of(env: dict[str, str]) -> Path:
    return Path(env.get("CUDA_MPS_PIPE_DIRECTORY") or "/tmp/nvidia-mps")


def call(pipes: Path, lines: str) -> str | None:
    """Send lines to the daemon and return its answer; None: nobody listens."""
    with socket.socket(socket.AF_UNIX) as line:
        try:
            line.connect(str(pipes / "control"))
        except OSError:
            return None
        line.sendall(lines.encode())
        line.shutdown(socket.SHUT_WR)
        return read_all(line)


def read_all(line: socket.socket) -> str:
    return b"".join(iter(lambda: line.recv(4_096), b"")).decode()


def serve(pipes: Path, file: Path) -> int:
    if call(pipes, "") is not None:
        print("An instance of this daemon is already running", file=sys.stderr)
        return 1
    pipes.mkdir(parents=True, exist_ok=True)
    (pipes / "control").unlink(missing_ok=True)  # stale ones are no hindrance
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(str(pipes / "control"))
    except OSError:
        return 1  # a path that is too long: without a word
    (pipes / "control").chmod(0o666)
    listener.listen(16)
    if pid := os.fork():
        (pipes / f"{PROGRAM}.pid").write_text(f"{pid}\n")
        return 0
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    run(listener, FileControl(file), pipes)
    os._exit(0)


def run(listener: socket.socket, control: SimulatedMpsDaemon, pipes: Path) -> None:
    log = Path(os.environ.get("CUDA_MPS_LOG_DIRECTORY") or pipes) / "control.log"
    while not control.is_over:
        line, _ = listener.accept()
        with line:
            for command in filter(str.strip, read_all(line).splitlines()):
                answer = control.answer(command)
                write(log, "Accepting connection...", "NEW UI", f"Cmd:{command}",
                      *answer.splitlines(), "UI closed")
                line.sendall(answer.encode())
    (pipes / "control").unlink()


def write(log: Path, *lines: str) -> None:
    """Write to the log as the real one does, for every line that it gets."""
    at = time.strftime("%Y-%m-%d %H:%M:%S.000")
    with log.open("a") as file:
        file.writelines(f"[{at} Control {os.getpid():5}] {line}\n" for line in lines)


# The front end, which is started for every line: with as little to import as can be.
FRONT = """#!{python} -ISE
import _socket, os, sys
pipes = os.environ.get("CUDA_MPS_PIPE_DIRECTORY") or "/tmp/nvidia-mps"
file = os.environ["FAKE_MPS"]
lines = "-d" if sys.argv[1:] == ["-d"] else sys.stdin.read()
with open(file + ".asked", "a") as asked:
    asked.write(repr(lines.strip()) + "\\n")
if lines == "-d":
    os.execv({python!r}, [{program!r}, "-I", "-S", {fake!r}])
if '"stuck": true' in open(file).read():
    import time
    time.sleep(60)
line = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
try:
    line.connect(pipes + "/control")
except OSError:
    sys.stderr.write({none!r})
    sys.exit(1)
line.sendall(lines.encode())
line.shutdown(_socket.SHUT_WR)
while part := line.recv(4096):
    sys.stdout.write(part.decode())
"""


class _MachineLock:
    """Held by one process of tests at a time, as often as it likes. Daemons are looked for in all
    processes of the machine, so one of another worker's test would be seen as well."""

    def __init__(self) -> None:
        self._fd = -1
        self._holds = 0

    def hold(self) -> None:
        if self._holds == 0:
            self._fd = os.open(Path(tempfile.gettempdir()) / "gpudeck-fake-mps.lock",
                               os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._fd, fcntl.LOCK_EX)
        self._holds += 1

    def release(self) -> None:
        self._holds -= 1
        if self._holds == 0:
            os.close(self._fd)


_LOCK = _MachineLock()


@contextlib.contextmanager
def no_daemon_of_others() -> Iterator[None]:
    """Keep other workers' fakes away from a test that demands that no MPS control daemon runs."""
    _LOCK.hold()
    try:
        yield
    finally:
        _LOCK.release()


class FakeMps:
    """Fake in `folder`: the program to put on PATH, and the file that it obeys. Until it is closed
    no other worker's tests have one."""

    def __init__(self, folder: Path, **world: Any) -> None:
        _LOCK.hold()
        self.folder = folder
        self.pipes = folder / "pipes"
        self.file = folder / "mps.json"
        self.bin = folder / "bin"
        self.program = self.bin / PROGRAM
        self.bin.mkdir(parents=True)
        self.program.write_text(FRONT.format(
            python=sys.executable, program=PROGRAM, fake=str(Path(__file__).resolve()),
            none=NO_DAEMON))
        self.program.chmod(0o755)
        self.server_program = self.bin / "nvidia-cuda-mps-server"
        self.server_program.write_text("#!/bin/false\n")
        self.server_program.chmod(0o755)
        self._world: dict[str, Any] = {"servers": {}, **world}
        self.save()

    def env(self) -> dict[str, str]:
        return {"PATH": f"{self.bin}:{os.environ['PATH']}", "FAKE_MPS": str(self.file),
                "CUDA_MPS_PIPE_DIRECTORY": str(self.pipes),
                "CUDA_MPS_LOG_DIRECTORY": str(self.folder)}

    def save(self, **world: Any) -> None:
        self._world |= world
        replace(self.file, self._world)

    def server(self, pid: int, *clients: int, uid: int = 0, **more: Any) -> None:
        self._world["servers"][str(pid)] = {"uid": uid, "clients": [*clients], **more}
        self.save()

    def start(self) -> int:
        return self.run("-d").returncode

    def run(self, *argv: str, lines: str = "") -> "subprocess.CompletedProcess[str]":
        return subprocess.run([str(self.program), *argv], input=lines, capture_output=True,
                              text=True, timeout=20, env={**os.environ, **self.env()}, check=False)

    def ask(self, line: str) -> str:
        return self.run(lines=line + "\n").stdout

    @property
    def pid(self) -> int:
        return int((self.pipes / f"{PROGRAM}.pid").read_text())

    def commands(self) -> list[str]:
        """Return all lines that reached it from anybody, and `-d`."""
        try:
            lines = Path(f"{self.file}.asked").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [ast.literal_eval(line) for line in lines]

    def changed(self) -> list[str]:
        """Return the commands that are not queries."""
        return [line for line in self.commands() if not line.startswith(("get_", "ps"))]

    def kill(self) -> None:
        """Kill the daemon with SIGKILL: its socket stays."""
        if is_alive(pid := self.pid):
            os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        try:
            if (self.pipes / f"{PROGRAM}.pid").exists():
                self.kill()
        finally:
            _LOCK.release()


if __name__ == "__main__":
    sys.exit(serve(pipes_of(dict(os.environ)), Path(os.environ["FAKE_MPS"])))
