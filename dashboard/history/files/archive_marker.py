"""Marks in the archive: when all files of a moment are there, a mark says so, and which messages
are safe without this hub's disk. In the native thread of the mover."""

from contextlib import suppress
from dataclasses import dataclass

from ..ingest.message_places import MessagePlaces, StreamRanges, spans_of
from ..storage.archive_mark import ArchiveMark, MarkDamagedError, Ticks, get_mark, put_mark
from ..storage.manifest import HistoryFile
from ..storage.s3 import S3Error, S3MissingError
from ..storage.tiered_archive import TieredArchive
from .rebuild import span_in_name
from .store import HistoryStore

EVERY_S = 30.0
CHECKED = "archive.mark.there"


@dataclass(frozen=True, slots=True)
class FilesMoment:
    """Files of history at one moment, and the messages that are in them."""

    number: int
    forgotten: dict[str, int]
    files: list[HistoryFile]
    streams: StreamRanges
    ticks: Ticks


class ArchiveMarker:
    def __init__(self, archive: TieredArchive, store: HistoryStore, places: MessagePlaces) -> None:
        self._archive = archive
        self._store = store
        self._places = places
        self._first_number = store.manifest.number
        self._is_checked = self._are_former_deleted = False
        self._lost_files = 0
        self._number = -1  # of the last mark
        self._marked_mono = -EVERY_S
        self._marked_at = 0.0
        self._news: StreamRanges | None = None

    def moment(self) -> FilesMoment:
        manifest = self._store.manifest
        with self._store.lock:
            self._note_lost(manifest.quarantined)
            return FilesMoment(
                manifest.number, dict(manifest.forgotten), list(manifest.segments.values()),
                self._places.in_files() if manifest.number != self._number else {},
                dict(self._places.ticks))

    def is_due(self, moment: FilesMoment, mono: float) -> bool:
        return moment.number != self._number and mono >= self._marked_mono + EVERY_S

    def _note_lost(self, quarantined: list[str]) -> None:
        """Note files that were put aside before they were there: what was in them is not safe."""
        for name in quarantined[self._lost_files:]:
            span = span_in_name(name)
            if span is not None and self._archive.index.there(name) is None:
                self._places.lose(*span)
        self._lost_files = len(quarantined)

    def put(self, moment: FilesMoment, now: float, mono: float) -> None:
        """Put a mark if it is due and all of its files are there."""
        if not self.is_due(moment, mono) or any(
                self._archive.index.there(file.name) is None for file in moment.files):
            return
        self._check()
        owner = self._archive.owner
        owner.check(is_new=False)
        key, *former = owner.marks
        put_mark(self._archive.folder, self._archive.store, ArchiveMark.of(
            now, moment.number, moment.forgotten, moment.files, spans_of(moment.streams),
            moment.ticks), key)
        # A hub that has taken over since may have read the mark before this one.
        owner.check(is_new=False)
        self._delete_former(former)
        with self._store.lock:
            self._places.mark_archived(moment.streams)
        self._store.save_places()
        self._news = moment.streams
        self._number, self._marked_mono, self._marked_at = moment.number, mono, now

    def _delete_former(self, keys: list[str]) -> None:
        """Delete the marks of earlier turns, once: this one names all that they name."""
        if not self._are_former_deleted:
            for key in keys:
                self._archive.store.delete(key)
            self._are_former_deleted = True

    def _check(self) -> None:
        """Check, before the first mark, that the one there knows no more than this folder: a hub
        that was made from a backup would take years out of it."""
        if self._is_checked:
            return
        with suppress(S3MissingError, MarkDamagedError):
            self._check_mark(get_mark(self._archive.store, self._archive.folder / CHECKED,
                                      self._archive.owner.marks))
        self._is_checked = True

    def _check_mark(self, mark: ArchiveMark) -> None:
        """Raise S3Error if it knows more. Once such a hub has gone on for long, its number says
        nothing any more: but then the mark names files that it never had."""
        if mark.number > self._first_number:
            raise S3Error("its mark is newer than this history: stop the hub and run `gpudeck "
                          "history from-archive --replace`, or name another prefix")
        for file in mark.history_files:
            if self._archive.is_foreign(file):
                raise S3Error(f"its mark names {file.name}, which this history never had: stop the "
                              "hub and run `gpudeck history from-archive --replace`, or name "
                              "another prefix")

    @property
    def oldest(self) -> int | None:
        """The oldest second of which something is not archived; None: all is."""
        with self._store.lock:
            return self._places.oldest

    def covers(self, left_at: float) -> bool:
        """Return whether the newest mark does not name a file that left history then."""
        return left_at < self._marked_at

    def take_news(self) -> StreamRanges | None:
        """Return what is archived, if that has changed since this was asked last."""
        news, self._news = self._news, None
        return news
