"""The other ranks of a `gpudeck run` over several nodes: their GPUs are leased already, and their
commands are started there, by the user or by the user's own ssh."""

import argparse
import os
import shlex
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from gpudeck.pool.messages import Leased

Rank = subprocess.Popen[bytes]
# What a rank needs to be told again, if the first one was.
WORDS = {"--ids": "ids", "--framework": "framework"}


@contextmanager
def other_ranks(asked: argparse.Namespace, lease: Leased, command: Sequence[str],
                env: Mapping[str, str], say: Callable[[str], None]) -> Iterator[list[Rank]]:
    """While the first one runs. Those that are still there afterwards are ended: with SIGHUP, from
    the terminal that ssh gives them."""
    if asked.lease is not None or len(lease.hosts) < 2:
        yield []
        return
    line = rank_line(asked, lease, command, env)
    others = [host for host in lease.hosts if host != lease.host]
    if not asked.ssh:
        for host in others:
            say(f"its GPUs on {host} are leased; start its rank there: "
                f"ssh {shlex.join([host, line])}")
        yield []
        return
    say(f"starting its ranks on {', '.join(others)}")
    running: list[Rank] = []
    try:
        for host in others:
            running.append(subprocess.Popen(["ssh", "-tt", host, line], stdin=subprocess.DEVNULL))
        yield running
    finally:
        for each in running:
            each.terminate()


def status_of(ranks: Sequence[Rank]) -> int:
    """When the first one has ended well: theirs, the worst of those that are not there yet."""
    return max((each.wait() for each in ranks), default=0)


def rank_line(asked: argparse.Namespace, lease: Leased, command: Sequence[str],
              env: Mapping[str, str]) -> str:
    words = ["gpudeck", "run", "--lease", lease.lease_id]
    for flag, name in WORDS.items():
        if (value := getattr(asked, name)) not in (None, "auto"):
            words += [flag, value]
    if "MASTER_PORT" in env:
        words += ["--rendezvous", f"{env['MASTER_ADDR']}:{env['MASTER_PORT']}"]
    return f"cd {shlex.quote(os.getcwd())} && {shlex.join([*words, '--', *command])}"
