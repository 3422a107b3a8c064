"""`gpudeck history …`: commands on the history folder, without the hub."""

import argparse
import json
import os
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpudeck.errors import CommandError, ExitCode

from ..history.storage.archive import QUARANTINE
from ..history.storage.archive_index import ArchiveIndex
from ..history.storage.archive_owner import ArchiveOwner
from ..history.storage.folder import HistoryDamagedError, copied, read, totals, verified
from ..history.storage.from_archive import make_folder
from ..history.storage.s3 import S3Bucket, S3Error
from ..runtime.data_folder import LOCK, lock_folder, open_folder
from ..settings import archive, this_host
from .parts import make_parser, make_verb

NAME, HEADLOG = "history", "headlog"


def history(argv: Sequence[str]) -> int:
    args = _parser().parse_args(list(argv))
    try:
        report = VERBS[args.verb](args)
    except HistoryDamagedError as error:
        raise CommandError(str(error)) from error
    except OSError as error:
        raise CommandError(f"{error.filename or args.data}: {error.strerror}",
                           ExitCode.CANNOT_START) from error
    print(json.dumps(report, indent=2) if args.json else _as_text(report))
    return ExitCode.OK


def _folder(args: argparse.Namespace) -> Path:
    folder: Path = args.data / NAME
    if not folder.is_dir():
        raise CommandError(f"there is no history in {args.data}; name the hub's folder with "
                           "--data", ExitCode.CANNOT_START)
    return folder


def _info(args: argparse.Namespace) -> dict[str, Any]:
    folder = _folder(args)
    manifest = read(folder)
    kinds = totals(manifest)
    return {"folder": str(folder), "kinds": kinds,
            "bytes": sum(kind["bytes"] for kind in kinds.values()),
            "damaged_lines": manifest.damaged_lines,
            "quarantined": _quarantined(folder)}


def _verify(args: argparse.Namespace) -> dict[str, Any]:
    folder = _folder(args)
    return {"whole": True, "files": verified(folder), "quarantined": _quarantined(folder)}


def _quarantined(folder: Path) -> list[str]:
    aside = folder / QUARANTINE
    return sorted(path.name for path in aside.iterdir()) if aside.is_dir() else []


def _backup(args: argparse.Namespace) -> dict[str, Any]:
    source, target = _folder(args), args.target.resolve()
    if target == source.resolve() or (target.name == NAME and (target.parent / LOCK).exists()):
        raise CommandError(f"{target} is the history of a hub, and a backup would replace it; "
                           "name another folder", ExitCode.USAGE)
    return {"files": copied(source, target), "to": str(target),
            "without": "the newest minutes, not yet in a file"}


def _restore(args: argparse.Namespace) -> dict[str, Any]:
    open_folder(args.data)
    with closing(lock_folder(args.data)):
        target: Path = args.data / NAME
        if target.exists() and read(target).segments:
            raise CommandError(f"there is history in {target} already; move it away first",
                               ExitCode.CANNOT_START)
        if not read(args.source).segments:
            raise CommandError(f"there is no history in {args.source}", ExitCode.CANNOT_START)
        return {"files": copied(args.source, target), "from": str(args.source)}


def _from_archive(args: argparse.Namespace) -> dict[str, Any]:
    try:
        url = archive(args.archive)
    except ValueError as error:
        raise CommandError(f"--archive: {error}", ExitCode.USAGE) from error
    open_folder(args.data)
    with closing(lock_folder(args.data)):
        if not args.replace and any((args.data / HEADLOG).glob("head-*.log")):
            raise CommandError(f"{args.data / HEADLOG} has what nodes sent: this hub did not lose "
                               "its disk; start it as it is. If it lost its disk, and was started "
                               "since, add --replace", ExitCode.CANNOT_START)
        mark = make_folder(args.data / NAME, url, S3Bucket(url, os.environ), args.replace)
    return {"files": len(mark.files), "as of": datetime.fromtimestamp(mark.at, UTC).isoformat(),
            "streams": len(mark.streams),
            "next": "gpudeck history own-archive, once the hub that wrote there is no more"}


def _own_archive(args: argparse.Namespace) -> dict[str, Any]:
    folder = _folder(args)
    open_folder(args.data)  # what another user wrote here, the hub could not read
    index = ArchiveIndex.open_existing(folder)
    if index is None:
        raise CommandError(f"the history in {folder} has no archive", ExitCode.USAGE)
    owner = ArchiveOwner(folder, S3Bucket(index.url, os.environ), this_host(), lambda: None)
    try:
        former = owner.read_owner()
        owner.take()
    except S3Error as error:
        raise CommandError(f"{index.url}: {error}", ExitCode.CANNOT_START) from error
    return {"archive": index.url, "owner": this_host(),
            "before": "nobody" if former is None else former.hub}


VERBS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "info": _info, "verify": _verify, "backup": _backup, "restore": _restore,
    "own-archive": _own_archive, "from-archive": _from_archive}


def _parser() -> argparse.ArgumentParser:
    verbs, parser = make_parser("history", "The history that a hub keeps.")
    make_verb(verbs, "info", "what is stored of each kind, and its time span")
    make_verb(verbs, "verify", "read and verify every file; name the first damaged one")
    make_verb(verbs, "backup", "make a complete, verified copy; the hub may keep "
              "running").add_argument("target", metavar="FOLDER", type=Path)
    make_verb(verbs, "restore", "restore a backup into a hub's folder without history; the hub "
              "must be stopped").add_argument("source", metavar="FOLDER", type=Path)
    make_verb(verbs, "own-archive", "let this hub write to the archive of its history; the hub "
              "that did before stops")
    verb = make_verb(verbs, "from-archive", "make the history of a hub that lost its disk from its "
                     "archive")
    verb.add_argument("--archive", metavar="URL", required=True,
                      help="as the hub had it: s3://BUCKET/PREFIX…")
    verb.add_argument("--replace", action="store_true",
                      help="also where the hub was started since, without what the archive has; "
                      "its history stays as history.before")
    return parser


def _as_text(report: dict[str, Any]) -> str:
    kinds = report.pop("kinds", None)
    lines = [f"{name}: {', '.join(value) if isinstance(value, list) else value}"
             for name, value in report.items() if value not in ([], 0)]
    if kinds is None:
        return "\n".join(lines)
    rows = [f"{kind:8} {total['files']:6} files {total['rows']:12,} rows "
            f"{total['bytes'] / 1e6:10,.1f} MB  {_day(total['oldest'])} to {_day(total['newest'])}"
            for kind, total in sorted(kinds.items())]
    return "\n".join([*lines, *rows])


def _day(t: float) -> str:
    return datetime.fromtimestamp(t, UTC).strftime("%Y-%m-%d %H:%MZ")
