"""AMD's boards, as `gpudeck doctor` sees them."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from ..check import PCI, DoctorCheck, pci_boards
from ..sysfs import DRM, board_folders
from .driver import AMD, MODULE, driver_version
from .processes import KFD

VENDOR, ABSENT = "AMD", ""
PACKAGES: tuple[str, ...] = ()
FILES = ("/sys/module/amdgpu/version",)
ENVIRONMENT = ("ROCR_", "HIP_")


def boards(pci: Path = PCI) -> int:
    return pci_boards(AMD, pci)


def checks(released: str, is_alone: bool, drm: Path = DRM, module: Path = MODULE, kfd: Path = KFD,
           pci: Path = PCI) -> Iterator[DoctorCheck]:
    """Return nothing where there is no such board."""
    count = len(board_folders(AMD, drm))
    version = driver_version(module)
    if not count and (idle := boards(pci)):
        yield DoctorCheck("amd", "AMD boards", "warning", (
            f"{_many(idle)}, of which the driver shows none; it is "
            f"{version or 'not loaded'}"), "run `sudo modprobe amdgpu`, and see `dmesg`")
    if not count:
        return
    yield DoctorCheck(
        "amd", "AMD boards", "warning" if version is None else "ok",
        f"{_many(count)}, driver {version or 'not loaded'}. Read by an agent that is started "
        "with --backend amd, or nvml,amd next to NVIDIA's; not verified on hardware yet "
        "(docs/hardware.md)",
        "" if version else "run `sudo modprobe amdgpu`")
    if not os.path.exists(kfd):
        yield DoctorCheck("amd-compute", "AMD compute", "warning", (
            "there is no /sys/class/kfd, so that compute processes are not listed"),
            "load the module amdgpu with compute support, or pass /sys into the container")


def _many(count: int) -> str:
    return f"{count} board{'s' * (count != 1)}"


def package_conflict(versions: Mapping[str, str]) -> tuple[str, str] | None:
    return None
