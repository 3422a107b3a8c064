"""Who was born below whom, as the kernel tells of each fork: the line of processes whose parents
are gone. By the proc connector (linux/cn_proc.h), which needs CAP_NET_ADMIN in the machine's own
namespaces; elsewhere nothing is told.
"""

import ctypes
import errno
import os
import select
import socket
import struct
from collections.abc import Iterable

NETLINK_CONNECTOR, CN_IDX_PROC, CN_VAL_PROC = 11, 1, 1
LISTEN = 1
NLMSG_DONE = 3
NO_EVENT, FORK = 0, 1
SO_ATTACH_FILTER, SO_RCVBUFFORCE = 26, 33
# Where many processes are born, the kernel must not have to drop one between two looks.
BUFFER_BYTES = 8 * 2**20
_HEAD = struct.Struct("=LHHLL")  # nlmsghdr
_CONNECTOR = struct.Struct("=LLLLHH")  # cn_msg
_EVENT = struct.Struct("=LLQ")  # what, cpu, ns; then of a fork: parent pid, tgid, child pid, tgid
_FORK = struct.Struct("=LLLL")
_EVENT_AT = _HEAD.size + _CONNECTOR.size
ANSWERS_WITHIN_S = 0.5
# Only forks and answers are let in: load word, return all if it is one of these, else nothing.
_LOAD, _IF_EQUAL, _RETURN = 0x20, 0x15, 0x06


class Births:
    """From when it is made on. `line()`: of the processes that were given, and of all born below
    them. A number that was given out anew to somebody else leaves it: whatever was born until a
    pidfd was taken has been told before that, so a pid that is in the line after it was taken hold
    of is the one that was meant."""

    def __init__(self, pids: Iterable[int]) -> None:
        """Raises OSError where the kernel does not tell."""
        self._line = set(pids)
        self._is_whole = True
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC,
                                     NETLINK_CONNECTOR)
        try:
            self._listen()
        except OSError:
            self._socket.close()
            raise

    def line(self) -> frozenset[int]:
        """Empty once the kernel had to drop a birth, or there were too many: then nobody's line is
        known."""
        while self._is_whole and (told := self._next()) is not None:
            for at in _messages(told):
                self._take(told, at)
        return frozenset(self._line) if self._is_whole else frozenset()

    def close(self) -> None:
        self._socket.close()

    def _listen(self) -> None:
        self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
        program = b"".join(struct.pack("=HBBI", *each) for each in (
            (_LOAD, 0, 0, _EVENT_AT), (_IF_EQUAL, 1, 0, socket.htonl(FORK)),
            (_IF_EQUAL, 0, 1, socket.htonl(NO_EVENT)), (_RETURN, 0, 0, 0xFFFFFFFF),
            (_RETURN, 0, 0, 0)))
        held = ctypes.create_string_buffer(program)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER,
                                struct.pack("HP", len(program) // 8, ctypes.addressof(held)))
        self._socket.bind((0, CN_IDX_PROC))
        wish = struct.pack("=L", LISTEN)
        body = _CONNECTOR.pack(CN_IDX_PROC, CN_VAL_PROC, 0, 0, len(wish), 0) + wish
        self._socket.send(_HEAD.pack(_HEAD.size + len(body), NLMSG_DONE, 0, 0, os.getpid()) + body)
        # In another namespace the wish is dropped without a word.
        ready, _, _ = select.select([self._socket], [], [], ANSWERS_WITHIN_S)
        if not ready:
            raise OSError(errno.EPERM, "the kernel does not tell of births here")
        self._socket.setblocking(False)

    def _next(self) -> bytes | None:
        try:
            return self._socket.recv(65_536)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            self._is_whole = False
            return None

    def _take(self, told: bytes, at: int) -> None:
        what, _, _ = _EVENT.unpack_from(told, at)
        if what != FORK:
            return
        _, parent, thread, child = _FORK.unpack_from(told, at + _EVENT.size)
        if thread != child:
            return
        if parent in self._line:
            self._line.add(child)
        else:
            self._line.discard(child)


def _messages(told: bytes) -> Iterable[int]:
    at = 0
    while at + _EVENT_AT + _EVENT.size + _FORK.size <= len(told):
        yield at + _EVENT_AT
        length = _HEAD.unpack_from(told, at)[0]
        at += max(length, _HEAD.size)


def born_below(pids: Iterable[int]) -> Births | None:
    """None: the kernel does not tell here."""
    try:
        return Births(pids)
    except OSError:
        return None
