"""An HTTP server that stores what is posted to it over a real socket, and answers as set."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class HttpSink:
    """`status`: the status of its answers. `hold()`: it accepts requests and answers none until
    `release()`."""

    def __init__(self, port: int = 0) -> None:
        self.got: list[Any] = []
        self.times: list[float] = []  # of arrival
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.status = 200
        self.location = ""
        self._open = threading.Event()
        self._open.set()
        sink = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                sink.times.append(time.time())
                sink.paths.append(self.path)
                sink.headers.append(dict(self.headers))
                sink.got.append(json.loads(body))
                sink._open.wait(60)
                self.send_response(sink.status)
                if sink.location:
                    self.send_header("Location", sink.location)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        ThreadingHTTPServer.daemon_threads = True
        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,),
                                        daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def hold(self) -> None:
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    def __enter__(self) -> "HttpSink":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)
