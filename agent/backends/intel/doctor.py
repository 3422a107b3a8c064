"""Intel's boards, as `gpudeck doctor` sees them."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from ...tasks.privileges import PROC, sees_all
from ..check import PCI, DoctorCheck, pci_addresses
from ..sysfs import DRM
from .driver import INTEGRATED, INTEL, MODULES, boards_and_integrated, driver_version

VENDOR, ABSENT = "Intel", ""
PACKAGES: tuple[str, ...] = ()
FILES = ("/sys/module/xe/version", "/sys/module/i915/version")
ENVIRONMENT = ("ZE_", "ONEAPI_")
LOAD = "run `sudo modprobe xe` (or i915, for boards before Battlemage), and see `dmesg`"


def boards(pci: Path = PCI) -> int:
    """Return how many there are, without the graphics of processors."""
    return sum(address != INTEGRATED for address in pci_addresses(INTEL, pci))


def checks(released: str, is_alone: bool, drm: Path = DRM, modules: Path = MODULES,
           pci: Path = PCI, proc: Path = PROC) -> Iterator[DoctorCheck]:
    """Return nothing where there is no such board."""
    folders, _ = boards_and_integrated(drm)
    count, version = len(folders), driver_version(modules)
    if not count and (idle := boards(pci)):
        yield DoctorCheck("intel", "Intel boards", "warning", (
            f"{_many(idle)}, of which the drivers show none; loaded: {version or 'none'}"), LOAD)
    if not count:
        return
    yield DoctorCheck(
        "intel", "Intel boards", "warning" if version is None else "ok",
        f"{_many(count)}, driver {version or 'not loaded'}. Read by an agent that is started "
        "with --backend intel, or nvml,intel next to NVIDIA's; not verified on hardware yet "
        "(docs/hardware.md)",
        "" if version else LOAD)
    if not sees_all(proc):
        yield DoctorCheck("intel-processes", "Intel processes", "warning", (
            "not every process of this machine can be looked at from here, and utilization and "
            "memory of these boards are the sum of theirs: neither is known"),
            "run the agent as root or with CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH (the grant "
            "`owners`), in the machine's own PID namespace")


def _many(count: int) -> str:
    return f"{count} board{'s' * (count != 1)}"


def package_conflict(versions: Mapping[str, str]) -> tuple[str, str] | None:
    return None
