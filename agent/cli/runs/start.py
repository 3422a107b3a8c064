"""`gpudeck run --detach`: writes down what is to run and starts its supervisor, in a scope of the
user's own systemd if that outlasts a log-out."""

import argparse
import getpass
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from gpudeck.errors import CommandError, ExitCode
from gpudeck.pool.connection import PoolConnection
from gpudeck.system.child_processes import importable

from ...settings import this_host
from .folder import FOLDER_ENV, INDEX_ENV, RUN_ENV, RunFolder, RunFolders, private
from .mail import sendmail
from .request import RunName, RunRequest, parts_of

STARTS_WITHIN_S = 20.0
ANSWERS_WITHIN_S = 5.0
SYSTEMD = Path("/run/systemd/system")
LINGERS = Path("/var/lib/systemd/linger")
LOG_IND = ("org.freedesktop.login1", "/org/freedesktop/login1",
           "org.freedesktop.login1.Manager", "KillUserProcesses")
GOES_ON = "it continues when you log out"


class LogOut(NamedTuple):
    """Effect of a log-out on what is left running. `is_scoped`: it goes on only in a scope of the
    user's own systemd, which lingers."""

    words: str
    is_scoped: bool = False


def detach(args: argparse.Namespace, words: Sequence[str], command: Sequence[str]) -> int:
    _check(args)
    PoolConnection(os.environ).close()  # fails now if no agent answers
    runs = RunFolders(os.environ)
    for name in args.after:
        _, before = runs.find(name.number)
        parts_of(before, name.part)
    array = args.array
    folder, request = runs.make(RunRequest(
        0, this_host(), time.time(), os.getcwd(), tuple(words), tuple(command),
        () if array is None else array.indices, None if array is None else array.at_once,
        tuple(map(_name, args.after)), args.mail))
    print(f"run {request.number} is queued; {start(folder, os.environ)}\n"
          f"  output: gpudeck runs logs -f {request.name((request.indices or (None,))[0])}\n"
          f"  how it stands: gpudeck runs; end it: gpudeck runs cancel {request.number}")
    return ExitCode.OK


def _name(name: RunName) -> str:
    return str(name.number) if name.part is None else f"{name.number}.{name.part}"


def _check(args: argparse.Namespace) -> None:
    """Raise CommandError if a flag cannot go with --detach."""
    for flag, value in (("--print-env", args.print_env), ("--ssh", args.ssh),
                        ("--nodes", args.nodes)):
        if value:
            raise CommandError(f"{flag} needs a terminal; leave --detach out", ExitCode.USAGE)
    if args.array is not None and args.lease is not None:
        raise CommandError("a lease is used once; leave --array out", ExitCode.USAGE)
    if args.mail and ("@" not in args.mail or not args.mail.isprintable()
                      or " " in args.mail):
        raise CommandError(f"--mail {args.mail[:80]!r}: an address, such as ann@example.org",
                           ExitCode.USAGE)
    if args.mail and sendmail() is None:
        raise CommandError("--mail: this machine has no sendmail", ExitCode.USAGE)


def start(folder: RunFolder, env: Mapping[str, str]) -> str:
    """Start the supervisor; return what a log-out does to it. Raises CommandError where it does not
    start."""
    at_log_out = log_out(env)
    scope = ["systemd-run", "--user", "--scope", "--quiet", "--collect",
             f"--unit=gpudeck-run-{folder.path.name}-{os.getpid()}"]
    if at_log_out.is_scoped and _starts(folder, env, scope):
        return at_log_out.words
    if not _starts(folder, env, ()):
        log = folder.path / "supervisor.log"
        lines = log.read_text(errors="replace").strip().splitlines() or ["it said nothing"]
        raise CommandError(f"run {folder.path.name} does not start: {lines[-1]}",
                           ExitCode.CANNOT_START)
    return log_out({}).words if at_log_out.is_scoped else at_log_out.words


def _starts(folder: RunFolder, env: Mapping[str, str], scope: Sequence[str]) -> bool:
    child_env = {name: value for name, value in importable(__package__, env).items()
                 if name not in (RUN_ENV, INDEX_ENV, FOLDER_ENV)}  # of a run that starts another
    with open(folder.path / "supervisor.log", "ab", opener=private) as log:
        process = subprocess.Popen(
            [*scope, sys.executable, "-P", "-m", f"{__package__}.supervisor", str(folder.path)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=child_env, cwd="/",
            start_new_session=True)
    until = time.monotonic() + STARTS_WITHIN_S
    while not folder.has_begun():
        if process.poll() is not None:
            return folder.has_begun()
        if time.monotonic() > until:
            process.kill()
            process.wait()
            return False
        time.sleep(0.02)
    return True


def log_out(env: Mapping[str, str]) -> LogOut:
    """Return the effect of a log-out, as systemd's own files and programs say it."""
    if not SYSTEMD.is_dir():
        return LogOut(GOES_ON)
    runtime = env.get("XDG_RUNTIME_DIR")
    if (LINGERS / getpass.getuser()).exists() and shutil.which("systemd-run") and runtime and (
            Path(runtime, "systemd/private").exists()):
        return LogOut(GOES_ON, is_scoped=True)
    match _read_log_ind():
        case "b false":
            return LogOut(GOES_ON)
        case "b true":
            return LogOut("it ends when you log out, since this machine ends what its users leave "
                          "running; `loginctl enable-linger`, then queue it again")
    return LogOut("whether it continues when you log out is not known here; `loginctl "
                  "enable-linger` makes sure of it for what is queued afterwards")


def _read_log_ind() -> str:
    """Read logind's setting. "": it does not answer."""
    try:
        return subprocess.run(["busctl", "--system", "get-property", *LOG_IND], text=True,
                              capture_output=True, timeout=ANSWERS_WITHIN_S, check=False
                              ).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""
