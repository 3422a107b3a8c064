"""`with measure() as m: …`: cost of a block, by this kernel and what it started."""

import os
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from gpudeck.contract.notebook_pipe import FromAgent, PipeMarkReply, PipeSnapshot

from .agent_source import AgentSource, source_of
from .cost import Cost, GpuSample, Item, beside, costs, points_of, points_of_mark, rows
from .cost_words import table, words
from .visible_gpus import visible_gpus

FIRST_WITHIN_S = 20.0  # the agent starts, and a driver without persistence mode takes its time
MARK_WITHIN_S = 6.0
POINTS_MAX = 200_000  # a day of two GPUs; then every other one goes


class Measure:
    """Measurement of a block. Its numbers are there when the block has ended: `cost`, `frame`,
    `plot()`. Blocks may be nested, and an exception inside is passed on."""

    def __init__(self, source: AgentSource | None = None) -> None:
        self._source = source
        self._pid = os.getpid()
        self._points: list[GpuSample] = []
        self._sharers: set[tuple[str, str]] = set()
        self._commands: dict[int, str | None] = {}
        self._gpus: dict[str, Item] = {}
        self._begin = self._end = PipeMarkReply(0, 0.0, is_answered=False)
        self.cost: Cost | None = None

    def __enter__(self) -> Self:
        if self.cost is not None or self._begin.at:
            raise RuntimeError("this measure was used already; make another: measure()")
        source = self._source = self._source or source_of(None)
        self._wait_for_gpus(source)
        self._begin = _marked(source)
        source.add_listener(self._receive)
        self._add_tasks(source.tasks)
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        wall_s = time.perf_counter() - self._wall
        cpu_s = time.process_time() - self._cpu
        source = self._source
        assert source is not None
        self._end = _marked(source)
        source.remove_listener(self._receive)
        for mark in (self._begin, self._end):
            self._points += points_of_mark(mark)
        gpus = costs(self._points, self._begin, self._end, self._gpus.values(), self._sharers,
                     wall_s, self._visible(source))
        self.cost = Cost(wall_s, cpu_s, gpus, self._pid, self._commands,
                         self._note(source, gpus))

    def __repr__(self) -> str:
        return "measure: not ended yet" if self.cost is None else words(self.cost)

    def _repr_html_(self) -> str | None:
        return None if self.cost is None else table(self.cost, self._points, self._begin.at)

    @property
    def frame(self) -> Any:
        """A DataFrame: one row per GPU and second."""
        import pandas as pd

        if self.cost is None:
            raise RuntimeError("the block has not ended yet; ask after it")
        mine = {gpu.uuid: gpu.place for gpu in self.cost.gpus}
        points = [point for point in self._points if point.uuid in mine]
        return pd.DataFrame(rows(points, self._begin.at, mine), columns=[
            "seconds", "gpu", "uuid", "util_pct", "power_w", "mem_used_bytes", "my_sm_pct",
            "my_mem_bytes"])

    def plot(self) -> Any:
        """A Plotly figure."""
        from .plot import timeline

        return timeline(self.frame)

    def _wait_for_gpus(self, source: AgentSource) -> None:
        """Wait until the agent has seen the GPUs, or reported that there are none."""
        came = threading.Event()

        def receive(message: FromAgent) -> None:
            if isinstance(message, PipeSnapshot) and message.reader != "starting":
                came.set()

        source.add_listener(receive)
        if source.snapshot is None or source.snapshot.reader == "starting":
            came.wait(FIRST_WITHIN_S)
        source.remove_listener(receive)
        if source.snapshot is not None:
            self._gpus = {gpu["uuid"]: gpu for gpu in source.snapshot.gpus}

    def _receive(self, message: FromAgent) -> None:
        if not isinstance(message, PipeSnapshot):
            return
        self._points += points_of(message)
        self._add_tasks(message.tasks)
        self._gpus |= {gpu["uuid"]: gpu for gpu in message.gpus}
        if len(self._points) > POINTS_MAX:
            self._points = self._points[::2]
        assert self._source is not None
        self._source.mark(self._add_mark)

    def _add_tasks(self, tasks: Sequence[Item] | None) -> None:
        self._sharers.update(beside(tasks))
        self._commands |= {task["pid"]: task["command"] for task in tasks or () if task["kernel"]}

    def _visible(self, source: AgentSource) -> dict[str, bool | None]:
        """Return the GPUs to report where our own processes cannot be seen: those visible to us.
        With several of them, others' work would be counted as ours."""
        visible = visible_gpus([*self._gpus.values()], os.environ)
        if source.snapshot is not None and source.snapshot.unseen:
            return dict.fromkeys(visible)
        return dict.fromkeys(visible, False) if len(visible) == 1 else {}

    def _add_mark(self, mark: PipeMarkReply | None) -> None:
        """Add a reading between two process lists: memory comes and goes within a second."""
        if mark is not None:
            self._points += points_of_mark(mark)

    def _note(self, source: AgentSource, gpus: tuple[Any, ...]) -> str:
        snapshot = source.snapshot
        if snapshot is None or not (self._gpus or snapshot.gpus):
            why = "" if snapshot is None else snapshot.detail
            return f"no GPU was seen{why and f': {why}'}"
        if not (self._begin.is_answered and self._end.is_answered):
            return "the driver did not answer at the beginning or the end: energy is not known"
        if snapshot.unseen:
            return snapshot.unseen
        return "" if any(gpu.is_mine for gpu in gpus) else (
            "neither this kernel nor its child processes were seen on a GPU")


def measure() -> Measure:
    """Measure a `with` block: wall and CPU time, and the use of GPUs by this kernel and what it
    started."""
    return Measure()


def _marked(source: AgentSource) -> PipeMarkReply:
    came, marks = threading.Event(), []

    def take(mark: PipeMarkReply | None) -> None:
        marks.append(mark)
        came.set()

    source.mark(take)
    came.wait(MARK_WITHIN_S)
    return (marks[0] if marks else None) or PipeMarkReply(0, time.time(), is_answered=False)
