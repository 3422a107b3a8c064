"""Bounded query of NCCL's RAS service on this machine, in its own text protocol. It only reads.

The service has to name itself first: whatever else listens there gets one line and no more. Ranks
share the port (SO_REUSEPORT), all those of one user, of several jobs too: which of them answers is
up to the kernel, so that one that is not meant, or stopped, is followed by another try.
"""

import socket
import time
from collections.abc import Callable

from .ras_core import OTHER_ANSWER, OTHER_JOB, RasUnreadableError

CONNECT_S = 1.0
GREETING_S = 2.0  # a rank that is stopped never answers, and its neighbour does
TRIES = 12
COLLECTS_S = 5  # how long RAS itself waits for ranks that do not answer
WHOLE_S = 12.0  # twice that, for ranks that it finds out about on the way
MOST_BYTES = 8_000_000
MOST_LINE = 256
LOCAL = ("127.0.0.1", "::1")
TOO_OLD = "its NCCL is older than 2.28.7, whose RAS service writes for people alone"


Meant = Callable[[int], bool]  # by our own port: whether the process that answers is meant


class _OtherRankError(RasUnreadableError):
    """An answer of another process than the one that is meant, or none."""


def ask(port: int, is_meant: Meant, whole_s: float = WHOLE_S) -> bytes:
    """Return the state of all communicators of the job, as JSON."""
    ends_at = time.monotonic() + whole_s
    refusal = _OtherRankError(OTHER_JOB)
    for _ in range(TRIES):
        try:
            return _ask_once(port, is_meant, ends_at)
        except _OtherRankError as error:
            refusal = error
        except TimeoutError as error:
            raise RasUnreadableError(f"it did not answer within {whole_s:g} s") from error
        except OSError as error:
            raise RasUnreadableError(f"no connection: {error.strerror or error}") from error
    raise refusal


def _ask_once(port: int, is_meant: Meant, ends_at: float) -> bytes:
    with _connected(port, ends_at - time.monotonic()) as connection:
        greets_until = min(ends_at, time.monotonic() + GREETING_S)
        try:
            greeting = _answer(connection, b"CLIENT PROTOCOL 2", greets_until)
        except TimeoutError as error:
            raise _OtherRankError(f"it did not answer within {GREETING_S:g} s") from error
        if not greeting.startswith(b"SERVER PROTOCOL "):
            raise RasUnreadableError(OTHER_ANSWER)
        if not is_meant(connection.getsockname()[1]):
            raise _OtherRankError(OTHER_JOB)
        if _answer(connection, b"SET FORMAT json", ends_at) != b"OK":
            raise RasUnreadableError(TOO_OLD)
        if _answer(connection, b"TIMEOUT %d" % COLLECTS_S, ends_at) != b"OK":
            raise RasUnreadableError(OTHER_ANSWER)
        connection.sendall(b"STATUS\n")
        return _rest(connection, ends_at)


def _connected(port: int, whole_s: float) -> socket.socket:
    """Connect to `localhost`, by whichever of its two addresses NCCL has chosen."""
    if whole_s <= 0:
        raise TimeoutError
    for host in LOCAL[:-1]:
        try:
            return socket.create_connection((host, port), min(CONNECT_S, whole_s))
        except ConnectionRefusedError:
            continue
    return socket.create_connection((LOCAL[-1], port), min(CONNECT_S, whole_s))


def _answer(connection: socket.socket, command: bytes, ends_at: float) -> bytes:
    """Send a command; return the line that answers it. RAS sends nothing unasked."""
    connection.sendall(command + b"\n")
    line = bytearray()
    while b"\n" not in line:
        part = _received(connection, MOST_LINE, ends_at)
        line += part
        if not part or len(line) > MOST_LINE:
            raise RasUnreadableError(OTHER_ANSWER)
    if line.index(b"\n") != len(line) - 1:
        raise RasUnreadableError(OTHER_ANSWER)
    return bytes(line).strip()


def _rest(connection: socket.socket, ends_at: float) -> bytes:
    """Read to the end of the connection, within limits on time and size, however slowly it
    drips."""
    answer = bytearray()
    while part := _received(connection, 65_536, ends_at):
        answer += part
        if len(answer) > MOST_BYTES:
            raise RasUnreadableError(f"its answer is longer than {MOST_BYTES // 10**6} MB")
    return bytes(answer)


def _received(connection: socket.socket, most: int, ends_at: float) -> bytes:
    left_s = ends_at - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    connection.settimeout(left_s)
    return connection.recv(most)
