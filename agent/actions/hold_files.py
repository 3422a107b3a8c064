"""Hold files: one that exists stops every action on this node, at once; a driver hold releases the
driver as well. A file has two lines, both for people: the reason, and who wrote it."""

import os
import time
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from gpudeck.contract.vendors import PCI

from ..tasks.user_table import name_of
from . import quiet_window

HOLD_FILE = "hold"
MACHINE_FILES = (Path("/etc/gpudeck/hold"), Path("/run/gpudeck/hold"))
# The hub's hold, told to every user of the machine: the agent's journal is closed to them.
HUB_FILE = Path("/run/gpudeck/hub-hold")
DRIVER_FILE = "driver-hold"  # of all drivers; with a vendor's name after it, of that one's
DRIVER_NAMES = (*(f"{DRIVER_FILE}-{vendor.lower()}" for vendor in PCI), DRIVER_FILE)
REASON_MAX = 200
NAME_MAX = 64


def hold_files(data: Path) -> tuple[Path, ...]:
    """Return the paths of hold files: the driver's first, and of each kind the agent's own last."""
    return (*driver_files(data), *MACHINE_FILES, data / HOLD_FILE)


def visible_hold_files(data: Path) -> tuple[Path, ...]:
    """Return the paths that this user can look for, to show what holds. What acts takes all: there,
    not to know is no permission."""
    return tuple(path for path in hold_files(data)
                 if os.access(path.parent, os.X_OK) or not path.parent.exists())


@lru_cache(maxsize=16)  # asked once a second
def driver_files(data: Path, vendor: str = "") -> tuple[Path, ...]:
    """Return the paths of driver holds. `vendor`: those that this one's driver obeys; "": every
    one."""
    names = DRIVER_NAMES if not vendor else (driver_file(vendor), DRIVER_FILE)
    folders = (*(path.parent for path in MACHINE_FILES), data)
    return tuple(folder / name for name in names for folder in folders)


def driver_file(vendor: str) -> str:
    return f"{DRIVER_FILE}-{vendor.lower()}" if vendor else DRIVER_FILE


def holds(files: tuple[Path, ...]) -> tuple[str, ...]:
    """Return a sentence for each hold: who, and why. A file that is there holds, readable or
    not."""
    return tuple(_sentence(path) for path in files if _is_there(path))


def driver_order(data: Path, vendor: str = "") -> str:
    """Return who wants this vendor's driver released, for people; "": nobody. Without a vendor any
    order counts. What cannot be looked for is no order to go blind: the files of holds, in the same
    folders, count as there then."""
    return next((sentence for path in driver_files(data, vendor)
                 if (sentence := _driver_sentence(path))), quiet_window.order(data, vendor))


def _driver_sentence(path: Path) -> str:
    try:
        about = os.lstat(path)
    except OSError:
        return ""
    reason, name = _lines(path)
    since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(about.st_mtime))
    vendor = next((vendor for vendor in PCI if path.name == driver_file(vendor)), "")
    what = f"{vendor}'s driver" if vendor else "driver"
    return (f"{what} released by {name or name_of(about.st_uid)} since {since}"
            f"{reason and f' ({reason})'}; `gpudeck release` on the node opens it again")


def hub_file(env: Mapping[str, str]) -> Path | None:
    """Return the file that tells the hub's hold, for the agent to write: only the machine's own
    agent does, which systemd gives that folder."""
    folders = env.get("RUNTIME_DIRECTORY", "").split(":")
    return HUB_FILE if str(HUB_FILE.parent) in folders else None


def tell_hub_hold(path: Path, hold: str | None) -> None:
    """Write the hub's hold for every user of the machine; None: there is none. Raises OSError."""
    if hold is None:
        path.unlink(missing_ok=True)
        return
    new = path.with_name(f"{path.name}.new")
    new.write_text(hold.replace("\n", " ") + "\n", encoding="utf-8")
    new.chmod(0o644)
    new.replace(path)


def hub_holds(path: Path = HUB_FILE) -> tuple[str, ...]:
    """Return the hub's hold as the machine's agent tells it; a file that is there holds."""
    return (_lines(path)[0] or f"the file {path}",) if _is_there(path) else ()


def _is_there(path: Path) -> bool:
    if path.name in DRIVER_NAMES:
        return _driver_sentence(path) != ""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True  # not to know is no permission
    return True


def _sentence(path: Path) -> str:
    words = _driver_sentence(path) if path.name in DRIVER_NAMES else _lines(path)[0]
    return f"the file {path}" + (f" says: {words}" if words else "")


def _lines(path: Path) -> tuple[str, str]:
    try:
        with open(path, encoding="utf-8", errors="replace", opener=_at_once) as file:
            lines = [file.readline(4 * REASON_MAX) for _ in range(2)]
    except OSError:
        return "", ""
    why, name = ("".join(char for char in line.strip() if char.isprintable()) for line in lines)
    return why[:REASON_MAX], name[:NAME_MAX]


def _at_once(path: str, flags: int) -> int:
    """Open without blocking: a pipe that nobody writes to holds as well, and must not hang us."""
    return os.open(path, flags | os.O_NONBLOCK)
