"""`status`, `tasks` and the REST client, against a real HTTP server and the C fake."""

import json
import os
import random
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from agent.runtime.data_lock import DataFolderLock
from gpudeck.client.hub import Client, refused, tls_context
from gpudeck.errors import CommandError, ExitCode
from tests.fakes.certificates import Authority
from tests.fakes.nvml import FakeNvml

ROOT = Path(__file__).parents[2]
STATUS = {"disk", "items", "next", "holds", "reader", "driver_version", "agent"}


class Hub(ThreadingHTTPServer):
    """Pages of two, as the hub's REST interface gives them."""

    def __init__(self) -> None:
        self.token = f"t-{random.random()}"
        self.items = [{"id": f"i{n}", "uuid": f"i{n}", "host": f"h{n}", "node": "i0", "index": n,
                       "state": "ok", "values": {"util_pct": float(n)}} for n in range(5)]
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
        if path == "/moved/api/v1/gpus":
            return self.answer(302, {}, Location="/api/v1/gpus")
        if self.headers["Authorization"] != f"Bearer {self.server.token}":
            return self.answer(401, {"title": "Unauthorized", "detail": "this token is not known"})
        if path == "/api/v1/tasks":
            return self.answer(400, {"title": "Bad Request", "detail": "no such filter"})
        at = int(query.get("cursor", ["0"])[0])
        following = str(at + 2) if at + 2 < len(self.server.items) else None
        return self.answer(200, {"items": self.server.items[at : at + 2], "next": following})

    def answer(self, status: int, body: object, **headers: str) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def running(hub: Hub) -> Iterator[Hub]:
    thread = threading.Thread(target=hub.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
        thread.join()


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running(Hub()) as hub:
        yield hub


def test_all_pages_are_read(hub: Hub) -> None:
    assert Client(hub.url, hub.token).gpus() == hub.items


@pytest.mark.parametrize(("path", "token", "kind", "code", "words"), [
    ("", "wrong", "gpus", ExitCode.DENIED, "this token is not known"),
    ("", None, "tasks", ExitCode.FAILED, "no such filter"),
    ("/moved", None, "gpus", ExitCode.FAILED, "302"),
])
def test_what_the_hub_says_is_said(
    hub: Hub, path: str, token: str | None, kind: str, code: ExitCode, words: str
) -> None:
    client = Client(hub.url + path, token or hub.token)
    with pytest.raises(CommandError, match=words) as error:
        getattr(client, kind)()
    assert error.value.code == code


def test_no_hub_there() -> None:
    with pytest.raises(CommandError, match="no hub at") as error:
        Client("http://127.0.0.1:9", "x").gpus()
    assert error.value.code == ExitCode.UNREACHABLE


@pytest.mark.parametrize(("certificate", "says"), [
    ("expired", "the hub's certificate is refused: certificate has expired; renew it on the hub"),
    ("strange", "give the issuing CA's certificate: --ca-file"),
    ("none", "TLS fails (WRONG_VERSION_NUMBER); is the hub's URL right, https and port?")])
def test_what_is_wrong_with_tls_is_said(tmp_path: Path, certificate: str, says: str) -> None:
    """A hub runs there and its address is right: neither is asked for."""
    (tmp_path / "other").mkdir()
    authority, other = Authority(tmp_path), Authority(tmp_path / "other")
    pair = authority.issue("deck", -3, -1 if certificate == "expired" else 1)
    server = Hub()
    if certificate != "none":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.cert, pair.key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    url = server.url.replace("http:", "https:")
    trust = tls_context(url, other.file if certificate == "strange" else authority.file)
    with running(server), pytest.raises(CommandError) as error:
        Client(url, "x", tls=trust).gpus()
    assert says in str(error.value)
    assert error.value.code == ExitCode.UNREACHABLE


def test_a_proxy_is_not_called_the_hub() -> None:
    for status, says in ((502, "it does not reach the hub; does the hub run?"), (413, "HTTP 413")):
        sentence = str(refused("https://deck", status, b"<html>", "nginx/1.22.1"))
        assert f"the proxy before the hub (nginx/1.22.1) answers HTTP {status}" in sentence
        assert says in sentence
    assert "the hub at https://deck answers 502" in str(refused("https://deck", 502, b""))


def show(
    program: str, *arguments: str, env: dict[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    code = (
        "import sys\nfrom agent.cli import main as cli\nfrom gpudeck.errors import CommandError\n"
        f"try:\n    sys.exit(cli.{program}(sys.argv[1:]))\n"
        "except CommandError as error:\n    print(error, file=sys.stderr)\n    sys.exit(error.code)"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True,
        timeout=30, check=False, env=env or dict(os.environ),
    )


def test_this_machine_once(tmp_path: Path) -> None:
    nvml = FakeNvml(tmp_path / "nvml.txt", gpus=2)
    nvml.lines = [f"process 1 compute {os.getpid()} 5000000000"]
    nvml.write()
    gpus = json.loads(show("status", "--json", env=nvml.env()).stdout)["items"]
    assert [(gpu["uuid"], gpu["values"]["temp_c"]) for gpu in gpus] == [
        (board["uuid"], board["temp"]) for board in nvml.gpus
    ]
    assert gpus[0]["values"]["pcie_tx_bytes_per_s"] == 0.0
    assert gpus[0]["missing"]["fan_pct"] == "unsupported"
    table = show("tasks", env=nvml.env())
    assert table.returncode == 0
    row = table.stdout.splitlines()[1].split()
    assert row[1] == str(os.getpid())
    assert row[4] == "4.7"


def test_a_machine_without_the_library_says_what_to_do() -> None:
    status = show("status")
    assert status.returncode == ExitCode.FAILED
    assert "install the NVIDIA driver" in status.stderr
    assert (status.stdout, status.stderr.count("\n")) == ("", 1)


def test_json_without_the_library_has_the_same_form(tmp_path: Path) -> None:
    status = show("status", "--json", "--data", str(tmp_path))
    document = json.loads(status.stdout)
    assert (status.returncode, set(document)) == (ExitCode.FAILED, STATUS)
    assert document["reader"]["state"] == "no_library"
    assert "install the NVIDIA driver" in document["reader"]["detail"]
    assert (document["items"], document["driver_version"], document["agent"]) == ([], None, None)


def test_status_as_json_has_its_promised_form(tmp_path: Path) -> None:
    nvml = FakeNvml(tmp_path / "nvml.txt", gpus=2)
    nvml.gpus[1].error("nvmlDeviceGetUtilizationRates", 16)
    nvml.write()
    data = tmp_path / "data"
    with DataFolderLock(data):  # this very process is the agent
        document = json.loads(show("status", "--json", "--data", str(data), env=nvml.env()).stdout)
    assert set(document) == STATUS
    assert (document["reader"]["state"], document["driver_version"]) == ("ok", nvml.driver)
    assert document["reader"]["read_s"] > 0
    assert "GPU 1 must be reset" in document["reader"]["detail"]
    assert set(document["agent"]) == {"pid", "cpu_pct", "memory_bytes", "outbox_bytes"}
    assert document["agent"]["pid"] == os.getpid()
    assert document["agent"]["memory_bytes"] > 2**20
    assert document["agent"]["cpu_pct"] >= 0
    assert "GPU 1 must be reset" in show("status", env=nvml.env()).stdout
    page = (ROOT / "docs" / "doctor.md").read_text()
    assert {name for name in STATUS if f"`{name}`" not in page} == set()


def test_status_of_a_fleet_names_its_nodes(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(hub.token)
    status = show("status", "--json", "--hub", hub.url, "--token-file", str(tmp_path / "token"))
    document = json.loads(status.stdout)
    assert (set(document), status.returncode) == ({"items", "next", "holds", "nodes"}, 0)
    assert document["nodes"] == hub.items


def test_a_fleet_by_host_name(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(hub.token)
    status = show("status", "--hub", hub.url, "--token-file", str(tmp_path / "token"))
    assert [line.split()[:2] for line in status.stdout.splitlines()[1:]] == [
        ["h0", str(n)] for n in range(5)
    ]


def test_what_is_held_is_said(hub: Hub, tmp_path: Path) -> None:
    nvml, data = FakeNvml(tmp_path / "nvml.txt", gpus=1), tmp_path / "agent"
    nvml.write()
    free = show("status", "--data", str(data), env=nvml.env())
    data.mkdir()
    (data / "hold").write_text("flaky \x1b[31mcooling\n")
    stopped = show("status", "--data", str(data), env=nvml.env())
    assert "HELD" not in free.stdout
    line = stopped.stdout.splitlines()[0]
    assert line.startswith("STOPPED, no actions on ")
    assert line.endswith("says: flaky [31mcooling")
    view = json.loads(show("status", "--json", "--data", str(data), env=nvml.env()).stdout)
    assert list(view["holds"].values()) == [[f"the file {data / 'hold'} says: flaky [31mcooling"]]
    hub.items[1]["holds"] = ["ops holds it"]
    (tmp_path / "token").write_text(hub.token)
    fleet = show("status", "--hub", hub.url, "--token-file", str(tmp_path / "token"))
    assert fleet.stdout.splitlines()[0] == "STOPPED, no actions on h1: ops holds it"
