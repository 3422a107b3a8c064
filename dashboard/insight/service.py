"""Service for forecasts of memory, demand, run times and waits, and their track record. All that
reads history and computes runs in a native thread."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..history.reads.protocol import History
from ..pool.plan import leases_of
from ..pool.queries import due
from ..pool.service import PoolService
from ..runtime.native_threads import in_thread
from ..runtime.runner import Loop
from .core.demand import DemandOutlook, forecast
from .core.outlook import (
    PART_S,
    GrowingMemory,
    MemoryTrackRecord,
    growing,
    score,
)
from .core.pool_outlook import PoolOutlook, outlook
from .demand_history import HOUR_S, HeldGpuHours, HourlyNumber, PowerHours
from .queue_history import QueueHours
from .task_memory import TaskMemoryHistory

log = logging.getLogger("gpudeck.insight")

EVERY_S = 10.0
POOL_EVERY_S = 60.0
LATE_S = 75.0  # until a minute is complete in history
CATCHES_UP = 86_400 // PART_S  # parts of the past that are tested after a start
ROWS_MOST = 20_000  # of tasks: with more, catching up on the past would take too long


@dataclass(slots=True)
class InsightService:
    history: History
    boards: Callable[[], Sequence[str]]  # of the fleet now
    pool: PoolService
    queue: QueueHours
    record: MemoryTrackRecord = field(default_factory=MemoryTrackRecord)
    growing: list[GrowingMemory] = field(default_factory=list)
    grown_at: int | None = None  # the end of the minutes that `growing` covers; None: not read yet
    demand: dict[str, DemandOutlook] = field(default_factory=dict)  # by number
    runs: PoolOutlook = field(default_factory=PoolOutlook)
    _memory: TaskMemoryHistory = field(init=False)
    _hours: dict[str, HourlyNumber] = field(init=False)
    _pool_mono: float = float("-inf")
    _caught_up: int = 0
    _rows: int = 0

    def __post_init__(self) -> None:
        self._memory = TaskMemoryHistory(self.history.rules)
        self._hours = {"gpus_held": HeldGpuHours(self.history),
                       "power_w": PowerHours(self.history, self.boards),
                       "gpus_waited_for": self.queue}

    @property
    def loop(self) -> Loop:
        return Loop("insight", self.step, EVERY_S)

    def step(self, now: float, mono: float) -> None:
        end = int(now - LATE_S) // PART_S * PART_S
        if self.grown_at is None or end > self.grown_at:
            self._update_memory(end)
        elif self._caught_up < CATCHES_UP and self._rows <= ROWS_MOST:
            self._caught_up += 1
            past = end - self._caught_up * PART_S
            self.record.add(in_thread(lambda: score(self._memory.until(past), past)))
        waiting = due(self.pool.waiting(self.pool.nodes), now)
        self.queue.note(sum(claim.gpus * claim.nodes for claim in waiting), now)
        self._update_demand(now)
        if mono - self._pool_mono >= POOL_EVERY_S:
            self._pool_mono = mono
            self._update_pool(now, mono)

    def _update_memory(self, end: int) -> None:
        def read() -> None:
            memory = self._memory.until(end)
            self._rows = len(memory.keys)
            self.record.add(score(memory, end))
            self.growing, self.grown_at = growing(memory), end

        in_thread(read)

    def _update_demand(self, now: float) -> None:
        def read() -> None:
            for name, number in self._hours.items():
                if number.step(now) or name not in self.demand:
                    hours = number.hours(now)
                    first = int(now // HOUR_S) - len(hours)
                    self.demand |= {name: DemandOutlook(first, hours, forecast(hours, least=0.0))}

        in_thread(read)

    def _update_pool(self, now: float, mono: float) -> None:
        pool = self.pool
        leases, finished = leases_of(pool.nodes, (), now), pool.ended.recent

        def predict() -> PoolOutlook:
            pool.run_times.learn(finished, pool.team_of, mono)
            return outlook(leases, finished, pool.run_times.of_leases(leases, now))

        self.runs = in_thread(predict)
