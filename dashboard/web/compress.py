"""Compression of scripts, styles and columns of numbers, by a native thread beside the loop.

Scripts and styles are compressed once each and then come from memory. Of the API only series of
numbers are: an answer that holds a secret next to text of the client's choice must not be
compressed (BREACH), and in these there is neither.
"""

import gzip
import zlib
from collections import OrderedDict

import gevent
from flask import Flask, Response, request

STATIC = ("/assets/", "/_dash-component-suites/")
TYPES = ("text/javascript", "application/javascript", "text/css", "image/svg+xml")
SERIES = frozenset(f"/api/v1/{name}" for name in ("series", "load", "instant"))
SERIES_TYPES = ("application/json", "text/csv")
STATIC_LEVEL, SERIES_LEVEL = 6, 1  # 20 ms per half a megabyte, which becomes two fifths
LEAST_BYTES = 1_024
MOST_KEPT = 128


def add_compression(server: Flask) -> None:
    cache: OrderedDict[tuple[str, int], bytes] = OrderedDict()

    @server.after_request
    def compress(answer: Response) -> Response:
        is_static = request.path.startswith(STATIC) and answer.mimetype in TYPES
        if not is_static and not (request.path in SERIES and answer.mimetype in SERIES_TYPES):
            return answer
        answer.vary.add("Accept-Encoding")
        if answer.status_code != 200 or not request.accept_encodings["gzip"]:
            return answer
        answer.direct_passthrough = False
        body = answer.get_data()
        if len(body) >= LEAST_BYTES:
            answer.set_data(_compressed_once(cache, request.path, body) if is_static
                            else _compress(body, SERIES_LEVEL))
            answer.headers["Content-Encoding"] = "gzip"
            etag, _ = answer.get_etag()
            if etag is not None:
                answer.set_etag(etag, weak=True)  # the same text, not the same bytes
        return answer


def _compressed_once(cache: OrderedDict[tuple[str, int], bytes], path: str, body: bytes) -> bytes:
    key = (path, zlib.crc32(body))
    if key not in cache:
        cache[key] = _compress(body, STATIC_LEVEL)
        while len(cache) > MOST_KEPT:
            cache.popitem(last=False)
    return cache[key]


def _compress(body: bytes, level: int) -> bytes:
    """Compress beside the loop, not in it: the largest script takes 100 ms."""
    compressed: bytes = gevent.get_hub().threadpool.apply(gzip.compress, (body, level))
    return compressed
