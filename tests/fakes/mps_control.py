"""nvidia-cuda-mps-control as it is: a daemon behind a real socket, and a front end of one line.

Prints what the real ones of 535, 550 and 555 print (nvml-mps.md C.3), to the byte, status 0 also
where it refuses. What was not seen on a real one is marked so. `FakeMps` installs it into a folder;
`FAKE_MPS` names the file that says which servers and clients there are, and which mode it is in:

    {"version": 550, "ignores": false, "servers": {"SERVER": {"uid": 0, "clients": [PID]}}}

`ignores`: takes settings, says what it says when it obeys, and does nothing. `keeps`: prints the
old value, as for one that it does not like. `refuses`: as for who is not allowed. Run as a program
it imports nothing but the standard library, since it is started anew for every line.
"""

import ast
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PROGRAM = "nvidia-cuda-mps-control"
# What stands in the program of r550; which line ends it was not seen.
DENIED = ("Insufficient privileges for UID 1000. Only the root user may change another user's "
          "server\n")
NO_DAEMON = "Cannot find MPS control daemon process\n"
MIB, GIB = 2**20, 2**30


class Settings:
    def __init__(self) -> None:
        given = os.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "")
        self.percent = float(given) if given else 100.0
        self.memory: dict[int, int] = {}
        self.priority = 0

    def copy(self) -> "Settings":
        made = Settings()
        made.percent, made.memory, made.priority = self.percent, dict(self.memory), self.priority
        return made


class Control:
    """The daemon: one line in, its answer out."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._default = Settings()
        self._of: dict[int, Settings] = {}
        self.is_over = False

    def answer(self, line: str) -> str:
        world = self._world()
        for server in world["servers"]:
            self._of.setdefault(server, self._default.copy())  # a server takes the default along
        name, _, rest = line.strip().partition(" ")
        words = rest.split()
        method = getattr(self, f"do_{name}", None)
        since = {"get_server_status": 550}.get(name, 0)
        if method is None or world["version"] < since:
            return f'Unknown command "{name}"\n'
        if world.get("refuses_priority") and name == "set_default_client_priority":
            return DENIED
        if world.get("refuses") and name.startswith("set_"):
            return DENIED
        return str(method(words, world))

    def _world(self) -> dict[str, Any]:
        told = json.loads(self._file.read_text())
        servers = {int(pid): each for pid, each in told.get("servers", {}).items()}
        alive = {pid: each for pid, each in servers.items() if is_alive(pid)}
        return {"version": 550, "ignores": False, "keeps": False, "stuck": False, **told,
                "servers": alive}

    def do_get_server_list(self, words: list[str], world: dict[str, Any]) -> str:
        return "".join(f"{server}\n" for server in world["servers"])

    def do_get_server_status(self, words: list[str], world: dict[str, Any]) -> str:
        server = self._server(words, world)
        return server if isinstance(server, str) else (
            world["servers"][server].get("status", "ACTIVE") + "\n")

    def do_get_client_list(self, words: list[str], world: dict[str, Any]) -> str:
        server = self._server(words, world)
        if isinstance(server, str):
            return server
        return "".join(f"{pid}\n" for pid in self._clients(server, world))

    def do_ps(self, words: list[str], world: dict[str, Any]) -> str:
        if not world["servers"]:
            return "Server not found\n"
        head = "PID     ID    SERVER    DEVICE            NAMESPACE    COMMAND\n"
        return head + "".join(
            f"{pid:<7} {at:<5} {server:<9} GPU-0             4026531836   ./client\n"
            for server in world["servers"] for at, pid in enumerate(self._clients(server, world)))

    def do_get_default_active_thread_percentage(self, words: list[str], world: Any) -> str:
        return shown(self._default.percent)

    def do_set_default_active_thread_percentage(self, words: list[str], world: Any) -> str:
        return self._set_percent(self._default, words, world)

    def do_get_active_thread_percentage(self, words: list[str], world: Any) -> str:
        server = self._server(words, world)
        return server if isinstance(server, str) else shown(self._of[server].percent)

    def do_set_active_thread_percentage(self, words: list[str], world: Any) -> str:
        server = self._server(words, world)  # what it prints when it obeys was not seen
        return server if isinstance(server, str) else self._set_percent(
            self._of[server], words[1:], world)

    def _set_percent(self, settings: Settings, words: list[str], world: Any) -> str:
        found = re.match(r"-?\d+(\.\d+)?", words[0]) if words else None
        value = float(found[0]) if found else 0.0
        if not 0 < value <= 100 or world["keeps"]:
            return shown(settings.percent)
        if not world["ignores"]:
            settings.percent = value
        return shown(value)

    def do_get_default_device_pinned_mem_limit(self, words: list[str], world: Any) -> str:
        return limit_of(self._default, words)

    def do_set_default_device_pinned_mem_limit(self, words: list[str], world: Any) -> str:
        return self._set_memory(self._default, words, world)

    def do_get_device_pinned_mem_limit(self, words: list[str], world: Any) -> str:
        server = self._server(words, world)
        return server if isinstance(server, str) else limit_of(self._of[server], words[1:])

    def do_set_device_pinned_mem_limit(self, words: list[str], world: Any) -> str:
        server = self._server(words, world)
        return server if isinstance(server, str) else self._set_memory(
            self._of[server], words[1:], world)

    def _set_memory(self, settings: Settings, words: list[str], world: Any) -> str:
        """Like sscanf("%d %lld"): what does not fit ends it, and an amount that is missing is 0."""
        first = re.match(r"\d+", words[0]) if words else None
        ordinal = int(first[0]) if first else 0
        whole = first is not None and first[0] == words[0]
        found = re.fullmatch(r"(-?\d+)(.*)", words[1]) if whole and len(words) > 1 else None
        amount = 0
        if found:
            is_gib = found[2][:1].lower() == "g"  # all else is M, K and T and .5G too
            amount = int(found[1]) * (GIB if is_gib else MIB) % 2**64
        if ordinal < 32 and not world["ignores"]:
            settings.memory[ordinal] = amount
        return ""

    def do_get_default_client_priority(self, words: list[str], world: Any) -> str:
        return f"{self._default.priority}\n"

    def do_set_default_client_priority(self, words: list[str], world: Any) -> str:
        if words not in (["0"], ["1"]):
            return "Invalid priority value - must be 0 or 1!\n"
        if not world["ignores"]:
            self._default.priority = int(words[0])
        return ""

    def do_terminate_client(self, words: list[str], world: Any) -> str:
        server = int(words[0]) if words and words[0].isdigit() else 0
        if server not in world["servers"]:
            return f"Server {server} not found\nServer {server} not found!\n1\n"
        client = int(words[1]) if len(words) > 1 and words[1].isdigit() else 0
        if client not in self._clients(server, world):
            return f"Invalid process {client}!\n1\n"
        if world.get("refuses"):
            return "1\n"
        if not world["ignores"]:
            told = json.loads(self._file.read_text())
            told["servers"][str(server)]["clients"].remove(client)
            replace(self._file, told)
        return "0\n"

    def do_start_server(self, words: list[str], world: Any) -> str:
        return ""

    def do_quit(self, words: list[str], world: Any) -> str:
        if world.get("refuses"):
            return "Not enough privilege to execute quit command\n"
        until = time.monotonic() + (float(words[1]) if words[:1] == ["-t"] else 3_600)
        while any(self._clients(server, world) for server in world["servers"]):
            if time.monotonic() > until:
                break
            time.sleep(0.02)
        for server in world["servers"]:
            os.kill(server, signal.SIGTERM)
        self.is_over = True
        return ""

    def _server(self, words: list[str], world: Any) -> int | str:
        found = re.match(r"\d+", words[0]) if words else None
        server = int(found[0]) if found else 0
        return server if server in world["servers"] else f"Server {server} not found\n"

    def _clients(self, server: int, world: Any) -> list[int]:
        return [pid for pid in world["servers"][server].get("clients", []) if is_alive(pid)]


def shown(percent: float) -> str:
    return f"{percent:.1f}\n"


def limit_of(settings: Settings, words: list[str]) -> str:
    amount = settings.memory.get(int(words[0]) if words and words[0].isdigit() else 0, 0)
    if amount == 0:
        return ""
    return f"{amount // GIB}G\n" if amount >= GIB else f"{amount // MIB}M\n"


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def replace(path: Path, told: object) -> None:
    new = path.with_suffix(".new")
    new.write_text(json.dumps(told))
    new.replace(path)


def pipes_of(env: dict[str, str]) -> Path:
    return Path(env.get("CUDA_MPS_PIPE_DIRECTORY") or "/tmp/nvidia-mps")


def call(pipes: Path, lines: str) -> str | None:
    """None: nobody listens."""
    with socket.socket(socket.AF_UNIX) as line:
        try:
            line.connect(str(pipes / "control"))
        except OSError:
            return None
        line.sendall(lines.encode())
        line.shutdown(socket.SHUT_WR)
        return heard(line)


def heard(line: socket.socket) -> str:
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
    run(listener, Control(file), pipes)
    os._exit(0)


def run(listener: socket.socket, control: Control, pipes: Path) -> None:
    log = Path(os.environ.get("CUDA_MPS_LOG_DIRECTORY") or pipes) / "control.log"
    while not control.is_over:
        line, _ = listener.accept()
        with line:
            for each in filter(str.strip, heard(line).splitlines()):
                answer = control.answer(each)
                write(log, "Accepting connection...", "NEW UI", f"Cmd:{each}",
                      *answer.splitlines(), "UI closed")
                line.sendall(answer.encode())
    (pipes / "control").unlink()


def write(log: Path, *lines: str) -> None:
    """As the real one does, for every line that it is asked."""
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


class FakeMps:
    """In `folder`: the program to put on PATH, and the file that it obeys."""

    def __init__(self, folder: Path, **world: Any) -> None:
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

    def asked(self) -> list[str]:
        """Every line that reached it from anybody, and `-d`."""
        try:
            told = Path(f"{self.file}.asked").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [ast.literal_eval(each) for each in told]

    def changed(self) -> list[str]:
        """Of these, all that is no question."""
        return [line for line in self.asked() if not line.startswith(("get_", "ps"))]

    def kill(self) -> None:
        """kill -9: its socket stays."""
        if is_alive(pid := self.pid):
            os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        if (self.pipes / f"{PROGRAM}.pid").exists():
            self.kill()


if __name__ == "__main__":
    sys.exit(serve(pipes_of(dict(os.environ)), Path(os.environ["FAKE_MPS"])))
