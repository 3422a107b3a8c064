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
from .api import ROUTES as HISTORY_ROUTES
from .api import HistoryApi
from .archive_api import ROUTES as ARCHIVE_ROUTES
from .archive_api import ArchiveApi
from .files.archive_joiner import ArchiveJoiner
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
from .storage.archive_turns import ArchiveTurnStore
from .storage.s3 import S3Bucket
from .storage.takeover_folder import HISTORY, begin_turn
from .storage.tiered_archive import TieredArchive
from .usage_names import UsageNames

INVENTORY: Seam[[Actor], VisibleInventory] = Seam("the GPUs and tasks that an actor sees")
SINGLE_COPIES: Seam[[], int] = Seam("how many nodes have lost what is not archived yet")
ROUTES = (*HISTORY_ROUTES, *ARCHIVE_ROUTES)
MAINTAIN_EVERY_S = 5.0


def build(core: Core) -> Capability:
    settings = core.settings
    turn = _begin_turn(core)
    history = core.add(_open(settings, core.state.check_term), History)
    mover = _mover(core, history, turn)
    single_copies = core.call(SINGLE_COPIES)
    inventory, names = core.call(INVENTORY), core.later(UsageNames)
    return Capability(
        loops=(maintenance_of(history), *(() if mover is None else (mover.loop,))),
        hub_metrics=lambda: chain(history_families(history),
                                  () if mover is None else archive_families(mover, time.time())),
        apis=lambda: (HistoryApi(history, core.get(QueryPool), inventory, settings.cluster,
                                 names()), ArchiveApi(mover, single_copies)),
        close=history.close)


def maintenance_of(history: History) -> Loop:
    """Return the loop that maintains history in a native thread, beside the event loop."""
    def maintain(now: float, mono: float) -> None:
        gevent.get_hub().threadpool.apply(history.maintain, (now, mono))

    return Loop("history", maintain, MAINTAIN_EVERY_S)


def _begin_turn(core: Core) -> int | None:
    """Begin this hub's turn at an archive that hubs of its state share. Return its number; None:
    the archive is not shared."""
    term, url = core.state.term, _archive_url(core.settings)
    if term is None or url is None or core.settings.archive_after_hours != 0:
        return None
    begin_turn(core.settings.data, core.state.store(ArchiveTurnStore), url, time.time())
    return term


def _archive_url(settings: HubSettings) -> str | None:
    if settings.archive is not None:
        return settings.archive
    index = ArchiveIndex.open_existing(settings.data / HISTORY)
    return None if index is None else index.url


def _open(settings: HubSettings, check_term: Callable[[], None]) -> EmbeddedHistory:
    folder = settings.data / HISTORY
    keep = HistoryRetention(settings.history_raw_hours * 3_600,
                            settings.history_minute_days * 86_400,
                            settings.history_hour_days * 86_400,
                            settings.history_max_gb * 1_000_000_000)
    archive = _archive(settings, folder, check_term)
    is_at_seal = isinstance(archive, TieredArchive) and settings.archive_after_hours == 0
    places = MessagePlaces(read_places(folder)) if is_at_seal else None
    history = EmbeddedHistory(folder, keep, archive, settings.cluster, places)
    history.open()
    if places is not None:
        places.is_waiting = history.store.manifest.takeover < places.joins
    return history


def _archive(settings: HubSettings, folder: Path, check_term: Callable[[], None]) -> Archive:
    """Return the archive. Once there is one, its index says where it is, even if the setting has
    been removed."""
    index = (ArchiveIndex.open_existing(folder) if settings.archive is None
             else ArchiveIndex(folder, settings.archive))
    if index is None:
        return FolderArchive(folder)
    return TieredArchive(folder, index, S3Bucket(index.url, os.environ), settings.cluster,
                         check_term)


def _mover(core: Core, history: EmbeddedHistory, turn: int | None) -> ArchiveMover | None:
    settings = core.settings
    files, keep, places = history.store.files, history.store.keep, history.store.feed.places
    if not isinstance(files.archive, TieredArchive):
        return None
    marker = None if places is None else ArchiveMarker(files.archive, history.store, places)
    joiner = None if places is None or turn is None else ArchiveJoiner(
        files.archive, history.store, places, lambda: core.state.another(ArchiveTurnStore), turn)
    return ArchiveMover(files.archive, files, keep, settings.archive_after_hours * 3_600,
                        settings.archive_cache_gb * 1_000_000_000, marker, joiner,
                        core.events.dispatch)
