"""Answers that go out compressed, and those that must not."""

import gzip
import json
import random

import pytest
from flask import Flask, Response

from dashboard.web.compress import LEAST_BYTES, add_compression


@pytest.mark.parametrize(("path", "kind", "is_compressed"), [
    ("/api/v1/series", "application/json", True), ("/api/v1/load", "text/csv", True),
    ("/api/v1/series", "application/vnd.apache.parquet", False),
    ("/api/v1/users", "application/json", False), ("/api/v1/seriesx", "application/json", False),
    ("/assets/x.mjs", "text/javascript", True), ("/assets/x.json", "application/json", False)])
def test_only_scripts_and_columns_of_numbers(path: str, kind: str, is_compressed: bool) -> None:
    server = Flask("compressed")
    add_compression(server)
    body = json.dumps([random.random() for _ in range(200)])
    assert len(body) > LEAST_BYTES
    server.add_url_rule("/<path:_>", view_func=lambda _: Response(body, mimetype=kind))
    client = server.test_client()
    got = client.get(path, headers={"Accept-Encoding": "gzip"})
    assert (got.headers.get("Content-Encoding") == "gzip") == is_compressed
    assert (gzip.decompress(got.data) if is_compressed else got.data).decode() == body
    assert client.get(path).data.decode() == body
    assert ("Accept-Encoding" in got.headers.get("Vary", "")) == is_compressed
