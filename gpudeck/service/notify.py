"""Notifications to systemd that a service of ours has started, and then that it is alive."""

import os
import socket
from collections.abc import Mapping, MutableMapping

USEC = 1_000_000

STATUS_CHARS = 500  # systemd ignores a message of more than 4096 bytes


class ServiceNotifier:
    """Sender of notifications; silent where systemd did not start this process. The variables that
    it reads are removed from `env`: children must not speak for the service."""

    def __init__(self, env: MutableMapping[str, str] = os.environ) -> None:
        self._address = env.pop("NOTIFY_SOCKET", "")
        watchdog_us, watchdog_pid = env.pop("WATCHDOG_USEC", ""), env.pop("WATCHDOG_PID", "")
        is_watched = watchdog_us.isdigit() and watchdog_pid in ("", str(os.getpid()))
        self._every_s = int(watchdog_us) / USEC / 4 if is_watched else None
        self._beat_at: float | None = None
        self._status = ""

    def beat(self, now: float, status: str = "") -> None:
        """Report the start the first time; then, as often as systemd requires, that the service is
        alive. `status`: a line that `systemctl status` shows, sent when it changes."""
        if status != self._status:
            self._status = status
            line = "".join(filter(str.isprintable, status))  # a hub's words are part of it
            self._send(f"STATUS={line[:STATUS_CHARS]}".encode())
        if self._beat_at is None:
            self._send(b"READY=1")
        elif self._every_s is None or now - self._beat_at < self._every_s:
            return
        else:
            self._send(b"WATCHDOG=1")
        self._beat_at = now

    def _send(self, words: bytes) -> None:
        """Send a message. A failure is ignored: the service goes on."""
        if not self._address:
            return
        path = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
                out.connect(path)
                out.send(words)
        except OSError:
            pass


def is_journal(fd: int, env: Mapping[str, str]) -> bool:
    """Return whether output to `fd` goes to systemd's journal, which names that file in `env`."""
    try:
        about = os.fstat(fd)
    except OSError:
        return False
    return env.get("JOURNAL_STREAM") == f"{about.st_dev}:{about.st_ino}"
