"""`gpudeck top` in its own terminal: what its screen shows, and what it leaves behind."""

import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyte

from docs.terminal_svg import Letter

ROOT = Path(__file__).resolve().parents[1]
# The one command as it is, but for the entry points, which name the installed folders.
CODE = """
import sys
from gpudeck.cli import main as cli
from agent.top.command import top
cli.find = lambda name: top
sys.exit(cli.main())
"""


class DrivenTerminal:
    def __init__(self, *words: str, width: int = 80, height: int = 24, code: str = CODE,
                 env: Mapping[str, str] | None = None, shell: str | None = None) -> None:
        """`shell`: lines that run it as "$@", for what only a shell's jobs can do."""
        self._keyboard, self._tty = os.openpty()
        os.fchmod(self._tty, 0o600)  # mesg n: what other tests tell their owners is not for here
        self.resize(width, height)
        self._screen = pyte.Screen(width, height)
        self._stream = pyte.ByteStream(self._screen)
        self.raw = b""
        self.before = self.state()
        bare = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
        self.process = subprocess.Popen(
            [*(("bash", "-c", shell, "-") if shell else ()), sys.executable, "-c", code, "top",
             *words], cwd=ROOT, stdin=self._tty,
            stdout=self._tty, stderr=self._tty, start_new_session=True,
            env={**bare, "TERM": "xterm-256color", "COLORTERM": "", **(env or {})},
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))

    def __enter__(self) -> "DrivenTerminal":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        os.close(self._keyboard)
        os.close(self._tty)

    def state(self) -> Any:
        return termios.tcgetattr(self._tty)

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self._screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def letters(self) -> list[list[Letter]]:
        cells = self._screen.buffer
        return [[Letter(cells[y][x].data, cells[y][x].fg, cells[y][x].bold)
                 for x in range(self._screen.columns)] for y in range(self._screen.lines)]

    def press(self, keys: str) -> None:
        os.write(self._keyboard, keys.encode())

    def resize(self, width: int, height: int) -> None:
        fcntl.ioctl(self._tty, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        if hasattr(self, "process"):
            self._screen.resize(height, width)
            os.killpg(self.process.pid, signal.SIGWINCH)

    def wait(self, is_there: Callable[[], Any], within_s: float = 40.0) -> None:
        until = time.monotonic() + within_s
        while not is_there():
            assert time.monotonic() < until, self.text
            self._read(0.1)

    def shows(self, *words: str) -> str:
        """Wait until all words are on the screen; return all of its text."""
        self.wait(lambda: all(word in self.text for word in words))
        return self.text

    def ends(self) -> int:
        self.wait(lambda: self.process.poll() is not None)
        while self._read(0.1):
            pass
        return int(self.process.returncode)

    def _read(self, seconds: float) -> bool:
        if not select.select([self._keyboard], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self._keyboard, 65_536)
        except OSError:  # nobody is at the other end any more
            return False
        self.raw += data
        self._stream.feed(data)
        return True
