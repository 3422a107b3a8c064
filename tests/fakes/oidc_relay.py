"""npm's oidc-provider as a process, and a relay before it that can tamper with what it answers."""

import http.client
import json
import re
import subprocess
import threading
import urllib.parse
from collections.abc import Callable, Mapping
from http.cookiejar import CookieJar
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.request import HTTPCookieProcessor, HTTPErrorProcessor, Request, build_opener

from tests.machine import required, required_node_modules

HERE = Path(__file__).parent / "oidc_provider"
Tamper = Callable[[str, dict[str, Any]], dict[str, Any]]


def honest(path: str, answer: dict[str, Any]) -> dict[str, Any]:
    return answer


class RealProvider:
    """`tamper`: changes a JSON answer, by its path."""

    def __init__(self, folder: Path, own_port: int, client: Mapping[str, Any],
                 people: Mapping[str, Any]) -> None:
        node = required("node")
        required_node_modules(HERE)
        self.tamper: Tamper = honest
        relay = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                relay._pass_on(self)

            do_POST = do_GET

            def log_message(self, *_: object) -> None:
                pass

        self._own_port = own_port
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        settings = folder / "provider.json"
        settings.write_text(json.dumps({"issuer": self.issuer, "port": own_port,
                                        "client": client, "people": people}))
        log = folder / "provider.log"
        with log.open("wb") as errors:
            self._process = subprocess.Popen([node, HERE / "provider.mjs", settings],
                                             stdout=subprocess.PIPE, stderr=errors)
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            if line == b"listening\n":
                return
        raise AssertionError(log.read_text())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._server.shutdown()
        self._server.server_close()

    def _pass_on(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length", 0)))
        onward = http.client.HTTPConnection("127.0.0.1", self._own_port, timeout=30)
        onward.request(request.command, request.path, body or None,
                       {name: value for name, value in request.headers.items()
                        if name.lower() != "connection"})
        reply = onward.getresponse()
        data = reply.read()
        onward.close()
        if reply.headers.get_content_type() == "application/json" and reply.status == 200:
            path = urllib.parse.urlsplit(request.path).path
            data = json.dumps(self.tamper(path, json.loads(data))).encode()
        request.send_response(reply.status)
        for name, value in reply.getheaders():
            if name.lower() not in ("content-length", "transfer-encoding", "connection", "date"):
                request.send_header(name, value)
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        request.wfile.write(data)


class _AsTheyCome(HTTPErrorProcessor):
    def http_response(self, request: Request, response: Any) -> Any:
        return response


class ProviderBrowser:
    """A person at the provider's own pages: follows its redirects, fills in its forms."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.forms = 0
        self._opener = build_opener(HTTPCookieProcessor(CookieJar()), _AsTheyCome)

    def until(self, away: str, url: str) -> str:
        """Follow the provider from `url`; return the first address outside it."""
        data: bytes | None = None
        for _ in range(20):
            with self._opener.open(Request(url, data), timeout=30) as answer:
                page = answer.read().decode()
                where = answer.headers.get("Location")
            if where is not None:
                url, data = urllib.parse.urljoin(url, where), None
                if url.startswith(away):
                    return url
                continue
            self.forms += 1
            url, data = self._filled(url, page)
        raise AssertionError(f"no way back to {away}; at {url}")

    def _filled(self, url: str, page: str) -> tuple[str, bytes]:
        action = re.search(r'action="([^"]*)"', page)
        assert action is not None, page
        fields = {name: value for tag in re.findall(r"<input[^>]*>", page)
                  for name in re.findall(r'name="([^"]*)"', tag)
                  for value in (re.findall(r'value="([^"]*)"', tag) or [""])}
        if "login" in fields:
            fields |= {"login": self.name, "password": "x"}
        if "logout" in page:
            fields["logout"] = "yes"
        return (urllib.parse.urljoin(url, action[1]),
                urllib.parse.urlencode(fields).encode())
