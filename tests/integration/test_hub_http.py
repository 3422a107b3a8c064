"""The hub's HTTP side and its command line, on a real server."""

import contextlib
import http.client
import json
import os
import random
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import websocket

from dashboard.openapi.routes import PERMISSIONS
from gpudeck.errors import ExitCode
from tests.integration.hubs import (
    REPOSITORY,
    Caller,
    HubProcess,
    RawSocket,
    StartedHub,
    WireAgent,
    one_task,
    wait_for,
)
from tests.integration.visitors import PASSWORD, Visitor


@pytest.fixture(name="hub", scope="module")
def _hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubProcess(tmp_path_factory.mktemp("hub") / "data") as hub:
        for at in range(7):
            agent = WireAgent(f"n{at}", gpus=3)
            agent.connect(hub)
            agent.tick(one_task(f"boot:{at}:1", user=f"user{at}"))
        wait_for(lambda: len(hub.get("/api/v1/tasks")["items"]) == 7, why="all tasks")
        yield hub
        assert "Traceback" not in hub.log.read_text()


@pytest.mark.parametrize("path", ["/", "/api/v1/gpus", "/api/v1/nodes", "/api/v1/openapi.json",
                                  "/_dash-layout", "/nothing", "//", "/sign-out"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS"])
def test_nothing_without_sign_in(hub: HubProcess, path: str, method: str) -> None:
    for token in (None, "wrong"):
        answer = hub.ask(path, method, token=token, body=b"x" if method == "POST" else None)
        assert answer.status in (303, 401)


@pytest.mark.parametrize(("header", "status"), [
    ({"Cookie": "x=y"}, 401), ({"Authorization": "Bearer wrong"}, 401),
    ({"Authorization": "Bearer API", "Origin": "http://evil.example"}, 403),
    ({"Authorization": "Bearer API", "Origin": "null"}, 403),
    ({"Host": "evil.example"}, 421),
    ({"Origin": "OWN"}, 401), ({"Origin": "http://evil.example"}, 401)])
def test_the_upgrade_itself_is_guarded(hub: HubProcess, header: dict[str, str], status: int
                                       ) -> None:
    words = [f"{name}: {value}".replace("API", hub.api_token).replace("OWN", hub.url)
             for name, value in header.items() if name not in ("Host", "Origin")]
    origin = header.get("Origin", "").replace("OWN", hub.url) or None
    with pytest.raises(websocket.WebSocketBadStatusException) as error:
        websocket.create_connection(
            f"ws://127.0.0.1:{hub.port}/socket.io/?EIO=4&transport=websocket", timeout=30,
            header=words, origin=origin, suppress_origin=origin is None, host=header.get("Host"))
    assert error.value.status_code == status


def test_a_token_opens_its_own_namespace_only(hub: HubProcess) -> None:
    for namespace, token in (("/live", None), ("/agent", hub.api_token), ("/", None),
                             ("/", hub.api_token), ("/admin", None)):
        raw = RawSocket(hub, namespace, token)
        assert raw.joined["type"] == 4  # CONNECT_ERROR
    assert RawSocket(hub, "/live", hub.api_token).joined["type"] == 0


def test_polling_is_not_served(hub: HubProcess) -> None:
    assert hub.ask("/socket.io/?EIO=4&transport=polling").status == 400


def test_deflate_is_refused(hub: HubProcess) -> None:
    ws = websocket.create_connection(
        f"ws://127.0.0.1:{hub.port}/socket.io/?EIO=4&transport=websocket", timeout=30,
        header=[f"Authorization: Bearer {hub.api_token}",
                "Sec-WebSocket-Extensions: permessage-deflate"])
    assert "sec-websocket-extensions" not in ws.headers
    ws.close()


@pytest.mark.parametrize("path", ["nodes", "gpus", "tasks"])
def test_paging_gives_each_once(hub: HubProcess, path: str) -> None:
    whole = hub.get(f"/api/v1/{path}?limit=1000")
    assert whole["next"] is None
    items, cursor = [], ""
    while True:
        page = hub.get(f"/api/v1/{path}?limit=2{cursor}")
        assert len(page["items"]) <= 2
        items += page["items"]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    key = "uuid" if path == "gpus" else "id"
    assert [item[key] for item in items] == [item[key] for item in whole["items"]]
    assert len(items) == (21 if path == "gpus" else 7)
    one = hub.get(f"/api/v1/{path}/{items[0][key]}")
    assert one[key] == items[0][key]


@pytest.mark.parametrize(("path", "name"), [("nodes", "id"), ("gpus", "uuid"), ("tasks", "id")])
def test_by_name_what_is_not_there_is_not_in_the_list(hub: HubProcess, path: str, name: str
                                                      ) -> None:
    whole = hub.get(f"/api/v1/{path}?limit=1000")["items"]
    names = random.sample([item[name] for item in whole], 3)
    query = "&".join(f"{name}={one}" for one in [*names, "gone"])
    items = hub.get(f"/api/v1/{path}?limit=1000&{query}")["items"]
    assert sorted(item[name] for item in items) == sorted(names)
    if path == "nodes":
        assert all(item["links"] == [] for item in items)
    single = hub.get(f"/api/v1/{path}/{names[0]}")
    [listed] = [item for item in items if item[name] == names[0]]
    assert listed.keys() == single.keys()
    pages = [hub.get(f"/api/v1/{path}?limit=2&{query}")]
    pages.append(hub.get(f"/api/v1/{path}?limit=2&{query}&cursor={pages[0]['next']}"))
    assert [len(page["items"]) for page in pages] == [2, 1]
    assert hub.get(f"/api/v1/{path}?{name}=gone")["items"] == []
    answer = hub.ask(f"/api/v1/{path}?" + "&".join(f"{name}={at}" for at in range(101)))
    assert answer.status == 400
    assert "100" in answer.json["detail"]


def test_filters_in_the_api(hub: HubProcess) -> None:
    assert [item["uuid"] for item in hub.get("/api/v1/gpus?filter=user:user3")["items"]] == [
        "GPU-n3-0"]
    assert [item["id"] for item in hub.get("/api/v1/nodes?filter=user:user3")["items"]] == [
        Caller("n3").node_id]
    assert [item["user"] for item in hub.get("/api/v1/tasks?filter=node:n5")["items"]] == ["user5"]


@pytest.mark.parametrize(("query", "word"), [
    ("limit=0", "limit"), ("limit=1001", "limit"), ("limit=x", "limit"), ("limit=%F0%9F%8D%8C", ""),
    ("cursor=zzz", "cursor"), ("cursor=", "cursor"), ("cursor=WzFd", "cursor"),
    ("filter=utl%3C5", "did you mean"), ("colour=red", "colour"), ("limit=1&limit=2", "limit"),
    ("cursor=WyI5OTkiLCIwIl0=", "start again")])
def test_wrong_questions_are_answered(hub: HubProcess, query: str, word: str) -> None:
    answer = hub.ask(f"/api/v1/gpus?{query}")
    assert answer.status == 400
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert word in answer.json["detail"]


def test_a_node_goes_by_its_host_name_too(hub: HubProcess) -> None:
    node_id, host = Caller("n3").node_id, Caller("n3").said.host
    for query, key in (("gpus?node={}", "uuid"), ("nodes?id={}", "id"), ("tasks?node={}", "id")):
        by_id, by_host = ([item[key] for item in hub.get(
            f"/api/v1/{query.format(name)}")["items"]] for name in (node_id, host))
        assert by_host
        assert by_host == by_id
    assert hub.get("/api/v1/nodes?id=no-such-host")["items"] == [], "those of several that are"
    for query in ("gpus?node=no-such-host", "tasks?node=no-such-host"):
        answer = hub.ask(f"/api/v1/{query}")
        assert answer.status == 404, query
        assert answer.json["detail"] == "there is no node 'no-such-host' here"
    assert hub.get(f"/api/v1/nodes/{host}")["id"] == node_id


@pytest.mark.parametrize("path", ["gpus/none", "nodes/none", "tasks/none", "nothing", "gpus/a/b"])
def test_what_is_not_there(hub: HubProcess, path: str) -> None:
    answer = hub.ask(f"/api/v1/{path}")
    assert (answer.status, answer.json["status"]) == (404, 404)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_other_methods(hub: HubProcess, method: str) -> None:
    answer = hub.ask("/api/v1/gpus", method, body=b"{}" if method in ("POST", "PUT") else None)
    assert answer.status == 405
    assert "GET" in answer.headers["Allow"]
    assert answer.headers["Content-Type"] == "application/problem+json"


def test_what_may_be_asked_is_of_that_address_alone(hub: HubProcess) -> None:
    """The address fits `nodes/<node_id>` too, whose methods the answer does not name."""
    assert hub.ask("/api/v1/nodes/approvals", "PUT", body=b"{}").headers["Allow"] == "POST"


def test_etags(hub: HubProcess) -> None:
    first = hub.ask("/api/v1/openapi.json")
    second = hub.ask("/api/v1/openapi.json", If_None_Match=first.headers["ETag"])
    assert (second.status, second.body) == (304, b"")
    assert hub.ask("/api/v1/openapi.json", If_None_Match='"other"').status == 200
    assert hub.ask("/api/v1/gpus", Accept="text/html").status == 406


def test_the_document_names_every_route(hub: HubProcess) -> None:
    document = hub.get("/api/v1/openapi.json")
    assert document["openapi"].startswith("3.1")
    documented = {f"{method.upper()} {re.sub(r'{.+}', '{}', path)}"
                  for path, methods in document["paths"].items() for method in methods}
    assert documented == {re.sub("<.+>", "{}", row.verb) for row in PERMISSIONS
                          if " /api/v1/" in row.verb}


def test_the_document_sorts_its_operations_and_is_pointed_to(hub: HubProcess) -> None:
    """Found by examiners: all in one module of 92, and `/api/v1/` a 404 without a word."""
    document = hub.get("/api/v1/openapi.json")
    tags = {tag["name"] for tag in document["tags"]}
    of = [one["tags"] for methods in document["paths"].values() for one in methods.values()]
    assert {tag for names in of for tag in names} == tags
    assert all(len(names) == 1 for names in of)
    assert {"fleet", "history", "alerts"} < tags
    assert document["servers"][0]["url"] == "/"
    for path in ("/api/v1/", "/api/v1", "/api/v1/gpu5"):
        assert "/api/v1/openapi.json" in hub.ask(path).json["detail"], path


def test_the_document_says_what_is_needed(hub: HubProcess) -> None:
    """The document marks required parameters, and common client generators take its tuples."""
    document = hub.get("/api/v1/openapi.json")
    assert '"items": false' not in json.dumps(document)
    values = {"gpu": "GPU-n0-0", "metric": "util_pct", "at": "1", "start": "1", "step": "60",
              "count": "1", "end": "61", "node": Caller("n0").node_id, "user": "alice"}
    count = 0
    for path, methods in document["paths"].items():
        parameters = methods.get("get", {}).get("parameters", ())
        needed = [parameter["name"] for parameter in parameters
                  if parameter["in"] == "query" and parameter["required"]]
        for left_out in needed:
            query = "&".join(f"{name}={values[name]}" for name in needed if name != left_out)
            answer = hub.ask(f"{path}?{query}")
            assert (answer.status, left_out in answer.json["detail"]) == (400, True), answer
        if needed:
            query = "&".join(f"{name}={values[name]}" for name in needed)
            assert hub.ask(f"{path}?{query}").status in (200, 404)
        elif "{" not in path and "get" in methods:
            assert hub.ask(path).status != 400, path
        count += len(needed)
    assert count == 13


def test_a_body_that_is_not_wanted_is_not_read(hub: HubProcess) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", hub.port, timeout=5)) as connection:
        connection.putrequest("POST", "/api/v1/gpus")
        connection.putheader("Content-Length", "900000")
        connection.endheaders()
        answer = connection.getresponse()  # before a byte of the body
        assert answer.status == 401
        assert answer.getheader("Connection") == "close"


@pytest.mark.parametrize("path", ["/api/v1/addresses", "/sign-in"])
def test_whoever_still_sends_is_told_why_not(hub: HubProcess, path: str) -> None:
    """More than fits into the buffers between: unread, it would reset the answer away."""
    for _ in range(5):
        answer = hub.ask(path, "PUT" if "api" in path else "POST", body=bytes(9_000_000))
        assert answer.status == 413, answer
    assert hub.ask("/readyz", token=None).status == 200


def reply_to(hub: HubProcess, request: bytes) -> bytes:
    """Return the answer to these bytes, until the hub hangs up or has been still for a while."""
    with socket.create_connection(("127.0.0.1", hub.port), 5) as raw:
        raw.sendall(request)
        raw.settimeout(1.0)
        answer = b""
        with contextlib.suppress(TimeoutError, ConnectionResetError):
            while part := raw.recv(65_536):
                answer += part
        return answer


def test_a_whole_url_in_the_request_line_is_its_path(hub: HubProcess) -> None:
    host = f"127.0.0.1:{hub.port}"
    token = f"Authorization: Bearer {hub.api_token}"

    def get(target: str, *headers: str) -> bytes:
        lines = [f"GET {target} HTTP/1.1", f"Host: {host}", "Connection: close", *headers, "", ""]
        return reply_to(hub, "\r\n".join(lines).encode())

    for path, headers, status in (
            ("/api/v1/users", (), b"401"), ("/api/v1/users", (token,), b"200"),
            ("/api/v1/alerts?state=no", (token,), b"400")):
        for target in (path, f"http://{host}{path}", f"HTTP://{host}{path}"):
            assert get(target, *headers).startswith(b"HTTP/1.1 " + status), target
    for other in ("http://other.example/api/v1/users", "http://", "http://[/"):
        assert get(other, token).startswith(b"HTTP/1.1 400"), other


@pytest.mark.parametrize("path", ["/sign-in", "/api/v1/previews"])
def test_a_form_that_a_proxy_marks_for_upgrade_is_answered_at_once(hub: HubProcess, path: str
                                                                   ) -> None:
    """nginx's usual websocket snippet adds these headers to every request."""
    body = b"csrf=x&name=a&password=b" if path == "/sign-in" else b"{}"
    token = "" if path == "/sign-in" else f"Authorization: Bearer {hub.api_token}\r\n"
    for extra in ("", "Upgrade: \r\n", "Upgrade: websocket\r\n"):
        request = (f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{hub.port}\r\n{token}"
                   f"Connection: upgrade\r\n{extra}Content-Type: application/json\r\n"
                   + ("" if token else f"Origin: {hub.url}\r\n")
                   + f"Content-Length: {len(body)}\r\n\r\n").encode()
        began = time.monotonic()
        with socket.create_connection(("127.0.0.1", hub.port), 5) as raw:
            raw.sendall(request + body)
            # Werkzeug serves no form under `Upgrade: websocket`.
            status = raw.recv(12).removeprefix(b"HTTP/1.1 ")
            assert status == ((b"404" if token else b"401") if "websocket" in extra
                              else (b"400" if token else b"403"))
        assert time.monotonic() - began < 2


@pytest.mark.parametrize("lines", [
    b"Content-Length: 0\r\nContent-Length: 40", b"Content-Length: 0\r\nContent-Length: 0",
    b"Content-Length : 0", b"Content-Length: +0", b"Content-Length: 0_0", b"Content-Length: 0, 0",
    b"Content-Length: 0\r\nTransfer-Encoding: chunked", b"Transfer-Encoding: gzip, chunked",
    b"Transfer-Encoding: xchunked", b"X-A: 1\nX-B: 2", b"X-A: a\0b", b"X-A: a\rb", b" X-A: 1",
    b"X-A: 1\r\n folded", b"X A: 1", b": 1", b"nothing", b"Host: elsewhere"])
def test_what_a_proxy_could_read_otherwise_is_refused(hub: HubProcess, lines: bytes) -> None:
    host = f"Host: 127.0.0.1:{hub.port}".encode()
    head = b"GET /healthz HTTP/1.1\r\n" + host + b"\r\n"
    assert reply_to(hub, head + b"Connection: close\r\n\r\n").startswith(b"HTTP/1.1 200")
    answer = reply_to(hub, head + lines + b"\r\n\r\n" + head + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 400")
    assert answer.count(b"HTTP/1.1") == 1, "what follows is no second request"
    assert reply_to(hub, head.replace(b"\r\n", b"\n", 1) + b"\r\n").startswith(b"HTTP/1.1 400")


def test_the_folder_is_private(hub: HubProcess) -> None:
    for path in (hub.folder, *hub.folder.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_no_secret_in_the_log(hub: HubProcess) -> None:
    assert hub.api_token not in hub.log.read_text()


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "dashboard", *words], cwd=REPOSITORY,
                          capture_output=True, text=True, timeout=15)


def failure(code: ExitCode, *words: str) -> str:
    process = run(*words)
    assert process.returncode == code
    assert process.stderr.startswith("gpudeck: ")
    assert len(process.stderr.splitlines()) == 1
    return process.stderr


def test_bad_starts_say_one_sentence(hub: HubProcess, tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    assert "ssh -L" in failure(ExitCode.CANNOT_START, "hub", "--bind", "0.0.0.0:0", "--data", data)
    assert "127.0.0.1" in failure(ExitCode.USAGE, "hub", "--bind", "example.com:80", "--data", data)
    failure(ExitCode.USAGE, "hub", "--bind", "127.0.0.1:99999", "--data", data)
    address = f"127.0.0.1:{hub.port}"
    assert "in use" in failure(ExitCode.CANNOT_START, "hub", "--bind", address, "--data", data)
    assert "another hub" in failure(ExitCode.CANNOT_START, "hub", "--bind", "127.0.0.1:0", "--data",
                                    str(hub.folder))
    (tmp_path / "file").write_text("")
    assert "data folder" in failure(ExitCode.CANNOT_START, "hub", "--data",
                                    str(tmp_path / "file" / "data"))
    open_folder = tmp_path / "open"
    open_folder.mkdir()
    (open_folder / "api.token").write_text("x")
    open_folder.chmod(0o755)
    assert "chmod 700" in failure(ExitCode.CANNOT_START, "hub", "--data", str(open_folder))
    assert "--data" in failure(ExitCode.CANNOT_START, "link", "--data", str(tmp_path / "no"))


def test_starting_and_stopping(tmp_path: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        with StartedHub(tmp_path / "data") as hub:
            arguments = Path(f"/proc/{hub.process.pid}/cmdline").read_bytes()
            assert hub.api_token.encode() not in arguments
            started = time.monotonic()
            hub.signal(number)
            assert hub.process.wait(5) == 0
            assert time.monotonic() - started < 3
            assert not (hub.folder / "hub.json").exists()
    assert run("link", "--data", str(tmp_path / "data")).stdout.startswith(hub.url)


def test_ready_is_announced_with_a_link_that_works(tmp_path: Path) -> None:
    with HubProcess(tmp_path / "data") as hub:
        document = json.loads((hub.folder / "hub.json").read_text())
        assert document["pid"] == hub.process.pid
        assert os.stat(hub.folder / "hub.json").st_mode & 0o077 == 0
        visitor = Visitor(hub)
        visitor.ask(hub.sign_in_url, "HEAD")  # a link preview
        form = visitor.ask(hub.sign_in_url)
        fields = {"name": "Alice", "password": PASSWORD, "again": PASSWORD}
        assert visitor.form("/sign-in/first", form, **fields).status == 303
        assert visitor.get("/api/v1/me")["role"] == "admin"
        second = Visitor(hub).ask(hub.sign_in_url)
        assert (second.status, b"used already" in second.body) == (410, True)


def test_it_listens_on_loopback_only(hub: HubProcess) -> None:
    with socket.socket() as sock:
        assert sock.connect_ex(("127.0.0.1", hub.port)) == 0
    listening = Path(f"/proc/{hub.process.pid}/net/tcp").read_text()
    assert f"0100007F:{hub.port:04X} 00000000:0000 0A" in listening
