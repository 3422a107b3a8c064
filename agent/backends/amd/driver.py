"""AMD's driver, as this machine shows it."""

from pathlib import Path

from gpudeck.contract import vendors

from ..sysfs import KERNEL, module_version

AMD = vendors.PCI[vendors.AMD]
MODULE = Path("/sys/module/amdgpu")


def driver_version(module: Path = MODULE, kernel: Path = KERNEL) -> str | None:
    return module_version(module, kernel)
