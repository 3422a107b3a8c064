"""Composition of history, its archive and its mirror by the settings."""

import os
from pathlib import Path

from .history.archive import Archive, FolderArchive
from .history.archive_index import ArchiveIndex
from .history.archive_mover import ArchiveMover
from .history.copying import HistoryCopyReader
from .history.embedded import EmbeddedHistory
from .history.s3 import S3Bucket
from .history.store import HistoryRetention
from .history.tiered_archive import TieredArchive
from .mirror.position import MirrorFolder
from .mirror.service import MirrorService
from .mirror.transport import MirrorReceiver
from .settings import HubSettings


def open_history(settings: HubSettings) -> EmbeddedHistory:
    folder = settings.data / "history"
    keep = HistoryRetention(settings.history_raw_hours * 3_600,
                            settings.history_minute_days * 86_400,
                            settings.history_hour_days * 86_400,
                            settings.history_max_gb * 1_000_000_000)
    history = EmbeddedHistory(folder, keep, _archive(settings, folder), settings.cluster)
    history.open()
    return history


def _archive(settings: HubSettings, folder: Path) -> Archive:
    """Return the archive. Once there is one, its index says where it is, even if the setting has
    been removed."""
    index = (ArchiveIndex.open_existing(folder) if settings.archive is None
             else ArchiveIndex(folder, settings.archive))
    if index is None:
        return FolderArchive(folder)
    return TieredArchive(folder, index, S3Bucket(index.url, os.environ), settings.cluster)


def outlets_of(settings: HubSettings, history: EmbeddedHistory, now: float
               ) -> tuple[ArchiveMover | None, MirrorService | None]:
    return _archive_mover(settings, history), _mirror(settings, history, now)


def _archive_mover(settings: HubSettings, history: EmbeddedHistory) -> ArchiveMover | None:
    files, keep = history.store.files, history.store.keep
    if not isinstance(files.archive, TieredArchive):
        return None
    return ArchiveMover(files.archive, files, keep, settings.archive_after_hours * 3_600,
                        settings.archive_cache_gb * 1_000_000_000)


def _mirror(settings: HubSettings, history: EmbeddedHistory, now: float) -> MirrorService | None:
    if settings.mirror is None:
        return None
    return MirrorService(
        HistoryCopyReader(history.store),
        MirrorReceiver(settings.mirror, settings.mirror_user, settings.mirror_secret),
        MirrorFolder(settings.data / "mirror"), settings.mirror, now)
