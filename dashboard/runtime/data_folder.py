"""The hub's data folder: private and locked, with files that are written whole."""

import fcntl
import json
import os
import pwd
import secrets
import stat
from pathlib import Path
from typing import IO, Any

from gpudeck.errors import CommandError, ExitCode

LOCK = "lock"
SIGNING_FILE = "signer.json"  # what was signed, and for which epoch
PAGES = "pages"  # of the site's own
OURS = (LOCK, "state.db", "state.json", "hub.key", SIGNING_FILE, "api.token", "hub.json",
        "headlog", "history")


def open_folder(path: Path) -> None:
    """Create the folder if needed, and check that it is private; raises CommandError if not."""
    os.umask(0o077)
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(f"cannot make the data folder {path}: {error.strerror}; name another "
                           "with --data", ExitCode.CANNOT_START) from error
    if path.is_symlink():
        raise CommandError(f"the data folder {path} is a link; name the folder itself with --data",
                           ExitCode.CANNOT_START)
    if (uid := path.stat().st_uid) != os.geteuid():
        owner = user_name(uid)
        raise CommandError(f"the data folder {path} belongs to {owner}; run this as that user "
                           f"(as root: runuser -u {owner} -- gpudeck …), or name another with "
                           "--data", ExitCode.CANNOT_START)
    if not os.access(path, os.W_OK | os.X_OK):
        raise CommandError(f"cannot write in the data folder {path}; name another with --data",
                           ExitCode.CANNOT_START)
    if not any(path.iterdir()):
        path.chmod(0o700)
    for entry in (path, *(path / name for name in OURS)):
        _check_mode(entry)


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _check_mode(entry: Path) -> None:
    if entry.is_symlink():
        raise CommandError(f"{entry} is a link; the hub keeps its own files there: remove it",
                           ExitCode.CANNOT_START)
    mode = stat.S_IMODE(entry.lstat().st_mode) if entry.exists() else 0
    if mode & 0o077:
        required = "700" if entry.is_dir() else "600"
        raise CommandError(f"{entry} can be read by others (mode {mode:o}) and may hold secrets; "
                           f"run: chmod {required} {entry}", ExitCode.CANNOT_START)


def lock_folder(path: Path) -> IO[str]:
    """Lock the folder while the returned file is open: two hubs would eat each other's log."""
    file = os.fdopen(_private(str(path / LOCK), os.O_RDWR | os.O_CREAT), "w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise CommandError(f"another hub is running in {path}; stop it or name another folder "
                           "with --data", ExitCode.CANNOT_START) from error
    return file


def write_private(path: Path, content: str | bytes) -> None:
    """Write the file whole or not at all, readable by this user alone."""
    draft = path.with_name(path.name + ".new")
    with open(draft, "wb", opener=_private) as file:
        file.write(content.encode() if isinstance(content, str) else content)
    draft.replace(path)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def secret(path: Path) -> str:
    """Return the token in this file, which is made at the first start."""
    if not path.exists():
        write_private(path, secrets.token_urlsafe(32) + "\n")
    return path.read_text().strip()


def token_in(path: Path) -> str | None:
    return path.read_text().strip() if path.exists() else None


def signing_log(folder: Path) -> tuple[int, list[Any]]:
    """Return the epoch for which was signed last, and the signatures of the last hour; 0 and
    nothing before the first."""
    path = folder / SIGNING_FILE
    try:
        saved = json.loads(path.read_bytes())
        return int(saved["epoch"]), list(saved["spent"])
    except FileNotFoundError:
        return 0, []
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CommandError(f"the signer cannot read {path}, its log of signatures: move it away if "
                           "no other hub took over here", ExitCode.CANNOT_START) from error
