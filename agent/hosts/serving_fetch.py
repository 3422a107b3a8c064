"""Bounded GET to this machine. HTTP/1.0, so that the answer ends with the connection; no proxy, no
redirect but to the same path with a slash."""

import socket
import time

CONNECT_S = 1.0
WHOLE_S = 2.0
MOST_BYTES = 4_000_000
MOST_HEAD = 16_384


class ServingUnreadableError(Exception):
    """Metrics that cannot be read, with the reason as a sentence."""


def fetch(port: int, path: str, clock_s: float = WHOLE_S) -> str:
    status, head, body = _get(port, path, clock_s)
    if status in (301, 302, 307, 308) and path == "/metrics":
        if head.get("location", "").rpartition("://")[2].partition("/")[2] != "metrics/":
            raise ServingUnreadableError("it redirects elsewhere")
        status, head, body = _get(port, "/metrics/", clock_s)
    if status == 404:
        raise ServingUnreadableError(f"it has no {path}: its metrics are switched off")
    if status != 200:
        raise ServingUnreadableError(f"it answers {path} with status {status}")
    if "chunked" in head.get("transfer-encoding", ""):
        raise ServingUnreadableError("it answers in chunks, which HTTP/1.0 does not have")
    return body.decode(errors="replace")


def _get(port: int, path: str, whole_s: float) -> tuple[int, dict[str, str], bytes]:
    ends_at = time.monotonic() + whole_s
    try:
        with socket.create_connection(("127.0.0.1", port), min(CONNECT_S, whole_s)) as connection:
            connection.settimeout(max(0.01, ends_at - time.monotonic()))
            connection.sendall(f"GET {path} HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\n"
                               "Accept: text/plain\r\n\r\n".encode())
            answer = _read(connection, ends_at)
    except TimeoutError as error:
        raise ServingUnreadableError(f"it did not answer within {whole_s:g} s") from error
    except OSError as error:
        raise ServingUnreadableError(f"no connection: {error.strerror or error}") from error
    head, separator, body = answer.partition(b"\r\n\r\n")
    lines = head[:MOST_HEAD].decode("latin-1").split("\r\n")
    words = lines[0].split(maxsplit=2)
    if not separator or len(words) < 2 or not words[0].startswith("HTTP/") or not (
            words[1].isascii() and words[1].isdecimal()):
        raise ServingUnreadableError("its answer is not HTTP")
    fields = (line.partition(":") for line in lines[1:])
    return int(words[1][:3]), {name.strip().lower(): value.strip().lower()
                               for name, _, value in fields}, body


def _read(connection: socket.socket, ends_at: float) -> bytes:
    """Read to the end of the connection, or to the length in the header, within limits on time and
    size, however slowly it drips."""
    answer = bytearray()
    length: int | None = None
    while length is None or len(answer) < length:
        left_s = ends_at - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        connection.settimeout(left_s)
        part = connection.recv(65_536)
        if not part:
            break
        answer += part
        if len(answer) > MOST_BYTES:
            raise ServingUnreadableError(f"its answer is longer than {MOST_BYTES // 10**6} MB")
        if length is None:
            length = _length(answer)
    return bytes(answer)


def _length(answer: bytearray) -> int | None:
    end = answer.find(b"\r\n\r\n", 0, MOST_HEAD)
    if end < 0:
        if len(answer) > MOST_HEAD:
            raise ServingUnreadableError("its answer is not HTTP")
        return None
    for line in bytes(answer[:end]).lower().split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip() == b"content-length" and value.strip().isdigit():
            return end + 4 + int(value)
    return None
