"""Parent and child of each fork, as the kernel reports it: the lineage of processes whose parents
are gone. By the proc connector (linux/cn_proc.h), which reports to nobody outside the machine's own
namespaces, and before kernel 6.6 only to those who have CAP_NET_ADMIN.
"""

import ctypes
import os
import socket
import struct
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress

NETLINK_CONNECTOR, CN_IDX_PROC, CN_VAL_PROC = 11, 1, 1
LISTEN, IGNORE = 1, 2
NLMSG_DONE = 3
ANSWER, FORK = 0, 1
SO_ATTACH_FILTER, SO_RCVBUFFORCE = 26, 33
# Where many processes are born, the kernel must not have to drop one between two looks.
BUFFER_BYTES = 8 * 2**20
MOST = 65_536  # of one line: a program that forks without end is no job any more
ANSWERS_WITHIN_S = 0.5
_HEAD = struct.Struct("=LHHLL")  # nlmsghdr
_CONNECTOR = struct.Struct("=LLLLHH")  # cn_msg
_EVENT = struct.Struct("=LLQ")  # what, cpu, ns; of a fork then pid and tgid of parent and of child
_FORK = struct.Struct("=LLLL")
_ERROR = struct.Struct("=L")
_EVENT_AT = _HEAD.size + _CONNECTOR.size
# Load word, compare, return: forks and answers alone are let in.
_LOAD, _IF_EQUAL, _RETURN = 0x20, 0x15, 0x06


class Lineage:
    """Followed processes and all born below them, with when. A pid that is used again for somebody
    else leaves it. Pure."""

    def __init__(self) -> None:
        self._born_s: dict[int, float | None] = {}
        self.is_known = True

    def follow(self, pids: Iterable[int]) -> None:
        self._born_s.update(dict.fromkeys(pids))

    def add(self, parent: int, child: int, at_s: float) -> None:
        """Add a fork, in the order in which the kernel reports them."""
        if parent in self._born_s:
            self._born_s[child] = at_s
            self.is_known &= len(self._born_s) <= MOST
        else:
            self._born_s.pop(child, None)

    def born(self) -> dict[int, float]:
        """Return when each was born, by pid, in seconds since the start of the machine. Empty if
        one birth is missing: then nobody's lineage is known."""
        return {pid: at_s for pid, at_s in self._born_s.items()
                if at_s is not None} if self.is_known else {}


class BirthWatch:
    """Watches births. The kernel reports one before the new process runs; a handle on it can be
    opened a moment earlier. So a caller that finds a pid in the lineage after opening its handle
    still compares when it began."""

    def __init__(self) -> None:
        """Raises OSError where the kernel does not report births."""
        self.lineage = Lineage()
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC,
                                     NETLINK_CONNECTOR)
        try:
            self._listen()
        except OSError:
            self._socket.close()
            raise
        self._socket.setblocking(False)

    def born(self) -> dict[int, float]:
        offset_s = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
        while self.lineage.is_known and (message := self._next()) is not None:
            for at in _messages(message):
                what, _, ns = _EVENT.unpack_from(message, at)
                _, parent, thread, child = _FORK.unpack_from(message, at + _EVENT.size)
                if what == FORK and thread == child:
                    self.lineage.add(parent, child, ns / 1e9 + offset_s)
        return self.lineage.born()

    def close(self) -> None:
        with suppress(OSError):
            self._request(IGNORE)
        self._socket.close()

    def _listen(self) -> None:
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
        except PermissionError:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        program = b"".join(struct.pack("=HBBI", *instruction) for instruction in (
            (_LOAD, 0, 0, _EVENT_AT), (_IF_EQUAL, 1, 0, socket.htonl(FORK)),
            (_IF_EQUAL, 0, 1, socket.htonl(ANSWER)), (_RETURN, 0, 0, 0xFFFFFFFF),
            (_RETURN, 0, 0, 0)))
        buffer = ctypes.create_string_buffer(program)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER,
                                struct.pack("HP", len(program) // 8, ctypes.addressof(buffer)))
        self._socket.bind((0, CN_IDX_PROC))
        self._request(LISTEN)
        # In another namespace the request is dropped without a word; what comes meanwhile is meant
        # for
        # others.
        deadline = time.monotonic() + ANSWERS_WITHIN_S
        while (left_s := deadline - time.monotonic()) > 0:
            self._socket.settimeout(left_s)
            message = self._socket.recv(65_536)
            for at in _messages(message):
                if _EVENT.unpack_from(message, at)[0] == ANSWER:
                    if error := _ERROR.unpack_from(message, at + _EVENT.size)[0]:
                        raise OSError(error, os.strerror(error))
                    return
        raise TimeoutError

    def _request(self, operation: int) -> None:
        body = _CONNECTOR.pack(CN_IDX_PROC, CN_VAL_PROC, 0, 0, 4, 0) + struct.pack("=L", operation)
        self._socket.send(_HEAD.pack(_HEAD.size + len(body), NLMSG_DONE, 0, 0, 0) + body)

    def _next(self) -> bytes | None:
        try:
            return self._socket.recv(65_536)
        except BlockingIOError:
            return None
        except OSError:  # ENOBUFS: a birth was dropped
            self.lineage.is_known = False
            return None


def _messages(message: bytes) -> Iterator[int]:
    at = 0
    while at + _EVENT_AT + _EVENT.size + _FORK.size <= len(message):
        yield at + _EVENT_AT
        at += max(_HEAD.unpack_from(message, at)[0], _HEAD.size)


def watch_births() -> BirthWatch | None:
    """Watch births; None: the kernel does not report them here."""
    try:
        return BirthWatch()
    except OSError:
        return None
