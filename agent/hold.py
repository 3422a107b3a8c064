"""The hold files: who can write one of these stops every act on this node, at once."""

from pathlib import Path

HOLD_FILE = "hold"
MACHINE_FILES = (Path("/etc/gpudeck/hold"), Path("/run/gpudeck/hold"))
REASON_MAX = 200


def hold_files(data: Path) -> tuple[Path, ...]:
    return (*MACHINE_FILES, data / HOLD_FILE)


def holds(files: tuple[Path, ...]) -> tuple[str, ...]:
    """Who holds, and why, for people. What is there holds, readable or not."""
    return tuple(_sentence(path) for path in files if _is_there(path))


def _is_there(path: Path) -> bool:
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    except NotADirectoryError:
        return False
    except OSError:
        return True  # not to know is no permission
    return True


def _sentence(path: Path) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            line = file.readline(4 * REASON_MAX)
    except OSError:
        line = ""
    reason = "".join(char for char in line.strip() if char.isprintable())[:REASON_MAX]
    return f"the file {path}" + (f" says: {reason}" if reason else "")
