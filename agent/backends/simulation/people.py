"""Users of a simulated node. Its processes all belong to the user who runs the simulation; whose
they are in its story they say themselves."""

import os
import time
from pathlib import Path

from gpudeck.simulated_user import USER_ENV

from ...tasks.people import SystemPeople
from ...tasks.terminals import TerminalReach, clean
from .folder import PROC
from .reader import parse_options

ENVIRON_BYTES = 1_000_000
_MARK = f"\0{USER_ENV}=".encode()


class SimulatedPeople(SystemPeople):
    """`terminals`: a file for what people are told, since no real terminal hears of a made-up task.
    None: there is no story, and whoever has the process is told."""

    def __init__(self, terminals: Path | None) -> None:
        super().__init__()
        self._terminals = terminals

    def name_of(self, uid: int, pid: int) -> str:
        return _user_in(PROC / str(pid) / "environ") or super().name_of(uid, pid)

    def uid_of(self, name: str) -> int | None:
        """Everybody has an account here."""
        found = super().uid_of(name)
        return os.geteuid() if found is None else found

    def groups_of(self, uid: int) -> tuple[str, ...]:
        return ()

    def tell(self, uid: int, sentences: list[str]) -> TerminalReach:
        if self._terminals is None:
            return super().tell(uid, sentences)
        stamp = time.strftime("%H:%M")
        try:
            with open(self._terminals, "a", encoding="utf-8") as file:
                file.writelines(f"[{stamp}] {clean(each)}\n" for each in sentences if each)
        except OSError:
            return TerminalReach()
        return TerminalReach(terminals=1)


def open_people(options: str) -> SimulatedPeople:
    world = parse_options(options).world
    return SimulatedPeople(None if world is None else world / "terminals.txt")


def _user_in(environ: Path) -> str:
    try:
        with open(environ, "rb") as file:
            text = b"\0" + file.read(ENVIRON_BYTES)
    except OSError:
        return ""
    at = text.find(_MARK)
    return "" if at < 0 else text[at + len(_MARK):].split(b"\0", 1)[0].decode(errors="replace")[:64]
