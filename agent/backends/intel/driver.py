"""Intel's two drivers, as this machine shows them: `xe`, and `i915` for boards before it."""

from pathlib import Path

from gpudeck.contract import vendors

from ..sysfs import DRM, KERNEL, board_folders, module_version, pci_address, properties, text, word

INTEL = vendors.PCI[vendors.INTEL]
DRIVERS = ("xe", "i915")
MODULES = Path("/sys/module")
# A processor's graphics is always there; a board is behind a bridge of PCIe.
INTEGRATED = "0000:00:02.0"


def driver_version(modules: Path = MODULES, kernel: Path = KERNEL, drivers: tuple[str, ...] = ()
                   ) -> str | None:
    """Return the version of the drivers that have boards; without one, of those that are loaded.
    None: none is."""
    versions = {name: module_version(modules / name, kernel) for name in DRIVERS}
    loaded = [f"{name}, {version}" for name, version in versions.items()
              if version is not None and (not drivers or name in drivers)]
    return "; ".join(loaded) or None


def boards_and_integrated(drm: Path = DRM) -> tuple[list[Path], list[Path]]:
    """Return the folders of boards, and those of the graphics of processors: it has no memory of
    its own, and nobody computes on it by lease."""
    folders = [folder for folder in board_folders(INTEL, drm) if driver_of(folder) in DRIVERS]
    integrated = [folder for folder in folders if _is_integrated(folder)]
    return [folder for folder in folders if folder not in integrated], integrated


def driver_of(folder: Path) -> str:
    return properties(text(folder / "uevent")).get("DRIVER", "")


def _is_integrated(folder: Path) -> bool:
    """Return whether it is a processor's graphics. A virtual machine may have a board at that
    place: the drivers show sensors of boards alone."""
    return pci_address(folder) == INTEGRATED and not any(
        word(monitor / "name") in DRIVERS for monitor in (folder / "hwmon").glob("hwmon*"))
