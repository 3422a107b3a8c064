"""Reconciler of what was set. Timed limits and compute modes are set again after the driver or the
agent was restarted, timed limits are undone at their end, and all are read back meanwhile; MPS is
looked at too.

Called from the node's own thread, which never waits for it. While acts are on hold nothing is
set."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from gpudeck.contract.limits import (
    GroupMemoryLimit,
    LimitsNow,
    ManagedComputeMode,
    ManagedMigLayout,
    MpsDaemon,
    MpsFinding,
    TimedLimit,
)

from ..journal.store import JournalError
from ..readings import GpuLimits
from ..runtime.action_lock import ActionLock
from ..runtime.worker import Worker
from ..tasks.processes import row_of
from . import compute_modes, mig_layouts, mps_doctor, mps_shares, mps_view
from .apply import MODES, UNSURE, apply, clock_now, judged_now, not_undone, undo
from .mps_store import devices
from .stores import L, LimitStores
from .timed_limits import LimitStep, is_read, left_s, step

log = logging.getLogger("gpudeck.agent.limits")

ROUND_S = 10.0
LOOK_S = 1.0
# All that MPS can say is a dozen questions, and its log keeps five lines of each.
MPS_ROUND_S = 60.0


@dataclass(frozen=True, slots=True)
class DriverFacts:
    """Driver as it was read last. `boards`: how many devices MPS may be asked about; `modes`: the
    compute mode of each."""

    boards: int
    driver: str | None = None
    modes: Mapping[str, int | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _MpsSnapshot:
    """MPS as seen last. If any of the first three changes, everything is checked again."""

    acts: int
    machine: DriverFacts
    clients: Mapping[int, tuple[int, ...]]
    at: float
    daemons: tuple[MpsDaemon, ...]
    findings: tuple[MpsFinding, ...]


ManagedLimits = tuple[tuple[TimedLimit, ...], tuple[ManagedComputeMode, ...],
                      tuple[ManagedMigLayout, ...]]


def _holds_nothing(limits: LimitStores) -> bool:
    return all(store.is_surely_empty for store in (limits.timed, limits.modes, limits.layouts,
                                                   limits.memory))


class LimitReconciler:
    """Reconciler of one node. `holds`: who has stopped all actions; nothing is set meanwhile.
    `suspend_trouble`: why no task can be suspended, by the driver's version."""

    def __init__(self, limits: LimitStores, boot_id: str, holds: Callable[[], tuple[str, ...]],
                 lock: ActionLock, machine: Callable[[], DriverFacts],
                 suspend_trouble: Callable[[str | None], str],
                 wake: Callable[[], None]) -> None:
        self._limits = limits
        self._boot_id = boot_id
        self._holds = holds
        self._lock = lock
        self._machine = machine
        self._suspend_trouble = suspend_trouble
        self._wake = wake
        self._worker = Worker("limits", 4)
        # Whoever runs a daemon can let us wait: no timed limit ends later for it.
        self._looker = Worker("mps", 1)
        self._reporting = threading.Lock()
        self._is_fresh = True  # the agent, or the driver, has just started
        self._unconfirmed: set[str] = set()  # what since then was not seen, or not set again yet
        self._was_ok = True
        self._next_at = 0.0
        self._ends_at: float | None = None
        self._mps: _MpsSnapshot | None = None
        self._has_looked = not limits.mps.program
        self._managed: ManagedLimits | None = None
        self._memory: tuple[GroupMemoryLimit, ...] = ()
        self._unread = ""
        self._acts = 0
        self._last_report: LimitsNow | None = None
        self._news: LimitsNow | None = None

    @property
    def daemons(self) -> tuple[MpsDaemon, ...] | None:
        """Daemons as seen last; None: not yet."""
        if not self._has_looked:
            return None
        snapshot = self._mps
        return () if snapshot is None else snapshot.daemons

    def connected(self) -> None:
        self._last_report = None
        self._next_at = 0.0

    def changed(self) -> None:
        """Start a round soon: an act has just been done."""
        self._next_at = 0.0
        self._acts += 1

    def step(self, now: float, is_ok: bool) -> None:
        """Start a round when it is due, and when a timed limit ends. `is_ok`: the driver is
        read."""
        if is_ok and not self._was_ok:
            self._is_fresh, self._next_at = True, 0.0
        self._was_ok = is_ok
        is_over = self._ends_at is not None and now >= self._ends_at
        if not is_ok or not (now >= self._next_at or is_over):
            return
        self._next_at = now + (LOOK_S if is_over else ROUND_S)
        self._ends_at = None
        if self._last_report is None or not _holds_nothing(self._limits):
            self._worker.put(self._round)
        else:  # a simulator has a thousand nodes without any of this
            self._is_fresh = False
        if self._limits.mps.program:
            self._looker.put(self._look_and_report)

    def poll(self) -> list[LimitsNow]:
        news, self._news = self._news, None
        return [] if news is None else [news]

    @property
    def is_idle(self) -> bool:
        return self._worker.is_idle and self._looker.is_idle

    def close(self) -> None:
        self._worker.close()
        self._looker.close()

    def _round(self) -> None:
        try:
            managed, self._memory = self._all(), self._limits.memory.all()
            if any(managed):
                managed = self._reconcile_shares(self._reconcile(managed))
            else:
                self._is_fresh = False
                self._unconfirmed.clear()
        except JournalError as why:
            log.error("leases_not_read why=%r", str(why))
            return
        self._plan_end(managed[0])
        self._managed = managed
        if (unread := self._limits.unread) != self._unread:
            self._unread = unread
            log.error("limits_not_understood why=%r", unread)
        self._report()

    def _all(self) -> ManagedLimits:
        limits = self._limits
        return limits.timed.all(), limits.modes.all(), limits.layouts.all()

    def _reconcile(self, managed: ManagedLimits) -> ManagedLimits:
        if not self._lock.take(0.0):  # an act is in flight: it may be on one of these
            return managed
        try:
            limits, modes, layouts = self._all()
            readings = self._limits.applier.read(sorted(
                {entry.gpu_uuid for part in (limits, modes) for entry in part}))
            is_fresh, self._is_fresh = self._is_fresh, False
            keys = {_key(entry) for part in (limits, modes, layouts) for entry in part}
            self._unconfirmed = keys if is_fresh else self._unconfirmed & keys
            is_held, clock = bool(self._holds()), clock_now(self._boot_id)
            for limit in limits:
                if limit.what == "mps_share":
                    continue
                current = readings.get(limit.gpu_uuid)
                todo = step(limit, current, clock, _key(limit) in self._unconfirmed)
                if self._do(todo, current, is_held):
                    self._unconfirmed.discard(_key(limit))
            for mode in modes:
                if self._hold_mode(mode, readings.get(mode.gpu_uuid), is_held):
                    self._unconfirmed.discard(_key(mode))
            for layout in layouts:
                is_unconfirmed = _key(layout) in self._unconfirmed
                if _follow(self._limits, layout, is_unconfirmed, is_held):
                    self._unconfirmed.discard(_key(layout))
            return self._all()
        finally:
            self._lock.free()

    def _reconcile_shares(self, managed: ManagedLimits) -> ManagedLimits:
        """Do the same for shares of MPS. Their daemons are asked last, and without the lock: one
        that lets us wait keeps nobody from acting here."""
        shares = {limit: mps_shares.read(self._limits.mps, limit) for limit in managed[0]
                  if limit.what == "mps_share"}
        if not shares or not self._lock.take(0.0):
            return managed
        try:
            is_held, clock = bool(self._holds()), clock_now(self._boot_id)
            for limit in self._limits.timed.all():
                if (share := shares.get(limit)) is not None:
                    self._do(mps_shares.step(limit, share, clock), None, is_held)
                    self._unconfirmed.discard(_key(limit))
            return self._all()
        finally:
            self._lock.free()

    def _do(self, step: LimitStep, current: GpuLimits | None, is_held: bool) -> bool:
        """Do a step; return whether nothing is left to be set again."""
        if step.do == "keep":
            self._limits.timed.note(step.limit)
            return is_read(current)
        if is_held:
            self._limits.timed.note(_on_hold(step.limit))
            return False
        if step.do == "apply":
            return self._apply(step.limit)
        trouble, applier = "", self._limits.applier
        if step.do == "undo" and step.limit.what == "mps_share":
            trouble = mps_shares.undo(self._limits.mps, step.limit)
        elif step.do == "undo":
            trouble = undo(applier, step.limit) or not_undone(applier, step.limit)
        if trouble:  # it stays, and is tried again
            words = f"{step.why}, and it cannot be undone: {trouble}"
            self._limits.timed.note(msgspec.structs.replace(step.limit, words=words[:1_024]))
            log.warning("lease_not_undone gpu=%s why=%r", step.limit.gpu_uuid, trouble)
        else:
            self._limits.timed.end(step.limit, step.why)
            log.info("lease_over gpu=%s why=%r", step.limit.gpu_uuid, step.why)
        return True

    def _apply(self, limit: TimedLimit) -> bool:
        """Set a limit again. False: the driver did not answer, and is asked again."""
        trouble = apply(self._limits.applier, limit)
        reset = msgspec.structs.replace(limit, state="not_in_force")
        now = (msgspec.structs.replace(reset, words=trouble[:1_024]) if trouble
               else judged_now(self._limits.applier, reset))
        self._limits.timed.note(now, is_again=True)
        log.info("lease_applied_again gpu=%s state=%s", limit.gpu_uuid, now.state)
        return not trouble.startswith(UNSURE)

    def _hold_mode(self, mode: ManagedComputeMode, current: GpuLimits | None, is_held: bool
                   ) -> bool:
        """Hold a mode; return whether nothing is left to be set again."""
        now = compute_modes.judged(mode, current)
        if now.state != "not_in_force":
            self._limits.modes.note(now)
            return is_read(current)
        if not compute_modes.is_forgotten(mode, _key(mode) in self._unconfirmed):
            self._limits.modes.note(compute_modes.left_alone(mode, now))
            return True
        if is_held:
            self._limits.modes.note(_on_hold(now))
            return False
        trouble = self._limits.applier.set_mode(mode.gpu_uuid, MODES[mode.mode])
        if trouble:
            now = msgspec.structs.replace(now, words=f"not set again: {trouble}"[:1_024])
        else:
            reread = self._limits.applier.read([mode.gpu_uuid]).get(mode.gpu_uuid)
            now = compute_modes.judged(mode, reread)
        self._limits.modes.note(now, is_again=True)
        log.info("mode_applied_again gpu=%s state=%s", mode.gpu_uuid, now.state)
        return not trouble.startswith(UNSURE)

    def _plan_end(self, limits: tuple[TimedLimit, ...]) -> None:
        clock = clock_now(self._boot_id)
        remaining = [seconds for limit in limits if (seconds := left_s(limit, clock)) > 0]
        self._ends_at = time.monotonic() + min(remaining) if remaining else None

    def _task_id(self, pid: int) -> str | None:
        row = row_of(pid)
        return None if row is None else f"{self._boot_id[:8]}-{pid}-{row.start_ticks}"

    def _look_and_report(self) -> None:
        self._mps = None if mps_view.why_not(self._limits.mps) else self._look_at_mps()
        self._has_looked = True
        self._report()

    def _report(self) -> None:
        """Report, once both have been looked at."""
        with self._reporting:
            if self._managed is None or not self._has_looked:
                return
            limits, snapshot = self._limits, self._mps
            news = LimitsNow(time.time(), () if snapshot is None else snapshot.daemons,
                             self._managed[0], mps_view.why_not(limits.mps),
                             limits.applier.trouble(),
                             () if snapshot is None else snapshot.findings, *self._managed[1:],
                             limits.unread, self._memory or msgspec.UNSET,
                             self._suspend_trouble(self._machine().driver) or msgspec.UNSET)
            if self._last_report is not None and _same(news) == _same(self._last_report):
                return
            self._last_report = self._news = news
        self._wake()

    def _look_at_mps(self) -> _MpsSnapshot:
        """Look at all of MPS now and then, and when acts, the driver or clients have changed."""
        limits, machine, now, last = self._limits, self._machine(), time.monotonic(), self._mps
        acts, clients = self._acts, limits.mps.clients()
        if last is not None and now < last.at + MPS_ROUND_S and (
                (acts, machine, clients) == (last.acts, last.machine, last.clients)):
            return last
        try:
            defaults = limits.mps_settings.defaults()
        except JournalError:
            defaults = ()  # the timed limits beside it tell of a journal that cannot be read
        daemons = mps_view.daemons(limits.mps, devices(machine.boards, defaults),
                                   limits.mps_settings.of, self._task_id, machine.driver)
        modes = machine.modes if last is None or acts == last.acts else (
            _modes_after_an_act(limits, machine))
        findings = mps_doctor.findings(limits.mps, machine.driver, modes, defaults)
        return _MpsSnapshot(acts, machine, clients, now, daemons, findings)


def _modes_after_an_act(limits: LimitStores, machine: DriverFacts) -> Mapping[str, int | None]:
    """Read the modes after an act: readings report them only every 15 s."""
    if limits.applier.trouble() or not machine.modes:
        return machine.modes
    return {uuid: gpu.compute_mode for uuid, gpu in limits.applier.read([*machine.modes]).items()}


def _follow(limits: LimitStores, layout: ManagedMigLayout, is_unconfirmed: bool, is_held: bool
            ) -> bool:
    """Follow a layout; return whether nothing is left to be created again."""
    now = mig_layouts.followed(layout, limits.applier.mig(layout.gpu_uuid), is_unconfirmed, is_held,
                               limits.applier)
    limits.layouts.note(now)
    return now.state not in ("unknown", "not_in_force")


def _on_hold(limit: L) -> L:
    return msgspec.structs.replace(limit, words=f"{limit.words}; actions are stopped here"[:1_024])


def _key(limit: TimedLimit | ManagedComputeMode | ManagedMigLayout) -> str:
    if isinstance(limit, TimedLimit):
        return f"{limit.lease_id} {limit.gpu_uuid}"
    return f"{'mode' if isinstance(limit, ManagedComputeMode) else 'mig'} {limit.gpu_uuid}"


def _same(news: LimitsNow) -> LimitsNow:
    """Return the news without what moves by itself."""
    return msgspec.structs.replace(news, taken_at=0.0, leases=tuple(
        msgspec.structs.replace(limit, seen_at=None, seen=None,
                                words="" if limit.what == "clocks" else limit.words)
        for limit in news.leases))
