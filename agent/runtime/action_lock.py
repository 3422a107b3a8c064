"""Lock for one action at a time on a node, over all processes that act there. The kernel frees it
when its holder ends, however it ends."""

import fcntl
import os
import threading
import time
from pathlib import Path

POLL_EVERY_S = 0.02


class ActionLock:
    def __init__(self, data: Path) -> None:
        self._path = data / "act.lock"
        self._fd: int | None = None
        self._mine = threading.Lock()

    def take(self, within_s: float) -> bool:
        deadline = time.monotonic() + within_s
        with self._mine:
            fd = _opened(self._path)
            while True:
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    self._fd = fd
                    return True
                except BlockingIOError:
                    if time.monotonic() >= deadline:
                        os.close(fd)
                        return False
                time.sleep(POLL_EVERY_S)

    def free(self) -> None:
        with self._mine:
            if self._fd is not None:
                os.close(self._fd)
                self._fd = None


def _opened(path: Path) -> int:
    """Open the file, or make it; root makes it for the owner of the agent's folder."""
    fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    owner = os.stat(path.parent)
    if os.geteuid() == 0 and os.fstat(fd).st_uid != owner.st_uid:
        os.fchown(fd, owner.st_uid, owner.st_gid)
    return fd
