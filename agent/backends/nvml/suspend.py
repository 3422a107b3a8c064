"""Suspend and restore by NVIDIA's program `cuda-checkpoint`.

The program is a shim: options, messages and exit statuses are the driver's and differ between
versions. So only its exit status and `--get-state` are believed.

Unverified on hardware: built from its documentation and from what others reported
(github.com/NVIDIA/cuda-checkpoint, issues 25, 28, 34, 42, 51 and 56).
"""

import os
import platform
import re
import shutil
import subprocess
from typing import get_args

from gpudeck.system.child_processes import without_tokens

from ..suspend import ProcessState, Step

PROGRAM = "cuda-checkpoint"
DRIVER_FROM = (575, 57, 8)  # PyTorch's processes before it could not be restored (issue 34)
SEVERAL_FROM = (610, 0, 0)  # memory that processes share, as ranks do (issue 56)
MACHINE = "x86_64"  # on others the memory cannot be moved (issue 51)
LOCK_WITHIN_S = 10.0
# Each start of the program waits for CUDA; others have seen it take longer than 5 s.
STATE_WITHIN_S = 60.0
# 15 s per GPU were seen for 80 GB; a slow host may need many times that.
STEP_WITHIN_S = 600.0


def trouble(driver: str | None) -> str:
    if shutil.which(PROGRAM) is None:
        return (f"{PROGRAM} is not installed here; it is at github.com/NVIDIA/cuda-checkpoint")
    if platform.machine() != MACHINE:
        return f"{PROGRAM} works on {MACHINE} only, and this machine is {platform.machine()}"
    version = _version(driver)
    if version is None:
        return "the driver's version is not known"
    if version < DRIVER_FROM:
        return f"driver {driver} is older than {'.'.join(f'{part:02}' for part in DRIVER_FROM)}"
    return ""


def takes_several(driver: str | None) -> bool:
    version = _version(driver)
    return version is not None and version >= SEVERAL_FROM


def state_of(pid: int) -> ProcessState | None:
    code, output = _run(["--get-state", "--pid", str(pid)], STATE_WITHIN_S)
    word = output.strip().lower()
    states: tuple[ProcessState, ...] = get_args(ProcessState)
    return next((state for state in states if code == 0 and word == state), None)


def take(step: Step, pid: int) -> str:
    more = ["--timeout", str(int(LOCK_WITHIN_S * 1_000))] if step == "lock" else []
    within_s = LOCK_WITHIN_S + STATE_WITHIN_S if step == "lock" else STEP_WITHIN_S
    code, output = _run(["--action", step, "--pid", str(pid), *more], within_s)
    if code == 0:
        return ""
    return output[:300] or f"{PROGRAM} ended with status {code}"


def _version(driver: str | None) -> tuple[int, int, int] | None:
    match = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?$", driver or "")
    return None if match is None else (int(match[1]), int(match[2]), int(match[3] or 0))


def _run(arguments: list[str], within_s: float) -> tuple[int | None, str]:
    """Run it; None: no exit status came. What the driver does then may still go on."""
    try:
        process = subprocess.run([PROGRAM, *arguments], stdin=subprocess.DEVNULL,
                                 capture_output=True, timeout=within_s, check=False,
                                 env=without_tokens(os.environ))
    except subprocess.TimeoutExpired:
        return None, f"{PROGRAM} did not end within {within_s:.0f} s"
    except OSError as error:
        return 127, f"{PROGRAM} cannot be started ({error.strerror})"
    # The state is printed on stdout, messages on either.
    output = process.stdout if process.returncode == 0 else process.stderr or process.stdout
    return process.returncode, output.decode(errors="replace").strip()
