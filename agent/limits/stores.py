"""Stores of what is set on this node and is to hold: on disk before it is in force, so that no
limit is ever left without its end."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import msgspec

from gpudeck.contract.limits import (
    MAX_LEASES,
    GroupMemoryLimit,
    ManagedComputeMode,
    ManagedMigLayout,
    TimedLimit,
)
from gpudeck.contract.repairs import MAX_REPAIRS, WHOLE_NODE, GpuRepair
from gpudeck.contract.suspensions import MAX_SUSPENSIONS, SuspendedTask

from ..journal.facts import Fact
from ..journal.leases import leased_gpus, leases_of_gpus, waiting_leases
from ..journal.store import ActionJournal, FileMark, JournalError
from .apply import LimitApplier
from .mps import LocalMpsDaemons
from .mps_store import MpsSettingStore
from .timed_limits import same_limit, with_new

L = TypeVar("L", TimedLimit, ManagedComputeMode, ManagedMigLayout, GpuRepair,
            SuspendedTask, GroupMemoryLimit)


READ_AGAIN_S = 30.0  # whatever the times of the file are
UNREAD_MOST = 2_000  # characters of what is not understood, in the audit


class NotUnderstoodError(JournalError):
    """Something on disk without which nobody may say what is in service here."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the {what} on this node's disk are not understood; to return the whole "
                         "node to service (gpudeck node return) forgets them")


class _StoredRead(NamedTuple, Generic[L]):
    """Limits as they were in a file with this mark, or are to be there; each thread makes it whole,
    so that no mark is beside what another thread has read."""

    limits: tuple[L, ...]
    mark: FileMark | None
    at: float


class StoredLimits(ABC, Generic[L]):
    """Limits of one kind, together in the journal. Raises JournalError. `is_shared`: another
    process may write it as well; else what was read once holds. What is not understood stays on
    disk as it is, beside what is."""

    _fact: ClassVar[Fact]
    _kind: type[L]
    _plural: ClassVar[str]
    _is_closed_by_unread: ClassVar[bool] = False  # then nothing of it can be used

    def __init__(self, journal: ActionJournal, is_shared: bool = True) -> None:
        self._journal = journal
        self._is_shared = is_shared
        self._last: _StoredRead[L] | None = None
        self._unread: tuple[msgspec.Raw, ...] = ()

    @property
    def unread(self) -> str:
        """Description of what was not understood when it was read last; "": nothing."""
        count = len(self._unread)
        return f"{count} of the {self._plural} on this node's disk" if count else ""

    def all(self) -> tuple[L, ...]:
        last = self._last
        if self._is_shared or last is None:
            mark, at = self._journal.mark(), time.monotonic()  # before it is read
            last = self._last = _StoredRead(
                self._read(self._journal.fact(self._fact)), mark, at)
        return last.limits

    @property
    def is_surely_empty(self) -> bool:
        """True if it is known to be empty without a look at what is on disk."""
        last = self._last
        if last is None or last.limits:
            return False
        return not self._is_shared or (
            not self._unread and last.mark is not None
            and time.monotonic() - last.at < READ_AGAIN_S
            and last.mark == self._journal.mark())

    def note(self, limit: L, is_again: bool = False) -> None:
        """Store what is known of a limit now; in the audit log where it is another state than
        before, and where it was set again."""
        key = self._key(limit)
        was = next((other for other in self.all() if self._key(other) == key), None)
        if was is None or (was == limit and not is_again):
            return
        event = "again" if is_again else "state" if was.state != limit.state else ""
        self._change(lambda all: tuple(limit if self._key(old) == key else old for old in all),
                     self._record(event, limit) if event else None)

    @abstractmethod
    def _key(self, limit: L) -> str: ...

    @abstractmethod
    def _record(self, event: str, limit: L) -> dict[str, Any]:
        """Return the record for the audit log."""

    def _change(self, turn: Callable[[tuple[L, ...]], tuple[L, ...]],
                record: dict[str, Any] | None) -> None:
        """Change what is stored. `record` is written in one go with it."""
        def turned(text: str | None) -> str | None:
            limits: tuple[L, ...] = turn(self._read(text))
            self._last = _StoredRead(limits, None, time.monotonic())
            after = [*limits, *self._unread]
            return msgspec.json.encode(after).decode() if after else None

        try:
            self._journal.change(self._fact, turned, record)
        except JournalError:
            self._last = None
            raise

    def _read(self, text: str | None) -> tuple[L, ...]:
        limits, unread = decode_limits(text or "[]", self._kind)
        if unread and self._is_closed_by_unread:
            raise NotUnderstoodError(self._plural)
        self._unread = unread
        return limits


def decode_limits(text: str, kind: type[L]) -> tuple[tuple[L, ...], tuple[msgspec.Raw, ...]]:
    """Return what is understood, and the rest of it."""
    try:
        parts = msgspec.json.decode(text, type=tuple[msgspec.Raw, ...])
    except msgspec.MsgspecError:
        return (), (msgspec.Raw(msgspec.json.encode(text)),)
    limits: list[L] = []
    unread: list[msgspec.Raw] = []
    for part in parts:
        try:
            limits.append(msgspec.json.decode(part, type=kind))
        except msgspec.MsgspecError:
            unread.append(part)
    return tuple(limits), tuple(unread)


class TimedLimitStore(StoredLimits[TimedLimit]):
    _fact, _kind, _plural = Fact.TIMED_LIMITS, TimedLimit, "power caps and clock locks"

    def begin(self, limit: TimedLimit) -> None:
        """Begin a limit. It takes the place of another on the same limit."""
        self._change(lambda all: with_new(all, limit),
                     {"kind": "lease", "lease": msgspec.to_builtins(limit)})

    def end(self, limit: TimedLimit, why: str) -> None:
        self._change(lambda all: tuple(
            other for other in all if not same_limit(other, limit.gpu_uuid, limit.what)),
                     _is_over(limit, why))

    def put_back(self, limit: TimedLimit, former: tuple[TimedLimit, ...]) -> None:
        """Take back a limit that never came to be: what it took the place of is there again."""
        self._change(lambda _: former, _is_over(limit, "it was refused"))

    def _key(self, limit: TimedLimit) -> str:
        """Key of lease and GPU: one command may limit several GPUs."""
        return f"{limit.lease_id} {limit.gpu_uuid}"

    def _record(self, event: str, limit: TimedLimit) -> dict[str, Any]:
        return {"kind": f"lease_{event}", "lease_id": limit.lease_id, "gpu_uuid": limit.gpu_uuid,
                "state": limit.state, "words": limit.words}


def _is_over(limit: TimedLimit, why: str) -> dict[str, Any]:
    return {"kind": "lease_over", "lease_id": limit.lease_id, "gpu_uuid": limit.gpu_uuid,
            "why": why}


class ComputeModeStore(StoredLimits[ManagedComputeMode]):
    _fact, _kind, _plural = Fact.COMPUTE_MODES, ManagedComputeMode, "compute modes"

    def keep(self, mode: ManagedComputeMode) -> None:
        self._change(lambda all: (*_without(all, mode.gpu_uuid), mode)[-MAX_LEASES:],
                     {"kind": "mode", "mode": msgspec.to_builtins(mode)})

    def forget(self, uuid: str) -> ManagedComputeMode | None:
        """Forget a mode; return what was kept. None: nothing."""
        was = next((mode for mode in self.all() if mode.gpu_uuid == uuid), None)
        if was is not None:
            self._change(lambda all: _without(all, uuid), self._record("over", was))
        return was

    def _key(self, mode: ManagedComputeMode) -> str:
        return mode.gpu_uuid

    def _record(self, event: str, mode: ManagedComputeMode) -> dict[str, Any]:
        return {"kind": f"mode_{event}", "mode": msgspec.to_builtins(mode)}


K = TypeVar("K", ManagedComputeMode, ManagedMigLayout, GpuRepair)


def _without(entries: tuple[K, ...], uuid: str) -> tuple[K, ...]:
    return tuple(entry for entry in entries if entry.gpu_uuid != uuid)


class MigLayoutStore(StoredLimits[ManagedMigLayout]):
    _fact, _kind, _plural = Fact.MIG_LAYOUTS, ManagedMigLayout, "MIG layouts"

    def of(self, uuid: str) -> ManagedMigLayout | None:
        return next((layout for layout in self.all() if layout.gpu_uuid == uuid), None)

    def keep(self, layout: ManagedMigLayout) -> None:
        self._change(lambda all: (*_without(all, layout.gpu_uuid), layout)[-MAX_LEASES:],
                     self._record("kept", layout))

    def forget(self, layout: ManagedMigLayout) -> None:
        self._change(lambda all: _without(all, layout.gpu_uuid), self._record("over", layout))

    def _key(self, layout: ManagedMigLayout) -> str:
        return layout.gpu_uuid

    def _record(self, event: str, layout: ManagedMigLayout) -> dict[str, Any]:
        return {"kind": f"mig_layout_{event}", "mig_layout": msgspec.to_builtins(layout)}


class MemoryLimitStore(StoredLimits[GroupMemoryLimit]):
    _fact, _kind, _plural = Fact.MEMORY_LIMITS, GroupMemoryLimit, "memory limits of control groups"

    def keep(self, limit: GroupMemoryLimit) -> None:
        """Keep a limit. Raises JournalError, also where there are too many."""
        others = self._all_but(limit)
        if len(others) >= MAX_LEASES:
            raise JournalError(f"{MAX_LEASES} memory limits are kept already")
        self._change(lambda all: (*self._all_but(limit), limit), self._record("kept", limit))

    def end(self, limit: GroupMemoryLimit, why: str) -> None:
        self._change(lambda all: self._all_but(limit), self._record("over", limit) | {"why": why})

    def _all_but(self, limit: GroupMemoryLimit) -> tuple[GroupMemoryLimit, ...]:
        return tuple(other for other in self.all() if self._key(other) != self._key(limit))

    def _key(self, limit: GroupMemoryLimit) -> str:
        return f"{limit.gpu_uuid} {limit.group}"

    def _record(self, event: str, limit: GroupMemoryLimit) -> dict[str, Any]:
        return {"kind": f"memory_limit_{event}", "memory_limit": msgspec.to_builtins(limit)}


class RepairStore(StoredLimits[GpuRepair]):
    """Repairs of this node: what is out of service, and when boards were reset. Raises
    NotUnderstoodError where that is not known, until `forget_unread`."""

    _fact, _kind, _plural = Fact.REPAIRS, GpuRepair, "repairs"
    _is_closed_by_unread = True

    def of(self, uuid: str) -> GpuRepair | None:
        """Return a GPU's own record, not that of its whole node."""
        return next((repair for repair in self.all() if repair.gpu_uuid == uuid), None)

    def keep(self, repair: GpuRepair) -> None:
        if len(self.all()) >= MAX_REPAIRS and self.of(repair.gpu_uuid) is None:
            raise JournalError(f"{MAX_REPAIRS} records of repairs are kept already")
        self._change(lambda all: (*_without(all, repair.gpu_uuid), repair),
                     self._record("kept", repair))

    def end(self, repair: GpuRepair, by: str) -> None:
        self._change(lambda all: _without(all, repair.gpu_uuid),
                     self._record("over", repair) | {"ended_by": by})

    def turn(self, before: GpuRepair, now: GpuRepair) -> None:
        """Replace a record, unless somebody else has changed it since."""
        def turned(all: tuple[GpuRepair, ...]) -> tuple[GpuRepair, ...]:
            return tuple(now if repair == before else repair for repair in all)

        self._change(turned, self._record("state", now))

    def resets(self, uuid: str, since: float) -> int:
        times = self._reset_times(self._journal.fact(Fact.RESETS))
        return sum(at > since for at in times.get(uuid, ()))

    def note_reset(self, uuid: str, now: float, within_s: float) -> None:
        """Note a reset before it is tried: one that ends the node counts too."""
        def turned(text: str | None) -> str:
            times = {gpu: [at for at in resets if at > now - within_s]
                     for gpu, resets in self._reset_times(text).items()}
            times[uuid] = [*times.get(uuid, ()), now]
            return msgspec.json.encode({gpu: resets for gpu, resets in times.items() if resets}
                                       ).decode()

        self._journal.change(Fact.RESETS, turned)

    def _reset_times(self, text: str | None) -> dict[str, list[float]]:
        try:
            return msgspec.json.decode(text or "{}", type=dict[str, list[float]])
        except msgspec.MsgspecError as error:
            raise NotUnderstoodError(Fact.RESETS) from error

    @property
    def is_understood(self) -> bool:
        try:
            self._reset_times(self._journal.fact(Fact.RESETS))
            self._read(self._journal.fact(Fact.REPAIRS))
        except NotUnderstoodError:
            return False
        return True

    def forget_unread(self, by: str) -> None:
        """Forget what is not understood, and nothing else; it stays in the audit log."""
        text = self._journal.fact(Fact.REPAIRS) or "[]"
        repairs, unread = decode_limits(text, GpuRepair)
        if unread:
            self._journal.keep(
                Fact.REPAIRS, msgspec.json.encode(repairs).decode() if repairs else None,
                {"kind": "repairs_unread", "unread": text[:UNREAD_MOST], "ended_by": by})
        text = self._journal.fact(Fact.RESETS) or "{}"
        try:
            self._reset_times(text)
        except NotUnderstoodError:
            self._journal.keep(Fact.RESETS, None, {
                "kind": "resets_unread", "unread": text[:UNREAD_MOST], "ended_by": by})
        self._last = None

    def all_or_closed(self) -> tuple[GpuRepair, ...]:
        """Return all repairs; if they cannot be read, one that takes the whole node out of
        service."""
        try:
            return self.all()
        except JournalError as why:
            return (self.whole_node(why),)

    def whole_node(self, why: JournalError) -> GpuRepair:
        return GpuRepair(WHOLE_NODE, "cordoned", "the agent", str(why)[:1_024], 0.0, 0.0, "unknown")

    def _key(self, repair: GpuRepair) -> str:
        return repair.gpu_uuid

    def _record(self, event: str, repair: GpuRepair) -> dict[str, Any]:
        return {"kind": f"repair_{event}", "repair": msgspec.to_builtins(repair)}


class SuspensionStore(StoredLimits[SuspendedTask]):
    """Tasks that are suspended. The driver lists them no more: what is forgotten here is a process
    that nobody can bring back."""

    _fact, _kind, _plural = Fact.SUSPENSIONS, SuspendedTask, "suspensions"

    def of(self, pid: int, start_ticks: int) -> SuspendedTask | None:
        return next((task for task in self.all() if task.has(pid, start_ticks)), None)

    def begin(self, task: SuspendedTask) -> None:
        if len(self.all()) >= MAX_SUSPENSIONS:
            raise JournalError(f"{MAX_SUSPENSIONS} tasks are suspended here already")
        self._change(lambda all: (*_all_but(all, task), task), self._record("begun", task))

    def turn(self, before: SuspendedTask, now: SuspendedTask) -> None:
        """Replace a record, unless somebody else has changed it since."""
        self._change(lambda all: tuple(now if task == before else task for task in all),
                     self._record("state", now))

    def end(self, task: SuspendedTask, why: str) -> None:
        self._change(lambda all: _all_but(all, task), self._record("over", task) | {"why": why})

    def _key(self, task: SuspendedTask) -> str:
        return task.task_id

    def _record(self, event: str, task: SuspendedTask) -> dict[str, Any]:
        return {"kind": f"suspension_{event}", "suspension": msgspec.to_builtins(task)}


def _all_but(all: tuple[SuspendedTask, ...], task: SuspendedTask) -> tuple[SuspendedTask, ...]:
    return tuple(other for other in all if other.task_id != task.task_id)


@dataclass(frozen=True, slots=True)
class LimitStores:
    """Limits of one node: `applier` for GPUs, `mps` for MPS; the others are on disk."""

    applier: LimitApplier
    mps: LocalMpsDaemons
    timed: TimedLimitStore
    modes: ComputeModeStore
    mps_settings: MpsSettingStore
    repairs: RepairStore
    layouts: MigLayoutStore
    suspensions: SuspensionStore
    memory: MemoryLimitStore
    leased: Callable[[], frozenset[str]]  # GPUs that a lease of the pool holds; JournalError
    leases_of_gpus: Callable[[], frozenset[tuple[str, str]]]  # the same, each with its lease
    waiting_leases: Callable[[], frozenset[str]]  # whose work is suspended; JournalError

    @property
    def unread(self) -> str:
        return unread_words(self.timed, self.modes, self.layouts, self.memory)


def unread_words(*stores: StoredLimits[Any]) -> str:
    """Describe what the journal keeps and nobody understands; "": nothing."""
    unread = " and ".join(store.unread for store in stores if store.unread)
    return unread and (f"{unread} cannot be understood, so gpudeck neither holds nor undoes them: "
                       "compare the limits of the boards with what they should be")


def open_limits(applier: LimitApplier, mps: LocalMpsDaemons, journal: ActionJournal, boot_id: str,
                is_shared: bool) -> LimitStores:
    """Open the stores. `is_shared`: another process may write the journal as well."""
    return LimitStores(applier, mps, TimedLimitStore(journal, is_shared),
                       ComputeModeStore(journal, is_shared), MpsSettingStore(journal, boot_id),
                       RepairStore(journal, is_shared), MigLayoutStore(journal, is_shared),
                       SuspensionStore(journal, is_shared), MemoryLimitStore(journal, is_shared),
                       partial(leased_gpus, journal, boot_id),
                       partial(leases_of_gpus, journal, boot_id),
                       partial(waiting_leases, journal, boot_id))
