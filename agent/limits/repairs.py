"""Follow-up of repairs: which GPUs of this node are out of service, and what becomes of them. A
drain ends by itself when nothing is left on its GPUs, and a node that was to be rebooted was.

Called from the node's own thread, which never waits for the disk."""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Sequence

from gpudeck.contract.repairs import (
    AT_WORK,
    WHOLE_NODE,
    WORDS,
    GpuRepair,
    RepairsNow,
    after,
    observe,
)
from gpudeck.contract.wire import GpuFacts

from ..journal.store import JournalError
from ..runtime.action_lock import ActionLock
from ..runtime.worker import Worker
from ..tasks.seen import GpuTask
from .stores import RepairStore

log = logging.getLogger("gpudeck.agent.limits")

ROUND_S = 2.0  # as often as processes are listed


class RepairKeeper:
    def __init__(self, store: RepairStore, boot_id: str, lock: ActionLock,
                 wake: Callable[[], None]) -> None:
        """Follow the repairs of a node. `lock`: held while an act is in flight here."""
        self._store = store
        self._boot_id = boot_id
        self._lock = lock
        self._wake = wake
        self._worker = Worker("repairs", 2)
        self._used_boards: frozenset[str] | None = None  # boards; None: not listed yet
        self._next_at = 0.0
        self._last_report: RepairsNow | None = None
        self._news: RepairsNow | None = None

    def observe(self, tasks: Iterable[GpuTask], facts: Collection[GpuFacts]) -> None:
        board_of = {gpu.uuid: gpu.parent_uuid or gpu.uuid for gpu in facts}
        self._used_boards = frozenset(board_of.get(task.gpu_uuid, task.gpu_uuid) for task in tasks)

    def connected(self) -> None:
        self._last_report = None
        self._next_at = 0.0

    def changed(self) -> None:
        """Start a round soon: an act has just been done."""
        self._next_at = 0.0

    def step(self, now: float) -> None:
        if now < self._next_at or (self._last_report is not None and self._store.is_surely_empty
                                   and not self._last_report.repairs):
            return  # a simulator has a thousand nodes of which none is under repair
        self._next_at = now + ROUND_S
        self._worker.put(self._round)

    def poll(self) -> Sequence[RepairsNow]:
        news, self._news = self._news, None
        return () if news is None else (news,)

    @property
    def is_idle(self) -> bool:
        return self._worker.is_idle

    def close(self) -> None:
        self._worker.close()

    def _round(self) -> None:
        try:
            for repair in self._store.all():
                self._follow(repair)
            news = RepairsNow(time.time(), self._store.all())
        except JournalError as why:
            news = RepairsNow(time.time(), self._store.all_or_closed(), str(why)[:1_024])
        last = self._last_report
        if last is None or (news.repairs, news.trouble) != (last.repairs, last.trouble):
            self._last_report = self._news = news
            self._wake()

    def _follow(self, repair: GpuRepair) -> None:
        if repair.state in AT_WORK:
            self._follow_act(repair)
            return
        now = observe(repair, self._is_used(repair.gpu_uuid), self._boot_id, time.time())
        if now is not None:
            self._store.turn(repair, now)
            log.info("repair gpu=%s state=%s why=%r", now.gpu_uuid, now.state, now.words)

    def _follow_act(self, repair: GpuRepair) -> None:
        """Follow a repair that is marked as running: if no process holds the lock, the one that ran
        it died."""
        if not self._lock.take(0.0):
            return
        try:
            if repair in self._store.all():
                now = after(repair, "cut_short", time.time(), f"{WORDS[repair.state]} when the "
                            "agent ended; what became of it is not known")
                assert now is not None
                self._store.turn(repair, now)
        finally:
            self._lock.free()

    def _is_used(self, uuid: str) -> bool | None:
        boards = self._used_boards
        if boards is None:
            return None
        return bool(boards) if uuid == WHOLE_NODE else uuid in boards
