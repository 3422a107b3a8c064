"""Time slices by `nvidia-smi compute-policy`, since NVML has no such call (but for vGPUs).

Unverified on hardware. How `--list` looks is not documented: what is not understood is not known.
"""

import os
import re
import shutil
import subprocess

from gpudeck.contract.limits import SliceLength
from gpudeck.system.child_processes import without_tokens

PROGRAM = "nvidia-smi"
NUMBERS: dict[SliceLength, int] = {"default": 0, "short": 1, "medium": 2, "long": 3}
WITHIN_S = 15.0
_LINE = re.compile(r"time\W?slice\b(.*)", re.IGNORECASE)


def trouble() -> str:
    return "" if shutil.which(PROGRAM) else (
        f"{PROGRAM} is not installed here, and nothing else sets time slices")


def read(uuid: str) -> SliceLength | None:
    code, output = _run(["-i", uuid, "--list"])
    if code != 0:
        return None
    words = {word for line in _LINE.findall(output)
             for word in re.findall(r"[a-z]+", line.lower())}
    lengths: list[SliceLength] = [length for length in NUMBERS if length in words]
    return lengths[0] if len(lengths) == 1 else None


def set_length(uuid: str, length: SliceLength) -> str:
    code, output = _run(["-i", uuid, f"--set-timeslice={NUMBERS[length]}"])
    return "" if code == 0 else output[:300] or f"{PROGRAM} ended with status {code}"


def _run(arguments: list[str]) -> tuple[int | None, str]:
    """Run it; None: no exit status came."""
    try:
        process = subprocess.run([PROGRAM, "compute-policy", *arguments], capture_output=True,
                                 stdin=subprocess.DEVNULL, timeout=WITHIN_S, check=False,
                                 env=without_tokens(os.environ))
    except subprocess.TimeoutExpired:
        return None, f"{PROGRAM} did not end within {WITHIN_S:.0f} s"
    except OSError as error:
        return 127, f"{PROGRAM} cannot be started ({error.strerror})"
    output = process.stdout or process.stderr
    return process.returncode, output.decode(errors="replace").strip()
