"""TLS end to end, with an authority of our own: what is good carries everything, what is wrong is
refused with a sentence and costs no reading."""

import http.client
import json
import socket
import sqlite3
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import websocket

from gpudeck.client.hub import Client
from gpudeck.errors import CommandError
from tests.fakes.certificates import Authority, Pair
from tests.integration.hubs import REPOSITORY, Answer, HubProcess, wait_for
from tests.integration.visitors import Visitor, add_person, link_for
from tests.ports import free_port


@pytest.fixture(name="authority", scope="module")
def _authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@contextmanager
def agent(hub: HubProcess, data: Path, *flags: str, token: str = "", **env: str) -> Iterator[Path]:
    """Start a real agent; yield its log."""
    log = data.parent / f"{data.name}.log"
    with log.open("ab") as file, subprocess.Popen(
        [sys.executable, "-m", "agent", "--hub", hub.url, "--data", str(data), "--host", data.name,
         "--backend", "simulated", *flags], cwd=REPOSITORY, stderr=file, stdout=file,
        env={"PATH": "/usr/bin", "GPUDECK_TOKEN": token, **env}, stdin=subprocess.DEVNULL,
    ) as process:
        try:
            yield log
        finally:
            process.kill()


def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=authority.file)


def acked(hub: HubProcess, authority: Authority, host: str) -> int:
    [node] = [node for node in Client(hub.url, hub.api_token, tls=trusting(authority)).nodes()
              if node["host"] == host] or [{"frames": {"acked_seq": 0}}]
    seq: int = node["frames"]["acked_seq"]
    return seq


def test_a_good_certificate_carries_everything(authority: Authority, tmp_path: Path) -> None:
    pair = authority.issue("good")
    with HubProcess(tmp_path / "data", 0, *pair.flags) as hub:
        assert hub.url.startswith("https://127.0.0.1:")
        with agent(hub, tmp_path / "node", "--ca-file", str(authority.file),
                   token=hub.token().text):
            wait_for(lambda: acked(hub, authority, "node") > 2, why="frames over TLS")
        answer = ask(hub, authority, "/healthz")
        assert answer.headers["Strict-Transport-Security"] == "max-age=31536000"
        assert "Traceback" not in hub.log.read_text()


def ask(hub: HubProcess, authority: Authority, path: str) -> http.client.HTTPResponse:
    with urllib.request.urlopen(hub.url + path, timeout=30, context=trusting(authority)) as answer:
        answer.read()
        assert isinstance(answer, http.client.HTTPResponse)
        return answer


WRONG = {
    "expired": ("has expired", "renew it"), "early": ("not yet valid", "clock"),
    "name": ("mismatch", "the name that the certificate is for"),
    "self-signed": ("self-signed", "ca_file"), "stranger": ("unable to get", "ca_file"),
}


def issued(what: str, authority: Authority, folder: Path) -> Pair:
    if what == "expired":
        return authority.issue(what, -10, -1)
    if what == "early":
        return authority.issue(what, 1, 10)
    if what == "name":
        return authority.issue(what, host="10.9.8.7")
    if what == "self-signed":
        return authority.self_signed(what)
    return Authority(folder).issue(what)


CARELESS = {"PYTHONHTTPSVERIFY": "0", "CURL_CA_BUNDLE": "", "REQUESTS_CA_BUNDLE": ""}


@pytest.mark.parametrize("what", WRONG)
def test_a_bad_certificate_is_refused_and_nothing_is_lost(
    authority: Authority, tmp_path: Path, what: str
) -> None:
    """Verification is switched off by no variable of the environment."""
    port, flags = free_port(), ("--ca-file", str(authority.file))
    with HubProcess(tmp_path / "data", port, *issued(what, authority, tmp_path).flags) as hub:
        token = hub.token().text
        with agent(hub, tmp_path / "node", *flags, token=token, **CARELESS) as log:
            wait_for(lambda: "no_connection" in log.read_text(), why="a sentence")
            for words in ("the hub's certificate is refused", *WRONG[what]):
                assert words in log.read_text()
            wait_for(lambda: outbox_count(tmp_path / "node") >= 2, why="readings in the outbox")
        assert "agent_connected" not in hub.log.read_text()
        with pytest.raises(CommandError, match="the hub's certificate is refused"):
            Client(hub.url, hub.api_token, tls=trusting(authority)).nodes()
    if what == "expired":
        pending = outbox_count(tmp_path / "node")
        with HubProcess(tmp_path / "data", port, *authority.issue("good").flags) as hub, agent(
                hub, tmp_path / "node", *flags, token=token):
            wait_for(lambda: acked(hub, authority, "node") >= pending, why="what was kept")


def outbox_count(data: Path) -> int:
    with closing(sqlite3.connect(f"file:{data / 'journal.db'}?mode=ro", uri=True)) as journal:
        [(count,)] = journal.execute("select count(*) from message").fetchall()
        return int(count)


def test_plain_words_to_a_tls_port_and_old_protocols(authority: Authority, tmp_path: Path) -> None:
    flags = authority.issue("good").flags
    with HubProcess(tmp_path / "data", 0, *flags) as hub, ExitStack() as stack:
        strangers = [stack.enter_context(socket.create_connection(("127.0.0.1", hub.port), 8))
                     for _ in range(4)]
        for sock, payload in zip(strangers, (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00",
                                             b"\x00" * 100, b""), strict=True):
            sock.sendall(payload)
        for sock in strangers:
            with suppress(ConnectionResetError):
                assert b"HTTP/1" not in sock.recv(100)
        old = trusting(authority)
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        with socket.create_connection(("127.0.0.1", hub.port), timeout=30) as sock, pytest.raises(
                (ssl.SSLError, ConnectionError)):
            old.wrap_socket(sock, server_hostname="127.0.0.1")
        assert ask(hub, authority, "/healthz").status == 200
        assert "Traceback" not in hub.log.read_text()


def test_silent_ones_at_a_tls_port_shut_nobody_out(authority: Authority, tmp_path: Path) -> None:
    with HubProcess(tmp_path / "data", 0, *authority.issue("good").flags) as hub:
        silent = [socket.create_connection(("127.0.0.1", hub.port)) for _ in range(2_200)]
        started = time.monotonic()
        assert ask(hub, authority, "/healthz").status == 200
        assert time.monotonic() - started < 4  # they are waited for 5 s
        for sock in silent[:5] + silent[-5:]:
            sock.settimeout(8)
            try:
                assert sock.recv(1) == b""
            except ConnectionResetError:
                continue
        assert time.monotonic() - started < 8
        for sock in silent:
            sock.close()


PUBLIC = "https://deck.example.org"


class SecureVisitor(Visitor):
    """A visitor who comes by the public name."""

    def __init__(self, hub: HubProcess, authority: Authority) -> None:
        super().__init__(hub)
        self._tls = trusting(authority)

    def connection(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection("127.0.0.1", self.hub.port, timeout=10,
                                           context=self._tls)

    def ask(self, path: str, method: str = "GET", body: bytes | None = None, **headers: str
            ) -> Answer:
        return super().ask(path, method, body, **{"Host": "deck.example.org"} | headers)

    def socket(self, origin: str) -> websocket.WebSocket:
        return websocket.create_connection(
            f"wss://127.0.0.1:{self.hub.port}/socket.io/?EIO=4&transport=websocket", timeout=30,
            host="deck.example.org", origin=origin, cookie=self.cookie,
            sslopt={"context": self._tls})


def test_cookies_and_origins_over_tls(authority: Authority, tmp_path: Path) -> None:
    """Use the public name, which differs from the address."""
    with HubProcess(tmp_path / "data", free_port(), *authority.issue("good").flags,
                    "--public-url", PUBLIC) as hub:
        assert hub.url == PUBLIC
        add_person(hub, "alice")
        visitor, link = SecureVisitor(hub, authority), link_for(hub, "alice")
        wait_for(lambda: visitor.ask(link).status == 303, why="alice is let in")
        assert any(line.startswith("__Host-gpudeck_session") for line in visitor.set_cookies)
        for line in visitor.set_cookies:
            assert "; Secure" in line
            assert "; Path=/" in line
            assert "Domain" not in line
        assert visitor.get("/api/v1/me")["name"] == "alice"
        ws = visitor.socket(PUBLIC)
        assert json.loads(ws.recv()[1:])["sid"]
        ws.close()
        for wrong in (f"https://127.0.0.1:{hub.port}", "http://deck.example.org", "null",
                      f"{PUBLIC}:8443", f"{PUBLIC}.evil.com", f"{PUBLIC}.", "HTTPS" + PUBLIC[5:]):
            with pytest.raises(websocket.WebSocketBadStatusException):
                visitor.socket(wrong)
            assert visitor.ask("/sign-out", "POST", Origin=wrong).status == 403
        assert visitor.ask("/sign-out", "POST", Origin=PUBLIC).status == 303


def test_the_hub_behind_a_proxy(tmp_path: Path) -> None:
    """Serve plain HTTP to a proxy that people reach by https."""
    with HubProcess(tmp_path / "data", free_port(), "--public-url", PUBLIC, "--trusted-proxies",
                    "127.0.0.1") as hub:
        hub.url = f"http://127.0.0.1:{hub.port}"
        assert hub.ask("/healthz", Host="deck.example.org").status == 200
        answer = hub.ask("/healthz", Host="deck.example.org")
        assert "Strict-Transport-Security" in answer.headers
        for forwarded in ({"X_Forwarded_Host": "deck.example.org"},
                          {"Forwarded": "host=deck.example.org"},
                          {"X_Forwarded_Host": "deck.example.org", "X_Forwarded_Proto": "https"}):
            answer = Visitor(hub).ask("/healthz", "GET", None, Host="evil.example", **forwarded)
            assert answer.status == 421


@pytest.mark.parametrize("bind", ["0.0.0.0:0", "[::]:0", "10.1.2.3:0"])
def test_a_bind_without_tls_is_refused(bind: str, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "dashboard", "hub", "--bind", bind, "--data",
         str(tmp_path / "data")],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=20, check=False)
    assert run.returncode == 3
    assert run.stderr.startswith("gpudeck: --bind ")
    assert run.stderr.count("\n") == 1
    assert not (tmp_path / "data").exists()


def test_without_tls_only_the_proxy_is_answered(tmp_path: Path) -> None:
    """The hub listens on all addresses; this machine's own is none of the proxy's."""
    own = own_address()
    if own is None:
        pytest.skip("this machine has no address but loopback")
    port = free_port()
    with HubProcess(tmp_path / "data", port, "--public-url", PUBLIC, "--trusted-proxies",
                    "203.0.113.7", "--bind", f"0.0.0.0:{port}") as hub:
        hub.url = f"http://127.0.0.1:{hub.port}"
        assert hub.ask("/healthz").status == 200
        with socket.create_connection((own, hub.port), timeout=5) as sock:
            sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: deck.example.org\r\n\r\n")
            try:
                assert sock.recv(100) == b""
            except ConnectionResetError:
                return


def own_address() -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("203.0.113.1", 9))  # sends nothing
        except OSError:
            return None
        address: Any = probe.getsockname()[0]
        return None if address.startswith("127.") else str(address)
