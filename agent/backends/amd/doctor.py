"""AMD's boards, as `gpudeck doctor` sees them."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from ..check import DoctorCheck
from .driver import MODULE, driver_version
from .processes import KFD
from .sysfs import DRM, board_folders

PACKAGES: tuple[str, ...] = ()
FILES = ("/sys/module/amdgpu/version",)
ENVIRONMENT = ("ROCR_", "HIP_")


def checks(released: str, drm: Path = DRM, module: Path = MODULE, kfd: Path = KFD
           ) -> Iterator[DoctorCheck]:
    """Return nothing where there is no such board."""
    count = len(board_folders(drm))
    if not count:
        return
    version = driver_version(module)
    yield DoctorCheck(
        "amd", "AMD boards", "warning" if version is None else "ok",
        f"{count} boards, driver {version or 'not loaded'}. Read by an agent that is started "
        "with --backend amd; not verified on hardware yet (docs/hardware.md)",
        "" if version else "run `sudo modprobe amdgpu`")
    if not os.path.exists(kfd):
        yield DoctorCheck("amd-compute", "AMD compute", "warning", (
            "there is no /sys/class/kfd, so that compute processes are not listed"),
            "load the module amdgpu with compute support, or pass /sys into the container")


def package_conflict(versions: Mapping[str, str]) -> tuple[str, str] | None:
    return None
