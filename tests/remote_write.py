"""Reader of a body of remote write 1.0, by the protocol's own description and nothing of ours."""

import struct
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa

STALE = 0x7FF0000000000002


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            return value, at


def fields(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        if key & 7 == 0:
            number, at = _varint(data, at)
            yield key >> 3, number
        elif key & 7 == 1:
            yield key >> 3, data[at : at + 8]
            at += 8
        else:
            assert key & 7 == 2
            size, at = _varint(data, at)
            yield key >> 3, data[at : at + size]
            at += size


def parts(data: bytes, field: int) -> list[bytes]:
    return [value for number, value in fields(data) if number == field and isinstance(value, bytes)]


def samples_in(body: bytes, ends: bool = False) -> Counter[tuple[str, str, int, float]]:
    """Count samples by metric, GPU, ms and value; with `ends`, the markers of ends alone."""
    size, _ = _varint(body, 0)
    samples: Counter[tuple[str, str, int, float]] = Counter()
    for series in parts(pa.decompress(body, size, "snappy", asbytes=True), 1):
        pairs = [(parts(label, 1)[0].decode(), parts(label, 2)[0].decode())
                 for label in parts(series, 1)]
        assert pairs == sorted(pairs)
        labels, before = dict(pairs), 0
        for sample in parts(series, 2):
            numbered = dict(fields(sample))
            value, ms = numbered[1], numbered[2]
            assert isinstance(value, bytes)
            assert isinstance(ms, int)
            assert ms > before
            before = ms
            if (struct.unpack("<Q", value)[0] == STALE) == ends:
                samples[labels["__name__"].removeprefix("gpudeck_gpu_"), labels["gpu"], ms,
                        struct.unpack("<d", value)[0]] += 1
    return samples
