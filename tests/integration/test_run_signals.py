"""Signals between a terminal and the command of `gpudeck run`, at a real terminal."""

import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.fakes.hub import wait_for

ROOT = Path(__file__).parents[2]
RUNS = ("import os, sys; from agent.cli.run_child import run_command; "
        "sys.exit(run_command(sys.argv[1:], os.environ, lambda _, pidfd: os.close(pidfd)).status)")
# Says each signal that it gets; ends with 7 at a second SIGTERM.
SAYS = """
import os, signal, sys
def say(number, frame):
    print(signal.Signals(number).name, flush=True)
    told.append(number)
    if told.count(signal.SIGTERM) == 2:
        os._exit(7)
told = []
for each in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1,
             signal.SIGUSR2, signal.SIGWINCH, signal.SIGCONT):
    signal.signal(each, say)
print(os.getpid(), os.isatty(0) and os.tcgetpgrp(0) == os.getpgrp(), "on", flush=True)
while True:
    signal.pause()
"""
# A shell that controls jobs: when the command has stopped, Enter brings it back.
SHELL = """
"$0" "$@"; status=$?
if [ $status -gt 128 ]; then echo shell sees it stopped; read; fg; status=$?; fi
echo ended with $status
"""
FORWARDED = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2,
             signal.SIGWINCH, signal.SIGCONT)


def test_every_signal_reaches_the_command_once() -> None:
    run = subprocess.Popen([sys.executable, "-c", RUNS, sys.executable, "-c", SAYS], cwd=ROOT,
                           text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert run.stdout is not None
    assert run.stdout.readline().endswith("on\n")
    for signum in (*FORWARDED, signal.SIGTERM):
        run.send_signal(signum)
        assert run.stdout.readline() == f"{signum.name}\n"
    run.terminate()
    assert run.communicate(timeout=30)[0] == "SIGTERM\n"
    assert run.returncode == 7


def test_the_command_does_not_inherit_what_python_ignores() -> None:
    run = subprocess.run(
        [sys.executable, "-c", RUNS, "grep", "SigIgn", "/proc/self/status"], cwd=ROOT, text=True,
        capture_output=True, check=True)
    assert int(run.stdout.split()[1], 16) & (1 << (signal.SIGPIPE - 1)) == 0


def test_it_hears_of_its_commands_end_whatever_its_own_parent_ignored() -> None:
    """Start it as a service that ignores SIGCHLD does."""
    run = subprocess.Popen(
        [sys.executable, "-c", "import os, signal, sys; "
         "signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])",
         sys.executable, "-c", RUNS, "sh", "-c", "exit 7"], cwd=ROOT)
    try:
        assert run.wait(60) == 7
    finally:
        run.kill()


class Terminal:
    """A terminal at which somebody has typed the command, in front of `shell`."""

    def __init__(self, shell: str, *command: str) -> None:
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.chdir(ROOT)
            os.execvp("bash", ["bash", "--norc", "-mc", shell,
                               sys.executable, "-c", RUNS, *command])
        self._output = b""

    def type(self, keys: bytes) -> None:
        os.write(self._fd, keys)

    def shows(self, words: str) -> Callable[[], bool]:
        def look() -> bool:
            while select.select([self._fd], [], [], 0)[0]:
                try:
                    self._output += os.read(self._fd, 4_096)
                except OSError:
                    break
            return words.encode() in self._output
        return look

    def text(self) -> str:
        self.shows("")()
        return self._output.decode()

    def close(self) -> None:
        os.close(self._fd)
        try:
            os.killpg(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass


@contextmanager
def at_a_terminal(shell: str, *command: str) -> Iterator[Terminal]:
    terminal = Terminal(shell, *command)
    try:
        yield terminal
    finally:
        terminal.close()


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_the_command_has_the_terminal_and_ctrl_c_reaches_it_once() -> None:
    with at_a_terminal('exec "$0" "$@"', sys.executable, "-c", SAYS) as terminal:
        wait_for(terminal.shows(" on"))
        assert terminal.text().split()[1] == "True"
        os.kill(terminal.pid, signal.SIGSTOP)
        wait_for(lambda: state(terminal.pid) == "T")
        terminal.type(b"\x03")
        wait_for(terminal.shows("SIGINT"))
        # Only now `run` sees that Ctrl-C, and then the signal by which it goes on.
        os.kill(terminal.pid, signal.SIGCONT)
        wait_for(terminal.shows("SIGCONT"))
        assert terminal.text().count("SIGINT") == 1


@pytest.mark.parametrize("is_typed", [True, False])
def test_stopped_it_stops_with_its_command_and_goes_on_with_it(is_typed: bool) -> None:
    """Stop a job of a shell: the shell sees that it stopped, and brings it back."""
    with at_a_terminal(SHELL, sys.executable, "-c", SAYS) as terminal:
        wait_for(terminal.shows(" on"))
        child = int(terminal.text().split()[0])
        run = int(Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[1])
        if is_typed:
            terminal.type(b"\x1a")
        else:
            os.kill(run, signal.SIGTSTP)
        wait_for(terminal.shows("shell sees it stopped"))
        wait_for(lambda: (state(run), state(child)) == ("T", "T"))
        terminal.type(b"\n")
        wait_for(terminal.shows("SIGCONT"))
        os.kill(run, signal.SIGTERM)
        wait_for(terminal.shows("SIGTERM"))
        os.kill(run, signal.SIGTERM)
        wait_for(terminal.shows("ended with 7"))


IGNORES_HANG_UP = ("import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); "
                   "os.execv(sys.argv[1], sys.argv[1:])")
SAYS_ITS_END = ("import os, sys; from agent.cli.run_child import run_command; "
                "print(run_command(sys.argv[1:], os.environ, lambda _, pidfd: os.close(pidfd)))")


def test_a_hang_up_that_nohup_ignores_is_nobodys_wish_to_end_it() -> None:
    run = subprocess.Popen(
        [sys.executable, "-c", IGNORES_HANG_UP, sys.executable, "-c", SAYS_ITS_END, "sh", "-c",
         "echo on; sleep 1; exit 7"], cwd=ROOT, text=True, stdout=subprocess.PIPE)
    assert run.stdout is not None
    assert run.stdout.readline() == "on\n"
    run.send_signal(signal.SIGHUP)
    assert run.communicate(timeout=30)[0] == (
        "CommandEnd(status=7, was_signalled=False, was_taken=False)\n")


# The agent refuses the process of a lease, and the run asks again, as often as it takes.
REFUSED = """
import os
from agent.cli.run_child import run_command
def refuse(pid, pidfd):
    raise RuntimeError
def count():
    return len(os.listdir("/proc/self/fd"))
before = count()
for _ in range(5):
    try:
        run_command(["true"], os.environ, refuse)
    except RuntimeError:
        pass
print(count() - before)
"""


def test_a_lease_that_was_not_bound_leaves_no_handle() -> None:
    run = subprocess.run([sys.executable, "-c", REFUSED], cwd=ROOT, text=True, check=True,
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert run.stdout == "0\n"
