"""AMD's driver, as this machine shows it."""

from pathlib import Path

from .sysfs import word

MODULE = Path("/sys/module/amdgpu")
KERNEL = Path("/proc/sys/kernel/osrelease")


def driver_version(module: Path = MODULE, kernel: Path = KERNEL) -> str | None:
    """Return the version of the module; of one that came with the kernel, the kernel's. None: it is
    not loaded."""
    if not module.is_dir():
        return None
    return word(module / "version") or f"Linux {word(kernel)}"
