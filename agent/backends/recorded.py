"""Readings from a file instead of a driver: what `gpudeck agent --record FILE` wrote.

One JSON object a line, so that a recording can be read, cut and mended with ordinary tools; gzip
where the name ends in `.gz`. The first line says what it is. A recording of a crash ends in the
middle of a line: what stands before it is whole and is played. Facts stand only where they
changed, and now and then.
"""

import cmath
import gzip
import math
import os
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Literal

import msgspec
from msgspec import Struct, structs

from gpudeck.contract.wire import Task
from gpudeck.measures.metrics import COLUMNS, Absence

from ..readings import (
    BackendEvent,
    GpuReading,
    OnDemandReading,
    ProcessReading,
    Reading,
    with_slow,
)
from . import ReaderUnavailableError
from .nvml.xids import explain

FORMAT = 1
LOOPS = "loops"
# No reading for longer is a hung driver, or the recording stood still: nobody waits for its end.
GAP_MAX_S = 30.0
# As far from its second as a reading may be and still belong to it.
EARLY_S = 0.5
LOOK_S = 0.05
# At its own pace most readings fall here within a second of the clock: history keeps one reading of
# a second, and near the full one some would share it, beside empty ones.
WITHIN_SECOND_S = 0.5
BEAT_OF_READINGS = 60
# Where a card gave no peak, the highest of several readings is one.
PEAK_OF = {"util_max_pct": "util_pct", "power_max_w": "power_w"}


class RecordingHeader(Struct, frozen=True):
    gpudeck_recording: int
    host: str
    backend: str
    agent_version: str


_head = msgspec.json.Decoder(RecordingHeader)
_reading = msgspec.json.Decoder(Reading)


def open_file(path: Path, mode: Literal["r", "x"]) -> IO[bytes]:
    if path.suffix == ".gz":
        return gzip.open(path, f"{mode}b", compresslevel=6)  # type: ignore[return-value]
    return open(path, f"{mode}b")


def open_reader(options: str = "") -> "RecordedReader":
    speed, loops, name = (*options.split(" ", 2), "", "")[:3]
    if not name:
        raise _failure("name the recording: --replay FILE")
    path = Path(name)
    if not any(True for _ in readings(path)):
        raise _failure(f"the recording {path} holds no reading")
    return RecordedReader(path, float(speed), loops == LOOPS)


def readings(path: Path) -> Iterator[Reading]:
    """Yield the readings with their facts. Raises ReaderUnavailableError where it is no recording;
    stops, and says so, where one is torn."""
    try:
        with open_file(path, "r") as file:
            _check(path, file.readline())
            last: Reading | None = None
            for number, line in enumerate(file, 2):
                try:
                    reading = _reading.decode(line)
                except msgspec.MsgspecError as error:
                    _say(f"{path}: line {number} is torn ({error}); what follows is not played")
                    return
                if reading.gpus and not reading.facts and last is not None:
                    reading = structs.replace(reading, facts=last.facts, links=last.links)
                if len(reading.facts) == len(reading.gpus):
                    last = reading
                    yield reading
    except (EOFError, zlib.error):
        _say(f"{path}: cut off or damaged; playing the part before")
    except OSError as error:
        raise _failure(f"the recording {path} cannot be read: {error.strerror or error}") from error


def beat_of(path: Path) -> float:
    """Return where within a second most of its first readings were taken."""
    turns = [cmath.exp(2j * cmath.pi * reading.taken_at)
             for reading in islice(readings(path), BEAT_OF_READINGS)]
    return cmath.phase(sum(turns)) / (2 * cmath.pi) % 1.0


def _check(path: Path, line: bytes) -> None:
    try:
        head = _head.decode(line)
    except msgspec.MsgspecError as error:
        raise _failure(f"{path} is not a recording of gpudeck; `gpudeck agent --record FILE` "
                       "writes one") from error
    if head.gpudeck_recording != FORMAT:
        raise _failure(f"{path} was written by another gpudeck (format {head.gpudeck_recording}, "
                       f"this one reads {FORMAT})")


def _failure(detail: str) -> ReaderUnavailableError:
    return ReaderUnavailableError("failed", detail)


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


class RecordedReader:
    """Plays a recording at its own pace, as if it were now, once, or over and over. Where the
    recording has no reading, there is none here; after its end all is stale, and its tasks are
    gone."""

    def __init__(
        self, path: Path, speed: float = 1.0, loops: bool = False,
        clock: Callable[[], float] = time.time, sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._path, self._speed, self._loops = path, speed, loops
        self._beat = beat_of(path)
        self._clock, self._sleep = clock, sleep
        self._parent = os.getppid()
        self._coming = readings(path)
        self._next: Reading | None = None
        self._began: tuple[float, float] | None = None  # here, and in the recording
        self._last_at = 0.0  # in the recording
        self._tasks: dict[str, Task] = {}
        self._played: Reading | None = None

    def read(self) -> Reading:
        latest: Reading | None = None
        while True:
            coming = self._peek()
            if coming is not None and self._is_due(coming):
                latest = _after(latest, self._shift(coming))
                self._last_at, self._next = coming.taken_at, None
            elif latest is not None:
                self._played = latest
                return latest
            elif coming is None and not self._loops and self._played is not None:
                return self._end_reading(self._played)
            elif coming is None:
                self._rewind()
            else:
                self._wait()

    def fresh(self) -> OnDemandReading:
        if self._played is None:
            raise _failure("the recording has not begun")
        mem_used, energy = ({gpu.uuid: gpu.value(key) for gpu in self._played.gpus}
                            for key in ("mem_used_bytes", "energy_j"))
        return OnDemandReading(self._played.processes or (), mem_used, energy)

    def watch(self, tell: Callable[[BackendEvent], None]) -> None:
        """Do nothing: all events are in the Readings."""

    def close(self) -> None:
        pass

    def _peek(self) -> Reading | None:
        if self._next is None:
            self._next = next(self._coming, None)
        return self._next

    def _is_due(self, coming: Reading) -> bool:
        now = self._clock()
        if self._began is None:
            self._began = self._beginning(now, coming.taken_at)
            self._last_at = coming.taken_at
        here, there = self._began
        step_s = coming.taken_at - self._last_at
        if not 0 <= step_s <= GAP_MAX_S:
            # The clock was set there, or nothing was recorded for long: whole seconds are left out.
            skipped_s = math.floor(step_s - (GAP_MAX_S if step_s > 0 else 1.0))
            there += skipped_s
            self._began, self._last_at = (here, there), self._last_at + skipped_s
        early_s = 0.0 if self._speed == 1 else EARLY_S
        return coming.taken_at - there <= (now - here + early_s) * self._speed

    def _beginning(self, now: float, first_at: float) -> tuple[float, float]:
        wait_s = 0.0 if self._speed != 1 else (
            WITHIN_SECOND_S - now - self._beat + first_at) % 1.0
        return now + wait_s, first_at

    def _end_reading(self, last: Reading) -> Reading:
        """Return the last one as stale, at every reading: the end of a file must not look like a
        hung driver."""
        return structs.replace(
            last, taken_at=self._clock(), interval_s=1.0, processes=(), happenings=(), accounted=(),
            gpus=tuple(structs.replace(gpu, state="stale", slow=(), slow_absent=b"")
                       for gpu in last.gpus),
            detail=f"the recording {self._path.name} has ended; --replay-loop plays it over again")

    def _rewind(self) -> None:
        self._coming, self._began, self._tasks = readings(self._path), None, {}
        if self._peek() is None:
            raise _failure(f"the recording {self._path} holds no reading any more")
        self._sleep(1.0)

    def _wait(self) -> None:
        if os.getppid() != self._parent:
            raise _failure("the agent that wanted this reading has gone")
        self._sleep(LOOK_S)

    def _shift(self, reading: Reading) -> Reading:
        assert self._began is not None  # it was due
        here, there = self._began
        # Here the pace is the recording's to the millisecond, however late it is looked for.
        by_s = here - there if self._speed == 1 else self._clock() - reading.taken_at
        return structs.replace(
            reading, taken_at=reading.taken_at + by_s,
            interval_s=reading.interval_s / self._speed,
            # An older agent recorded events without their words.
            happenings=tuple(explain(structs.replace(event, at=event.at + by_s), reading.facts)
                             for event in reading.happenings),
            processes=reading.processes and tuple(
                self._shift_process(process, by_s) for process in reading.processes))

    def _shift_process(self, process: ProcessReading, by_s: float) -> ProcessReading:
        """Tasks keep the age that they had when they were first seen."""
        task = process.task
        if task is None:
            return process
        if task.id not in self._tasks:
            began = None if task.started_at is None else task.started_at + by_s
            self._tasks[task.id] = structs.replace(task, started_at=began)
        return structs.replace(process, task=self._tasks[task.id])


def _after(former: Reading | None, reading: Reading) -> Reading:
    """Join two readings of one moment, at more than their own pace: nothing that happened is lost,
    nor is a peak."""
    if former is None:
        return reading
    before = {gpu.uuid: gpu for gpu in former.gpus}
    gpus = tuple(_merge(before[gpu.uuid], former.interval_s, gpu, reading.interval_s)
                 if gpu.uuid in before else gpu for gpu in reading.gpus)
    return with_slow(structs.replace(
        reading, gpus=gpus, interval_s=former.interval_s + reading.interval_s,
        happenings=former.happenings + reading.happenings,
        processes=former.processes if reading.processes is None else reading.processes), former)


def _merge(first: GpuReading, first_s: float, then: GpuReading, then_s: float) -> GpuReading:
    """Merge two: a mean stays one of the whole time, by its length; a maximum stays the highest."""
    if first.state != "ok" or then.state != "ok":
        return then
    values, absent = list(then.values), bytearray(then.absent)
    for at, metric in enumerate(COLUMNS):
        old, new = first.value(metric.key), then.value(metric.key)
        if metric.aggregate == "mean" and old is not None and new is not None:
            whole_s = first_s + then_s
            values[at] = (old * first_s + new * then_s) / whole_s if whole_s > 0 else new
        elif metric.aggregate == "max":
            point = PEAK_OF[metric.key]
            peaks = [value for value in (old, new, first.value(point), then.value(point))
                     if value is not None]
            if peaks:
                values[at], absent[at] = max(peaks), Absence.PRESENT
    return structs.replace(then, values=tuple(values), absent=bytes(absent))
