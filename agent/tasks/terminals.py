"""Writes to people at the terminals of this machine. Only at their own."""

import os
import re
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gpudeck.language.printable import printable

from .user_table import name_of

TERMINALS = (Path("/dev/pts"), Path("/dev"))
PROC = Path("/proc")
_NAME = re.compile(r"\d+|tty\d+")
# They hold a console while nobody has signed in at it.
_WAITING = (b"agetty", b"getty", b"mingetty", b"login")
LINE_MAX = 1_000
NOBODY_SIGNED_IN = 2**32 - 1
ROOT = 0


@dataclass(frozen=True, slots=True)
class TerminalReach:
    """Reach of a message to one user's terminals: `terminals` took it whole; at `denials` this
    process may not write; at `mutes` their user lets nobody (mesg n)."""

    terminals: int = 0
    denials: int = 0
    mutes: int = 0


def notify(uid: int, sentences: list[str]) -> TerminalReach:
    stamp = time.strftime("%H:%M")
    lines = "".join(f"{clean(sentence)}\r\n" for sentence in sentences if sentence)
    message = f"\r\n\a[{stamp}] {lines}".encode()
    occupied: frozenset[int] | None = None if uid == ROOT else frozenset()
    answers = []
    for path in _terminals():
        if uid == ROOT and path.name.startswith("tty"):
            # A console is root's when nobody sits there; other people's it is while they do.
            occupied = with_people() if occupied is None else occupied
            if not _is_one_of(path, occupied):
                continue
        answers.append(_write(path, uid, message))
    return TerminalReach(answers.count("written"), answers.count("denied"), answers.count("muted"))


def with_people(proc: Path = PROC) -> frozenset[int]:
    """Device numbers of terminals with a process started by the user logged in there."""
    return frozenset(number for folder in proc.iterdir() if folder.name.isdigit()
                     if (number := _terminal_of(folder / "stat")) is not None)


def _terminal_of(stat_file: Path) -> int | None:
    try:
        head, _, rest = stat_file.read_bytes().rpartition(b")")
        number = int(rest.split(maxsplit=5)[4])
    except (OSError, IndexError, ValueError):
        return None
    return None if number == 0 or head.partition(b"(")[2] in _WAITING else number


def _is_one_of(path: Path, numbers: frozenset[int]) -> bool:
    try:
        return os.stat(path).st_rdev in numbers
    except OSError:
        return False


def clean(text: str) -> str:
    return printable(text, " ")[:LINE_MAX]


def _terminals() -> Iterator[Path]:
    for folder in TERMINALS:
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        yield from (folder / name for name in names if _NAME.fullmatch(name))


def _write(path: Path, uid: int, message: bytes) -> Literal["written", "denied", "muted", "none"]:
    """Write without blocking: somebody may have stopped their terminal."""
    try:
        about = os.lstat(path)
        if about.st_uid != uid:
            return "none"
        fd = os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except PermissionError:
        return "denied" if about.st_mode & stat.S_IWGRP else "muted"
    except OSError:
        return "none"
    try:
        about = os.fstat(fd)  # of what was opened, not of what was looked at
        if about.st_uid != uid or not stat.S_ISCHR(about.st_mode) or not os.isatty(fd):
            return "none"
        return "written" if os.write(fd, message) == len(message) else "none"
    except OSError:
        return "none"
    finally:
        os.close(fd)


def who_is_here() -> str:
    """Return who sits at this terminal; through sudo and su too, where the kernel keeps who signed
    in."""
    user = name_of(os.getuid())
    try:
        signed_in = int(Path("/proc/self/loginuid").read_text())
    except (OSError, ValueError):
        signed_in = NOBODY_SIGNED_IN
    if signed_in in (NOBODY_SIGNED_IN, os.getuid()):
        return user
    return f"{name_of(signed_in)} as {user}"
