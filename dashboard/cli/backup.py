"""`gpudeck hub backup|restore`: the whole folder of a hub, which may keep running for a backup."""

import argparse
import getpass
import json
import os
import shutil
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from gpudeck import __version__
from gpudeck.errors import CommandError, ExitCode
from gpudeck.network.keys import locked_box, opened_box
from gpudeck.settings import read_secret

from ..actions.hub_key import KEY_FILE
from ..history.storage.folder import HistoryDamagedError, copied
from ..history.storage.manifest import digest
from ..notifications.transports import SECRETS
from ..runtime.data_folder import (
    LOCK,
    PAGES,
    SIGNING_FILE,
    lock_folder,
    open_folder,
    user_name,
    write_private,
)
from ..runtime.sqlite_state import copy_database
from ..runtime.state_location import is_there, location
from .migrate_state import copy_state
from .parts import make_parser, make_verb

STATE, HISTORY, KEYS, MARK = "state.db", "history", "keys.box", "backup.json"
KEY_FILES = (KEY_FILE, SIGNING_FILE, "api.token")
DRAFT = ".restoring"


class BackupMark(Struct, frozen=True):
    at: float
    version: str
    state_sha256: str
    history_files: int
    has_keys: bool


class KeysBox(Struct, frozen=True, forbid_unknown_fields=True):
    """Encrypted by the passphrase: key files, and the SHA-256 of the files copied unencrypted."""

    files: dict[str, bytes]
    digests: dict[str, str]


def backup_or_restore(argv: Sequence[str]) -> int:
    args = _parser().parse_args(list(argv))
    passphrase = _passphrase(args)
    try:
        report = (_backup if args.verb == "backup" else _restore)(
            args.data, args.folder.resolve(), passphrase)
    except HistoryDamagedError as error:
        raise CommandError(str(error)) from error
    except OSError as error:
        raise CommandError(f"{error.filename or args.folder}: {error.strerror}",
                           ExitCode.CANNOT_START) from error
    print(json.dumps(report, indent=2) if args.json
          else "\n".join(f"{name}: {value}" for name, value in report.items()))
    return ExitCode.OK


def _backup(data: Path, target: Path, passphrase: str | None) -> dict[str, Any]:
    """Write the backup. The mark is written last: a folder without it is not a backup."""
    if not is_there(data):
        raise CommandError(f"there is no hub in {data}; name its folder with --data",
                           ExitCode.CANNOT_START)
    _open_target(target)
    (target / MARK).unlink(missing_ok=True)
    database = location(data)
    if database is None:
        copy_database(data / STATE, target / STATE)
    else:
        copy_state(database, target / STATE)
    files = copied(data / HISTORY, target / HISTORY) if (data / HISTORY).is_dir() else 0
    shutil.rmtree(target / PAGES, ignore_errors=True)
    if (data / PAGES).is_dir():
        shutil.copytree(data / PAGES, target / PAGES)
    (target / KEYS).unlink(missing_ok=True)
    if passphrase is not None:
        box = KeysBox(_keys(data), _digests(target))
        write_private(target / KEYS, locked_box(passphrase, msgspec.json.encode(box)))
    write_private(target / MARK, msgspec.json.encode(BackupMark(
        time.time(), __version__, digest(target / STATE), files, passphrase is not None)))
    missing = ["the newest minutes, not yet in a file"] + ([] if passphrase is not None else [
        "keys: without hub.key no node knows the restored hub; give --passphrase-file, or keep "
        "a copy of hub.key elsewhere"])
    return {"to": str(target), "history files": files, "without": "; ".join(missing)}


def _open_target(target: Path) -> None:
    """Make the backup's folder, or check that it is a backup's."""
    user = user_name(os.geteuid())
    cannot = CommandError(f"{target} cannot be a folder of {user} alone, as a backup must be; as "
                          f"root, make it one: install -d -o {user} -m 700 {target}",
                          ExitCode.CANNOT_START)
    try:
        has_other = (target / LOCK).exists() or (
            target.is_dir() and any(target.iterdir()) and not (target / MARK).exists())
    except PermissionError as error:
        raise cannot from error
    if has_other:
        raise CommandError(f"{target} has something else in it; name a new folder, or one of an "
                           "earlier backup", ExitCode.USAGE)
    try:
        open_folder(target)
    except CommandError as error:  # its words are about a hub's data folder
        raise cannot from error


def _restore(data: Path, source: Path, passphrase: str | None) -> dict[str, Any]:
    mark = _mark(source)
    if digest(source / STATE) != mark.state_sha256:
        raise CommandError(f"{source / STATE} is not what the backup wrote; take another backup")
    keys = _key_files(source, mark, passphrase)
    is_new = not data.exists()
    open_folder(data)
    try:
        with closing(lock_folder(data)):
            files = _restore_into(data, source, keys)
    except BaseException:
        if is_new:
            shutil.rmtree(data, ignore_errors=True)
        raise
    return {"to": str(data), "history files": files, "keys": sorted(keys) or (
        "none: put hub.key back before the hub starts, or every node must be enrolled again")}


def _restore_into(data: Path, source: Path, keys: dict[str, bytes]) -> int:
    """Write everything into a draft folder first and then move it into place, so that a failure
    leaves nothing behind."""
    draft = data / DRAFT
    if draft.exists() and not is_there(data):  # left by a restore that was killed
        for path in (draft, data / HISTORY, data / PAGES):
            shutil.rmtree(path, ignore_errors=True)
    if is_there(data) or (data / HISTORY).exists():
        raise CommandError(f"there is a hub in {data} already; move it away first",
                           ExitCode.CANNOT_START)
    draft.mkdir(mode=0o700)
    try:
        for name, content in keys.items():
            (draft / name).parent.mkdir(mode=0o700, exist_ok=True)
            write_private(draft / name, content)
        files = copied(source / HISTORY, draft / HISTORY) if (source / HISTORY).is_dir() else 0
        if (source / PAGES).is_dir():
            shutil.copytree(source / PAGES, draft / PAGES)
        copy_database(source / STATE, draft / STATE)
        _put_in_place(draft, data)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return files


def _put_in_place(draft: Path, data: Path) -> None:
    """Move the files into place, the state last: it is what makes the folder a hub's."""
    for entry in sorted(draft.iterdir(), key=lambda path: path.name == STATE):
        if entry.name == SECRETS and (data / SECRETS).is_dir():
            for file in entry.iterdir():
                file.replace(data / SECRETS / file.name)
        else:
            entry.replace(data / entry.name)


def _key_files(source: Path, mark: BackupMark, passphrase: str | None) -> dict[str, bytes]:
    """Decrypt the key files; raise CommandError unless the unencrypted files are those that were
    copied with them."""
    if mark.has_keys and passphrase is None:
        raise CommandError("this backup has its keys in it: give --passphrase-file",
                           ExitCode.USAGE)
    if passphrase is None:
        return {}
    if not mark.has_keys:
        raise CommandError("this backup was made without a passphrase, and has no keys in it: "
                           "leave --passphrase-file out", ExitCode.USAGE)
    try:
        box = msgspec.json.decode(opened_box(passphrase, (source / KEYS).read_bytes()),
                                  type=KeysBox)
    except msgspec.MsgspecError as error:
        raise CommandError(f"{source / KEYS} does not hold what a backup writes: {error}"
                           ) from error
    except ValueError as error:
        raise CommandError(f"{source / KEYS}: {error}", ExitCode.DENIED) from error
    strange = [name for name in box.files if not _is_key_file(name)]
    if strange:
        raise CommandError(f"{source / KEYS} holds {strange[0][:80]!r}, which is no file of a "
                           "hub's keys; nothing was restored")
    digests = _digests(source)
    changed = sorted(name for name in digests.keys() | box.digests.keys()
                     if digests.get(name) != box.digests.get(name))
    if changed:
        raise CommandError(f"{source / changed[0]} is not what the backup wrote; take another "
                           "backup")
    return box.files


def _is_key_file(name: str) -> bool:
    folder, mark, file = name.rpartition("/")
    return name in KEY_FILES or (folder == SECRETS and bool(mark) and file not in ("", ".", "..")
                                 and "\0" not in file)


def _digests(folder: Path) -> dict[str, str]:
    """Return the digests of the state, of the site's pages and of the history's manifest files,
    which hold the digests of the history's data files."""
    files = [folder / STATE]
    files += [path for path in (folder / PAGES).rglob("*") if path.is_file() or path.is_symlink()]
    files += [path for path in (folder / HISTORY).rglob("*")
              if path.is_file() and path.suffix != ".parquet"]
    for path in files:
        if path.is_symlink():
            raise CommandError(f"{path} is a link, and no file of a backup")
    return {str(path.relative_to(folder)): digest(path) for path in files}


def _keys(data: Path) -> dict[str, bytes]:
    files = [data / name for name in KEY_FILES if (data / name).is_file()]
    if (data / SECRETS).is_dir():
        files += [path for path in (data / SECRETS).iterdir() if path.is_file()]
    return {str(path.relative_to(data)): path.read_bytes() for path in files}


def _mark(source: Path) -> BackupMark:
    try:
        return msgspec.json.decode((source / MARK).read_bytes(), type=BackupMark)
    except PermissionError as error:
        user = user_name(os.geteuid())
        raise CommandError(f"{user} cannot read {source}; as root, give it to that user, in a "
                           f"folder that it can enter: chown -R {user}: {source}",
                           ExitCode.CANNOT_START) from error
    except OSError as error:
        raise CommandError(f"{source} is not a complete backup of a hub: it has no {MARK}",
                           ExitCode.USAGE) from error
    except msgspec.MsgspecError as error:
        raise CommandError(f"{source / MARK} is not what a backup writes: {error}",
                           ExitCode.USAGE) from error


def _passphrase(args: argparse.Namespace) -> str | None:
    """Return the passphrase, or None. It is never an argument: those are public on a machine."""
    if args.passphrase:
        typed = getpass.getpass("Passphrase for the keys: ")
    elif args.passphrase_file is not None:
        typed = read_secret(args.passphrase_file)
    else:
        return None
    if len(typed) < 12:
        raise CommandError("a passphrase has 12 characters at least", ExitCode.USAGE)
    return typed


def _parser() -> argparse.ArgumentParser:
    verbs, parser = make_parser("hub", "Back up and restore a hub's whole folder.")
    for verb, text in (("backup", "copy state, history and, encrypted, keys; the hub may keep "
                                  "running"),
                       ("restore", "make a hub's folder from a backup")):
        verb_parser = make_verb(verbs, verb, text)
        verb_parser.add_argument("folder", metavar="FOLDER", type=Path, help="the backup")
        verb_parser.add_argument("--passphrase", action="store_true", help="ask for it here")
        verb_parser.add_argument("--passphrase-file", metavar="FILE",
                                 help="passphrase of the keys; without it a backup has no keys")
    return parser
