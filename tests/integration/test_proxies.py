"""The proxy configurations of docs/install.md, in Debian's nginx and Caddy: TLS, pages, POST,
websockets, and whom the hub believes."""

import json
import os
import re
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.certificates import Authority, Pair
from tests.integration.hubs import REPOSITORY, HubProcess, wait_for
from tests.machine import required
from tests.ports import free_port

PAGE = (REPOSITORY / "docs/install.md").read_text()
[NGINX] = re.findall(r"^```nginx\n(.*?)^```$", PAGE, re.M | re.S)
[CADDY] = re.findall(r"^```caddy\n(.*?)^```$", PAGE, re.M | re.S)


@dataclass
class Deck:
    """A hub behind its proxy."""

    hub: HubProcess
    own: int  # the hub's own port
    url: str
    authority: Authority

    def ask(self, path: str, body: bytes | None = None, **headers: str) -> Any:
        request = urllib.request.Request(self.url + path, body, {
            "Authorization": f"Bearer {self.hub.api_token}",
            **{name.replace("_", "-"): value for name, value in headers.items()}})
        context = ssl.create_default_context(cafile=self.authority.file)
        with urllib.request.urlopen(request, timeout=30, context=context) as answer:
            return json.loads(answer.read())


def nginx(folder: Path, port: int, pair: Pair, own: int) -> list[str | Path]:
    program = required("nginx")
    server = NGINX.replace("listen 443 ssl", f"listen 127.0.0.1:{port} ssl").replace(
        "/etc/gpudeck/deck.pem", str(pair.cert)).replace(
        "/etc/gpudeck/deck.key", str(pair.key)).replace("127.0.0.1:8050", f"127.0.0.1:{own}")
    temp = "".join(f"{kind}_temp_path {folder}/{kind};" for kind in (
        "client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    conf = folder / "nginx.conf"
    conf.write_text(f"daemon off; pid {folder}/pid; error_log stderr; events {{}}\n"
                    f"http {{ access_log off; {temp}\n{server} }}")
    return [program, "-p", folder, "-c", conf]


def caddy(folder: Path, port: int, pair: Pair, own: int) -> list[str | Path]:
    """Use a certificate of the tests, where Caddy would get one from an authority by itself."""
    program, conf = required("caddy"), folder / "Caddyfile"
    site = CADDY.replace("deck.example.org {", f"https://127.0.0.1:{port} {{\n"
                         f"  tls {pair.cert} {pair.key}").replace(
        "127.0.0.1:8050", f"127.0.0.1:{own}")
    conf.write_text("{\n  admin off\n  auto_https disable_redirects\n"
                    "  skip_install_trust\n}\n" + site)
    return [program, "run", "--adapter", "caddyfile", "--config", conf]


@pytest.fixture(name="deck", scope="module", params=[nginx, caddy])
def _deck(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
          ) -> Iterator[Deck]:
    folder, port, own = tmp_path_factory.mktemp("deck"), free_port(), free_port()
    authority, url = Authority(folder), f"https://127.0.0.1:{port}"
    words = request.param(folder, port, authority.issue("deck"), own)
    with HubProcess(folder / "data", own, "--public-url", url, "--trusted-proxies", "127.0.0.1",
                    "--proxy-user-header", "X-Forwarded-User") as hub, (
            folder / "proxy.log").open("wb") as log, subprocess.Popen(
                words, stdout=log, stderr=log, env={
                    **os.environ, "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
            ) as process:
        try:
            yield Deck(hub, own, url, authority)
        finally:
            process.terminate()


def test_pages_and_posts_pass(deck: Deck) -> None:
    wait_for(lambda: is_up(deck), why="the proxy")
    assert deck.ask("/api/v1/nodes")["items"] == []
    rule = json.dumps({"rule": {"id": "x"}}).encode()
    with pytest.raises(urllib.error.HTTPError) as error:  # a body that arrives and is read
        deck.ask("/api/v1/rules/backtests", rule, Content_Type="application/json",
                 Connection="upgrade")
    with error.value as answer:
        assert answer.code in (400, 422)


def test_who_a_client_says_it_is_stops_at_the_proxy(deck: Deck) -> None:
    wait_for(lambda: is_up(deck), why="the proxy")
    context = ssl.create_default_context(cafile=deck.authority.file)
    claims = {"X-Forwarded-User": "mallory", "X-Forwarded-For": "10.9.8.7"}
    through = urllib.request.Request(f"{deck.url}/sign-in", headers=claims)
    with urllib.request.urlopen(through, timeout=30, context=context) as answer:
        assert b"mallory" not in answer.read()
    # The control: the hub believes its proxy.
    straight = urllib.request.Request(f"http://127.0.0.1:{deck.own}/sign-in", headers=claims)
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(straight, timeout=30)
    with error.value as answer:
        assert b"mallory" in answer.read()


def test_a_hub_for_both_families_knows_a_proxy_by_its_ipv4_address(tmp_path: Path) -> None:
    port, public = free_port(), "https://deck.example.org"
    with HubProcess(tmp_path / "data", port, "--bind", f"[::]:{port}", "--public-url", public,
                    "--trusted-proxies", "127.0.0.7", "--proxy-user-header",
                    "X-Forwarded-User"):
        def page_for(by: str) -> bytes:
            connection = HTTPConnection("127.0.0.1", port, timeout=30, source_address=(by, 0))
            with closing(connection):
                connection.request("GET", "/sign-in", headers={
                    "Host": "deck.example.org", "X-Forwarded-User": "mallory"})
                return connection.getresponse().read()

        assert b"mallory" in page_for("127.0.0.7"), "believed, as the proxy that it is"
        assert b"mallory" not in page_for("127.0.0.1"), "the control"


def is_up(deck: Deck) -> bool:
    try:
        deck.ask("/api/v1/me")
    except OSError:
        return False
    return True


def test_an_agent_comes_through_it(deck: Deck, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(deck.hub.token().text)
    with subprocess.Popen(
            [sys.executable, "-m", "gpudeck.cli.main", "agent", "--hub", deck.url, "--token-file",
             str(token), "--ca-file", str(deck.authority.file), "--backend", "simulated", "--data",
             str(tmp_path / "agent")], cwd=REPOSITORY, stderr=subprocess.DEVNULL) as agent:
        try:
            wait_for(lambda: any(node["state"] == "live" and node["gpus"]
                                 for node in deck.ask("/api/v1/nodes")["items"]), why="live")
        finally:
            agent.terminate()
