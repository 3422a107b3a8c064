"""Lock of a data folder: one agent at a time, and others can find out which."""

import fcntl
from pathlib import Path
from typing import TextIO

from gpudeck.errors import CommandError, ExitCode

LOCK_FILE = "lock"
LOCKS = Path("/proc/locks")


class DataFolderLock:
    """Exclusive use of the data folder: two agents on one journal would give numbers out twice. The
    kernel frees the lock when we end, however we end."""

    def __init__(self, data: Path) -> None:
        self._path = data / LOCK_FILE
        self._file: TextIO | None = None

    def __enter__(self) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._file = open(self._path, "a")
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CommandError(f"another agent uses {self._path.parent}; stop it, or choose "
                               "another folder with --data", ExitCode.CANNOT_START) from None
        except OSError as error:
            raise CommandError(f"cannot write {self._path.parent}: {error.strerror}; choose "
                               "another folder with --data", ExitCode.CANNOT_START) from error

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()


def agent_pid(data: Path, locks: Path = LOCKS) -> int | None:
    """Return the pid of the agent that runs on this folder. None: none does, or the kernel does not
    show it. The lock itself is not tried: an agent that starts at that moment would be refused."""
    try:
        inode = (data / LOCK_FILE).stat().st_ino
        lines = locks.read_text().splitlines()
    except OSError:
        return None
    for line in lines:  # "1: FLOCK  ADVISORY  WRITE 4711 00:2b:12345 0 EOF"
        words = line.split()
        if len(words) > 5 and words[1] == "FLOCK" and words[5].endswith(f":{inode}"):
            return int(words[4])
    return None
