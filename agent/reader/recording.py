"""`gpudeck agent --record FILE`: readings into a file while the agent runs; backends/recorded.py
plays it.

Each line is whole on the disk's way before the next: a kill costs the last line at most. A disk
that takes no more, or a file that is as long as it may be, ends the recording and not the agent.
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

# Facts are repeated after so many readings, so that the end of a recording can be cut off it.
FACTS_EVERY = 600

_encode = msgspec.json.Encoder().encode


class RecordingWriter:
    def __init__(self, path: Path, head: RecordingHeader, max_bytes: int) -> None:
        self.trouble = ""
        self._path = path
        self._max_bytes = max_bytes
        self._facts: object = None
        self._readings = 0
        self._waiting: tuple[BackendEvent, ...] = ()
        try:
            self._file = open_file(path, "x")
            # Command lines stand in it.
            os.chmod(path, 0o600)
        except OSError as error:
            raise CommandError(
                f"cannot record to {path}: {error.strerror}; choose another file, an existing "
                "recording is never overwritten", ExitCode.CANNOT_START) from error
        self._write(head)

    def put(
        self, reading: Reading, happened: Sequence[BackendEvent], seen: Sequence[GpuTask] | None
    ) -> None:
        """With all that /proc said of its tasks then."""
        facts = (reading.facts, reading.links)
        is_known = facts == self._facts and self._readings % FACTS_EVERY
        self._facts = facts
        self._readings += 1
        happened = (*self._waiting, *happened)
        self._waiting = ()
        self._write(structs.replace(
            reading, happenings=happened, facts=() if is_known else reading.facts,
            links=() if is_known else reading.links,
            processes=None if seen is None else tuple(map(_process, seen))))

    def beside(self, happened: Sequence[BackendEvent]) -> None:
        """What happened while there was no reading: part of the next."""
        self._waiting = (*self._waiting, *happened)[-1_024:]

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


def _process(seen: GpuTask) -> ProcessReading:
    return ProcessReading(
        pid=seen.task.pid, gpu_uuid=seen.gpu_uuid, mem_used_bytes=seen.mem_used_bytes,
        sm_pct=seen.sm_pct, kind=seen.task.kind, state=seen.state,  # type: ignore[arg-type]
        task=seen.task)
