"""The agent as this kernel's child: one for all widgets and measurements of a kind. A thread of our
own reads its pipe, so that a running cell holds up nothing."""

import atexit
import itertools
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from gpudeck.contract import notebook_pipe as pipe
from gpudeck.contract.action_table import TaskAction
from gpudeck.system.child_processes import without_tokens

PIPE_BYTES = 65_536
BACK_OFF_S = (1.0, 30.0)
LAST_WORDS = 20
USAGE = 2  # exit code: it would fail the same way again
END_WITHIN_S = 3.0
KERNEL_ENDS_WITHIN_S = 5.0  # Jupyter's limit

Listener = Callable[[pipe.FromAgent], None]


class AgentSource:
    """Connection to the agent. Listeners get all its messages, on a thread that is not the
    caller's."""

    def __init__(self, options: str | None = None) -> None:
        """Start the agent. `options`: of a simulation; None: this machine."""
        self._options = options
        self._listeners: list[Listener] = []
        self._marks: dict[int, Callable[[pipe.PipeMarkReply | None], None]] = {}
        self._numbers = itertools.count(1)
        self._writing = threading.Lock()
        self._words: deque[str] = deque(maxlen=LAST_WORDS)
        self._child: subprocess.Popen[bytes] | None = None
        self._closing = threading.Event()
        self.snapshot: pipe.PipeSnapshot | None = None  # the newest
        self.tasks: tuple[dict[str, Any], ...] | None = None  # as last listed
        threading.Thread(target=self._run, name="gpudeck-source", daemon=True).start()

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.pid

    def add_listener(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def remove_listener(self, listener: Listener) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)

    def mark(self, then: Callable[[pipe.PipeMarkReply | None], None]) -> None:
        """Request a reading at once. `then` gets None where no agent runs."""
        number = next(self._numbers)
        self._marks[number] = then
        if not self._send(pipe.PipeMarkRequest(number)):
            self._answer_mark(number, None)

    def preview(self, ask_id: str, action: TaskAction, task_id: str) -> None:
        self._request(pipe.PipePreviewRequest(ask_id, action, task_id))

    def order(self, ask_id: str, reason: str) -> None:
        self._request(pipe.PipeOrderRequest(ask_id, reason))

    def close(self) -> None:
        """End the agent, by closing its stdin."""
        self._closing.set()
        child = self._child
        if child is None:
            return
        assert child.stdin is not None
        with self._writing:
            child.stdin.close()
        try:
            child.wait(END_WITHIN_S)
        except subprocess.TimeoutExpired:
            child.kill()

    def forget(self) -> None:
        """Close the pipes in a fork of the kernel: the agent is not the fork's, which would keep
        its stdin open."""
        self._closing.set()
        if self._child is not None:
            for end in (self._child.stdin, self._child.stdout, self._child.stderr):
                assert end is not None
                if not end.closed:
                    os.close(end.fileno())

    # -- the thread that reads

    def _run(self) -> None:
        wait_s, most_s = BACK_OFF_S
        while not self._closing.is_set():
            began = time.monotonic()
            self._child = self._start()
            self._read(self._child)
            code = self._child.wait()
            self._close_pipes(self._child)
            for number in tuple(self._marks):
                self._answer_mark(number, None)
            wait_s = BACK_OFF_S[0] if time.monotonic() - began > most_s else min(2 * wait_s, most_s)
            # A kernel that is shut down ends its children first: a child that dies without a
            # message is no news before the kernel has had its time to end too.
            quiet_s = 0.0 if code == USAGE else max(wait_s, KERNEL_ENDS_WITHIN_S * (code <= 0))
            if self._closing.wait(quiet_s):
                return
            self._receive(pipe.PipeSnapshot(time.time(), "failed", self._why(code), ""))
            if code == USAGE:
                return

    def _close_pipes(self, child: "subprocess.Popen[bytes]") -> None:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.close()
        with self._writing:
            child.stdin.close()

    def _start(self) -> "subprocess.Popen[bytes]":
        backend = [] if self._options is None else [
            "--backend", "simulated", "--simulate", self._options]
        # -P: files in the notebook's folder shadow no module. In the kernel's own process group,
        # which a Jupyter server ends as a whole.
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "gpudeck.cli.main", "agent", "--pipe", *backend],
            env=without_tokens(os.environ),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
        threading.Thread(target=self._collect_stderr, args=(child,), daemon=True).start()
        return child

    def _collect_stderr(self, child: "subprocess.Popen[bytes]") -> None:
        """Collect stderr, which belongs in no cell; its last lines say why the agent ended."""
        assert child.stderr is not None
        with child.stderr:
            for line in child.stderr:
                self._words.append(line.decode(errors="replace").rstrip())

    def _read(self, child: "subprocess.Popen[bytes]") -> None:
        assert child.stdout is not None
        pieces = pipe.PipeDecoder()
        try:
            while data := os.read(child.stdout.fileno(), PIPE_BYTES):
                for message in pieces.from_agent(data):
                    self._receive(message)
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            self._words.append(f"its pipe broke: {error}")
            child.kill()

    def _receive(self, message: pipe.FromAgent) -> None:
        if isinstance(message, pipe.PipeSnapshot):
            self.snapshot = message
            if message.tasks is not None:
                self.tasks = message.tasks
        elif isinstance(message, pipe.PipeMarkReply):
            self._answer_mark(message.mark_id, message)
        for listener in tuple(self._listeners):
            try:
                listener(message)
            except Exception as error:  # one widget's trouble is not the others'
                self._words.append(f"a listener stumbled: {error!r}")

    def _answer_mark(self, number: int, reply: pipe.PipeMarkReply | None) -> None:
        then = self._marks.pop(number, None)
        if then is not None:
            then(reply)

    def _why(self, code: int) -> str:
        lines = [line for line in self._words if line.startswith("gpudeck: ")]
        return (lines[-1].removeprefix("gpudeck: ") if lines else
                f"the agent that watches for this notebook ended ({code}); it is started again")

    # -- requests

    def _request(self, message: pipe.PipePreviewRequest | pipe.PipeOrderRequest) -> None:
        if not self._send(message):
            self._receive(pipe.PipeFailure(
                message.ask_id, "the agent that watches for this notebook is not there just now; "
                                "try again"))

    def _send(self, message: pipe.FromNotebook) -> bool:
        child = self._child
        if child is None or self._closing.is_set():
            return False
        assert child.stdin is not None
        try:
            with self._writing:
                child.stdin.write(pipe.packed(message))
        except (OSError, ValueError):
            return False
        return True


_sources: dict[str | None, AgentSource] = {}
_opening = threading.Lock()


def source_of(options: str | None) -> AgentSource:
    """Return the source that all share."""
    with _opening:
        if options not in _sources or _sources[options]._closing.is_set():
            _sources[options] = AgentSource(options)
        return _sources[options]


def close_all() -> None:
    while _sources:
        _sources.popitem()[1].close()


def _in_a_fork() -> None:
    for source in _sources.values():
        source.forget()
    _sources.clear()


atexit.register(close_all)
os.register_at_fork(after_in_child=_in_a_fork)
