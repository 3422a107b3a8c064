"""Joining of the archive's history to that of a hub that has taken over. The hub serves meanwhile,
and takes from nodes what is live; what is older waits at the nodes until it is known what of it the
archive has. In the native thread of the mover."""

import logging
import time
from collections.abc import Sequence
from pathlib import Path

from gpudeck.errors import CommandError

from ..ingest.message_places import HistoryJoined, MessagePlaces, ranges_of
from ..storage.archive_index import ArchivedFile, ArchiveIndex
from ..storage.archive_mark import ArchiveMark, get_mark
from ..storage.archive_owner import NotOwnerError, folder_token, new_mark_key
from ..storage.archive_turns import OpenTurns
from ..storage.from_archive import YOUNG_S, fetch
from ..storage.s3 import S3MissingError
from ..storage.takeover_folder import clean_up, former_folders
from ..storage.tiered_archive import TieredArchive
from .store import HistoryStore

log = logging.getLogger("gpudeck.history")

MARK = "archive.mark.joined"


class ArchiveJoiner:
    def __init__(self, archive: TieredArchive, store: HistoryStore, places: MessagePlaces,
                 turns: OpenTurns, term: int) -> None:
        self._archive = archive
        self._store = store
        self._places = places
        self._turns = turns
        self._term = term
        self._is_claimed = False
        self._mark: ArchiveMark | None = None
        self._news: HistoryJoined | None = None

    @property
    def is_waiting(self) -> bool:
        return self._store.manifest.takeover < self._places.joins

    def join(self, now: float, until_mono: float) -> bool:
        """Join what the newest mark names; False: more of it is to be fetched."""
        if not self._is_claimed:
            self.claim()
        if self._mark is None:
            self._mark = self._newest_mark()
        files = [] if self._mark is None else self._mark.history_files
        if self._mark is not None and not self._fetch_young(self._mark, until_mono):
            return False
        self._archive.owner.check(is_new=False)
        self._index(now)
        self._commit(self._mark)
        clean_up(self._archive.folder.parent, files, now)
        log.info("archive_joined files=%d of=%s", len(files),
                 "nobody" if self._mark is None else f"{self._mark.at:.0f}")
        return True

    def take_news(self) -> HistoryJoined | None:
        """Return what has been joined, once."""
        news, self._news = self._news, None
        return news

    def claim(self) -> None:
        """Claim the prefix. Its marks are written down in the state first: should a hub that was
        here before still put its own entry there, the next one finds all of them."""
        with self._turns() as turns:
            turn = turns.last(self._archive.index.url)
        if turn is None or turn.hub != folder_token(self._archive.folder):
            raise NotOwnerError("another hub of this state has had its turn since")
        turn = turn.with_marks((new_mark_key(self._term), *self._newest(turn.marks)))
        with self._turns() as turns:
            turns.put(turn)
        self._archive.owner.claim(turn.hubs, self._term, turn.marks)
        self._is_claimed = True

    def _newest(self, marks: tuple[str, ...]) -> tuple[str, ...]:
        """Leave out what has counted only until the newest mark was there."""
        return marks[:1] if marks and self._archive.owner.has(marks[0]) else marks

    def _newest_mark(self) -> ArchiveMark | None:
        """Return the mark of the hub before; None: no mark was ever put there. After the claim:
        what that hub puts there since does not count, and it knows."""
        try:
            return get_mark(self._archive.store, self._archive.folder / MARK,
                            self._archive.owner.marks)
        except S3MissingError:
            return None

    def _fetch_young(self, mark: ArchiveMark, until_mono: float) -> bool:
        formers = self._formers()
        for file in mark.history_files:
            if time.monotonic() > until_mono:
                return False
            fetch(self._archive.store, file, formers, self._archive.folder,
                  file.made_at + YOUNG_S > mark.at)
        return True

    def _formers(self) -> Sequence[Path]:
        return former_folders(self._archive.folder.parent)

    def _index(self, now: float) -> None:
        """Index what the mark names, and what this hub had put there that it does not name, to be
        deleted."""
        entries = {} if self._mark is None else {
            file.name: ArchivedFile.of(file, at=self._mark.at)
            for file in self._mark.history_files}
        keys = {file.key for file in entries.values()}
        leaving: dict[str, ArchivedFile] = {}
        for folder in self._formers():
            for file in _indexed(folder):
                if file.key not in keys and file.name not in entries:
                    leaving[file.name] = ArchivedFile(file.name, file.size_bytes, file.sha256,
                                                      "leaving", now)
        self._archive.index.adopt([*entries.values(), *leaving.values()])

    def _commit(self, mark: ArchiveMark | None) -> None:
        """Make them history. What is archived is on disk before: a hub that is killed in between
        takes nothing twice, and joins once more."""
        store = self._store
        streams = {} if mark is None else ranges_of(mark.streams)
        with store.lock:
            self._places.join(streams)
        store.save_places()
        with store.lock:
            there = store.manifest.segments
            store.manifest.commit(
                [] if mark is None else [file for file in mark.history_files
                                         if file.name not in there],
                forgot={} if mark is None else mark.forgotten, takeover=self._places.joins)
            store.feed.forget_files()
        self._news = HistoryJoined(streams)


def _indexed(folder: Path) -> Sequence[ArchivedFile]:
    """Return what a former folder says is in the archive. A damaged index costs some room there."""
    try:
        index = ArchiveIndex.open_existing(folder)
    except CommandError:
        return ()
    return () if index is None else index.files("sending", "there", "leaving")
