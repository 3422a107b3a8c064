"""The kernel's files of a board, a number or a word each; the same for every vendor whose driver is
part of Linux.

A read can wake a sleeping board, fail while it resets (EBUSY), or be refused while it sleeps
(EPERM, Linux 7.0): see `is_asleep`. AMD's `pcie_bw` sleeps a second inside the kernel and is never
read. Nothing under debugfs is ever opened: reading `amdgpu_gpu_recover` there resets the board.
"""

import errno
import math
import os
import re
from pathlib import Path

from gpudeck.measures.metrics import DENIED, UNKNOWN, UNSUPPORTED, Absence

DRM = Path("/sys/class/drm")
KERNEL = Path("/proc/sys/kernel/osrelease")
LARGEST = 4_096  # a file of sysfs is a page
# Transfers per second and lane, of each generation of PCIe.
GENERATIONS = {"2.5": 1, "5.0": 2, "5": 2, "8.0": 3, "8": 3, "16.0": 4, "32.0": 5, "64.0": 6}
_CARD = re.compile(r"card\d+")
_WHY = {errno.ENOENT: UNSUPPORTED, errno.ENODEV: UNSUPPORTED, errno.EOPNOTSUPP: UNSUPPORTED,
        errno.EACCES: DENIED}

Answer = float | Absence


def board_folders(vendor: str, drm: Path = DRM) -> list[Path]:
    """Return the folders of a vendor's boards ("0x1002"), by PCI address. Connectors (`card0-DP-1`)
    are none, nor are partitions, which have no numbers of their own."""
    folders = (path / "device" for path in drm.glob("card*") if _CARD.fullmatch(path.name))
    boards = {address: folder for folder in folders
              if word(folder / "vendor") == vendor and (address := pci_address(folder))}
    return [boards[address] for address in sorted(boards)]


def pci_address(folder: Path) -> str:
    """Return "0000:0c:00.0"; "": it is not on PCI."""
    return properties(text(folder / "uevent")).get("PCI_SLOT_NAME", "")


def module_version(module: Path, kernel: Path = KERNEL) -> str | None:
    """Return the version of a module; of one that came with the kernel, the kernel's. None: it is
    not loaded."""
    if not module.is_dir():
        return None
    return word(module / "version") or f"Linux {word(kernel)}"


def is_asleep(folder: Path) -> bool:
    """Return whether the board is powered down. To read its numbers would wake it."""
    return word(folder / "power/runtime_status") == "suspended"


def content(path: Path | str) -> bytes | Absence:
    """Read a file, or say why it cannot be."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        return _WHY.get(error.errno or 0, UNKNOWN)
    try:
        return os.read(file, LARGEST)
    except OSError as error:
        return _WHY.get(error.errno or 0, UNKNOWN)
    finally:
        os.close(file)


def text(path: Path | str) -> str:
    """Return a file's text; "": there is none."""
    read = content(path)
    return "" if isinstance(read, Absence) else read.rstrip(b"\0").decode(errors="replace")


def word(path: Path | str) -> str:
    return text(path).strip()


def number(path: Path | str) -> Answer:
    read = content(path)
    if isinstance(read, Absence):
        return read
    try:
        value = float(read.rstrip(b"\0"))
    except ValueError:
        return UNKNOWN
    return value if math.isfinite(value) else UNKNOWN


def properties(lines: str, between: str = "=") -> dict[str, str]:
    """Return the pairs of a text with a name and a value in each line."""
    pairs = (line.partition(between) for line in lines.splitlines())
    return {key.strip(): value.strip() for key, mark, value in pairs if mark}


def generation(path: Path) -> Answer:
    """Return the generation of PCIe of a link's speed."""
    speed = word(path)
    return float(GENERATIONS[rate]) if (rate := speed.split(" ")[0]) in GENERATIONS else (
        UNKNOWN if speed else UNSUPPORTED)


def sensors(folder: Path, driver: str) -> dict[str, str]:
    """Return paths of a board's sensors without their ending, by kind and label; "": of them all.
    Labels, since their places differ between boards."""
    for monitor in sorted((folder / "hwmon").glob("hwmon*")):
        if word(monitor / "name") == driver:
            return {"": f"{monitor}/"} | {
                f"{kind} {word(path)}": str(path).removesuffix("_label")
                for kind in ("temp", "freq", "energy") for path in monitor.glob(f"{kind}*_label")}
    return {}
