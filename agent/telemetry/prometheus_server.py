"""`gpudeck agent --metrics HOST:PORT`: one page, open to anyone who can reach that address.

It serves one connection at a time and none for long: a client that holds one open costs the others
two seconds, and the node's own work nothing.
"""

import ipaddress
import logging
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from gpudeck.errors import CommandError, ExitCode
from gpudeck.prometheus.text import CONTENT_TYPE
from gpudeck.settings import is_loopback

from .prometheus import MetricsPage

log = logging.getLogger("gpudeck.agent.telemetry")

PATIENCE_S = 2.0


class _MetricsServer(HTTPServer):
    def __init__(self, host: str, port: int, page: MetricsPage) -> None:
        if ":" in host:
            self.address_family = socket.AF_INET6
        self.page = page
        self.only_loopback = is_loopback(host)
        super().__init__((host, port), _MetricsHandler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that disconnected midway is not worth a log line."""
        log.debug("scrape failed from=%s", client_address)


class _MetricsHandler(BaseHTTPRequestHandler):
    timeout = PATIENCE_S
    server: _MetricsServer
    server_version, sys_version = "gpudeck", ""

    def do_GET(self) -> None:
        if self.server.only_loopback and not _is_here(self.headers.get("Host", "")):
            # A web page that rebinds its own name to this address still sends that name.
            self._answer(421, "this agent does not answer under that host name\n")
        elif self.path.partition("?")[0] != "/metrics":
            self._answer(404, "there is /metrics here, and nothing else\n")
        else:
            self._answer(200, self.server.page.text(), CONTENT_TYPE)

    def _answer(self, status: int, text: str, kind: str = "text/plain; charset=utf-8") -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: nobody reads a line for each scrape."""


def _is_here(host: str) -> bool:
    name = host.rsplit(":", 1)[0] if host.rsplit(":", 1)[-1].isdigit() else host
    name = name.strip("[]")
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def serve(page: MetricsPage, host: str, port: int) -> None:
    try:
        server = _MetricsServer(host, port, page)
    except OSError as error:
        raise CommandError(f"cannot listen on {host}:{port} for metrics: {error.strerror}; choose "
                           "another address with --metrics", ExitCode.CANNOT_START) from error
    log.info("metrics on http://%s:%d/metrics", *server.server_address[:2])
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
