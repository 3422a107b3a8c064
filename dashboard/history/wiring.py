"""Parts of history: the files, their archive and their maintenance."""

import os
import time
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import gevent

from ..access.policy import Actor
from ..composition import Capability, Core, Seam
from ..runtime.runner import Loop
from ..settings import HubSettings
from ..web.query_pool import QueryPool
from .api import ROUTES as ROUTES
from .api import HistoryApi
from .files.archive_marker import ArchiveMarker
from .files.archive_mover import ArchiveMover
from .files.store import HistoryRetention
from .ingest.message_places import MessagePlaces
from .inventory import VisibleInventory
from .prometheus import archive_families, history_families
from .reads.embedded import EmbeddedHistory
from .reads.protocol import History
from .storage.archive import Archive, FolderArchive
from .storage.archive_index import ArchiveIndex
from .storage.archive_mark import read_places
from .storage.s3 import S3Bucket
from .storage.tiered_archive import TieredArchive
from .usage_names import UsageNames

INVENTORY: Seam[[Actor], VisibleInventory] = Seam("the GPUs and tasks that an actor sees")
MAINTAIN_EVERY_S = 5.0


def build(core: Core) -> Capability:
    settings = core.settings
    history = core.add(_open(settings), History)
    mover = _mover(settings, history, core.events.dispatch)
    inventory, names = core.call(INVENTORY), core.later(UsageNames)
    return Capability(
        loops=(maintenance_of(history), *(() if mover is None else (mover.loop,))),
        hub_metrics=lambda: chain(history_families(history),
                                  () if mover is None else archive_families(mover, time.time())),
        apis=lambda: (HistoryApi(history, core.get(QueryPool), inventory, settings.cluster,
                                 names()),),
        close=history.close)


def maintenance_of(history: History) -> Loop:
    """Return the loop that maintains history in a native thread, beside the event loop."""
    def maintain(now: float, mono: float) -> None:
        gevent.get_hub().threadpool.apply(history.maintain, (now, mono))

    return Loop("history", maintain, MAINTAIN_EVERY_S)


def _open(settings: HubSettings) -> EmbeddedHistory:
    folder = settings.data / "history"
    keep = HistoryRetention(settings.history_raw_hours * 3_600,
                            settings.history_minute_days * 86_400,
                            settings.history_hour_days * 86_400,
                            settings.history_max_gb * 1_000_000_000)
    archive = _archive(settings, folder)
    is_at_seal = isinstance(archive, TieredArchive) and settings.archive_after_hours == 0
    history = EmbeddedHistory(folder, keep, archive, settings.cluster,
                              MessagePlaces(read_places(folder)) if is_at_seal else None)
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


def _mover(settings: HubSettings, history: EmbeddedHistory,
           publish: Callable[[object], None]) -> ArchiveMover | None:
    files, keep, places = history.store.files, history.store.keep, history.store.feed.places
    if not isinstance(files.archive, TieredArchive):
        return None
    marker = None if places is None else ArchiveMarker(files.archive, history.store, places)
    return ArchiveMover(files.archive, files, keep, settings.archive_after_hours * 3_600,
                        settings.archive_cache_gb * 1_000_000_000, marker, publish)
