"""Copy of the audit log in a file of the operator's choice: one record per line, append only.

Somebody who can rewrite the hub's folder can rewrite the chain in it from the start, but not this
copy, if it lies where they cannot write: on another mount, or with `chattr +a`.
"""

import os
import stat
from pathlib import Path

import msgspec

from gpudeck.audit.chain import START, AuditChainLink
from gpudeck.errors import CommandError, ExitCode

from ..errors import AuditWriteError
from .store import AuditStore

READ_BACK_BYTES = 65_536
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(AuditChainLink).decode


def line_of(link: AuditChainLink) -> bytes:
    return _encode(link) + b"\n"


def _link(line: bytes) -> AuditChainLink | None:
    try:
        return _decode(line)
    except msgspec.MsgspecError:
        return None


class AuditCopy:
    def __init__(self, path: Path, store: AuditStore) -> None:
        self._path = path
        self._store = store
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
                                 | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise CommandError(f"cannot append to {path}: {error.strerror}; name another file "
                               "with --audit-copy", ExitCode.CANNOT_START) from error
        if not stat.S_ISREG(os.fstat(self._file).st_mode):
            os.close(self._file)
            raise CommandError(f"{path} is not a plain file; name another with --audit-copy",
                               ExitCode.CANNOT_START)
        self._is_due = False  # written, but not synced to disk yet
        self._at, self._head, self._is_torn = self._end()
        self.misfit = self._misfit()

    def _end(self) -> tuple[int, str, bool]:
        """Return number and hash of the last complete record, and whether a torn line follows."""
        size = os.fstat(self._file).st_size
        start, tail = size, b""
        while start > 0:
            step = min(READ_BACK_BYTES, start)
            start -= step
            tail = os.pread(self._file, step, start) + tail
            lines = tail.split(b"\n")
            for line in reversed(lines if start == 0 else lines[1:]):
                link = _link(line)
                if link is not None:
                    return link.seq, link.hash, not tail.endswith(b"\n")
        return 0, START, size > 0 and not tail.endswith(b"\n")

    def _misfit(self) -> str | None:
        if self._store.hash_at(self._at) == self._head:
            return None
        return (f"the audit in the hub's folder does not go on from record {self._at} of "
                f"{self._path}: it was truncated, rewritten, or restored from a backup; run "
                "`gpudeck audit verify`, then move that file away to begin another")

    def catch_up(self) -> None:
        """Append all records that the file lacks and sync them to disk. Raises AuditWriteError."""
        if self.misfit is not None:
            raise AuditWriteError(self.misfit)
        try:
            for link in self._store.links(self._at):
                self._write(line_of(link))
                self._at, self._is_due = link.seq, True
            if self._is_due:
                os.fdatasync(self._file)
                self._is_due = False
        except OSError as error:
            raise AuditWriteError(f"the copy of the audit, {self._path}, cannot be written "
                                  f"({error.strerror}), and actions that cannot be recorded are "
                                  "refused; make room there") from error

    def _write(self, line: bytes) -> None:
        data = b"\n" + line if self._is_torn else line
        self._is_torn = True
        if os.write(self._file, data) != len(data):
            raise OSError(28, "no space left")
        self._is_torn = False

    def close(self) -> None:
        os.close(self._file)
