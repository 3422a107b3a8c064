"""Addresses where no webhook may lead, in all the ways to write them: nothing connects there."""

import socket
from collections.abc import Iterator

import pytest

from dashboard.notifications.channels.table import flaw
from dashboard.notifications.receivers import Receiver, address_flaw
from dashboard.notifications.webhook import WebRequest, trial
from dashboard.trusted_networks import NONE, networks

ELSEWHERE = networks("10.0.0.0/8")
NO_URL = (
    "file:///etc/passwd", "gopher://127.0.0.1:70/_x", "ftp://127.0.0.1/x",
    "dict://127.0.0.1:11211/",
    "http:127.0.0.1", "http:///x", "//127.0.0.1/", "127.0.0.1/x", "javascript:alert(1)", "",
    "http://ops@127.0.0.1/", "http://ops:secret@127.0.0.1/", "http://example.org\\@127.0.0.1/",
    "http://127.0.0.1/#@example.org", "http://127.0.0.1:0/", "http://127.0.0.1:65536/",
    "http://127.0.0.1:8x/", "http://[::1%25lo]/", "http://127.0.0.1 /", "http://127.0.0.1/\r\nX: y",
    "http://127.0.0.1/\u2028", "http://\u2460\u2461\u2466.0.0.1/",
    "http://127\u30020\u30020\u30021/",
)
HERE = (
    "127.0.0.1", "127.1", "127.0.1", "127.255.255.254", "2130706433", "0x7f000001", "0x7f.0.0.1",
    "0177.0.0.1", "017700000001", "localhost", "LOCALHOST", "[::1]", "[0:0:0:0:0:0:0:1]",
    "[::ffff:127.0.0.1]", "[::ffff:7f00:1]",
)
NOBODYS = (
    "169.254.169.254", "2852039166", "0xa9fea9fe", "[::ffff:169.254.169.254]",
    "[64:ff9b::169.254.169.254]", "[64:ff9b::a9fe:a9fe]", "[2002:a9fe:a9fe::1]", "[fe80::1]",
    "[fd00:ec2::254]", "[fd20:ce::254]", "[2001:0:102:304::5601:5601]",
    "168.63.129.16", "100.100.100.200", "192.0.0.192", "[::ffff:192.0.0.192]",
    "0.0.0.0", "0", "[::]", "224.0.0.1",
    "[ff02::1]", "255.255.255.255",
)


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


def attempt(host: str, server: socket.socket, inside: str) -> tuple[bool, str]:
    port = server.getsockname()[1]
    outcome = trial(WebRequest(f"http://{host}:{port}/hook", {}), "", networks(inside))
    return outcome.is_taken, outcome.words


@pytest.mark.parametrize("url", NO_URL)
def test_what_is_no_url_of_the_web_is_not_kept(url: str) -> None:
    assert flaw(Receiver("r", "ops", "webhook", url)) is not None


@pytest.mark.parametrize("host", HERE)
def test_who_names_networks_is_led_to_no_other_of_the_inside(host: str,
                                                             server: socket.socket) -> None:
    is_taken, words = attempt(host, server, "10.0.0.0/8")
    assert not is_taken
    assert "not in the setting webhook_networks" in words
    with pytest.raises(BlockingIOError):
        server.accept()


@pytest.mark.parametrize("host", NOBODYS)
@pytest.mark.parametrize("inside", ["", "0.0.0.0/0,::/0"])
def test_to_those_of_nobody_and_of_clouds_nothing_goes_ever(host: str, inside: str,
                                                            server: socket.socket) -> None:
    is_taken, words = attempt(host, server, inside)
    assert not is_taken
    assert "is not an address of a receiver" in words


def test_what_is_named_is_reached_and_what_is_outside_needs_no_name() -> None:
    assert address_flaw("10.1.2.3", ELSEWHERE) is None
    assert address_flaw("10.1.2.3", NONE) is None
    assert address_flaw("192.168.1.1", ELSEWHERE) is not None
    assert address_flaw("93.184.215.14", ELSEWHERE) is None
    assert address_flaw("2606:4700::1111", ELSEWHERE) is None
    assert address_flaw("fd12::1", ELSEWHERE) is not None
    assert address_flaw("fd12::1", networks("fd00::/8")) is None


@pytest.mark.parametrize("host", HERE)
def test_on_the_hubs_own_machine_it_is_reached_however_it_is_written(host: str) -> None:
    for family, _, _, _, address in socket.getaddrinfo(host.strip("[]"), 80, 0, socket.SOCK_STREAM):
        assert family in (socket.AF_INET, socket.AF_INET6)
        assert address_flaw(str(address[0]), NONE) is None
