"""A past for tests, written by the engine itself: some hours of two Nodes, in files, before a hub
starts on that folder."""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from dashboard.history.columns.memory import BLOCK_S
from dashboard.history.columns.rows import HistoryMessage
from dashboard.history.files.sealing import GRACE_S, LATE_S
from dashboard.history.reads.embedded import EmbeddedHistory
from gpudeck.contract.wire import Event, Hello, Inventory, Task, Tasks, Use
from tests.integration.hubs import WireAgent
from tests.unit.fleets import frame

EVERY_S = 10
MINUTE_S, HOUR_S = 60, 3_600
KINDS = ("gpu_lost", "task_ended", "nvlink_down", "gpu_back")
BAD = ("gpu_lost", "nvlink_down")
TEXT = "<b>python</b> secret.py"
OWNERS = ("alice", "bob", "=cmd|' /C calc'!A1")  # the last one is no friend of spreadsheets


@dataclass
class Past:
    """`begin` to `end`, with a hole in it. Of every GPU, some minutes are idle; on the first of
    each Node two owners share."""

    begin: int
    end: int
    agents: list[WireAgent] = field(default_factory=lambda: [
        WireAgent(f"p{random.randrange(10**6)}") for _ in range(2)])
    lots: random.Random = field(default_factory=random.Random)
    events: list[tuple[str, int, str]] = field(default_factory=list)  # node, t, kind

    @property
    def hole(self) -> tuple[int, int]:
        middle = (self.begin + self.end) // 2
        return middle - middle % MINUTE_S, middle - middle % MINUTE_S + 10 * MINUTE_S

    def uuid(self, node: int = 0, gpu: int = 0) -> str:
        return self.agents[node].facts[gpu].uuid

    def write(self, folder: Path) -> "Past":
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        history = EmbeddedHistory(folder / "history")
        history.open()
        for agent in self.agents:
            hello = Hello((1,), bytes(32), b"", agent.node_id, "h", "boot", "past", 0, "0", "test")
            history.append([HistoryMessage(agent.node_id, "past", 0.0, hello),
                            HistoryMessage(agent.node_id, "past", 0.0, Inventory(1, agent.facts))],
                           1)
        for t in range(self.begin, self.end, EVERY_S):
            if not self.hole[0] <= t < self.hole[1]:
                history.append([message for at in range(len(self.agents))
                                for message in self._second(at, t)], 1)
            if t % BLOCK_S < EVERY_S:
                history.store.maintain(t)
        history.store.maintain(self.end + BLOCK_S + GRACE_S)
        history.store.maintain(self.end + BLOCK_S + GRACE_S + LATE_S)
        assert history.info().open_seconds == 0
        history.close()
        return self

    def _second(self, at: int, t: int) -> Iterable[HistoryMessage]:
        agent, minute = self.agents[at], t // MINUTE_S
        rows = []
        for gpu in range(len(agent.facts)):
            is_idle = (minute + gpu) % 3 == 0
            util = 0.0 if is_idle else self.lots.uniform(20, 100)
            rows.append({"util_pct": util, "util_max_pct": util, "temp_c": 40.0 + minute % 30,
                         "mem_used_bytes": 2e10, "power_w": float(round(80 + 5 * util))})
        seq = t - self.begin + 1
        yield HistoryMessage(agent.node_id, "past", t + 0.5,
                             frame(rows, seq, t + 0.5, tasks=self._tasks(at)), t)
        if minute % 30 == 7 and t % MINUTE_S < EVERY_S:
            kind = KINDS[len(self.events) // len(self.agents) % len(KINDS)]
            self.events.append((agent.node_id, t, kind))
            yield HistoryMessage(agent.node_id, "past", t + 0.5, Event(
                seq + 1, float(t), kind, agent.facts[0].uuid, text=TEXT))

    def _tasks(self, at: int) -> Tasks:
        """Tasks of two owners on the first GPU, and of one owner on the other."""
        names = OWNERS if at == 0 else OWNERS[::-1]
        tasks = tuple(Task(f"boot:{pid}:1", pid, 1, 1.0, name, "python secret.py")
                      for pid, name in enumerate(names, start=100))
        uses = (Use(tasks[0].id, 0, 1e9, 50.0), Use(tasks[1].id, 0, 2e9, 50.0),
                Use(tasks[2].id, 1, 3e9, 50.0))
        return Tasks(True, tasks, uses)
