"""Settings of MPS that gpudeck has made, on disk: the defaults that are to hold, and what servers
gave to clients that had begun already. What somebody else has set is not in it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from gpudeck.contract.limits import (
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
    """Former share of a server, which these clients (pid, start) from before the change keep."""

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
            return msgspec.json.encode((*_records(text), new)[-MOST_GIVEN:]).decode()

        self.journal.change(Fact.MPS_SHARES, turned)

    def of(self, pipes: str, server: int, pid: int) -> float | None:
        """Return the share that a client began with. None: what the server gives now."""
        row = row_of(pid)
        if row is None:
            return None
        try:
            records = _records(self.journal.fact(Fact.MPS_SHARES))
        except JournalError:
            return None
        client = (pid, row.start_ticks)
        return next((record.pct for record in records
                     if (record.pipes, record.server, record.boot_id)
                     == (pipes, server, self.boot_id) and client in record.clients), None)

    def now_wanted(self, setting: MpsSetting) -> None:
        """Store a setting that was read back. A server's own values are not stored: they end with
        it."""
        setting = msgspec.structs.replace(setting, pipes=str(Path(setting.pipes)))  # "/run/mps/"
        new = _as_defaults(setting)
        if not new and not isinstance(setting, MpsStop):
            return

        def turned(text: str | None) -> str | None:
            remaining = [default for default in _defaults(text)
                         if not _is_replaced(default, setting, new)]
            defaults = (*remaining, *new)[-MOST_DEFAULTS:]
            return msgspec.json.encode(defaults).decode() if defaults else None

        self.journal.change(Fact.MPS_DEFAULTS, turned)

    def defaults(self) -> tuple[Default, ...]:
        """Return the defaults that are to hold. Raises JournalError."""
        return _defaults(self.journal.fact(Fact.MPS_DEFAULTS))


def devices(boards: int, defaults: Iterable[Default]) -> list[int]:
    """Return the devices to ask MPS about: those present, and those with a limit of ours."""
    return sorted({*range(boards), *(
        default.ordinal for default in defaults
        if isinstance(default, MpsMemory) and default.mem_mib is not None)})


def as_it_is(daemon: MpsDaemonHandle, pipes: str, defaults: Iterable[Default]
             ) -> tuple[list[Default], list[str]]:
    """Return a daemon's defaults, to be set again in its successor, and in words those that cannot
    be. What it does not say, or shows coarser than it was set, is taken from `defaults`."""
    by_kind = {(type(default), getattr(default, "ordinal", None)): default for default in defaults}
    pct, priority = daemon.percent(), daemon.priority()
    present = [by_kind.get((MpsPriority, None)) if priority is None
               else MpsPriority(pipes, 1 if priority else 0)]
    if pct is not None and pct != int(pct):
        return [*_without_none(present), *_memory(daemon, pipes, by_kind, True)], [
            f"{pct:g} % of the threads: whole percents are set here"]
    present.append(by_kind.get((MpsPercent, None)) if pct is None else MpsPercent(pipes, int(pct)))
    return [*_without_none(present), *_memory(daemon, pipes, by_kind, pct is not None)], []


def _without_none(values: Iterable[Default | None]) -> Iterator[Default]:
    return (value for value in values if value is not None)


def _memory(daemon: MpsDaemonHandle, pipes: str, by_kind: Mapping[tuple[type, int | None], Default],
            answers: bool) -> Iterator[Default]:
    """Yield the memory limits of all devices: no list of GPUs says for which of them others have
    set one, and asking takes a tenth of a second. `answers` False: asking would mean waiting."""
    for ordinal in range(ORDINALS):
        limit = daemon.memory(ordinal) if answers else None
        default = by_kind.get((MpsMemory, ordinal))
        if isinstance(default, MpsMemory) and default.mem_mib is not None and limit in (
                None, shown_limit(default.mem_mib)):
            yield default
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
               == (type(default), default.pipes, getattr(default, "ordinal", None))
               for default in new)


def _defaults(text: str | None) -> tuple[Default, ...]:
    try:
        return _DEFAULTS.decode(text or "[]")
    except msgspec.MsgspecError:
        return ()


def _records(text: str | None) -> tuple[MpsShareRecord, ...]:
    try:
        return msgspec.json.decode(text or "[]", type=tuple[MpsShareRecord, ...])
    except msgspec.MsgspecError:
        return ()
