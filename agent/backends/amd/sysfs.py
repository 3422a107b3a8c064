"""The kernel's files of a board, a number or a word each.

A read can wake a sleeping board, fail while it resets (EBUSY), or be refused while it sleeps
(EPERM, Linux 7.0): see `is_asleep`. `pcie_bw` sleeps a second inside the kernel and is never read.
Nothing under debugfs is ever opened: reading `amdgpu_gpu_recover` there resets the board.
"""

import errno
import os
import re
from pathlib import Path

from gpudeck.measures.metrics import DENIED, UNKNOWN, UNSUPPORTED, Absence

DRM = Path("/sys/class/drm")
AMD = "0x1002"
LARGEST = 4_096  # a file of sysfs is a page
_CARD = re.compile(r"card\d+")
_WHY = {errno.ENOENT: UNSUPPORTED, errno.ENODEV: UNSUPPORTED, errno.EOPNOTSUPP: UNSUPPORTED,
        errno.EACCES: DENIED}


def board_folders(drm: Path = DRM) -> list[Path]:
    """Return the folders of AMD's boards, by PCI address. Connectors (`card0-DP-1`) are none, nor
    are partitions, which have no numbers of their own."""
    folders = (path / "device" for path in drm.glob("card*") if _CARD.fullmatch(path.name))
    boards = {address: folder for folder in folders
              if word(folder / "vendor") == AMD and (address := pci_address(folder))}
    return [boards[address] for address in sorted(boards)]


def pci_address(folder: Path) -> str:
    """Return "0000:0c:00.0"; "": it is not on PCI."""
    return properties(text(folder / "uevent")).get("PCI_SLOT_NAME", "")


def is_asleep(folder: Path) -> bool:
    """Return whether the board is powered down. To read its numbers would wake it."""
    return word(folder / "power/runtime_status") == "suspended"


def content(path: Path | str) -> "bytes | Absence":
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


def number(path: Path | str) -> "float | Absence":
    read = content(path)
    if isinstance(read, Absence):
        return read
    try:
        return float(read.rstrip(b"\0"))
    except ValueError:
        return UNKNOWN


def properties(lines: str, between: str = "=") -> dict[str, str]:
    """Return the pairs of a text with a name and a value in each line."""
    pairs = (line.partition(between) for line in lines.splitlines())
    return {key.strip(): value.strip() for key, mark, value in pairs if mark}
