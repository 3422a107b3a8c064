"""Detached runs on disk, in a folder that only their owner reads, and their processes."""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from gpudeck.errors import CommandError, ExitCode
from gpudeck.settings import state_folder

from ...settings import this_host
from ...tasks.boot_id import boot_id
from ...tasks.processes import PROC, row_of
from .request import ProcessMark, RunPart, RunRequest, failure

RUN_ENV = "GPUDECK_RUN"
INDEX_ENV = "GPUDECK_ARRAY_INDEX"
FOLDER_ENV = "GPUDECK_RUN_FOLDER"
# A node lets a user wait with 32 claims and connect 64 times; others of theirs wait, too.
SLOTS = 16
LAST_REMOVED = "last-removed"
HAS_CANCELLED = "has-cancelled"  # any part, so that most need not be looked at one by one


class RunFolder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._supervisor = path / "supervisor.json"

    def request(self) -> RunRequest:
        """Return the request. Raises CommandError."""
        try:
            return msgspec.json.decode((self.path / "request.json").read_bytes(), type=RunRequest)
        except (OSError, msgspec.MsgspecError) as error:
            raise CommandError(f"run {self.path.name} cannot be read: {error}") from error

    def part(self, index: int | None) -> RunPart | None:
        """Return the part as noted. None: it has not begun."""
        try:
            return msgspec.json.decode(self._of("part", index, ".json").read_bytes(), type=RunPart)
        except FileNotFoundError:
            return None
        except msgspec.MsgspecError as error:
            raise CommandError(f"run {self.path.name} cannot be read: {error}") from error

    def put(self, index: int | None, part: RunPart) -> None:
        write(self._of("part", index, ".json"), msgspec.json.encode(part))

    def output(self, index: int | None) -> Path:
        return self._of("output", index, ".log")

    def cancel(self, index: int | None) -> None:
        write(self._of("cancel", index, ""), b"")
        (self.path / HAS_CANCELLED).touch(0o600)

    def is_cancelled(self, index: int | None) -> bool:
        return (self.path / HAS_CANCELLED).exists() and any(
            self._of("cancel", part, "").exists() for part in (index, None))

    def _of(self, what: str, index: int | None, end: str) -> Path:
        return self.path / (f"{what}{end}" if index is None else f"{what}-{index}{end}")

    def is_there(self) -> bool:
        """Return whether the folder is there: a user may remove it with its runs in progress."""
        return self.path.is_dir()

    def put_supervisor(self) -> None:
        write(self._supervisor, msgspec.json.encode(this_process()))

    def has_begun(self) -> bool:
        return self._supervisor.exists()

    def is_supervised(self) -> bool:
        try:
            mark = msgspec.json.decode(self._supervisor.read_bytes(), type=ProcessMark)
        except (OSError, msgspec.MsgspecError):
            return False
        return is_alive(mark)

    def part_now(self, request: RunRequest, index: int | None) -> RunPart:
        """Return the part as it is now: a process that was killed could not note its end."""
        part = self.part(index)
        if part is not None and (part.is_final or (
                part.process is not None and is_alive(part.process))):
            return part
        if self.is_cancelled(index) and (part is None or not self.pids(request.name(index))):
            return msgspec.structs.replace(part or RunPart("cancelled"), state="cancelled")
        if part is None:
            return RunPart("queued") if self.is_supervised() else RunPart(
                "lost", "its supervisor has ended before it began")
        if (newest := self.part(index)) is not None and newest.is_final:
            return newest
        if pids := self.pids(request.name(index)):
            names = ", ".join(map(str, sorted(pids)[:4]))
            return msgspec.structs.replace(part, state="unsupervised", why=(
                f"its supervisor was killed; process {names} continues, and its status will not be "
                "known"))
        return msgspec.structs.replace(part, state="lost", why=(
            "its supervisor was killed, or the machine restarted; its status is not known"))

    def parts_now(self, request: RunRequest) -> dict[int | None, RunPart]:
        return {index: self.part_now(request, index) for index in request.parts}

    def environment(self, request: RunRequest, index: int | None) -> dict[str, str]:
        """Return the variables by which its processes are found, and know which of an array they
        are."""
        mark = {RUN_ENV: request.name(index), FOLDER_ENV: str(self.path)}
        return mark if index is None else {**mark, INDEX_ENV: str(index)}

    def pids(self, name: str) -> set[int]:
        """Return the pids of its command, and of what that started, as far as it has kept its
        environment."""
        return {int(pid) for pid in os.listdir(PROC)
                if pid.isdigit() and int(pid) != os.getpid() and self.is_of(int(pid), name)}

    def is_of(self, pid: int, name: str) -> bool:
        """Return whether a process belongs to a run. The environment of others' processes cannot be
        read."""
        mark = {f"{RUN_ENV}={name}".encode(), f"{FOLDER_ENV}={self.path}".encode()}
        try:
            return mark <= set((PROC / str(pid) / "environ").read_bytes().split(b"\0"))
        except OSError:
            return False


class RunFolders:
    """Detached runs of a user. Raises CommandError."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self.path = state_folder("runs", env)

    def make(self, request: RunRequest) -> tuple[RunFolder, RunRequest]:
        """Make a folder for the request; return it, and the request with its number."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            number = max([*self._numbers(), self._last_removed()])
            while True:
                number += 1
                with contextlib.suppress(FileExistsError):
                    (self.path / str(number)).mkdir(mode=0o700)
                    break
            folder = RunFolder(self.path / str(number))
            numbered = msgspec.structs.replace(request, number=number)
            write(folder.path / "request.json", msgspec.json.encode(numbered))
            return folder, numbered
        except OSError as error:
            raise CommandError(f"cannot write {self.path}: {error.strerror}",
                               ExitCode.CANNOT_START) from error

    def remove(self, folder: RunFolder) -> None:
        """Remove a run. Its number is not given again: processes that it has left behind carry
        it, and would be ended with a later one."""
        number = max(int(folder.path.name), self._last_removed())
        shutil.rmtree(folder.path)  # first: a full disk has room then
        write(self.path / LAST_REMOVED, str(number).encode())

    def _last_removed(self) -> int:
        try:
            return int((self.path / LAST_REMOVED).read_bytes())
        except (OSError, ValueError):
            return 0

    def find(self, number: int) -> tuple[RunFolder, RunRequest]:
        """Return a run of this machine: in a home that several share, only a run's own machine
        knows how it stands."""
        folder = RunFolder(self.path / str(number))
        if not folder.path.is_dir():
            raise CommandError(f"there is no run {number}; `gpudeck runs` lists them",
                               ExitCode.USAGE)
        request = folder.request()
        if request.host != this_host():
            raise CommandError(f"run {number} is on {request.host}; ask there", ExitCode.USAGE)
        return folder, request

    def __iter__(self) -> Iterator[tuple[RunFolder, RunRequest]]:
        """Yield the runs by number, without those that are being written."""
        for number in sorted(self._numbers()):
            folder = RunFolder(self.path / str(number))
            with contextlib.suppress(CommandError):
                yield folder, folder.request()

    def _numbers(self) -> list[int]:
        try:
            return [int(name) for name in os.listdir(self.path)
                    if name.isascii() and name.isdigit()]
        except FileNotFoundError:
            return []

    def why_after_not(self, number: int, index: int | None) -> str | None:
        """Return why what comes after this run never begins; "": it may begin; None: not yet."""
        folder, request = self.find(number)
        parts = {part: folder.part_now(request, part)
                 for part in (request.parts if index is None else (index,))}
        if any(not part.is_final for part in parts.values()):
            return None
        return failure(request, parts)


class WaitingSlots:
    """Slots for those of a user's runs that may wait at the node at once, those submitted first
    before others. A lock is held by a process, so that none outlives it."""

    def __init__(self, runs: Path, number: int) -> None:
        self._slots = runs / "slots"
        self._tickets = runs / "tickets"
        self._number = number
        self._ticket: int | None = None

    def take(self) -> int | None:
        """Return a file descriptor that holds a slot until it is closed. None: not now."""
        for folder in (self._slots, self._tickets):
            folder.mkdir(mode=0o700, exist_ok=True)
        if self._ticket is None:
            self._ticket = _lock(self._tickets / str(self._number))
        if self._is_after_others():
            return None
        for number in range(SLOTS):
            if (slot := _lock(self._slots / str(number))) is not None:
                return slot
        return None

    def leave(self) -> None:
        """Leave the queue for slots. In a child that was forked, for this process alone."""
        if self._ticket is not None:
            os.close(self._ticket)
            self._ticket = None

    def _is_after_others(self) -> bool:
        for number in sorted(int(name) for name in os.listdir(self._tickets) if name.isdigit()):
            if number >= self._number:
                return False
            if (ticket := _lock(self._tickets / str(number))) is None:
                return True
            (self._tickets / str(number)).unlink(missing_ok=True)
            os.close(ticket)
        return False


def _lock(path: Path) -> int | None:
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def this_process() -> ProcessMark:
    row = row_of(os.getpid())
    return ProcessMark(os.getpid(), 0 if row is None else row.start_ticks, boot_id())


def is_alive(mark: ProcessMark) -> bool:
    row = row_of(mark.pid)
    return (row is not None and row.start_ticks == mark.start_ticks and row.state not in "ZX"
            and mark.boot_id == boot_id())


def write(path: Path, body: bytes) -> None:
    """Write the file whole, or not at all."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with open(draft, "wb", opener=private) as file:
        file.write(body)
    draft.replace(path)


def private(name: str, flags: int) -> int:
    """Open a file that nobody else reads: an opener for `open`."""
    return os.open(name, flags, 0o600)
