"""The other ranks of a `gpudeck run` over several nodes: their GPUs are leased already, and their
commands are started there, by the user or by the user's own ssh."""

import argparse
import os
import shlex
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from gpudeck.contract.pool_messages import Leased

Rank = subprocess.Popen[bytes]
# Flags that a rank needs too, if the first one had them.
WORDS = {"--ids": "ids", "--framework": "framework"}


@contextmanager
def other_ranks(args: argparse.Namespace, lease: Leased, command: Sequence[str],
                env: Mapping[str, str], say: Callable[[str], None]) -> Iterator[list[Rank]]:
    """Run the other ranks while the first one runs. Those that still run afterwards are ended: with
    SIGHUP, from the terminal that ssh gives them."""
    if args.lease is not None or len(lease.hosts) < 2:
        yield []
        return
    line = rank_line(args, lease, command, env)
    other_hosts = [host for host in lease.hosts if host != lease.host]
    if not args.ssh:
        for host in other_hosts:
            say(f"its GPUs on {host} are leased; start its rank there: "
                f"ssh {shlex.join([host, line])}")
        yield []
        return
    say(f"starting its ranks on {', '.join(other_hosts)}")
    running: list[Rank] = []
    try:
        for host in other_hosts:
            running.append(subprocess.Popen(["ssh", "-tt", host, line], stdin=subprocess.DEVNULL))
        yield running
    finally:
        for rank in running:
            rank.terminate()


def status_of(ranks: Sequence[Rank]) -> int:
    """Return the worst status of the other ranks, for when the first one has ended well; wait for
    those that still run."""
    return max((rank.wait() for rank in ranks), default=0)


def rank_line(args: argparse.Namespace, lease: Leased, command: Sequence[str],
              env: Mapping[str, str]) -> str:
    words = ["gpudeck", "run", "--lease", lease.lease_id]
    for flag, name in WORDS.items():
        if (value := getattr(args, name)) not in (None, "auto"):
            words += [flag, value]
    if "MASTER_PORT" in env:
        words += ["--rendezvous", f"{env['MASTER_ADDR']}:{env['MASTER_PORT']}"]
    return f"cd {shlex.quote(os.getcwd())} && {shlex.join([*words, '--', *command])}"
