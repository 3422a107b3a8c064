"""Terminal of `gpudeck top`: raw keys in, changed lines out, and as it was before, however we
end."""

import codecs
import os
import re
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from .text import Line, cut_line, width_of

# Truecolour, of 256, of 16, and what is left without colours. Never a background: light and dark
# terminals both work without a switch.
STYLES: dict[str, tuple[tuple[int, int, int] | None, int, int, str]] = {
    "": (None, 0, 0, ""), "bold": (None, 0, 0, "1"), "sel": (None, 0, 0, "7"),
    "soft": ((138, 150, 164), 245, 90, ""), "head": ((138, 150, 164), 245, 90, ""),
    "busy": ((88, 158, 180), 73, 36, ""), "idle": ((125, 138, 154), 245, 90, ""),
    "waste": ((224, 146, 0), 214, 33, "1"), "crit": ((244, 79, 93), 203, 91, "1"),
    "paused": ((150, 115, 210), 140, 35, ""), "lease": ((60, 165, 163), 37, 36, "")}
ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
LEAVE = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"
# Not torn where the terminal knows it, ignored elsewhere.
SYNC, SYNC_END = "\x1b[?2026h", "\x1b[?2026l"
ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_KEY = re.compile(r"\x1b\[[0-9;?<]*[ -/]*[@-~]|\x1bO.|\x1b|[^\x1b]", re.DOTALL)
_UNFINISHED = re.compile(r"\x1b(\[[0-9;?<]*|O)?")
ESCAPE_WAIT_S = 0.05


def colour_depth(env: Mapping[str, str]) -> int:
    if env.get("NO_COLOR") or env.get("TERM") in (None, "", "dumb"):
        return 0
    if env.get("COLORTERM") in ("truecolor", "24bit"):
        return 24
    return 8 if "256" in env["TERM"] else 4


def paint(line: Line, depth: int) -> str:
    return "".join(f"{_sgr(style, depth)}{words}" for words, style in line) + "\x1b[0m"


def bare(line: Line) -> str:
    return "".join(words for words, _ in line).rstrip()


def _sgr(style: str, depth: int) -> str:
    rgb, of_256, of_16, attribute = STYLES[style]
    parts = ["0", attribute]
    if rgb is not None and depth:
        parts.append({24: "38;2;{};{};{}".format(*rgb), 8: f"38;5;{of_256}"}.get(depth, f"{of_16}"))
    return f"\x1b[{';'.join(filter(None, parts))}m"


def is_utf8(encoding: str | None) -> bool:
    with suppress(LookupError):
        return codecs.lookup(encoding or "ascii").name == "utf-8"
    return False


class TerminalScreen:
    """Alternate screen of the terminal, on while it is entered."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self.is_utf8 = is_utf8(sys.stdout.encoding)
        self._depth = colour_depth(env)
        self._before = termios.tcgetattr(0)
        self._bell, self._ring = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._handlers: dict[signal.Signals, Any] = {}
        self._drawn_lines: list[str | None] = []
        self._drawn_size = (0, 0)
        self._is_on = False
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def __enter__(self) -> "TerminalScreen":
        for number in ENDING:
            self._handlers[number] = signal.signal(number, _end)
        self._handlers[signal.SIGWINCH] = signal.signal(signal.SIGWINCH, lambda *_: self.wake())
        self._handlers[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, self._stop)
        try:
            self._on()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._off()
        finally:
            for number, handler in self._handlers.items():
                signal.signal(number, handler)

    def wake(self) -> None:
        """End a wait for keys. From any thread, and from signal handlers."""
        with suppress(BlockingIOError):
            os.write(self._ring, b"x")

    def size(self) -> tuple[int, int]:
        width, height = os.get_terminal_size(1)
        return width or 80, height or 24  # some say 0 while they start

    def draw(self, lines: Sequence[Line]) -> None:
        """Draw the lines that have changed."""
        size = width, height = self.size()
        out = []
        if size != self._drawn_size:
            self._drawn_size = size
            out.append("\x1b[2J")
            self._drawn_lines = []
        self._drawn_lines = self._drawn_lines or [None] * height
        for at, line in enumerate(lines[:height]):
            fits = cut_line(line, width)
            text = paint(fits, self._depth)
            if self._drawn_lines[at] != text:
                self._drawn_lines[at] = text
                # In the last column, to erase the rest would be to erase what was just written.
                is_full = sum(width_of(words) for words, _ in fits) >= width
                out.append(f"\x1b[{at + 1};1H{text}{'' if is_full else chr(27) + '[K'}")
        if out:
            self._write(SYNC + "".join(out) + SYNC_END)

    def forget(self) -> None:
        """Forget what is drawn: all is drawn again."""
        self._drawn_lines = []

    def keys(self, seconds: float) -> list[str]:
        """Return the keys pressed until then, or until somebody calls `wake`."""
        ready = select.select([0, self._bell], [], [], seconds)[0]
        if self._bell in ready:
            with suppress(BlockingIOError):
                while os.read(self._bell, 1_024):
                    pass
        return self._read_keys() if 0 in ready else []

    def _read_keys(self) -> list[str]:
        text = ""
        while True:
            data = os.read(0, 1_024)
            if not data:
                raise EOFError("the terminal has gone")
            text += self._decode(data)
            keys = _KEY.findall(text)
            # An escape sequence may come in two parts; the key Esc comes alone.
            tail = next((at for at in range(len(text) - 1, max(-1, len(text) - 8), -1)
                         if text[at] == "\x1b"), None)
            if tail is None or not _UNFINISHED.fullmatch(text[tail:]) or not (
                    select.select([0], [], [], ESCAPE_WAIT_S)[0]):
                return keys

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Restore the terminal as it was before, for questions. Keys that were hit before they are
        read are no answer to them."""
        self._off()
        termios.tcflush(0, termios.TCIFLUSH)
        try:
            yield
        finally:
            self._on()

    def _stop(self, number: int, _: FrameType | None) -> None:
        """Handle Ctrl-Z."""
        was_on = self._is_on
        self._off()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)  # here we stay until SIGCONT
        signal.signal(number, self._stop)
        if was_on:
            self._on()
            self.wake()

    def _on(self) -> None:
        self._is_on = True
        tty.setcbreak(0)
        self._drawn_size = (0, 0)
        self._write(ENTER)

    def _off(self) -> None:
        if not self._is_on:
            return
        self._is_on = False
        # A terminal that has gone need not be restored, and must not keep us from ending.
        with suppress(OSError):
            self._write(LEAVE)
        with suppress(termios.error):
            termios.tcsetattr(0, termios.TCSADRAIN, self._before)

    def _write(self, text: str) -> None:
        data = text.encode("utf-8" if self.is_utf8 else "ascii", "replace")
        while data:
            try:
                data = data[os.write(1, data):]
            except BlockingIOError:
                select.select([], [1], [])


def _end(number: int, _: FrameType | None) -> None:
    sys.exit(128 + number)
