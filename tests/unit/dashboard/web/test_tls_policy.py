"""Addresses that a hub may listen on, and names under which it answers."""

import socket
import ssl
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509

from dashboard.public_url import PublicOrigins, public_url
from dashboard.settings import HubSettings, hub_settings
from dashboard.trusted_networks import neighbourhood, networks, plain_address, proxies
from dashboard.web.tls_policy import CertificateReloader, check_bind, server_context, takes
from gpudeck.errors import CommandError, ExitCode
from tests.fakes.certificates import Authority

PLAIN = HubSettings(("127.0.0.1", 8050), Path("/data"))
TLS = replace(PLAIN, tls_cert=Path("cert.pem"), tls_key=Path("key.pem"))
PROXIED = replace(PLAIN, trusted_proxies=proxies("10.0.0.5"), public_url="https://deck.example.org")
EVERYWHERE = ["0.0.0.0", "::", "10.1.2.3", "192.168.0.1", "fd00::1", "::ffff:10.1.2.3"]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_this_machine_needs_nothing(host: str) -> None:
    check_bind(replace(PLAIN, bind=(host, 1)))


@pytest.mark.parametrize("host", EVERYWHERE)
@pytest.mark.parametrize("settings", [
    PLAIN, replace(PLAIN, public_url="https://deck.example.org"),
    replace(PLAIN, trusted_proxies=proxies("10.0.0.5")),
    replace(PROXIED, public_url="http://deck.example.org")])
def test_beyond_it_nothing_goes_without_tls(host: str, settings: HubSettings) -> None:
    with pytest.raises(CommandError, match="TLS") as refusal:
        check_bind(replace(settings, bind=(host, 1)))
    assert refusal.value.code == ExitCode.CANNOT_START
    check_bind(replace(PROXIED, bind=(host, 1)))
    check_bind(replace(TLS, bind=(host, 1), public_url="https://deck.example.org"))


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_a_hub_on_all_addresses_must_know_its_name(host: str) -> None:
    with pytest.raises(CommandError, match="--public-url"):
        check_bind(replace(TLS, bind=(host, 1)))


@pytest.mark.parametrize("lacking", ["tls_cert", "tls_key"])
def test_certificate_and_key_go_together(lacking: str) -> None:
    with pytest.raises(CommandError, match="both or none"):
        check_bind(replace(TLS, **{lacking: None}))  # type: ignore[arg-type]


@pytest.mark.parametrize("host", ["hub.example", "", "256.0.0.1", "127.0.0.1.example"])
def test_a_name_is_no_address(host: str) -> None:
    with pytest.raises(CommandError):
        check_bind(replace(PLAIN, bind=(host, 1)))


def test_without_tls_only_the_proxy_may_connect() -> None:
    only = takes(replace(PROXIED, bind=("0.0.0.0", 1)))
    assert only("10.0.0.5")
    assert only("127.0.0.1")
    assert not only("10.0.0.6")
    assert takes(replace(TLS, bind=("0.0.0.0", 1)))("10.0.0.6")


def test_a_client_is_the_same_by_the_name_that_a_socket_for_both_families_gives_it() -> None:
    """`--bind [::]`: rules for IPv4 hold for it, and its guesses of passwords are its own."""
    lab = networks("10.1.0.0/16")
    assert lab.hold("::ffff:10.1.2.3")
    assert not lab.hold("::ffff:10.2.2.3")
    assert proxies("10.0.0.5").client("::ffff:10.0.0.5", "::ffff:10.1.2.3") == "10.1.2.3"
    assert neighbourhood(plain_address("::ffff:10.1.2.3")) == "10.1.2.3"
    for address in ("2001:db8::7", "10.1.2.3", "", "unix"):
        assert plain_address(address) == address


def test_files_that_are_no_certificate(tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    with pytest.raises(CommandError, match="--tls-key"):
        server_context(replace(PLAIN, tls_cert=cert, tls_key=key))
    cert.write_text("rubbish")
    key.write_text("rubbish")
    key.chmod(0o604)
    with pytest.raises(CommandError, match="chmod"):
        server_context(replace(PLAIN, tls_cert=cert, tls_key=key))
    key.chmod(0o600)
    with pytest.raises(CommandError, match="PEM"):
        server_context(replace(PLAIN, tls_cert=cert, tls_key=key))
    assert server_context(PLAIN) is None


def test_names_and_origins() -> None:
    site = PublicOrigins.at("127.0.0.1", 8050)
    assert (site.url, site.is_secure) == ("http://127.0.0.1:8050", False)
    assert site.origins["localhost:8050"] == "http://localhost:8050"
    assert "localhost" not in site.origins
    secure = PublicOrigins.at("0.0.0.0", 443, True, "https://deck.example.org")
    assert (secure.url, secure.is_secure) == ("https://deck.example.org", True)
    assert secure.origins["deck.example.org"] == "https://deck.example.org"
    assert secure.origins["127.0.0.1:443"] == "https://127.0.0.1"
    assert not any("0.0.0.0" in name for name in secure.origins)
    proxied = PublicOrigins.at("10.0.0.1", 8050, False, "https://deck.example.org")
    assert proxied.is_secure
    assert proxied.origins["10.0.0.1:8050"] == "http://10.0.0.1:8050"


def test_an_origin_is_that_of_the_name_one_came_by() -> None:
    site = PublicOrigins.at("10.0.0.1", 8050, False, "https://deck.example.org")

    def own(host: str, origin: str) -> bool:
        return site.is_own_origin({"HTTP_HOST": host, "HTTP_ORIGIN": origin})

    assert own("deck.example.org", "https://deck.example.org")
    assert not own("deck.example.org", "http://deck.example.org")
    assert not own("deck.example.org", "http://127.0.0.1:8050")
    assert not own("127.0.0.1:8050", "https://deck.example.org")
    assert not own("deck.example.org.evil.com", "https://deck.example.org.evil.com")
    assert not own("deck.example.org", "")


@pytest.mark.parametrize(("raw", "url"), [
    ("https://Deck.Example.org/", "https://deck.example.org"),
    ("https://deck.example.org:443", "https://deck.example.org"),
    ("https://deck.example.org:8443", "https://deck.example.org:8443"),
    ("http://[::1]:80", "http://[::1]")])
def test_public_urls_as_browsers_write_them(raw: str, url: str) -> None:
    assert public_url(raw) == url


@pytest.mark.parametrize("raw", ["deck.example.org", "ftp://x", "https://x/path", "https://u@x",
                                 "https://x?y", "https://", "https://x:port"])
def test_what_is_no_public_url(raw: str) -> None:
    with pytest.raises(CommandError):
        hub_settings(["--public-url", raw], {})


def serial_of(context: ssl.SSLContext, authority: Authority) -> int:
    """Return the serial number of the certificate that a new connection gets."""
    near, far = socket.socketpair()
    client = ssl.create_default_context(cafile=authority.file)
    serving = threading.Thread(target=lambda: context.wrap_socket(far, server_side=True).close())
    serving.start()
    with client.wrap_socket(near, server_hostname="127.0.0.1") as sock:
        certificate = sock.getpeercert(True)
    serving.join()
    assert certificate is not None
    return x509.load_der_x509_certificate(certificate).serial_number


def test_a_renewed_certificate_is_taken_over_and_half_of_one_is_not(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair, new = authority.issue("deck"), authority.issue("new")
    settings = replace(PLAIN, tls_cert=pair.cert, tls_key=pair.key)
    context = server_context(settings)
    assert context is not None
    reloader = CertificateReloader(settings, context)
    old = serial_of(context, authority)
    assert reloader.look() is None
    pair.cert.write_bytes(new.cert.read_bytes())  # its key comes a moment later
    assert "former one stays" in (reloader.look() or "")
    assert reloader.look() is None  # said once
    assert serial_of(context, authority) == old
    pair.key.write_bytes(new.key.read_bytes())
    assert reloader.look() == "certificate read again"
    assert serial_of(context, authority) == x509.load_pem_x509_certificate(
        new.cert.read_bytes()).serial_number != old
