"""What gpudeck has set of MPS, on disk: the defaults that are to hold, and what servers gave to
clients that had begun already. What somebody else has set is not in it."""

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from gpudeck.limits import (
    PRESETS,
    MpsMemory,
    MpsPercent,
    MpsPreset,
    MpsPriority,
    MpsSetting,
    MpsStop,
)

from .acts_journal import ActsJournal, JournalRefuses
from .processes import row_of

GIVEN = "mps given"
DEFAULTS = "mps defaults"
MOST_GIVEN = 64
MOST_DEFAULTS = 256

Default = MpsPercent | MpsMemory | MpsPriority
_DEFAULTS: msgspec.json.Decoder[tuple[Default, ...]] = msgspec.json.Decoder(tuple[Default, ...])


class Given(msgspec.Struct, frozen=True, array_like=True):
    """When a server's share was changed, these clients (pid, start) had the former one already, and
    they keep it."""

    pipes: str
    server: int
    boot_id: str
    pct: float
    clients: tuple[tuple[int, int], ...]


@dataclass(slots=True)
class MpsBook:
    journal: ActsJournal
    boot_id: str

    def note(self, pipes: str, server: int, before: float, pids: Iterable[int]) -> None:
        rows = [row for row in map(row_of, pids) if row is not None]
        new = Given(pipes, server, self.boot_id, before,
                    tuple((row.pid, row.start_ticks) for row in rows))

        def turned(text: str | None) -> str:
            return msgspec.json.encode((*_given(text), new)[-MOST_GIVEN:]).decode()

        self.journal.change(GIVEN, turned)

    def of(self, pipes: str, server: int, pid: int) -> float | None:
        """None: what the server gives now."""
        row = row_of(pid)
        if row is None:
            return None
        try:
            known = _given(self.journal.fact(GIVEN))
        except JournalRefuses:
            return None
        client = (pid, row.start_ticks)
        return next((each.pct for each in known
                     if (each.pipes, each.server, each.boot_id) == (pipes, server, self.boot_id)
                     and client in each.clients), None)

    def now_wanted(self, setting: MpsSetting) -> None:
        """After it was read back. Of a server's own values nothing is kept: they end with it."""
        new = _as_defaults(setting)
        if not new and not isinstance(setting, MpsStop):
            return

        def turned(text: str | None) -> str | None:
            kept = [each for each in _defaults(text) if not _is_replaced(each, setting, new)]
            found = (*kept, *new)[-MOST_DEFAULTS:]
            return msgspec.json.encode(found).decode() if found else None

        self.journal.change(DEFAULTS, turned)

    def wanted(self) -> tuple[Default, ...]:
        """Raises JournalRefuses."""
        return _defaults(self.journal.fact(DEFAULTS))


def _as_defaults(setting: MpsSetting) -> tuple[Default, ...]:
    match setting:
        case MpsPriority():
            return (setting,)
        case MpsPercent(server=None) | MpsMemory(server=None):
            return (setting,)
        case MpsPreset():
            pct, priority = PRESETS[setting.name]
            share = () if setting.server is not None else (MpsPercent(setting.pipes, pct),)
            return (*share, MpsPriority(setting.pipes, priority))
    return ()


def _is_replaced(old: Default, by: MpsSetting, new: tuple[Default, ...]) -> bool:
    if isinstance(by, MpsStop):
        return old.pipes == by.pipes
    return any((type(old), old.pipes, getattr(old, "ordinal", None))
               == (type(each), each.pipes, getattr(each, "ordinal", None)) for each in new)


def _defaults(text: str | None) -> tuple[Default, ...]:
    try:
        return _DEFAULTS.decode(text or "[]")
    except msgspec.MsgspecError:
        return ()


def _given(text: str | None) -> tuple[Given, ...]:
    try:
        return msgspec.json.decode(text or "[]", type=tuple[Given, ...])
    except msgspec.MsgspecError:
        return ()
