"""HTTP to the receiver of a mirror, in a separate thread. Each request has one total time limit."""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from gpudeck import __version__

from ..runtime.bounded_http import FAILED, BoundedConnection, failure_words
from ..runtime.deadline import Deadline
from .formats import FORMATS, MirrorFormat

WITHIN_S, CHECK_WITHIN_S = 30.0, 10.0
STEP_WITHIN_S = 15.0
ANSWER_BYTES, METRICS_BYTES = 4_096, 8_000_000
STARTED = re.compile(rb"^process_start_time_seconds(?:\{[^}]*\})? ([0-9.e+]+)", re.M)
# Permanent despite a 5xx status: Prometheus' answer to samples before its out-of-order window.
TOO_OLD = (b"too old sample", b"out of bounds")


class ReceiverAwayError(Exception):
    """The receiver is away; another attempt may succeed. `retry_s`: wait that it requested."""

    def __init__(self, words: str, retry_s: float | None = None) -> None:
        super().__init__(words)
        self.retry_s = retry_s


class MirrorRefusedError(Exception):
    """The same request would be refused again. `is_divisible`: some samples are the reason, and
    others of the same request would be accepted."""

    def __init__(self, words: str, is_divisible: bool) -> None:
        super().__init__(words)
        self.is_divisible = is_divisible


@dataclass(frozen=True, slots=True)
class MirrorReceiver:
    """The receiver. `user` None: the secret is a bearer token."""

    url: str  # remote-write+https://HOST/PATH
    user: str | None
    secret: str | None = field(repr=False)

    @property
    def format(self) -> MirrorFormat:
        return FORMATS[self.url.partition("+")[0]]

    @property
    def _path(self) -> str:
        parts = urlsplit(self.url.partition("+")[2])
        path = parts.path if parts.path.strip("/") else self.format.path
        return path + (f"?{parts.query}" if parts.query else "")

    def post(self, body: bytes) -> int:
        """Send a request; return how many of its samples were not accepted, by the answer."""
        status, reason, retry, answer = self._request("POST", self._path, body, self.format.headers,
                                                      WITHIN_S, ANSWER_BYTES)
        words = f"it answered {status} {reason}: " + answer[:200].decode(errors="replace")
        words = re.sub(r"\s+", " ", re.sub(r"[^\x20-\x7e]", " ", words)).strip(" :")
        if 200 <= status < 300:
            return self.format.rejected_count(answer)
        if status >= 500 and any(phrase in answer for phrase in TOO_OLD):
            raise MirrorRefusedError(words, True)
        if status == 429 or status >= 500:
            raise ReceiverAwayError(
                words, min(float(retry), 900.0) if retry.isascii() and retry.isdigit() else None)
        raise MirrorRefusedError(words, status == 400)

    def started(self) -> float | None:
        """Return when the receiver's process started, by its own metrics; None: it is not known."""
        # Both kinds of server have their metrics next to the address that takes samples.
        path = self._path.partition("/api/v1/")[0] + "/metrics"
        try:
            status, _, _, answer = self._request("GET", path, None, {}, CHECK_WITHIN_S,
                                                 METRICS_BYTES)
        except ReceiverAwayError:
            return None
        match = STARTED.search(answer) if status == 200 else None
        return None if match is None else float(match[1])

    def _request(self, verb: str, path: str, body: bytes | None, headers: Mapping[str, str],
                 within_s: float, max_bytes: int) -> tuple[int, str, str, bytes]:
        parts = urlsplit(self.url.partition("+")[2])
        deadline = Deadline(within_s)
        connection = BoundedConnection(parts.hostname or "", parts.port, parts.scheme == "https",
                                       deadline, STEP_WITHIN_S)
        try:
            connection.request(verb, path, body, {**headers, **self._authorization(),
                                                  "User-Agent": f"gpudeck/{__version__}",
                                                  "Connection": "close"})
            answer = connection.getresponse()
            content = answer.read(max_bytes)
            deadline.left_s()  # raises if time is up: the answer may have been cut short
            return answer.status, answer.reason, answer.headers.get("Retry-After", ""), content
        except TimeoutError:
            raise ReceiverAwayError("it did not answer in time") from None
        except FAILED as error:
            raise ReceiverAwayError(failure_words(error)) from None
        finally:
            deadline.end()
            connection.close()

    def _authorization(self) -> dict[str, str]:
        if self.secret is None:
            return {}
        if self.user is None:
            return {"Authorization": f"Bearer {self.secret}"}
        pair = base64.b64encode(f"{self.user}:{self.secret}".encode()).decode()
        return {"Authorization": f"Basic {pair}"}
