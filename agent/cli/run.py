"""`gpudeck run -- COMMAND`: waits for GPUs, runs the command on them, gives them back.

The command is forked before it is named to the agent and waits on a pipe until the lease is bound
to it: nothing ever runs without its lease. `run` stays its parent, for signals and exit status.
"""

import argparse
import contextlib
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from functools import partial

from gpudeck.contract.pool_messages import NODES_MOST, ClaimWaits, GiveBack, Leased
from gpudeck.errors import CommandError, ExitCode
from gpudeck.language.times import minute_words
from gpudeck.pool.connection import (
    ClaimWaitsError,
    PoolConnection,
    reconnect,
    use_lease,
    wait_for,
)
from gpudeck.pool.environment import EnvironmentChange
from gpudeck.pool.hami import CACHE
from gpudeck.settings import parser

from .pool_request import (
    add_claim_flags,
    add_detach_flags,
    add_lease_flag,
    check_detached_flags,
    check_lease_flag,
    claim_of,
    number,
    split_command,
)
from .run_child import check_command, run_command
from .run_environment import add_environment_flags, command_environment
from .run_lease import RunLease
from .run_ranks import Rank, other_ranks, status_of

TAKEN = "preempted"
SSH_FAILED = 255  # ssh itself says so: the connection, or the node behind it, was lost


def run(argv: Sequence[str]) -> int:
    words, command = split_command(argv)
    args = read_options(words)
    if not command and not args.print_env:
        raise CommandError("name the command after --, as in: gpudeck run --gpus 2 -- "
                           "python train.py", ExitCode.USAGE)
    check_lease_flag(args)
    if args.lease is not None and args.requeue:
        raise CommandError("--requeue requests the same GPUs again, and --lease requests none; "
                           "use one of them",
                           ExitCode.USAGE)
    if args.nodes is not None and args.share is not None:
        raise CommandError("--share is a share of one GPU; leave --nodes out", ExitCode.USAGE)
    if command and not args.ssh:  # another node may have what is not here
        check_command(command, os.environ)
    if args.detach:
        from .runs.start import detach  # a command at a terminal needs none of it

        return detach(args, words, command)
    check_detached_flags(args)
    return QueuedCommand(args, command, line_of(words, command)).run()


def read_options(words: Sequence[str]) -> argparse.Namespace:
    return _parser().parse_args(list(words))


def _parser() -> argparse.ArgumentParser:
    flags = parser("run", (), "Run a command on GPUs of this node as soon as they are free.")
    flags.usage = "gpudeck run [options] -- COMMAND ..."
    add_claim_flags(flags)
    add_lease_flag(flags, "run on this unused lease of yours, such as a reservation that "
                          "has begun; it ends with the command")
    add_environment_flags(flags)
    flags.add_argument("--nodes", metavar="N", type=number(1, NODES_MOST),
                       help="so many GPUs on each of N nodes, all at once or none: the command "
                            "runs here as the first rank, and the lines for the others are "
                            "printed; off until an admin sets several_nodes in the hub's policy")
    flags.add_argument("--ssh", action="store_true",
                       help="if another node has free GPUs, run it there over your own ssh; with "
                            "--nodes: run the other ranks so")
    flags.add_argument("--requeue", action="store_true",
                       help="run the command again if a claim of higher priority takes "
                            "its GPUs, or the node that --ssh chose is lost")
    add_detach_flags(flags)
    flags.add_argument("--print-env", action="store_true",
                       help="print the environment of the command and exit")
    return flags


class _FreeElsewhereError(Exception):
    """GPUs are free on the node of this name."""


class QueuedCommand:
    def __init__(self, args: argparse.Namespace, command: Sequence[str], line: str) -> None:
        self._args = args
        self._command = command
        self._line = line
        self._lost_nodes: set[str] = set()  # nodes that ssh did not reach
        self._is_requeued = False
        self._again_of: str | None = None  # the lease of it that was taken

    def run(self) -> int:
        while True:
            self._is_requeued = False
            try:
                status = self._attempt()
            except _FreeElsewhereError as error:
                status = self._run_remotely(str(error))
            if not self._is_requeued:
                return status
            say("the command is queued again")

    def _attempt(self) -> int:
        """Wait for GPUs and run the command. An agent that restarts has forgotten who waits: as
        long as the command has not begun, the same is requested again."""
        request_lease = self._lease_request()
        pool = PoolConnection(os.environ)
        while True:
            try:
                return self._run_leased(pool, request_lease(pool))
            except ClaimWaitsError as error:
                say(f"{error}; it waits again, in its place")
                continue
            except BaseException as error:
                pool.close()
                if not isinstance(error, CommandError) or error.code != ExitCode.UNREACHABLE:
                    raise
            say("lost the agent; the command is queued again when the agent is back")
            pool = reconnect(os.environ)

    def _lease_request(self) -> Callable[[PoolConnection], Leased]:
        """Return a function that requests the same lease however often it is called."""
        if self._args.lease is not None:
            return partial(use_lease, lease_id=self._args.lease, is_run=True)
        claim = claim_of(self._args, is_run=True, shape=shape_of(self._command),
                         again_of=self._again_of)
        return partial(wait_for, claim=claim, tell=self._report_wait)

    def _run_leased(self, pool: PoolConnection, lease: Leased) -> int:
        change = command_environment(self._args, lease, self._command, say)
        if not self._args.print_env:
            with other_ranks(self._args, lease, self._command, change.set, say) as ranks:
                return self._run_command(pool, lease, change, ranks)
        print(change.shell())
        if self._args.lease is None:  # a lease held before is not given back for printing
            with contextlib.suppress(CommandError):
                pool.send(GiveBack(lease.lease_id))
        return ExitCode.OK

    def _run_command(self, pool: PoolConnection, lease: Leased, change: EnvironmentChange,
                     ranks: Sequence[Rank]) -> int:
        run_lease = RunLease(pool, lease, say)
        try:
            end = run_command(self._command, change.applied(os.environ), run_lease.bind,
                              run_lease.ending)
        except ClaimWaitsError:
            raise
        except CommandError as why:
            run_lease.give_back(why.code)
            raise
        finally:
            if CACHE in change.set:
                with contextlib.suppress(OSError):
                    os.unlink(change.set[CACHE])
        status = end.status or status_of(ranks)  # their lease ends with this one
        lease_end = run_lease.give_back(end.status)
        was_taken = end.was_taken or (lease_end is not None and lease_end.state == TAKEN)
        if self._args.requeue and was_taken and not end.was_signalled:
            self._is_requeued, self._again_of = True, lease.lease_id
        return status

    def _report_wait(self, waits: ClaimWaits) -> None:
        if self._args.wait_s == 0.0:
            say(f"not available now: {waits.why}")
        else:
            say_place(waits)
        for host in waits.elsewhere:
            if host not in self._lost_nodes:
                if self._args.ssh:
                    raise _FreeElsewhereError(host)
                say(f"GPUs are free on {host}: ssh {shlex.join([host, self._line])}")

    def _run_remotely(self, host: str) -> int:
        say(f"GPUs are free on {host}; running there")
        terminal = ["-t"] if sys.stdin.isatty() else []
        end = run_command(["ssh", *terminal, host, self._line], os.environ,
                          lambda _, pidfd: os.close(pidfd))
        if end.status == SSH_FAILED and self._args.requeue and not end.was_signalled:
            self._lost_nodes.add(host)
            self._is_requeued = True
        return end.status


def line_of(words: Sequence[str], command: Sequence[str]) -> str:
    """Return the line that a shell on another node with the same files runs."""
    there = shlex.join(["gpudeck", "run", *(word for word in words if word != "--ssh"), "--",
                        *command])
    return f"cd {shlex.quote(os.getcwd())} && {there}"


def say_place(waits: ClaimWaits) -> None:
    if waits.estimate is not None:
        long = f"; {waits.estimate.words}"
    else:
        long = "" if waits.wait_s is not None or waits.place > 1 else "; how long is not known"
    most = "" if waits.wait_s is None else (
        f"; {minute_words(waits.wait_s)} at most, if running commands end on time")
    say(f"number {waits.place} in the queue: {waits.why}{long}{most}")


def say(sentence: str) -> None:
    """Print on stderr. That may be a terminal that was closed, or a file on a full disk: the
    command and its lease do not depend on that."""
    with contextlib.suppress(OSError):
        print(f"gpudeck: {sentence}", file=sys.stderr, flush=True)


def shape_of(command: Sequence[str]) -> str:
    """Return the program and the script: what runs of one kind have in common."""
    scripts = [word for word in command[1:] if word.endswith((".py", ".sh"))]
    return " ".join([os.path.basename(command[0]), *map(os.path.basename, scripts[:1])]) if (
        command) else ""
