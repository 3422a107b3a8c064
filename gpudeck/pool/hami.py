"""HAMi-core, which holds a share inside of the process, where no MPS does.

It reads indices alone, and keeps the limits of one file for all processes: each lease gets its own
(Project-HAMi/HAMi-core at 8f3a89c, src/utils.c).
"""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from gpudeck.contract.pool_messages import Leased

LIBRARY_ENV = "GPUDECK_HAMI_LIBRARY"
LIBRARY = "/usr/local/vgpu/libvgpu.so"
CACHE = "CUDA_DEVICE_MEMORY_SHARED_CACHE"
LOCKS = Path("/tmp/vgpulock")
LOADS_WITHIN_S = 10.0
NOTE = "HAMi-core holds this share; it leaves the umask of the command at 0"


def hami_library(env: Mapping[str, str], locks: Path = LOCKS) -> str:
    """Return the path of the library if it works here; else "". It needs a folder for its locks,
    and must load without a message."""
    library = env.get(LIBRARY_ENV) or LIBRARY
    if not os.path.isfile(library) or not os.access(locks, os.W_OK | os.X_OK):
        return ""
    try:
        # The loader only warns of a library that it cannot load, and its limits would be none.
        probe = subprocess.run(["/bin/sh", "-c", ":"], env={**env, "LD_PRELOAD": library},
                               capture_output=True, timeout=LOADS_WITHIN_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return library if probe.returncode == 0 and not probe.stdout + probe.stderr else ""


def hami_variables(lease: Leased, library: str, env: Mapping[str, str]) -> dict[str, str]:
    preload = " ".join(filter(None, (library, env.get("LD_PRELOAD"))))
    folder = env.get("XDG_RUNTIME_DIR") or "/tmp"
    variables = {"LD_PRELOAD": preload, "CUDA_DEVICE_SM_LIMIT": f"{round(lease.share_milli / 10)}",
                 CACHE: f"{folder}/gpudeck-{lease.lease_id}.cache"}
    if lease.mem_bytes is not None:
        variables["CUDA_DEVICE_MEMORY_LIMIT"] = f"{int(lease.mem_bytes) // 2**20}m"
    return variables
