"""The files of history: which there are, and that none is deleted while somebody reads it.

One change is one line of the manifest: its files are whole, named and on disk before.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from ..columns.arrow_columns import Table
from ..storage.archive import Archive
from ..storage.manifest import SCHEMA_VERSION, HistoryFile, Manifest
from .file_cache import FileCache
from .parquet import HOUR_S, write
from .reading import MIGRATIONS, merged
from .rebuild import rebuilt
from .row_index import SampleRuns, runs_in

log = logging.getLogger("gpudeck.history")

Copied = TypeVar("Copied")


class HistoryFiles:
    """`lock` also guards what is in memory: what is being sealed is in exactly one of both."""

    def __init__(self, folder: Path, archive: Archive | None = None) -> None:
        self.manifest = Manifest(folder, archive)
        self.archive = self.manifest.archive
        self.cache = FileCache()
        self.lock = threading.RLock()
        self._readers: dict[object, int] = {}  # token -> the manifest's number when it began
        self._retired: list[tuple[int, str]] = []
        self._places: dict[str, list[SampleRuns]] = {}  # of files that no line names yet

    def open(self) -> None:
        self.manifest.load(rebuilt)
        self._migrate()

    def _migrate(self) -> None:
        """Rewrite what a step changes, before anything reads it."""
        old = [file for file in self.manifest.segments.values()
               if any(version in MIGRATIONS for version in range(file.schema, SCHEMA_VERSION))]
        for file in old:
            paths = self.manifest.verified([file])
            rewritten = self.write(file.kind, (file.start, file.end, file.span_s), file.made_at,
                                   merged(file.kind, paths, file.start, file.end)
                                   ) if paths else None
            if rewritten is not None:
                self.commit([rewritten], [file.name])
        self.delete_retired()
        if old:
            log.info("history files were brought to version %d files=%d", SCHEMA_VERSION, len(old))

    def write(self, kind: str, stretch: tuple[int, int, int], made_at: float,
              tables: Iterator[Table]) -> HistoryFile | None:
        """Write a file that no line names yet; None: nothing to write. Where the rows of each GPU
        lie is found out while they are here: to read that back takes ten times as long as what is
        asked for then. The cache gets it with the line: a file that is removed before, and written
        once more, may have the same name and other rows."""
        places: list[SampleRuns] = []

        def index() -> Iterator[Table]:
            for table in tables:
                if kind == "raw" and table.num_rows:
                    places.append(runs_in(table, 1))
                yield table

        file = write(self.archive, kind, stretch, (self.manifest.number + 1, made_at), index())
        if file is not None and places:
            self._places[file.name] = places
        return file

    def commit(self, add: list[HistoryFile], drop: Sequence[str] = (),
               forgot: dict[str, int] | None = None) -> None:
        if not add and not drop:
            return
        try:
            self.manifest.commit(add, drop, forgot)
        except OSError:  # no line was written
            self.remove(add)
            raise
        for segment in add:
            self.manifest.trust(segment)
            self.cache.put_places(segment.name, self._places.pop(segment.name, ()))
        self._retired += [(self.manifest.number, name) for name in drop]

    def remove(self, files: Iterable[HistoryFile]) -> None:
        """Remove files that no line names. A reader of the folder without the manifest would
        otherwise see their seconds twice."""
        for file in files:
            self._places.pop(file.name, None)
            self.archive.remove(file.name)

    @contextmanager
    def reading(self, copy: Callable[[], Copied]
                ) -> Iterator[tuple["HistoryFilesSnapshot", Copied]]:
        """Delete no file that is history now until this ends. `copy`: of what memory has at the
        same moment, so that what is being sealed is in exactly one of both."""
        token = object()
        with self.lock:
            self._readers[token] = self.manifest.number
            snapshot = HistoryFilesSnapshot(self.manifest), copy()
        try:
            yield snapshot
        finally:
            with self.lock:
                del self._readers[token]

    def delete_retired(self) -> None:
        with self.lock:
            oldest = min(self._readers.values(), default=self.manifest.number)
            deletable = [(number, name) for number, name in self._retired if number <= oldest]
            self._retired = [entry for entry in self._retired if entry not in deletable]
        for _, name in deletable:
            self.archive.remove(name)
        if deletable:
            self.cache.forget([name for _, name in deletable])


class HistoryFilesSnapshot:
    """The files as they were at one moment."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._segments = list(self._manifest.segments.values())

    def begin(self, kind: str) -> int:
        """Return the second before which files of this kind were given up, for age or size."""
        return self._manifest.forgotten.get(kind, 0)

    def end(self, kind: str) -> int:
        """Return the second up to which files of this kind go, without what came late."""
        return max((file.end for file in self._segments if file.kind == kind and file.span_s),
                   default=0)

    def rows(self, kind: str, t0: int, t1: int) -> int:
        """Count the rows of all files that meet this time, however little."""
        return sum(file.rows for file in self._segments if file.kind == kind and file.meets(t0, t1))

    def find(self, kind: str, t0: int, t1: int) -> list[Path]:
        if kind in ("hours", "usage"):  # rows of an hour lie in files of its parts
            t0, t1 = t0 - t0 % HOUR_S, -(-t1 // HOUR_S) * HOUR_S
        return self._manifest.verified(
            file for file in self._segments if file.kind == kind and file.meets(t0, t1))
