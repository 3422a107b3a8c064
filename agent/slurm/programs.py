"""The only module that runs Slurm's programs, each with a limit on time and output.

The exit status proves nothing: `scancel` of a job that does not exist prints nothing and returns
0. After an action the job is therefore read back.
"""

import os
import pwd
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence

from gpudeck.contract.slurm import SlurmJob, SlurmNode, SlurmRights

from .core import SlurmTextError, config_of, jobs_of, nodes_of, slurm_uid

WITHIN_S = 20.0
MOST_BYTES = 64_000_000
MOST_WORDS = 64_000  # for errors
ELSEWHERE = "/usr/bin:/bin:/usr/local/bin:/opt/slurm/bin"
OPERATORS = ("Operator", "Administrator")
_PASSED_ON = ("SLURM_CONF", "PATH")
_NODES = ("scontrol", "-d", "show", "node", "-o")


class SlurmError(Exception):
    """Failure to query Slurm, with the reason as a sentence."""


def run_program(words: Sequence[str], within_s: float = WITHIN_S, most: int = MOST_BYTES
                ) -> tuple[int, bytes, str]:
    """Run a program; return its exit status, its output and its errors. Raises SlurmError."""
    # Variables such as SQUEUE_STATES or SLURM_CLUSTERS would change the query.
    env = {name: os.environ[name] for name in _PASSED_ON if name in os.environ} | {
        "LC_ALL": "C.UTF-8"}
    env["PATH"] = f"{env.get('PATH', '')}:{ELSEWHERE}"
    program = shutil.which(words[0], path=env["PATH"])
    if program is None:
        raise SlurmError(f"{words[0]} is not on this machine; install Slurm's client programs")
    try:
        child = subprocess.Popen([program, *words[1:]], stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env,
                                 start_new_session=True)
    except OSError as error:
        raise SlurmError(f"{words[0]} cannot be run: {error.strerror}") from error
    with child:
        try:
            printed, errors = _read(child, words[0], within_s, most)
        except BaseException:
            os.killpg(child.pid, signal.SIGKILL)
            raise
    return child.returncode, printed, errors.decode(errors="replace").strip()[:512]


def _read(child: "subprocess.Popen[bytes]", name: str, within_s: float, most: int
          ) -> tuple[bytes, bytes]:
    """Read both pipes to their end, and wait for the program."""
    assert child.stdout is not None
    assert child.stderr is not None
    ends_at = time.monotonic() + within_s
    printed, errors = bytearray(), bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ, printed)
        selector.register(child.stderr, selectors.EVENT_READ, errors)
        while selector.get_map():
            for key, _ in _ready(selector, ends_at, name, within_s):
                part = os.read(key.fd, 65_536)
                if not part:
                    selector.unregister(key.fileobj)
                elif key.data is printed or len(errors) < MOST_WORDS:
                    key.data.extend(part)
            if len(printed) > most:
                raise SlurmError(f"{name} prints more than {most // 10**6} MB")
    try:
        child.wait(max(0.0, ends_at - time.monotonic()))
    except subprocess.TimeoutExpired as error:
        raise SlurmError(_late(name, within_s)) from error
    return bytes(printed), bytes(errors)


def _ready(selector: selectors.BaseSelector, ends_at: float, name: str, within_s: float
           ) -> list[tuple[selectors.SelectorKey, int]]:
    ready = selector.select(max(0.0, ends_at - time.monotonic()))
    if not ready:
        raise SlurmError(_late(name, within_s))
    return ready


def _late(name: str, within_s: float) -> str:
    return f"{name} did not end within {within_s:g} s; is slurmctld up?"


def _output(*words: str) -> bytes:
    status, printed, errors = run_program(words)
    if status != 0:
        raise SlurmError(f"{words[0]} says: {errors or f'exit status {status}'}")
    return printed


class SlurmPrograms:
    """Slurm's programs, run as the agent's user."""

    def config(self) -> dict[str, str]:
        return config_of(_output("scontrol", "show", "config").decode(errors="replace"))

    def jobs(self) -> tuple[SlurmJob, ...]:
        try:
            return jobs_of(_output("squeue", "--json", "--all"))
        except SlurmTextError as error:
            raise SlurmError(str(error)) from error

    def nodes(self, name: str | None = None) -> tuple[SlurmNode, ...]:
        words = _NODES if name is None else (*_NODES[:4], name, "-o")
        return nodes_of(_output(*words).decode(errors="replace"))

    def account(self) -> str:
        try:
            return pwd.getpwuid(os.geteuid()).pw_name
        except KeyError:
            return f"uid {os.geteuid()}"

    def rights(self, config: dict[str, str]) -> SlurmRights:
        """Return whose jobs we may act on: everybody's as root and SlurmUser, otherwise as Slurm's
        accounting says, where there is any."""
        if os.geteuid() == 0 or os.geteuid() == slurm_uid(config):
            return "all"
        try:
            level = _output("sacctmgr", "-nP", "show", "user", f"name={self.account()}",
                            "format=AdminLevel").decode(errors="replace").strip()
        except SlurmError:
            return "own"
        return "all" if level in OPERATORS else "own"

    def do(self, *words: str) -> tuple[bool, str]:
        """Run a command; return whether its exit status was 0, and what it printed."""
        status, printed, errors = run_program(words, most=MOST_WORDS)
        return status == 0, errors or printed.decode(errors="replace").strip()[:512] or (
            "" if status == 0 else f"exit status {status}")
