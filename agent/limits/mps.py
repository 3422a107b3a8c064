"""MPS by its control program. The only nvidia-cuda-mps-control.

Its exit status is 0 even when it refuses, nothing marks which answer belongs to which line, and
its parser turns `2.5G` into 2 MB and a UUID into "erase device 0's limit" (535 to 555). So:
lines are built from typed arguments only, there is one per call, and only the exact words of
success count. Even these prove nothing: callers read back what they set.

A signal to a client that is at work is undefined for all clients of its server; after
`terminate_client` it is safe (C.6).
"""

import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from gpudeck.contract.limits import ORDINALS, PIPES_MAX
from gpudeck.system.child_processes import without_tokens

from ..tasks.processes import PROC, about

PROGRAM = "nvidia-cuda-mps-control"
PIPES = "CUDA_MPS_PIPE_DIRECTORY"
DEFAULT_PIPES = Path("/tmp/nvidia-mps")
LOGS = "CUDA_MPS_LOG_DIRECTORY"
DEFAULT_LOGS = Path("/var/log/nvidia-mps")
SERVER = "nvidia-cuda-mps-server"
MULTIUSER = b"-multiuser-server"
# Where distributions put it, whatever PATH the daemon has.
SERVER_FOLDERS = "/usr/bin:/usr/sbin:/usr/local/bin"
CALL_S = 5.0
QUIT_WITHIN_S = 10.0
CLIENTS_EVERY_S = 10.0
FOUND_FOR_S = 60.0
WAIT_S = 0.1  # a call takes 4 ms (C.3)
GIB_MIB = 1_024
MODERN_DRIVER = 550
_PIDS = re.compile(r"(?:\d{1,10}\n)*")
_PERCENT = re.compile(r"(\d{1,3}(?:\.\d{1,6})?)\n")
_LIMIT = re.compile(r"(?:(\d{1,12})([MG]))?\n?")
_PRIORITY = re.compile(r"([01])\n")
_STATUS = re.compile(r"([A-Z_]{1,32})\n")
DEAD = ("no MPS control daemon answers in {pipes}; start it there, or set " + PIPES
        + " for the agent to the folder of the daemon that runs")


class MpsControlError(Exception):
    """Unexpected answer of the control program. The sentence holds its very words."""


class MpsControl(Protocol):
    """Access to daemons: the control program, or a simulated one. `pipes` None: the pipe directory
    of the agent's own environment."""

    def is_installed(self) -> bool: ...
    def has_server(self) -> bool:
        """Return whether the server program is installed too."""

    def log(self) -> Path | None:
        """Return the path of the daemon's log; None: it writes none."""

    def uid_of(self, server: int) -> int | None: ...
    def ask(self, pipes: Path | None, command: str, within_s: float) -> str | None:
        """Send one line in one call; return its answer. None: no daemon, or no answer."""

    def start(self, pipes: Path | None) -> tuple[int, str]:
        """Start a daemon; return its exit status and words. Raises OSError,
        subprocess.TimeoutExpired and UnicodeDecodeError."""


class MpsControlProgram:
    """Control program of NVIDIA, started for each line."""

    def __init__(self, path: str = PROGRAM) -> None:
        self._path = path

    def is_installed(self) -> bool:
        return self._path != "" and shutil.which(self._path) is not None

    def has_server(self) -> bool:
        beside = os.path.dirname(shutil.which(self._path) or "")
        path = os.pathsep.join((os.environ.get("PATH", ""), SERVER_FOLDERS, beside))
        return shutil.which(SERVER, path=path) is not None

    def log(self) -> Path | None:
        return Path(os.environ.get(LOGS) or DEFAULT_LOGS) / "control.log"

    def uid_of(self, server: int) -> int | None:
        process = about(server)
        return None if process is None else process.uid

    def ask(self, pipes: Path | None, command: str, within_s: float) -> str | None:
        try:
            child = subprocess.run([self._path], input=command + "\n", capture_output=True,
                                   text=True, timeout=within_s, env=_env(pipes), check=False)
        except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
            return None
        return child.stdout if child.returncode == 0 else None

    def start(self, pipes: Path | None) -> tuple[int, str]:
        child = subprocess.run([self._path, "-d"], capture_output=True, text=True,
                               timeout=CALL_S, env=_env(pipes), check=False)
        return child.returncode, (child.stdout + child.stderr).strip()


class MpsDaemonHandle:
    """Handle of the daemon of one pipe directory. A method that reads gives None for an answer that
    it does not know; one that sets raises MpsControlError."""

    def __init__(self, pipes: Path | None = None, program: str = PROGRAM,
                 front: MpsControl | None = None) -> None:
        self.pipes = pipes
        self._program = program
        self._front = front or MpsControlProgram(program)

    @property
    def folder(self) -> Path:
        return self.pipes or Path(os.environ.get(PIPES) or DEFAULT_PIPES)

    # reading

    def is_alive(self) -> bool:
        return self.servers() is not None

    def owner(self) -> int | None:
        """Return the uid that owns the socket."""
        try:
            return (self.folder / "control").stat().st_uid
        except OSError:
            return None

    def servers(self) -> tuple[int, ...] | None:
        return self._pids("get_server_list")

    def uid_of(self, server: int) -> int | None:
        return self._front.uid_of(server)

    def clients(self, server: int) -> tuple[int, ...]:
        return self._pids(f"get_client_list {_pid(server)}") or ()

    def status(self, server: int) -> str | None:
        """Return the status of a server. None: not known, which is all of a driver before 550."""
        return _one(_STATUS, self._call(f"get_server_status {_pid(server)}"))

    def percent(self, server: int | None = None) -> float | None:
        pct = _one(_PERCENT, self._call("get_default_active_thread_percentage" if server is None
                                        else f"get_active_thread_percentage {_pid(server)}"))
        return None if pct is None else float(pct)

    def memory(self, ordinal: int, server: int | None = None) -> str | None:
        """Return a memory limit, such as "2G" or "900M"; "": none. From 1 GiB on MPS shows whole
        GiB, rounded down. None: not known."""
        command = (f"get_default_device_pinned_mem_limit {_ordinal(ordinal)}" if server is None else
                   f"get_device_pinned_mem_limit {_pid(server)} {_ordinal(ordinal)}")
        answer = self._call(command)
        return answer.strip() if answer is not None and _LIMIT.fullmatch(answer) else None

    def priority(self) -> int | None:
        priority = _one(_PRIORITY, self._call("get_default_client_priority"))
        return None if priority is None else int(priority)

    # setting

    def set_percent(self, pct: int, server: int | None = None) -> None:
        expected_line = f"{_percent(pct)}.0\n"
        # What the second form prints when it obeys was not seen: reading back decides.
        self._must(
            (f"set_default_active_thread_percentage {pct}", (expected_line,)) if server is None else
            (f"set_active_thread_percentage {_pid(server)} {pct}", (expected_line, "")))

    def set_memory(self, ordinal: int, mem_mib: int | None, server: int | None = None) -> None:
        """Set a memory limit in whole MiB: `2.5G` would be 2 MB. 0M removes a limit."""
        value = f"{_ordinal(ordinal)} {_mebibytes(mem_mib)}M"
        self._must((f"set_default_device_pinned_mem_limit {value}" if server is None else
                    f"set_device_pinned_mem_limit {_pid(server)} {value}", ("",)))

    def set_priority(self, priority: int) -> None:
        if priority not in (0, 1) or isinstance(priority, bool):
            raise ValueError("the priority of MPS clients is 0 (normal) or 1 (below)")
        self._must((f"set_default_client_priority {priority}", ("", f"{priority}\n")))

    def start(self) -> str:
        """Start the daemon. "": it listens."""
        if trouble := path_trouble(self.folder):
            return trouble
        try:
            status, words = self._front.start(self.pipes)
        except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError) as error:
            return f"{self._program} cannot be started ({error}); install it where the agent runs"
        if status == 0:
            return ""
        return (f"the daemon did not start in {self.folder} ({words or 'it says nothing'}); look "
                "at control.log in CUDA_MPS_LOG_DIRECTORY, and whether its folder can be written")

    def quit(self, within_s: int) -> str:
        """Stop the daemon. "": it and its servers have ended; clients get `within_s` to leave
        first."""
        answer = self._call(f"quit -t {int(within_s)}", within_s + QUIT_WITHIN_S)
        if not self.is_alive():
            return ""
        if answer:
            raise MpsControlError(f"the MPS control daemon answers {answer.strip()[:200]!r}")
        return "the MPS control daemon still answers"

    def terminate(self, server: int, client: int) -> str:
        """Disconnect a client. "": its server has released it, so a signal affects no other
        client."""
        answer = self._call(f"terminate_client {_pid(server)} {_pid(client)}")
        if answer is not None and answer.strip() == "0":
            return ""
        return f"MPS server {server} did not disconnect client {client}: {answer!r}"

    # inside

    def _must(self, line: tuple[str, tuple[str, ...]]) -> None:
        command, good = line
        answer = self._call(command)
        if answer is None:
            raise MpsControlError(DEAD.format(pipes=self.folder))
        if answer not in good:
            raise MpsControlError(f"MPS did not accept {command!r}: it answers "
                                  f"{answer.strip()[:200]!r}")

    def _pids(self, command: str) -> tuple[int, ...] | None:
        answer = self._call(command)
        if answer is None or not _PIDS.fullmatch(answer):
            return None
        return tuple(int(line) for line in answer.split())

    def _call(self, command: str, within_s: float = CALL_S) -> str | None:
        if "\n" in command or "\r" in command:
            raise ValueError("one command per call")
        return self._front.ask(self.pipes, command, within_s)


def _env(pipes: Path | None) -> dict[str, str]:
    # A daemon that we start outlives us: not with our secrets.
    return without_tokens(os.environ) | ({} if pipes is None else {PIPES: str(pipes)})


class LocalMpsDaemons:
    """Daemons of this machine: that of the agent's own environment, and those that are seen to run
    with a pipe directory of their own."""

    def __init__(self, program: str = PROGRAM, pipes: Path | None = None,
                 is_alone: bool = False, front: MpsControl | None = None) -> None:
        """Look for daemons with `program`; "": a simulated node, which must not touch the MPS of
        the machine that it shares with others. `is_alone`: consider only the daemon of `pipes`."""
        self.program = program
        self.front = front or MpsControlProgram(program)
        self._pipes = pipes
        self._is_alone = is_alone
        self._folders: frozenset[Path] = frozenset()
        self.has_answered = False  # that of our own environment: there one may be started again
        self._scanned_at = float("-inf")

    def is_installed(self) -> bool:
        return self.front.is_installed()

    def trouble(self) -> str:
        """Return why clients cannot be disconnected from MPS here; "": they can."""
        if not self.is_installed():
            return (f"it is an MPS client, and {self.program or PROGRAM} is not installed where "
                    "the agent runs: without it, ending one client can end all others. "
                    "Install it, or end the task from inside.")
        if not any(daemon.is_alive() for daemon in self.daemons()):
            return ("it is an MPS client, and the MPS control daemon does not answer; set "
                    "CUDA_MPS_PIPE_DIRECTORY for the agent to the daemon's, or end the task from "
                    "inside.")
        return ""

    def own(self) -> MpsDaemonHandle:
        """Return the daemon of the agent's own environment, which may not run."""
        return MpsDaemonHandle(self._pipes, self.program, self.front)

    def daemons(self, within_s: float = 0.0) -> tuple[MpsDaemonHandle, ...]:
        """Return the daemons. `within_s`: a scan that recent is reused, for each reads all of
        /proc."""
        own = self.own()
        if self._is_alone:
            return (own,)
        if time.monotonic() >= self._scanned_at + within_s:
            self._folders, self._scanned_at = found_pipes(), time.monotonic()
        other_folders = self._folders - {own.folder}
        return (own, *(MpsDaemonHandle(pipes, self.program, self.front)
                       for pipes in sorted(other_folders)))

    def daemon(self, pipes: str) -> MpsDaemonHandle:
        return MpsDaemonHandle(Path(pipes), self.program, self.front)

    def clients(self) -> dict[int, tuple[int, ...]]:
        """Return client pids by their server; {}: it does not say."""
        by_server: dict[int, tuple[int, ...]] = {}
        if self.is_installed():
            for daemon in self.daemons(FOUND_FOR_S):
                by_server |= {server: believed(daemon, daemon.clients(server))
                              for server in daemon.servers() or ()}
        return by_server

    def terminate(self, pid: int) -> str:
        """Disconnect a client. "": the server has released it, so a signal affects no other."""
        is_silent = True
        for daemon in self.daemons():
            servers = daemon.servers()
            is_silent = is_silent and servers is None
            for server in servers or ():
                if pid in believed(daemon, daemon.clients(server)):
                    return daemon.terminate(server, pid)
        if is_silent:
            return "the MPS control daemon does not answer"
        return f"no MPS server lists process {pid} as its client"


def believed(daemon: MpsDaemonHandle, pids: Iterable[int]) -> tuple[int, ...]:
    """Return the pids that a daemon is believed about. Anybody can run a program of that name and
    list others' processes: users other than root are believed only about their own."""
    owner = daemon.owner()
    if owner in (0, None):  # None: no socket of that name, as in tests
        return tuple(pids)
    return tuple(pid for pid in pids
                 if (process := about(pid)) is not None and process.uid == owner)


def found_pipes(proc: Path = PROC) -> frozenset[Path]:
    """Return the pipe directories of control daemons that run, by what they were started with."""
    return frozenset(path for path, _ in _started(proc))


def multiuser_pipes(proc: Path = PROC) -> frozenset[str]:
    """Return the pipe directories of daemons whose servers accept several users; only root's
    can."""
    return frozenset(str(path) for path, words in _started(proc) if MULTIUSER in words)


def _started(proc: Path) -> Iterator[tuple[Path, Sequence[bytes]]]:
    for folder in proc.glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if words[0].rpartition(b"/")[2] != PROGRAM.encode():
                continue
            env = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        values = [variable.partition(b"=")[2] for variable in env
                  if variable.startswith(PIPES.encode() + b"=")]
        path = Path(os.fsdecode(values[0])) if values and values[0] else DEFAULT_PIPES
        if not path_trouble(path):
            yield path, words


def path_trouble(pipes: Path) -> str:
    """Return why a pipe directory is unusable; "": it is not. The daemon fails silently (C.3)."""
    text = str(pipes)
    # Names that are not UTF-8 come as surrogates, which no message can hold.
    if not pipes.is_absolute() or not all(
            ord(letter) >= 32 and not 0xD800 <= ord(letter) <= 0xDFFF for letter in text):
        return f"{text[:200]!r} is not a pipe directory: name one from the root on, in UTF-8"
    if len(os.fsencode(text)) > PIPES_MAX:
        return (f"the pipe directory {text[:200]} has more than {PIPES_MAX} bytes, and no socket "
                "fits into it; choose a shorter one")
    return ""


def is_old(driver: str | None) -> bool | None:
    """Return whether a driver is older than MODERN_DRIVER, so that any local user may set defaults;
    None: not known."""
    digits = re.match(r"\d{2,4}", driver or "")
    return None if digits is None else int(digits[0]) < MODERN_DRIVER


def shown_limit(mem_mib: int | None) -> str:
    """Write a limit as MPS shows it, which is all that can be compared."""
    if mem_mib is None:
        return ""
    return f"{mem_mib}M" if mem_mib < GIB_MIB else f"{mem_mib // GIB_MIB}G"


def _one(form: re.Pattern[str], answer: str | None) -> str | None:
    matched = None if answer is None else form.fullmatch(answer)
    return None if matched is None else matched[1]


def _whole(value: int, low: int, high: int, what: str) -> int:
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{what} is a whole number from {low} to {high}, not {value!r}")
    return value


def _percent(pct: int) -> int:
    return _whole(pct, 1, 100, "a share of the threads")


def _ordinal(ordinal: int) -> int:
    return _whole(ordinal, 0, ORDINALS - 1, "the number of a device")


def _pid(pid: int) -> int:
    return _whole(pid, 2, 2**31, "a process")


def _mebibytes(mem_mib: int | None) -> int:
    return 0 if mem_mib is None else _whole(mem_mib, 1, 2**24, "a memory limit in MiB")


class MpsClientCache:
    """Cache of the clients of MPS, filled by a thread: the control program may take its time. A
    call returns the last answer, {} before the first."""

    def __init__(self, mps: LocalMpsDaemons, every_s: float = CLIENTS_EVERY_S) -> None:
        self._mps = mps
        self._every_s = every_s
        self._clients: dict[int, tuple[int, ...]] = {}
        self._asked_at: float | None = None
        self._thread: threading.Thread | None = None

    def __call__(self) -> dict[int, tuple[int, ...]]:
        is_due = self._asked_at is None or time.monotonic() - self._asked_at >= self._every_s
        if is_due and (self._thread is None or not self._thread.is_alive()):
            self._asked_at = time.monotonic()
            self._thread = threading.Thread(target=self._ask, name="mps-clients", daemon=True)
            self._thread.start()
            self._thread.join(WAIT_S)
        return self._clients

    def _ask(self) -> None:
        self._clients = self._mps.clients()
