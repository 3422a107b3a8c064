"""Keeper of the memory limits that leases and quotas want for control groups: sets, reads back,
clears. Each is on disk before it is set, so that none is left behind.

Called from the node's own thread, which never waits for it. While acts are on hold nothing is set
or cleared."""

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from gpudeck.contract.limits import GroupMemoryLimit

from ..journal.store import JournalError
from ..readings import GroupMemory
from ..runtime.worker import Worker
from .control_groups import GroupTree
from .memory_limits import (
    GONE,
    MemoryKey,
    MemoryStep,
    MemoryTarget,
    agreed,
    cleared,
    is_ours,
    judged,
    step,
)
from .stores import MemoryLimitStore

log = logging.getLogger("gpudeck.agent.limits")

LOOK_S = 1.0  # whether other limits are wanted; the driver is asked only then
ROUND_S = 10.0
AGAIN_AFTER_S, AGAIN_MOST_S = 60.0, 3_600.0  # where it was not set; twice as long each time
GROUP_MOST = 1_024  # characters of a path that a message takes
# The limits that a part of the agent wants; None: it does not know yet.
MemorySource = Callable[[], Sequence[MemoryTarget] | None]


class MemoryDriver(Protocol):
    def memory(self, places: Sequence[tuple[str, str]]) -> list[GroupMemory]: ...
    def set_memory(self, uuid: str, group: str, limit_bytes: int) -> str: ...
    def clear_memory(self, uuid: str, group: str) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryMachine:
    """Machine that a keeper works on. `holds`: who has stopped all actions here."""

    driver: MemoryDriver
    store: MemoryLimitStore
    groups: GroupTree
    boot_id: str
    holds: Callable[[], tuple[str, ...]]

    def is_there(self, limit: GroupMemoryLimit) -> bool:
        """Return whether its group is still that one, and not another of that name."""
        return limit.boot_id == self.boot_id and (
            self.groups.identity(limit.group) == limit.group_id)

    def place(self, limit: GroupMemoryLimit) -> tuple[str, str]:
        return limit.gpu_uuid, self.groups.folder(limit.group)

    def read(self, limits: Sequence[GroupMemoryLimit]) -> dict[MemoryKey, GroupMemory]:
        if not limits:
            return {}
        places = [self.place(limit) for limit in limits]
        return dict(zip(map(key_of, limits), self.driver.memory(places), strict=True))

    def clear(self, limit: GroupMemoryLimit) -> str:
        """Clear a limit of ours; return why it is still there."""
        if trouble := self.driver.clear_memory(*self.place(limit)):
            return trouble
        [current] = self.driver.memory([self.place(limit)])
        return current.trouble or (
            "the driver accepted that and still reports it" if is_ours(limit, current) else "")


class MemoryLimitKeeper:
    """Keeper of one node. `changed`: there may be news. Without `sources` it only clears what was
    set before."""

    def __init__(self, machine: MemoryMachine, sources: Sequence[MemorySource],
                 changed: Callable[[], None]) -> None:
        self._machine = machine
        self._sources = sources
        self._changed = changed
        self._worker = Worker("memory limits", 1)
        self._look_at = self._round_at = 0.0
        self._targets: list[MemoryTarget] | None = None  # of the last round
        self._was_ok = True
        self._is_fresh = True  # the agent, or the driver, has just started
        self._unconfirmed: set[MemoryKey] = set()
        self._retries: dict[MemoryKey, tuple[float, float]] = {}  # not before, and how long it was
        self._is_done = False  # without sources: nothing is left

    def step(self, now: float, is_ok: bool) -> None:
        """Start a round when it is due. `is_ok`: the driver is read."""
        if is_ok and not self._was_ok:
            self._is_fresh, self._look_at, self._round_at = True, 0.0, 0.0
        self._was_ok = is_ok
        if is_ok and now >= self._look_at and not self._is_done:
            self._look_at = now + LOOK_S
            self._worker.put(lambda: self.round(now))

    @property
    def is_idle(self) -> bool:
        return self._worker.is_idle

    def close(self) -> None:
        self._worker.close()

    def round(self, now: float) -> None:
        """Set, read back and clear, if it is time or other limits are wanted than before."""
        parts = [source() for source in self._sources]
        targets = [target for part in parts if part is not None for target in part]
        if None in parts:
            return  # what is not known yet may be what an earlier limit is for
        if targets == self._targets and now < self._round_at:
            return
        self._targets, self._round_at = targets, now + ROUND_S
        try:
            before = self._machine.store.all()
            self._reconcile(before, targets, now)
            after = self._machine.store.all()
        except JournalError as why:
            log.error("memory_limits_not_kept why=%r", str(why))
            return
        self._is_done = not self._sources and not after
        if after != before:
            self._changed()

    def _reconcile(self, before: Sequence[GroupMemoryLimit], targets: Sequence[MemoryTarget],
                   now: float) -> None:
        machine = self._machine
        for limit in before:
            if not machine.is_there(limit):
                self._forget(limit, GONE)
        by_key, refusals = agreed(targets, machine.groups.facts())
        limits = [limit for limit in before if machine.is_there(limit)]
        limits += self._new_limits({key_of(limit) for limit in limits}, by_key)
        keys = {key_of(limit) for limit in limits}
        is_fresh, self._is_fresh = self._is_fresh, False
        self._unconfirmed = keys if is_fresh else self._unconfirmed & keys
        self._retries = {} if is_fresh else {
            key: entry for key, entry in self._retries.items() if key in keys}
        current, is_held = machine.read(limits), bool(machine.holds())
        for limit in limits:
            key = key_of(limit)
            todo = step(limit, by_key.get(key), refusals.get(key, ""), current[key],
                        key in self._unconfirmed)
            self._do(todo, is_held, now)
            if not current[key].trouble and not is_held:
                self._unconfirmed.discard(key)

    def _new_limits(self, present: Collection[MemoryKey],
                    targets: Mapping[MemoryKey, MemoryTarget]) -> list[GroupMemoryLimit]:
        """Return a limit for each target that has none. Nothing of it is on disk yet."""
        return [
            GroupMemoryLimit(target.gpu_uuid, target.group, group_id, target.limit_bytes,
                             target.holder[:GROUP_MOST], self._machine.boot_id, time.time(),
                             state="not_in_force")
            for key, target in targets.items() if key not in present
            and len(target.group) <= GROUP_MOST
            and (group_id := self._machine.groups.identity(target.group)) is not None]

    def _do(self, todo: MemoryStep, is_held: bool, now: float) -> None:
        limit = todo.limit
        if todo.do == "forget":
            self._forget(limit, todo.why)
        elif todo.do == "keep":
            self._note(limit)
        elif is_held:
            self._note(_with_words(limit, "actions are stopped here"))
        elif todo.do == "clear":
            self._clear(todo)
        elif now >= self._retries.get(key_of(limit), (now, 0.0))[0]:
            self._set(limit, now)

    def _forget(self, limit: GroupMemoryLimit, why: str) -> None:
        self._machine.store.end(limit, why)
        log.info("memory_limit_over gpu=%s group=%r why=%r", limit.gpu_uuid, limit.group, why)

    def _note(self, limit: GroupMemoryLimit) -> None:
        store = self._machine.store
        if any(key_of(limit) == key_of(other) for other in store.all()):
            store.note(limit)
        else:
            store.keep(limit)

    def _set(self, limit: GroupMemoryLimit, now: float) -> None:
        """Set a limit. On disk it begins first: after a crash it may be in force or not."""
        machine, key = self._machine, key_of(limit)
        beginning = msgspec.structs.replace(limit, state="beginning", words="")
        machine.store.keep(beginning)
        trouble = machine.driver.set_memory(*machine.place(limit), int(limit.limit_bytes))
        [current] = machine.driver.memory([machine.place(limit)])
        after = judged(beginning, current)
        if trouble and not current.trouble:
            after = _with_words(msgspec.structs.replace(after, state="not_in_force"), trouble)
        if after.state != "in_force":
            last_s = self._retries.get(key, (0.0, AGAIN_AFTER_S / 2))[1]
            again_s = min(2 * last_s, AGAIN_MOST_S)
            self._retries[key] = now + again_s, again_s
        else:
            self._retries.pop(key, None)
        machine.store.note(after)
        log.info("memory_limit_set gpu=%s group=%r state=%s why=%r", limit.gpu_uuid, limit.group,
                 after.state, after.words)

    def _clear(self, todo: MemoryStep) -> None:
        """Clear a limit of ours. What is still there stays on disk, and is cleared again."""
        limit = todo.limit
        if trouble := self._machine.clear(limit):
            log.warning("memory_limit_not_cleared gpu=%s group=%r why=%r", limit.gpu_uuid,
                        limit.group, trouble)
            self._note(_with_words(limit, f"it cannot be cleared: {trouble}"))
        elif todo.is_over:
            self._forget(limit, todo.why)
        else:
            self._note(cleared(limit, todo.why))


def clear_all(machine: MemoryMachine) -> list[str]:
    """Clear all that was set here, as before gpudeck is removed; return what is still there.
    Raises JournalError."""
    remaining = []
    for limit in machine.store.all():
        trouble = ""
        if machine.is_there(limit):
            current = machine.read([limit])[key_of(limit)]
            trouble = current.trouble or (machine.clear(limit) if is_ours(limit, current) else "")
        if trouble:
            remaining.append(f"{limit.gpu_uuid} {limit.group}: {trouble}")
        else:
            machine.store.end(limit, "gpudeck is removed")
    return remaining


def _with_words(limit: GroupMemoryLimit, words: str) -> GroupMemoryLimit:
    return msgspec.structs.replace(limit, words=words[:1_024])


def key_of(limit: GroupMemoryLimit) -> MemoryKey:
    return limit.gpu_uuid, limit.group
