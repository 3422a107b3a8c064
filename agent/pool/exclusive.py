"""Leased GPUs in exclusive-process mode, where a node is set to: beside the process of the lease no
other can begin there. Which of them it has set is on disk, so that each is set back."""

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from gpudeck.pool.core.claims import WHOLE_MILLI

from ..journal.facts import Fact
from ..journal.store import ActionJournal, JournalError
from ..limits.apply import MODES
from ..readings import GpuLimits
from .lock import NodeLease, PoolGpu

log = logging.getLogger("gpudeck.agent.pool")

AGAIN_AFTER_S = 30.0
UNCHANGED = "the driver accepted it and changed nothing"
DEFAULT, EXCLUSIVE = MODES["default"], MODES["exclusive_process"]


class ModeDriver(Protocol):
    def read(self, uuids: Sequence[str]) -> dict[str, GpuLimits]: ...
    def set_mode(self, uuid: str, mode: int) -> str: ...


class ExclusiveGpus:
    """`kept_otherwise`: GPUs whose mode somebody has ordered. `holds`: who holds all acts here."""

    def __init__(self, journal: ActionJournal, driver: ModeDriver,
                 kept_otherwise: Callable[[], Collection[str]],
                 holds: Callable[[], Collection[str]]) -> None:
        self._journal = journal
        self._driver = driver
        self._kept_otherwise = kept_otherwise
        self._holds = holds
        self._ours: frozenset[str] = frozenset()
        self._is_read = False
        self._left_alone: frozenset[str] = frozenset()
        self._lock = threading.Lock()
        self._not_before = float("-inf")

    def _read(self) -> None:
        """Raises JournalError. Of what is not understood no mode can be set back."""
        text = self._journal.fact(Fact.POOL_MODES)
        try:
            self._ours = frozenset(msgspec.json.decode(text or "[]", type=list[str]))
        except msgspec.MsgspecError as error:
            log.error("exclusive_not_understood why=%r", str(error))
            self._journal.keep(Fact.POOL_MODES, None, {
                "pool": "unread", "modes": (text or "")[:2_000], "why": str(error)})
        self._is_read = True

    def is_due(self, leases: Iterable[NodeLease], gpus: Mapping[str, PoolGpu], now: float) -> bool:
        """Cheap: the driver is not asked."""
        wanted = exclusive_gpus(leases, gpus)
        self._left_alone &= wanted  # with the next lease it is tried again
        return now >= self._not_before and (
            not self._is_read or not self._ours <= wanted
            or not wanted <= self._ours | self._left_alone)

    def step(self, leases: Iterable[NodeLease], gpus: Mapping[str, PoolGpu], now: float) -> None:
        """Waits for the driver."""
        with self._lock:
            wanted = exclusive_gpus(leases, gpus)
            self._left_alone &= wanted
            self._not_before = now + AGAIN_AFTER_S  # unless all goes well
            if self._holds():
                return
            if not self._is_read:
                try:
                    self._read()
                except JournalError as why:
                    log.error("exclusive_not_read why=%r", str(why))
                    return
            begin, over = wanted - self._ours - self._left_alone, self._ours - wanted
            found = self._driver.read(sorted(begin | over))
            try:
                is_done = all([self._begin(uuid, found[uuid]) for uuid in sorted(begin)]
                              + [self._end(uuid, found[uuid]) for uuid in sorted(over)])
            except JournalError as why:
                log.error("exclusive_not_recorded why=%r", str(why))
                return
            if is_done:
                self._not_before = now

    def _begin(self, uuid: str, found: GpuLimits) -> bool:
        if found.compute_mode != DEFAULT or uuid in self._kept_otherwise():
            return self._leave_alone(uuid, found.trouble or "its mode is not the default one")
        self._keep(self._ours | {uuid}, uuid, "exclusive")
        if trouble := self._set(uuid, EXCLUSIVE):
            # It may have been set all the same: as ours, it is looked at when the lease is over.
            return self._leave_alone(uuid, trouble)
        return True

    def _end(self, uuid: str, found: GpuLimits) -> bool:
        if found.trouble:
            return False
        is_ours = found.compute_mode == EXCLUSIVE and uuid not in self._kept_otherwise()
        if is_ours and (trouble := self._set(uuid, DEFAULT)):
            log.error("exclusive_not_set_back gpu=%s why=%r", uuid, trouble)
            return False
        self._keep(self._ours - {uuid}, uuid, "default")
        return True

    def _set(self, uuid: str, mode: int) -> str:
        """Why the driver does not show it afterwards: some accept it and change nothing."""
        if trouble := self._driver.set_mode(uuid, mode):
            return trouble
        found = self._driver.read([uuid])[uuid]
        return found.trouble or ("" if found.compute_mode == mode else UNCHANGED)

    def _leave_alone(self, uuid: str, why: str) -> bool:
        log.warning("exclusive_not_set gpu=%s why=%r", uuid, why)
        self._journal.audit.record({"pool": "mode", "gpu": uuid, "mode": "unchanged", "why": why})
        self._left_alone |= {uuid}
        return True

    def _keep(self, ours: frozenset[str], uuid: str, mode: str) -> None:
        text = msgspec.json.encode(sorted(ours)).decode() if ours else None
        self._journal.keep(Fact.POOL_MODES, text, {"pool": "mode", "gpu": uuid, "mode": mode})
        self._ours = ours


def exclusive_gpus(leases: Iterable[NodeLease], gpus: Mapping[str, PoolGpu]) -> frozenset[str]:
    """Whole boards that somebody has to himself. A part is held by MPS, for several; an instance of
    MIG has no compute mode."""
    return frozenset(uuid for lease in leases if lease.state == "active"
                     and lease.claim.share_milli == WHOLE_MILLI
                     for uuid in lease.uuids if uuid in gpus and not gpus[uuid].is_mig)
