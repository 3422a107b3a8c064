"""Answers of a mirror's receiver over HTTP, and the content of OTLP."""

import base64
import random
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from dashboard.mirror import transport
from dashboard.mirror.formats import otlp
from dashboard.mirror.samples import GpuSeconds, MirrorBatch, SeriesPlace
from dashboard.mirror.transport import MirrorReceiver, MirrorRefusedError, ReceiverAwayError
from tests.remote_write import fields, parts

Answer = tuple[int, bytes, dict[str, str]]


@contextmanager
def answering(answer: Answer) -> Iterator[tuple[str, list[dict[str, str]]]]:
    got: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append({**self.headers, "path": self.path})
            self.rfile.read(int(self.headers["Content-Length"]))
            status, body, headers = answer
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", got
        server.shutdown()


def test_it_says_who_it_is_and_what_it_speaks() -> None:
    secret = f"s{random.randrange(10**9)}"
    with answering((204, b"", {})) as (url, got):
        assert MirrorReceiver(f"remote-write+{url}", None, secret).post(b"x") == 0
        assert MirrorReceiver(f"remote-write+{url}/push?a=b", "me", secret).post(b"x") == 0
        assert MirrorReceiver(f"otlp+{url}/", None, None).post(b"x") == 0
    bearer, basic, nobody = got
    assert (bearer["path"], bearer["Authorization"]) == ("/api/v1/write", f"Bearer {secret}")
    assert (bearer["Content-Encoding"], bearer["X-Prometheus-Remote-Write-Version"]) == (
        "snappy", "0.1.0")
    pair = base64.b64encode(f"me:{secret}".encode()).decode()
    assert (basic["path"], basic["Authorization"]) == ("/push?a=b", f"Basic {pair}")
    assert (nobody["path"], "Authorization" in nobody) == ("/v1/metrics", False)
    assert secret not in repr(MirrorReceiver(f"otlp+{url}", None, secret))


@pytest.mark.parametrize(("answer", "is_divisible"), [
    ((400, b"out of order sample", {}), True), ((401, b"", {}), False), ((404, b"", {}), False),
    ((302, b"", {"Location": "/"}), False), ((500, b"too old sample", {}), True)])
def test_what_would_be_refused_again(answer: Answer, is_divisible: bool) -> None:
    with answering(answer) as (url, _), pytest.raises(MirrorRefusedError) as refusal:
        MirrorReceiver(f"remote-write+{url}", None, None).post(b"x")
    assert refusal.value.is_divisible == is_divisible


@pytest.mark.parametrize("status", [429, 500, 503])
def test_what_another_attempt_may_get_around(status: int) -> None:
    with answering((status, b"busy", {"Retry-After": "7"})) as (url, _), pytest.raises(
            ReceiverAwayError, match=f"{status} .*busy") as failure:
        MirrorReceiver(f"remote-write+{url}", None, None).post(b"x")
    assert failure.value.retry_s == 7.0
    with pytest.raises(ReceiverAwayError):  # nobody is there any more
        MirrorReceiver(f"remote-write+{url}", None, None).post(b"x")


def test_one_that_answers_a_byte_now_and_then_has_no_more_than_its_time(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "WITHIN_S", 0.3)
    stop = threading.Event()

    class Dripping(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            while not stop.wait(0.05):
                try:
                    self.wfile.write(b"H")
                except OSError:
                    return

        def log_message(self, *words: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Dripping) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        with pytest.raises(ReceiverAwayError):
            MirrorReceiver(f"remote-write+{url}", None, None).post(b"x")
        stop.set()
        server.shutdown()


def test_otlp_says_the_same() -> None:
    start = 1_700_000_040
    watts = [float(random.randrange(700)) for _ in range(3)]
    rows = GpuSeconds(np.array([0, 0, 1]), np.array([start, start + 1, start + 1]), {
        "power_w": np.array(watts), "energy_j": np.array([1.0, 2.0, np.nan])})
    places = [SeriesPlace("c", "GPU-a", "h", "n"), SeriesPlace(None, "GPU-b", None, "m")]
    body = otlp(MirrorBatch(places, rows, start, start + 60, True))
    scope = parts(parts(body, 1)[0], 2)[0]
    samples: Counter[tuple[str, str, int, float | None]] = Counter()
    for metric in parts(scope, 2):
        name, kind = parts(metric, 1)[0].decode(), dict(fields(metric))
        assert (7 in kind) == (name == "gpudeck_gpu_energy_j")
        data = kind[7] if 7 in kind else kind[5]
        assert isinstance(data, bytes)
        for point in parts(data, 1):
            point_fields = dict(fields(point))
            labels = {parts(label, 1)[0].decode(): parts(parts(label, 2)[0], 1)[0].decode()
                      for label in parts(point, 7)}
            time_ns, value = point_fields[3], point_fields[4]
            assert isinstance(time_ns, bytes)
            assert isinstance(value, bytes)
            samples[name, labels["gpu"], struct.unpack("<Q", time_ns)[0] // 10**6,
                    None if point_fields[8] else struct.unpack("<d", value)[0]] += 1
    ms = start * 1_000
    assert samples == Counter([
        ("gpudeck_gpu_power_w", "GPU-a", ms, watts[0]),
        ("gpudeck_gpu_power_w", "GPU-a", ms + 1_000, watts[1]),
        ("gpudeck_gpu_power_w", "GPU-a", ms + 1_999, None),
        ("gpudeck_gpu_power_w", "GPU-b", ms + 1_000, watts[2]),
        ("gpudeck_gpu_power_w", "GPU-b", ms + 1_999, None),
        ("gpudeck_gpu_energy_j", "GPU-a", ms, 1.0),
        ("gpudeck_gpu_energy_j", "GPU-a", ms + 1_000, 2.0),
        ("gpudeck_gpu_energy_j", "GPU-a", ms + 1_999, None)])


def test_of_otlp_what_was_not_taken_is_counted() -> None:
    rejected = b"\x0a\x03\x08\xac\x02"  # partial_success: 300
    with answering((200, rejected, {})) as (url, _):
        assert MirrorReceiver(f"otlp+{url}", None, None).post(b"x") == 300
        assert MirrorReceiver(f"remote-write+{url}", None, None).post(b"x") == 0
