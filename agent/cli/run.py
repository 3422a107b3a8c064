"""`gpudeck run -- COMMAND`: waits for GPUs, runs the command on them, gives them back.

The command is forked before it is named to the agent and waits on a pipe until the lease is bound
to it: nothing ever runs without its lease. `run` stays its parent, for signals and exit status.
"""

import contextlib
import ctypes
import os
import shlex
import signal
import sys
import threading
from collections.abc import Mapping, Sequence

from gpudeck.errors import CommandError, ExitCode
from gpudeck.pool.boards import boards_seen
from gpudeck.pool.connection import PoolConnection, wait_for
from gpudeck.pool.environment import environment
from gpudeck.pool.messages import (
    Bind,
    Bound,
    ClaimRefused,
    ClaimWaits,
    GiveBack,
    Leased,
    LeaseEnded,
    LeaseNotice,
)
from gpudeck.settings import parser

from .pool_request import add_claim_flags, claim_of, split_command

NOT_FOUND, NOT_EXECUTABLE = 127, 126  # as shells have them
PR_SET_CHILD_SUBREAPER = 36
SI_KERNEL = 0x80
# The terminal sends these to the command itself: it is of the same process group.
OF_TERMINAL = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP)
FORWARDED = (*OF_TERMINAL, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2,
             signal.SIGWINCH, signal.SIGCONT)


def run(argv: Sequence[str]) -> int:
    words, command = split_command(argv)
    made = parser("run", (), "Run a command on GPUs of this node, when it is its turn.")
    made.usage = "gpudeck run [options] -- COMMAND ..."
    add_claim_flags(made)
    made.add_argument("--ids", choices=("auto", "uuid", "index"), default="auto",
                      help="how the command is told its GPUs")
    made.add_argument("--print-env", action="store_true",
                      help="print what the command would find in its environment, and end")
    asked = made.parse_args(words)
    if not command and not asked.print_env:
        raise CommandError("name the command after --, as in: gpudeck run --gpus 2 -- "
                           "python train.py", ExitCode.USAGE)
    pool = PoolConnection(os.environ)
    lease = wait_for(pool, claim_of(asked, is_run=True, shape=shape_of(command)), say_place)
    change = environment(lease, asked.ids, boards_seen())
    if asked.print_env:
        print("\n".join(f"export {name}={shlex.quote(value)}"
                        for name, value in change.set.items()))
        pool.send(GiveBack(lease.lease_id))
        return ExitCode.OK
    env = {**os.environ, **change.set}
    for name in change.unset:
        env.pop(name, None)
    return _supervise(pool, lease, command, env)


def say_place(waits: ClaimWaits) -> None:
    likely = "" if waits.estimate is None else f"; {waits.estimate.words}"
    most = "" if waits.wait_s is None else (
        f"; {waits.wait_s / 60:.0f} min at most, if all that runs keeps to its time")
    say(f"number {waits.place} in the queue: {waits.why}{likely}{most}")


def say(sentence: str) -> None:
    print(f"gpudeck: {sentence}", file=sys.stderr, flush=True)


def shape_of(command: Sequence[str]) -> str:
    """The program and the script: what runs of one kind have in common."""
    scripts = [word for word in command[1:] if word.endswith((".py", ".sh"))]
    return " ".join([os.path.basename(command[0]), *map(os.path.basename, scripts[:1])]) if (
        command) else ""


def _supervise(pool: PoolConnection, lease: Leased, command: Sequence[str],
               env: Mapping[str, str]) -> int:
    # Double forks come back to us: their lease ends with them, not before.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    watched = {signal.SIGCHLD, *FORWARDED}
    signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    child = _start(pool, lease, command, env, watched)
    threading.Thread(target=_listen, args=(pool,), daemon=True).start()
    status = _wait(child, watched)
    with contextlib.suppress(CommandError):
        pool.send(GiveBack(lease.lease_id, status))
    return status


def _start(pool: PoolConnection, lease: Leased, command: Sequence[str], env: Mapping[str, str],
           blocked: set[signal.Signals]) -> int:
    go_reads, go = os.pipe()
    failed, fails = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(go)
        if os.read(go_reads, 1) != b"g":
            os._exit(NOT_EXECUTABLE)  # the lease is not ours: nothing runs
        signal.pthread_sigmask(signal.SIG_UNBLOCK, blocked)
        try:
            os.execvpe(command[0], list(command), dict(env))
        except OSError as error:
            os.write(fails, str(error.errno).encode())
            os._exit(NOT_FOUND)
    os.close(go_reads)
    os.close(fails)
    pidfd = os.pidfd_open(child)
    try:
        pool.send(Bind(lease.lease_id), pidfd)
        answer = pool.receive()
        if not isinstance(answer, Bound):
            raise CommandError(answer.why if isinstance(answer, ClaimRefused | LeaseEnded)
                               else "the agent did not take the command", ExitCode.REFUSED)
        os.write(go, b"g")
    finally:
        os.close(go)
        os.close(pidfd)
    why = os.read(failed, 16)
    os.close(failed)
    if why:
        os.waitpid(child, 0)
        pool.send(GiveBack(lease.lease_id, NOT_FOUND))
        raise CommandError(f"cannot run {command[0]!r}: {os.strerror(int(why))}", ExitCode.USAGE)
    return child


def _wait(child: int, watched: set[signal.Signals]) -> int:
    """Forwards signals until the command has ended; its status, 128 + N if signal N ended it."""
    while True:
        caught = signal.sigwaitinfo(watched)
        if caught.si_signo == signal.SIGCHLD:
            if (status := _reap(child)) is not None:
                return status
            continue
        from_terminal = caught.si_code == SI_KERNEL and caught.si_signo in OF_TERMINAL
        if not from_terminal:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, caught.si_signo)
        if caught.si_signo == signal.SIGTSTP:
            os.kill(os.getpid(), signal.SIGSTOP)


def _reap(child: int) -> int | None:
    """The child cannot be another process: nobody else reaps it."""
    ended = None
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            if found[0] == child:
                code = os.waitstatus_to_exitcode(found[1])
                ended = code if code >= 0 else 128 - code
    return ended


def _listen(pool: PoolConnection) -> None:
    """Losing the agent ends nothing: the lease stays while the command runs."""
    with contextlib.suppress(CommandError):
        while True:
            match pool.receive():
                case LeaseNotice(text):
                    say(text)
                case LeaseEnded(why):
                    say(f"the lease has ended: {why}")
                    return
