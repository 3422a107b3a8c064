"""Users of a simulated node. Its processes all belong to the user who runs the simulation; their
environment says whose they are in its story."""

import os
import time
from collections.abc import Collection
from pathlib import Path

from gpudeck.simulated_user import USER_ENV

from ...tasks.people import SystemPeople
from ...tasks.terminals import TerminalReach, clean
from .folder import PROC
from .reader import parse_options

ENVIRON_BYTES = 1_000_000
_MARK = f"\0{USER_ENV}=".encode()


class SimulatedPeople(SystemPeople):
    """People of the story. `terminals`: a file for messages to them, since no real terminal gets
    one about a made-up task. None: there is no story, and the user of the process is notified."""

    def __init__(self, terminals: Path | None) -> None:
        super().__init__()
        self._terminals = terminals

    def name_of(self, uid: int, pid: int) -> str:
        return _user_in(PROC / str(pid) / "environ") or super().name_of(uid, pid)

    def uids_of(self, names: Collection[str]) -> dict[str, int | str]:
        """Return the uids: everybody has an account here."""
        return {name: uid if isinstance(uid, int) else os.geteuid()
                for name, uid in super().uids_of(names).items()}

    def look_up(self, uid: int) -> None:
        """Look up nothing: the groups of its people are not those of this machine."""

    def groups_of(self, uid: int) -> tuple[str, ...]:
        return ()

    def notify(self, uid: int, sentences: list[str]) -> TerminalReach:
        if self._terminals is None:
            return super().notify(uid, sentences)
        stamp = time.strftime("%H:%M")
        try:
            with open(self._terminals, "a", encoding="utf-8") as file:
                file.writelines(f"[{stamp}] {clean(sentence)}\n"
                                for sentence in sentences if sentence)
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
