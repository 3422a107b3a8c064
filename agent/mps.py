"""Takes a client out of MPS. The only nvidia-cuda-mps-control.

A signal to a client that is at work is undefined for all clients of its server; after
`terminate_client` it is safe (nvml-mps.md C.6). The program's exit status is 0 even when it
refuses, and nothing marks which answer belongs to which line: one command per call, typed
arguments only, and only the exact words of success count (C.3).
"""

import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

PROGRAM = "nvidia-cuda-mps-control"
CALL_S = 5.0
CLIENTS_EVERY_S = 10.0
WAIT_S = 0.1  # a call takes 4 ms (C.3)
_PIDS = re.compile(r"(?:\d{1,10}\n)*")


class Mps:
    def __init__(self, program: str = PROGRAM, pipes: Path | None = None) -> None:
        self._program = program
        self._pipes = pipes

    def trouble(self) -> str:
        """Why clients cannot be taken out of MPS here; "": they can."""
        if shutil.which(self._program) is None:
            return (f"it is a client of MPS, and {self._program} is not installed where the agent "
                    "runs: without it, ending a client can take all others with it. Install it, "
                    "or end the task from inside.")
        if self._call("get_server_list") is None:
            return ("it is a client of MPS, and the MPS control daemon does not answer; set "
                    "CUDA_MPS_PIPE_DIRECTORY for the agent to the daemon's, or end the task from "
                    "inside.")
        return ""

    def clients(self) -> dict[int, tuple[int, ...]]:
        """Pids by their server; {}: it does not say."""
        servers = self._pids("get_server_list") or ()
        return {server: tuple(self._pids(f"get_client_list {server}") or ()) for server in servers}

    def terminate(self, pid: int) -> str:
        """"": the server has let go of this client, and a signal hits nobody else."""
        servers = self._pids("get_server_list")
        if servers is None:
            return "the MPS control daemon does not answer"
        for server in servers:
            if pid in (self._pids(f"get_client_list {server}") or ()):
                answer = self._call(f"terminate_client {server} {pid}")
                if answer is not None and answer.strip() == "0":
                    return ""
                return f"MPS server {server} did not let go of client {pid}: {answer!r}"
        return f"no MPS server lists process {pid} as its client"

    def _pids(self, command: str) -> list[int] | None:
        answer = self._call(command)
        if answer is None or not _PIDS.fullmatch(answer):
            return None
        return [int(line) for line in answer.split()]

    def _call(self, command: str) -> str | None:
        env = dict(os.environ)
        if self._pipes is not None:
            env["CUDA_MPS_PIPE_DIRECTORY"] = str(self._pipes)
        try:
            done = subprocess.run([self._program], input=command + "\n", capture_output=True,
                                  text=True, timeout=CALL_S, env=env, check=False)
        except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
            return None
        return done.stdout if done.returncode == 0 else None


class Clients:
    """Of MPS, asked in a thread of its own: the control program may take its time. What is
    returned is the last answer, {} before the first."""

    def __init__(
        self, mps: Mps, every_s: float = CLIENTS_EVERY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._mps = mps
        self._every_s = every_s
        self._clock = clock
        self._found: dict[int, tuple[int, ...]] = {}
        self._asked_at: float | None = None
        self._thread: threading.Thread | None = None

    def __call__(self) -> dict[int, tuple[int, ...]]:
        is_due = self._asked_at is None or self._clock() - self._asked_at >= self._every_s
        if is_due and (self._thread is None or not self._thread.is_alive()):
            self._asked_at = self._clock()
            self._thread = threading.Thread(target=self._ask, name="mps-clients", daemon=True)
            self._thread.start()
            self._thread.join(WAIT_S)
        return self._found

    def _ask(self) -> None:
        self._found = self._mps.clients()
