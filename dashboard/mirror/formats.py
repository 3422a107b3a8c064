"""Formats of receivers: Prometheus remote write 1.0, and OTLP over HTTP. Pure.

All samples of remote write have the same length, so those of a metric are encoded at once as one
array of bytes; only labels are encoded series by series.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..history.columns.arrow_columns import snappy
from .protobuf import block, number_in, varint
from .samples import COUNTERS, UNITS, MetricPoints, MirrorBatch, SeriesPlace, points

PREFIX = "gpudeck_gpu_"
SAMPLE_BYTES = 18
POINT_BYTES = 20
CUMULATIVE = b"\x10\x02\x18\x01"  # a sum since the driver was loaded, which only grows
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class MirrorFormat:
    """A format. `path`: for addresses without one; `rejected_count`: returns how many samples were
    not accepted according to the answer to an accepted request."""

    headers: Mapping[str, str]
    path: str
    body: Callable[[MirrorBatch], bytes]
    rejected_count: Callable[[bytes], int]


def remote_write(batch: MirrorBatch) -> bytes:
    places = [b"".join(_label(*pair) for pair in place.labels()) for place in batch.places]
    parts: list[bytes] = []
    for key in batch.rows.values:
        metric_points = points(batch, key)
        name, samples = _label("__name__", PREFIX + key), _samples(metric_points)
        for place, first, last in metric_points.series():
            size = len(name) + len(places[place]) + (last - first) * SAMPLE_BYTES
            parts += (b"\x0a" + varint(size), name, places[place],
                      samples[first * SAMPLE_BYTES : last * SAMPLE_BYTES])
    return snappy(b"".join(parts))


def _label(name: str, value: str) -> bytes:
    return block(1, block(1, name.encode()) + block(2, value.encode()))


def _samples(metric_points: MetricPoints) -> bytes:
    samples = np.empty((len(metric_points.ms), SAMPLE_BYTES), np.uint8)
    samples[:, :3] = (0x12, 0x10, 0x09)  # a sample of 16 bytes; its value
    samples[:, 3:11] = _bytes_of(metric_points.bits)
    samples[:, 11] = 0x10  # its time, six times seven bits: until the year 2109
    for at in range(6):
        samples[:, 12 + at] = (metric_points.ms >> 7 * at & 0x7F) | (0x80 if at < 5 else 0)
    return samples.tobytes()


def _bytes_of(numbers: npt.NDArray[np.generic]) -> Bytes:
    wide = np.ascontiguousarray(numbers, numbers.dtype.newbyteorder("<"))
    return wide.view(np.uint8).reshape(-1, 8)


def otlp(batch: MirrorBatch) -> bytes:
    scope = block(1, block(1, b"gpudeck"))
    by_metric = {key: points(batch, key) for key in batch.rows.values}
    metrics = [_metric(key, metric, batch.places) for key, metric in by_metric.items()
               if len(metric.ms)]
    return block(1, block(2, scope + b"".join(metrics)))


def _metric(key: str, metric_points: MetricPoints, places: Sequence[SeriesPlace]) -> bytes:
    encoded = np.zeros((len(metric_points.ms), POINT_BYTES), np.uint8)
    encoded[:, 0] = 0x19  # its time in ns
    encoded[:, 1:9] = _bytes_of(metric_points.ms * 1_000_000)
    encoded[:, 9] = 0x21  # its value
    encoded[:, 10:18] = _bytes_of(
        np.where(metric_points.is_stale, np.uint64(0), metric_points.bits))
    encoded[:, 18] = 0x40  # flags; 1: no value was recorded
    encoded[:, 19] = metric_points.is_stale
    parts: list[bytes] = []
    for place, first, last in metric_points.series():
        words = b"".join(block(7, block(1, name.encode()) + block(2, block(1, value.encode())))
                         for name, value in places[place].labels())
        head = b"\x0a" + varint(POINT_BYTES + len(words))
        wide = np.empty((last - first, len(head) + POINT_BYTES + len(words)), np.uint8)
        wide[:, : len(head)] = np.frombuffer(head, np.uint8)
        wide[:, len(head) : len(head) + POINT_BYTES] = encoded[first:last]
        wide[:, len(head) + POINT_BYTES :] = np.frombuffer(words, np.uint8)
        parts.append(wide.tobytes())
    data = b"".join(parts)
    kind = block(7, data + CUMULATIVE) if key in COUNTERS else block(5, data)
    return block(2, block(1, (PREFIX + key).encode()) + block(3, UNITS[key].encode()) + kind)


def _rejected_points(answer: bytes) -> int:
    """Return `partial_success`' count of rejected points in an ExportMetricsServiceResponse."""
    if answer[:1] != b"\x0a":
        return 0
    length = next((at for at, byte in enumerate(answer[1:], 1) if byte < 0x80), len(answer))
    return number_in(answer[length + 1 :], 1)


FORMATS: dict[str, MirrorFormat] = {
    "remote-write": MirrorFormat(
        {"Content-Type": "application/x-protobuf", "Content-Encoding": "snappy",
         "X-Prometheus-Remote-Write-Version": "0.1.0"}, "/api/v1/write", remote_write, lambda _: 0),
    "otlp": MirrorFormat({"Content-Type": "application/x-protobuf"}, "/v1/metrics", otlp,
                         _rejected_points),
}
