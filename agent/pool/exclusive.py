"""Exclusive-process mode of leased GPUs, where a node enables it: no other process can start beside
the lease's. The GPUs that it has set are on disk, so that each is set back."""

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
    """Compute modes that leases set. `set_elsewhere`: GPUs whose mode somebody has ordered.
    `holds`: who has stopped all actions here."""

    def __init__(self, journal: ActionJournal, driver: ModeDriver,
                 set_elsewhere: Callable[[], Collection[str]],
                 holds: Callable[[], Collection[str]]) -> None:
        self._journal = journal
        self._driver = driver
        self._set_elsewhere = set_elsewhere
        self._holds = holds
        self._owned: frozenset[str] = frozenset()
        self._is_read = False
        self._left_alone: frozenset[str] = frozenset()
        self._lock = threading.Lock()
        self._not_before = float("-inf")

    def _read(self) -> None:
        """Read the GPUs that were set. Raises JournalError. What is not understood is not set
        back."""
        text = self._journal.fact(Fact.POOL_MODES)
        try:
            self._owned = frozenset(msgspec.json.decode(text or "[]", type=list[str]))
        except msgspec.MsgspecError as error:
            log.error("exclusive_not_understood why=%r", str(error))
            self._journal.keep(Fact.POOL_MODES, None, {
                "pool": "unread", "modes": (text or "")[:2_000], "why": str(error)})
        self._is_read = True

    def is_due(self, leases: Iterable[NodeLease], gpus: Mapping[str, PoolGpu], now: float) -> bool:
        """Return whether a step has anything to do. Cheap: the driver is not asked."""
        targets = exclusive_gpus(leases, gpus)
        self._left_alone &= targets  # with the next lease it is tried again
        return now >= self._not_before and (
            not self._is_read or not self._owned <= targets
            or not targets <= self._owned | self._left_alone)

    def step(self, leases: Iterable[NodeLease], gpus: Mapping[str, PoolGpu], now: float) -> None:
        """Set and reset modes as the leases require. Waits for the driver."""
        with self._lock:
            targets = exclusive_gpus(leases, gpus)
            self._left_alone &= targets
            self._not_before = now + AGAIN_AFTER_S  # unless all goes well
            if self._holds():
                return
            if not self._is_read:
                try:
                    self._read()
                except JournalError as why:
                    log.error("exclusive_not_read why=%r", str(why))
                    return
            begin, over = targets - self._owned - self._left_alone, self._owned - targets
            limits = self._driver.read(sorted(begin | over))
            try:
                is_done = all([self._begin(uuid, limits[uuid]) for uuid in sorted(begin)]
                              + [self._end(uuid, limits[uuid]) for uuid in sorted(over)])
            except JournalError as why:
                log.error("exclusive_not_recorded why=%r", str(why))
                return
            if is_done:
                self._not_before = now

    def _begin(self, uuid: str, current: GpuLimits) -> bool:
        if current.compute_mode != DEFAULT or uuid in self._set_elsewhere():
            return self._leave_alone(uuid, current.trouble or "its mode is not the default one")
        self._keep(self._owned | {uuid}, uuid, "exclusive")
        if trouble := self._set(uuid, EXCLUSIVE):
            # It may have been set all the same: as ours, it is looked at when the lease is over.
            return self._leave_alone(uuid, trouble)
        return True

    def _end(self, uuid: str, current: GpuLimits) -> bool:
        if current.trouble:
            return False
        is_ours = current.compute_mode == EXCLUSIVE and uuid not in self._set_elsewhere()
        if is_ours and (trouble := self._set(uuid, DEFAULT)):
            log.error("exclusive_not_set_back gpu=%s why=%r", uuid, trouble)
            return False
        self._keep(self._owned - {uuid}, uuid, "default")
        return True

    def _set(self, uuid: str, mode: int) -> str:
        """Set a mode; return why the driver does not show it afterwards: some accept it and change
        nothing."""
        if trouble := self._driver.set_mode(uuid, mode):
            return trouble
        current = self._driver.read([uuid])[uuid]
        return current.trouble or ("" if current.compute_mode == mode else UNCHANGED)

    def _leave_alone(self, uuid: str, why: str) -> bool:
        log.warning("exclusive_not_set gpu=%s why=%r", uuid, why)
        self._journal.audit.record({"pool": "mode", "gpu": uuid, "mode": "unchanged", "why": why})
        self._left_alone |= {uuid}
        return True

    def _keep(self, owned: frozenset[str], uuid: str, mode: str) -> None:
        text = msgspec.json.encode(sorted(owned)).decode() if owned else None
        self._journal.keep(Fact.POOL_MODES, text, {"pool": "mode", "gpu": uuid, "mode": mode})
        self._owned = owned


def exclusive_gpus(leases: Iterable[NodeLease], gpus: Mapping[str, PoolGpu]) -> frozenset[str]:
    """Return the whole boards of active leases. A share is held by MPS, for several users; a MIG
    instance has no compute mode."""
    return frozenset(uuid for lease in leases if lease.state == "active"
                     and lease.claim.share_milli == WHOLE_MILLI
                     for uuid in lease.uuids if uuid in gpus and not gpus[uuid].is_mig)
