"""An empty folder of history for a hub that takes over: what another hub had since is in the
archive, or at the nodes. What this hub had before stays beside it, and lends its whole files."""

import logging
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

from gpudeck.errors import CommandError

from .archive import sync
from .archive_index import ArchiveIndex
from .archive_mark import PlacesRecord, write_places
from .archive_owner import FILE, folder_token
from .archive_turns import ArchiveTurn, ArchiveTurnStore
from .folder import read
from .manifest import HistoryFile, Manifest, write_whole

log = logging.getLogger("gpudeck.history")

HISTORY, HEADLOG = "history", "headlog"
ASIDE, DRAFT = "history.before-", "history.taking-over"
# By then nodes have brought whatever in it was in no archive: their journals reach back a day.
ASIDE_S = 7 * 86_400.0
# What was in no archive for longer when it was put aside, nodes may have no more (docs/scale.md).
BEHIND_MOST_S = 3_600.0


def begin_turn(data: Path, turns: ArchiveTurnStore, url: str, now: float) -> None:
    """Begin this hub's turn at an archive that it shares with the hubs of its state. If another one
    has had its turn since, history begins empty."""
    token, last = folder_token(data / HISTORY), turns.last(url)
    if last is None:
        last = ArchiveTurn(url, (token,))
    elif last.hub != token:
        begin_afresh(data, url, now)
    turns.put(last.of_hub(token))


def begin_afresh(data: Path, url: str, now: float) -> None:
    """Begin an empty history that awaits the archive's. Killed at any point, it is begun once
    more."""
    folder, draft = data / HISTORY, data / DRAFT
    number = max(int(now * 1_000), read(folder).number) + 1
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(mode=0o700)
    write_whole(draft / FILE, folder_token(folder).encode())
    manifest = Manifest(draft)
    # Above all numbers of the archive's files, as no hub writes a line per millisecond: no name
    # comes twice.
    manifest.number = number
    manifest.rewrite()
    ArchiveIndex(draft, url).begin()
    write_places(draft, PlacesRecord(is_restored=True, joins=number))
    _put_aside(data, number)
    draft.rename(folder)
    sync(data)


def _put_aside(data: Path, number: int) -> None:
    names = [name for name, sign in ((HEADLOG, "head-*"), (HISTORY, "manifest*"))
             if any((data / name).glob(sign))]
    if names:
        (data / f"{ASIDE}{number}").mkdir(mode=0o700)
    for name in names:  # the log first: without its history it would be taken for what is new
        (data / name).rename(data / f"{ASIDE}{number}" / name)
    shutil.rmtree(data / HISTORY, ignore_errors=True)  # of a hub that never ran
    sync(data)


def former_folders(data: Path) -> list[Path]:
    """Return this hub's former folders of history, the newest first."""
    asides = sorted(data.glob(f"{ASIDE}*"), key=_number_of, reverse=True)
    return [aside / HISTORY for aside in asides]


def clean_up(data: Path, files: Iterable[HistoryFile], now: float) -> None:
    """Remove from former folders what is in the history of now, and those that are old, unless they
    have the only copy of something."""
    names = [file.name for file in files]
    for folder in former_folders(data):
        for name in names:
            (folder / name).unlink(missing_ok=True)
        put_aside_at = _number_of(folder.parent)
        if put_aside_at + ASIDE_S >= now:
            continue
        if has_only_copies(folder, put_aside_at):
            log.warning("former_history_stays folder=%s why='it was never archived, and nodes may "
                        "have no more of it'", folder.parent)
        else:
            shutil.rmtree(folder.parent)


def has_only_copies(folder: Path, put_aside_at: float) -> bool:
    """Return whether a former folder has files that were in no archive for so long that nodes may
    not have brought what is in them, or nobody knows."""
    try:
        index = ArchiveIndex.open_existing(folder)
    except CommandError:
        return True
    return any((folder / file.name).exists() and file.made_at + BEHIND_MOST_S < put_aside_at
               and (index is None or index.there(file.name) is None)
               for file in read(folder).segments.values())


def _number_of(aside: Path) -> float:
    """Return the time at which it was put aside; unknown names are kept."""
    number = aside.name.removeprefix(ASIDE)
    return float(number) / 1_000 if number.isdecimal() else time.time()
