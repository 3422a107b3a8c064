"""What gpudeck has set of MPS, on disk: the defaults that are to hold, and what servers gave to
clients that had begun already. What somebody else has set is not in it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from gpudeck.limits import (
    ORDINALS,
    PRESETS,
    MpsMemory,
    MpsPercent,
    MpsPreset,
    MpsPriority,
    MpsSetting,
    MpsStop,
)

from ..journal.facts import Fact
from ..journal.store import ActionJournal, JournalError
from ..tasks.processes import row_of
from .mps import GIB_MIB, MpsDaemonHandle, shown_limit

MOST_GIVEN = 64
MOST_DEFAULTS = 256

Default = MpsPercent | MpsMemory | MpsPriority
_DEFAULTS: msgspec.json.Decoder[tuple[Default, ...]] = msgspec.json.Decoder(tuple[Default, ...])


class MpsShareRecord(msgspec.Struct, frozen=True, array_like=True):
    """When a server's share was changed, these clients (pid, start) had the former one already, and
    they keep it."""

    pipes: str
    server: int
    boot_id: str
    pct: float
    clients: tuple[tuple[int, int], ...]


@dataclass(slots=True)
class MpsSettingStore:
    journal: ActionJournal
    boot_id: str

    def note(self, pipes: str, server: int, before: float, pids: Iterable[int]) -> None:
        rows = [row for row in map(row_of, pids) if row is not None]
        new = MpsShareRecord(pipes, server, self.boot_id, before,
                             tuple((row.pid, row.start_ticks) for row in rows))

        def turned(text: str | None) -> str:
            return msgspec.json.encode((*_given(text), new)[-MOST_GIVEN:]).decode()

        self.journal.change(Fact.MPS_SHARES, turned)

    def of(self, pipes: str, server: int, pid: int) -> float | None:
        """None: what the server gives now."""
        row = row_of(pid)
        if row is None:
            return None
        try:
            known = _given(self.journal.fact(Fact.MPS_SHARES))
        except JournalError:
            return None
        client = (pid, row.start_ticks)
        return next((each.pct for each in known
                     if (each.pipes, each.server, each.boot_id) == (pipes, server, self.boot_id)
                     and client in each.clients), None)

    def now_wanted(self, setting: MpsSetting) -> None:
        """After it was read back. Of a server's own values nothing is kept: they end with it."""
        setting = msgspec.structs.replace(setting, pipes=str(Path(setting.pipes)))  # "/run/mps/"
        new = _as_defaults(setting)
        if not new and not isinstance(setting, MpsStop):
            return

        def turned(text: str | None) -> str | None:
            kept = [each for each in _defaults(text) if not _is_replaced(each, setting, new)]
            found = (*kept, *new)[-MOST_DEFAULTS:]
            return msgspec.json.encode(found).decode() if found else None

        self.journal.change(Fact.MPS_DEFAULTS, turned)

    def wanted(self) -> tuple[Default, ...]:
        """Raises JournalError."""
        return _defaults(self.journal.fact(Fact.MPS_DEFAULTS))


def devices(boards: int, wanted: Iterable[Default]) -> list[int]:
    """That MPS is asked about: those there are, and those for which something was set."""
    return sorted({*range(boards), *(each.ordinal for each in wanted
                                     if isinstance(each, MpsMemory) and each.mem_mib is not None)})


def as_it_is(daemon: MpsDaemonHandle, pipes: str, wanted: Iterable[Default]
             ) -> tuple[list[Default], list[str]]:
    """The defaults of a daemon, to be set again in one that comes after it, and in words what
    cannot be. What it does not say, and what it shows coarser than it was set, is as `wanted`."""
    known = {(type(each), getattr(each, "ordinal", None)): each for each in wanted}
    pct, priority = daemon.percent(), daemon.priority()
    found = [known.get((MpsPriority, None)) if priority is None
             else MpsPriority(pipes, 1 if priority else 0)]
    if pct is not None and pct != int(pct):
        return [*_there(found), *_memory(daemon, pipes, known, True)], [
            f"{pct:g} % of the threads: whole percents are set here"]
    found.append(known.get((MpsPercent, None)) if pct is None else MpsPercent(pipes, int(pct)))
    return [*_there(found), *_memory(daemon, pipes, known, pct is not None)], []


def _there(found: Iterable[Default | None]) -> Iterator[Default]:
    return (each for each in found if each is not None)


def _memory(daemon: MpsDaemonHandle, pipes: str, known: Mapping[tuple[type, int | None], Default],
            answers: bool) -> Iterator[Default]:
    """Of all devices: no list of GPUs says of which others have set it, and to ask takes a tenth of
    a second. `answers` False: to ask would be to wait."""
    for ordinal in range(ORDINALS):
        limit = daemon.memory(ordinal) if answers else None
        ours = known.get((MpsMemory, ordinal))
        if isinstance(ours, MpsMemory) and ours.mem_mib is not None and limit in (
                None, shown_limit(ours.mem_mib)):
            yield ours
        elif limit:
            size = int(limit[:-1]) * (GIB_MIB if limit.endswith("G") else 1)
            yield MpsMemory(pipes, ordinal, size)


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


def _given(text: str | None) -> tuple[MpsShareRecord, ...]:
    try:
        return msgspec.json.decode(text or "[]", type=tuple[MpsShareRecord, ...])
    except msgspec.MsgspecError:
        return ()
