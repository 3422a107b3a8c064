"""Environment of a leased command: flags, and what is looked up for it on this machine."""

import argparse
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import get_args

from gpudeck.cli.command_parser import parsed
from gpudeck.contract.pool_messages import Leased
from gpudeck.errors import CommandError, ExitCode
from gpudeck.pool.boards import boards_seen
from gpudeck.pool.core.claims import WHOLE_MILLI
from gpudeck.pool.environment import (
    EnvironmentChange,
    Ids,
    RendezvousAddress,
    container_words,
    counts_alike,
    environment,
    rendezvous,
)
from gpudeck.pool.frameworks import DISTRIBUTIONS, Framework, framework_keys
from gpudeck.pool.hami import NOTE, hami_library, hami_variables

ANSWERS_WITHIN_S = 30.0  # a Python on a network file system may take its time
VERSION_OF = "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))"


def add_environment_flags(flags: argparse.ArgumentParser) -> None:
    flags.add_argument("--ids", choices=get_args(Ids), default="auto",
                       help="how GPUs are named to the command")
    flags.add_argument("--framework", choices=get_args(Framework),
                       help="set this framework's environment for its share of GPU memory, where "
                            "the installed version supports it")
    flags.add_argument("--distributed", action="store_true",
                       help="set the rendezvous variables for several ranks (MASTER_ADDR, PET_*)")
    flags.add_argument("--rendezvous", metavar="HOST:PORT", type=parsed(_address),
                       help="the same, on another node of a lease over several: as the run on the "
                            "first of them prints it")


def command_environment(args: argparse.Namespace, lease: Leased, command: Sequence[str],
                        say: Callable[[str], None]) -> EnvironmentChange:
    """Return the environment's changes. Raises CommandError where a share would not be held."""
    boards = boards_seen()
    change = environment(lease, args.ids, boards)
    variables = dict(change.set)
    if lease.share_milli < WHOLE_MILLI and not lease.mps_pipes:
        if args.ids == "uuid" or lease.gpus[0].is_mig or not (
                args.ids == "index" or counts_alike(lease, boards)):
            raise CommandError("HAMi-core reads only GPU indices, and here they may mean other "
                               "GPUs: use --ids index, or start MPS", ExitCode.REFUSED)
        variables |= hami_variables(lease, hami_library(os.environ), os.environ)
        say(NOTE)
    if args.distributed or args.rendezvous is not None:
        first = lease.hosts[0] if lease.hosts else "127.0.0.1"
        variables |= rendezvous(lease, args.rendezvous or RendezvousAddress(first, _free_port()))
    if args.framework:
        variables |= _of_framework(args.framework, lease, command, {**os.environ, **variables}, say)
    if words := container_words(lease, command):
        say(f"a container inherits none of these; pass them on: {words}")
    return EnvironmentChange(variables, change.unset)


def _address(text: str) -> RendezvousAddress:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65_536:
        raise ValueError(f"{text[:80]!r}: a host and a port, such as n1:29500")
    return RendezvousAddress(host, int(port))


def _of_framework(framework: Framework, lease: Leased, command: Sequence[str],
                  env: Mapping[str, str], say: Callable[[str], None]) -> Mapping[str, str]:
    distribution = DISTRIBUTIONS[framework]
    version = installed_version(command, env, distribution)
    if version is None:
        say(f"which {distribution} the command uses is not known, so nothing is set for it")
        return {}
    keys = framework_keys(framework, version, lease, env)
    if keys.note:
        say(keys.note)
    return keys.set


def installed_version(command: Sequence[str], env: Mapping[str, str], distribution: str
                      ) -> str | None:
    """Return the version that the command's Python reports. None: no Python is seen to run the
    command, or it lacks the distribution."""
    python = _python_of(command, env)
    if python is None:
        return None
    try:
        reply = subprocess.run([python, "-c", VERSION_OF, distribution], env=dict(env), text=True,
                               capture_output=True, timeout=ANSWERS_WITHIN_S, check=False)
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    return reply.stdout.strip() or None if reply.returncode == 0 else None


def _python_of(command: Sequence[str], env: Mapping[str, str]) -> str | None:
    """Return the Python: the command itself, or what the first line of the script names."""
    path = shutil.which(command[0], path=env.get("PATH")) if command else None
    if path is None or _is_python(path):
        return path
    try:
        with open(path, "rb") as file:
            first = file.readline(512).decode(errors="replace")
    except OSError:
        return None
    words = first.removeprefix("#!").split() if first.startswith("#!") else []
    if words and os.path.basename(words[0]) == "env":
        words = words[1:]
    return shutil.which(words[0], path=env.get("PATH")) if words and _is_python(words[0]) else None


def _is_python(path: str) -> bool:
    return os.path.basename(path).startswith(("python", "pypy"))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
