"""Processes of programs that are imported already. A hub takes over a second to import what it
needs, and the tests start a few hundred. So a server per worker imports it once and forks a process
per start: a real one, with its own sockets, files and exit.

`constants` are times of the product by which one process under test hurries. They are set in that
process alone, by their full name: the product has no switch for it that somebody could find.
"""

import atexit
import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO, Any, NoReturn

ROOT = Path(__file__).resolve().parents[1]
LOOK_EVERY_S = 0.01


class ForkServer:
    """Client side, in the process of the tests."""

    def __init__(self, program: str, *imports: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.forks", program, *imports], cwd=ROOT, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._lock = threading.Lock()

    def ask(self, **request: Any) -> Any:
        with self._lock:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._process.wait(10)


class ForkedProcess:
    """Part of Popen that the tests use."""

    def __init__(self, server: ForkServer, arguments: Sequence[str], log: Path,
                 constants: Mapping[str, object], env: Mapping[str, str] | None = None,
                 user: int | None = None) -> None:
        self._server = server
        self.returncode: int | None = None
        self.pid: int = server.ask(arguments=[*arguments], log=str(log),
                                   env={**(os.environ if env is None else env)},
                                   constants={**constants}, user=user)

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._server.ask(ended=self.pid)
        return self.returncode

    def wait(self, timeout_s: float = 60.0) -> int:
        deadline = time.monotonic() + timeout_s
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout_s)
            time.sleep(LOOK_EVERY_S)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:  # else the pid may be another's by now
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@cache
def hubs() -> ForkServer:
    """Fork server for the hubs of this worker."""
    server = ForkServer("dashboard.__main__", "dashboard.cli.hub", "dashboard.app",
                        "dashboard.alerts.active_rules:shipped_rules",
                        # by Dash and Socket.IO in each hub that starts
                        "dash.backends._flask", "plotly.offline", "engineio.async_drivers.gevent")
    atexit.register(server.close)
    return server


@cache
def commands() -> ForkServer:
    """Fork server for `gpudeck run`, `claim` and `agent` of this worker. What they import late is
    named here too: another user may not be able to read it."""
    server = ForkServer("gpudeck.cli.main", "gpudeck.agent.cli.run", "gpudeck.agent.cli.pool",
                        "gpudeck.agent.cli.main", "importlib.metadata:entry_points")
    atexit.register(server.close)
    return server


def serve(program: str, answers: IO[str]) -> None:
    main = import_module(program).main
    gc.collect()
    gc.freeze()  # else each process that starts would look through all of it, and copy its pages
    answers_fd = answers.fileno()
    for line in sys.stdin:
        request = json.loads(line)
        if "ended" in request:
            pid, status = os.waitpid(request["ended"], os.WNOHANG)
            reply = os.waitstatus_to_exitcode(status) if pid else None
        else:
            _check_alone()
            reply = os.fork() or _run(main, request, answers_fd)
        answers.write(json.dumps(reply) + "\n")
        answers.flush()


def _check_alone() -> None:
    """Refuse what a fork must not copy: an event loop or a running thread."""
    from gevent._hub_local import get_hub_if_exists

    assert get_hub_if_exists() is None, "an import started gevent's loop"
    assert threading.active_count() == 1, "an import started a thread"


def _run(main: Any, request: dict[str, Any], answers_fd: int) -> NoReturn:
    code: int = 1
    try:
        _settle(request, answers_fd)
        code = main(request["arguments"])
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        # As sys.exit() would, without what the server itself has to do at its end.
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _settle(request: dict[str, Any], answers_fd: int) -> None:
    os.close(answers_fd)
    nothing = os.open(os.devnull, os.O_RDONLY)
    log = os.open(request["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.close(nothing)
    os.close(log)
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv[1:] = request["arguments"]
    if request["user"] is not None:
        os.setgroups([])
        os.setgid(request["user"])
        os.setuid(request["user"])
    for name, value in request["constants"].items():
        _set(name, value)


def _set(name: str, value: object) -> None:
    """Set a constant, also in modules that imported it by name."""
    home, _, constant = name.rpartition(".")
    before = getattr(import_module(home), constant)
    for module in [*sys.modules.values()]:
        if getattr(module, "__dict__", {}).get(constant) is before:
            setattr(module, constant, value)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the tests' own; they close us then
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for entry in sys.argv[2:]:
        module, _, prepare = entry.partition(":")
        target = import_module(module)
        if prepare:  # what it then keeps is there in each fork
            getattr(target, prepare)()
    serve(sys.argv[1], answers)
