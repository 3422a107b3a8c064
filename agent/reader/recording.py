"""`gpudeck agent --record FILE`: readings into a file while the agent runs; backends/recorded.py
plays it.

Each line is flushed before the next: a kill costs the last line at most. A full disk, or a file at
its largest size, ends the recording and not the agent.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import structs

from gpudeck.errors import CommandError, ExitCode

from ..backends.recorded import RecordingHeader, open_file
from ..readings import BackendEvent, ProcessReading, Reading
from ..tasks.seen import GpuTask

# Facts are repeated after so many readings, so that a recording's end can be cut off alone.
FACTS_EVERY = 600

_encode = msgspec.json.Encoder().encode


class RecordingWriter:
    def __init__(self, path: Path, head: RecordingHeader, max_bytes: int) -> None:
        self.trouble = ""
        self._path = path
        self._max_bytes = max_bytes
        self._facts: object = None
        self._readings = 0
        self._pending_events: tuple[BackendEvent, ...] = ()
        try:
            self._file = open_file(path, "x")
            # It contains command lines.
            os.chmod(path, 0o600)
        except OSError as error:
            raise CommandError(
                f"cannot record to {path}: {error.strerror}; choose another file, an existing "
                "recording is never overwritten", ExitCode.CANNOT_START) from error
        self._write(head)

    def put(
        self, reading: Reading, events: Sequence[BackendEvent], gpu_tasks: Sequence[GpuTask] | None
    ) -> None:
        """Write a reading, with all that /proc said of its tasks then."""
        facts = (reading.facts, reading.links)
        is_known = facts == self._facts and self._readings % FACTS_EVERY
        self._facts = facts
        self._readings += 1
        events = (*self._pending_events, *events)
        self._pending_events = ()
        self._write(structs.replace(
            reading, happenings=events, facts=() if is_known else reading.facts,
            links=() if is_known else reading.links,
            processes=None if gpu_tasks is None else tuple(map(_process, gpu_tasks))))

    def put_events(self, events: Sequence[BackendEvent]) -> None:
        """Keep events that came without a reading, for the next one."""
        self._pending_events = (*self._pending_events, *events)[-1_024:]

    def close(self) -> None:
        try:
            self._file.close()
        except OSError as error:
            self._end(error.strerror)

    def _write(self, line: RecordingHeader | Reading) -> None:
        if self.trouble:
            return
        try:
            self._file.write(_encode(line) + b"\n")
            self._file.flush()
            if self._path.stat().st_size >= self._max_bytes:
                self._end(f"it has {self._max_bytes / 2**20:.0f} MiB; --record-max-mib allows more")
        except OSError as error:
            self._end(error.strerror)

    def _end(self, why: str | None) -> None:
        self.trouble = self.trouble or f"the recording {self._path} ends here: {why}"


def _process(gpu_task: GpuTask) -> ProcessReading:
    return ProcessReading(
        pid=gpu_task.task.pid, gpu_uuid=gpu_task.gpu_uuid, mem_used_bytes=gpu_task.mem_used_bytes,
        sm_pct=gpu_task.sm_pct, kind=gpu_task.task.kind,
        state=gpu_task.state,  # type: ignore[arg-type]
        task=gpu_task.task)
