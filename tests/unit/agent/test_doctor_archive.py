"""`gpudeck doctor` about the archive of the hub's history, for who has a token."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from agent.doctor.hub import archive_checks

NOW = 1_796_000_000.0
ENV = {"GPUDECK_TOKEN": "a-token"}


@contextmanager
def a_hub(status: int, answer: dict[str, Any], paths: list[str]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(f"{self.path} {self.headers['Authorization']}")
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_without_a_token_nothing_is_asked() -> None:
    assert list(archive_checks("http://127.0.0.1:1", None, {}, NOW)) == []


def test_it_says_what_the_hub_says() -> None:
    paths: list[str] = []
    archive = {"state": "failed", "failed_since": NOW - 7_200, "why": "it is away",
               "behind_s": 7_300.0, "files": 3, "bytes": 10, "waiting_files": 2,
               "single_copy_nodes": 1}
    with a_hub(200, archive, paths) as url:
        checks = list(archive_checks(url, None, ENV, NOW))
    assert paths == ["/api/v1/archive Bearer a-token"]
    assert [(check.key, check.verdict) for check in checks] == [
        ("archive", "problem"), ("archive", "warning"), ("archive", "problem")]
    assert "it is away" in checks[0].says


def test_a_hub_that_refuses_is_no_problem_of_this_machine() -> None:
    with a_hub(403, {"title": "not allowed", "detail": "this token may not"}, []) as url:
        [check] = archive_checks(url, None, ENV, NOW)
    assert check.verdict == "not checked"
