"""Verdicts of `gpudeck doctor`, and what a backend contributes to its report."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal, Protocol, cast

from msgspec import Struct

from . import BACKENDS, module_of

Verdict = Literal["ok", "warning", "problem", "not checked"]
# The worst of several: a problem before a warning, and what was not checked is no verdict.
_WORST: tuple[Verdict, ...] = ("problem", "warning", "ok", "not checked")


PCI = Path("/sys/bus/pci/devices")
# Displays, and accelerators without one.
_CLASSES = ("0x03", "0x12")


class DoctorCheck(Struct, frozen=True):
    key: str  # stays the same over versions
    title: str
    verdict: Verdict
    says: str
    remedy: str = ""  # what to do; "": nothing


def worst(checks: "list[DoctorCheck]") -> Verdict:
    there = {check.verdict for check in checks}
    return next((verdict for verdict in _WORST if verdict in there), "not checked")


class DoctorModule(Protocol):
    """Checks of one vendor's driver for `gpudeck doctor`."""

    VENDOR: str
    ABSENT: str  # where only boards of others are; "": nothing is said
    PACKAGES: tuple[str, ...]  # of Python
    FILES: tuple[str, ...]  # of the system, for a bundle
    ENVIRONMENT: tuple[str, ...]  # how the names of its variables begin

    def boards(self) -> int:
        """Return how many boards of this vendor are in the machine, with or without a driver, as
        far as it shows."""

    def checks(self, released: str, is_alone: bool) -> Iterator[DoctorCheck]:
        """`released`: why the driver must not be opened now; "": it may be. `is_alone`: no board of
        another vendor is here, whose verdicts would wait for a driver that hangs."""

    def package_conflict(self, versions: Mapping[str, str]) -> tuple[str, str] | None:
        """Return what is wrong with the installed packages, and the remedy."""


def pci_boards(vendor: str, folder: Path = PCI) -> int:
    """Return how many boards of a vendor are on PCI; `vendor` as in "0x10de"."""
    return len(pci_addresses(vendor, folder))


def pci_addresses(vendor: str, folder: Path = PCI) -> list[str]:
    return [device.name for device in folder.glob("*") if _line(device / "vendor") == vendor
            and _line(device / "class").startswith(_CLASSES)]


def _line(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def checks_of(modules: "list[DoctorModule]", release_order: Callable[[str], str]
              ) -> Iterator[DoctorCheck]:
    """Return the checks of all drivers. Where boards of one vendor are seen, that another's driver
    is missing is no fault of the machine. `release_order`: why a vendor's driver must not be opened
    now."""
    counts = {module.VENDOR: module.boards() for module in modules}
    for module in modules:
        is_alone = sum(counts.values()) == counts[module.VENDOR]
        if counts[module.VENDOR] or is_alone:
            yield from module.checks(release_order(module.VENDOR), is_alone)
        elif module.ABSENT:
            yield DoctorCheck(f"no_{module.VENDOR.lower()}", f"{module.VENDOR} boards",
                              "not checked", module.ABSENT)


def doctor_modules() -> list[DoctorModule]:
    return [cast(DoctorModule, module_of(backend.doctor))
            for backend in BACKENDS.values() if backend.doctor]
