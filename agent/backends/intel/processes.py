"""Processes on Intel's boards, by what their open files say, and the use of a board, which is the
sum of theirs: the drivers show none of the board's in sysfs."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from gpudeck.measures.metrics import DENIED, UNKNOWN

from ...readings import ProcessReading
from ...tasks.privileges import PROC
from ..drm_clients import DrmClient, DrmClients
from ..sysfs import Answer
from .engines import COMPUTE, EngineShare, counts, own_memory

TURNS = 10  # lists, one a second, until every process was looked at


class BoardUse(NamedTuple):
    util_pct: Answer
    mem_used_bytes: Answer


class _ShareKey(NamedTuple):
    uuid: str
    client: str
    engine: str


@dataclass(slots=True)
class _ProcessUse:
    """Use of one board by one process. `mem_used_bytes` None: its kernel does not say, or its board
    sleeps."""

    mem_used_bytes: float | None = 0.0
    shares: dict[str, float] = field(default_factory=dict)  # of time, by engine class
    has_counters: bool = True  # all its clients
    has_worked: bool = False
    computes: bool = False

    @property
    def sm_pct(self) -> float | None:
        return min(max(self.shares.values()), 100.0) if self.shares else None


class IntelProcessList:
    def __init__(self, uuids: Mapping[str, str], proc: Path = PROC) -> None:
        """`uuids`: of the boards, by PCI address."""
        self._clients = DrmClients(uuids, proc, TURNS)
        self._shares: dict[_ShareKey, EngineShare] = {}
        self._memory: dict[tuple[int, str], float | None] = {}  # that they held last
        self._uses: dict[tuple[int, str], _ProcessUse] = {}
        self._asleep: frozenset[str] = frozenset()

    def read(self, now: float, is_whole: bool, asleep: Mapping[str, Collection[str]]
             ) -> tuple[ProcessReading, ...]:
        """`is_whole` False: a process that opens its first board may be listed some lists late.
        `asleep`: device files of boards that reading what their clients hold might wake."""
        self._asleep = frozenset(asleep)
        devices = {device: uuid for uuid, files in asleep.items() for device in files}
        uses: dict[tuple[int, str], _ProcessUse] = {}
        read = set[_ShareKey]()
        for client in self._clients.read((), is_whole, devices):
            use = uses.setdefault(client[:2], _ProcessUse())
            if client.values:
                read |= self._add(use, client, now)
            else:
                # Nothing is allocated on a board without waking it.
                use.mem_used_bytes = self._memory.get(client[:2])
        self._shares = {key: self._shares[key] for key in read}
        self._memory = {key: use.mem_used_bytes for key, use in uses.items()}
        self._uses = uses
        return tuple(
            ProcessReading(pid, uuid, use.mem_used_bytes, use.sm_pct,
                           "compute" if use.computes else "graphics")
            for (pid, uuid), use in sorted(uses.items())
            if use.mem_used_bytes != 0 or use.has_worked)

    def _add(self, use: _ProcessUse, client: DrmClient, now: float) -> set[_ShareKey]:
        memory = own_memory(client.values)
        use.mem_used_bytes = None if None in (memory, use.mem_used_bytes) else (
            (memory or 0.0) + (use.mem_used_bytes or 0.0))
        engines = counts(client.values)
        use.has_counters &= bool(engines)
        for engine, count in engines.items():
            use.has_worked |= count.busy > 0
            use.computes |= engine in COMPUTE and count.busy > 0
            key = _ShareKey(client.uuid, client.client, engine)
            share = self._shares.setdefault(key, EngineShare()).share_pct(count, now)
            if share is not None:
                use.shares[engine] = use.shares.get(engine, 0.0) + share
        return {_ShareKey(client.uuid, client.client, engine) for engine in engines}

    def use_of(self, uuid: str) -> BoardUse:
        """Return the use of a board as it was listed last. Where a process may be hidden from us
        the sum would be too small: it is denied, and not said."""
        if not self._clients.is_complete:
            return BoardUse(DENIED, DENIED)
        uses = [use for (_, board), use in self._uses.items() if board == uuid]
        memory = [use.mem_used_bytes for use in uses]
        return BoardUse(
            # The drivers keep a board awake while anything runs on it.
            0.0 if uuid in self._asleep else _busiest(uses),
            UNKNOWN if None in memory else float(sum(filter(None, memory))))


def _busiest(uses: Iterable[_ProcessUse]) -> Answer:
    """Return the share of time of the busiest engine class. Unknown while a client has no counters,
    or no client has two readings of them."""
    there = list(uses)
    if not all(use.has_counters for use in there):
        return UNKNOWN
    engines = {engine for use in there for engine in use.shares}
    if there and not engines:
        return UNKNOWN
    return min(max((sum(use.shares.get(engine, 0.0) for use in there) for engine in engines),
                   default=0.0), 100.0)
