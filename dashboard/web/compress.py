"""Scripts and styles go out compressed: once each, in a native thread, then from memory.

Static files only: an answer that holds a secret beside text of the asker's choice must not be
compressed (BREACH), and JSON answers change every second.
"""

import gzip
import zlib
from collections import OrderedDict

import gevent
from flask import Flask, Response, request

STATIC = ("/assets/", "/_dash-component-suites/")
TYPES = ("text/javascript", "application/javascript", "text/css", "image/svg+xml")
LEAST_BYTES = 1_024
MOST_KEPT = 128


def add_compression(server: Flask) -> None:
    kept: OrderedDict[tuple[str, int], bytes] = OrderedDict()

    @server.after_request
    def compress(answer: Response) -> Response:
        if not request.path.startswith(STATIC) or answer.mimetype not in TYPES:
            return answer
        answer.vary.add("Accept-Encoding")
        if answer.status_code != 200 or not request.accept_encodings["gzip"]:
            return answer
        answer.direct_passthrough = False
        body = answer.get_data()
        if len(body) >= LEAST_BYTES:
            answer.set_data(_compressed(kept, request.path, body))
            answer.headers["Content-Encoding"] = "gzip"
            etag, _ = answer.get_etag()
            if etag is not None:
                answer.set_etag(etag, weak=True)  # the same text, not the same bytes
        return answer


def _compressed(kept: OrderedDict[tuple[str, int], bytes], path: str, body: bytes) -> bytes:
    key = (path, zlib.crc32(body))
    if key not in kept:
        # 100 ms for the largest script: beside the loop, not in it.
        kept[key] = gevent.get_hub().threadpool.apply(gzip.compress, (body, 6))
        while len(kept) > MOST_KEPT:
            kept.popitem(last=False)
    return kept[key]
