"""Scope for a command, in the user's systemd: whatever it starts stays in there, with or without
the environment that it was given, and after its `gpudeck run` was killed."""

import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from gpudeck.contract.pool_messages import SCOPE_UNIT

ANSWERS_WITHIN_S = 2.0
MOVED_WITHIN_S = 1.0
POLL_EVERY_S = 0.002
_BUS = "org.freedesktop.systemd1"
_START = (_BUS, "/org/freedesktop/systemd1", f"{_BUS}.Manager", "StartTransientUnit",
          "ssa(sv)a(sa(sv))")


def enter_scope(pid: int, lease_id: str, ram_bytes: int | None, env: Mapping[str, str]) -> bool:
    """Move a process into its scope; return whether it is in there now, with no more memory than
    that. Where it is not, the lease follows the mark in environments, and descendants of the
    command."""
    busctl, bus = shutil.which("busctl"), Path(env.get("XDG_RUNTIME_DIR", ""), "bus")
    unit = SCOPE_UNIT.format(lease_id)
    if busctl is None or not env.get("XDG_RUNTIME_DIR") or not bus.exists():
        return False
    most = () if ram_bytes is None else ("MemoryMax", "t", str(ram_bytes))
    words = (unit, "fail", "3" if most else "2", "PIDs", "au", "1", str(pid),
             "CollectMode", "s", "inactive-or-failed", *most, "0")
    try:
        subprocess.run([busctl, "--user", "--quiet", f"--timeout={ANSWERS_WITHIN_S:g}", "call",
                        *_START, *words], env=dict(env), check=True, timeout=2 * ANSWERS_WITHIN_S,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError):
        return False
    return _has_moved(pid, unit)


def _has_moved(pid: int, unit: str) -> bool:
    """Wait for the move: the answer comes before it."""
    until = time.monotonic() + MOVED_WITHIN_S
    while time.monotonic() < until:
        try:
            if f"/{unit}" in Path(f"/proc/{pid}/cgroup").read_text():
                return True
        except OSError:
            return False
        time.sleep(POLL_EVERY_S)
    return False
