"""Receivers of notifications, and the alerts that each of them wants. Pure."""

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Annotated

from msgspec import Meta, Struct

from ..alerts.core.firing_alerts import Alert
from ..alerts.core.rule import RuleId, Severity
from ..trusted_networks import NONE, NetworkSet

RANKS: dict[Severity, int] = {"info": 0, "warn": 1, "crit": 2}
MAX_RECEIVERS = 20
MOST_TO = 20
FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
URL = re.compile(r"(?P<site>https?://(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?)"
                 r"(?P<path>(?:[/?][^#]*)?)")
# Metadata services that are not link-local: of Azure, Alibaba Cloud, Oracle Cloud and, by IPv6,
# AWS and Google Cloud.
OF_CLOUDS = frozenset(map(ip_address, ("168.63.129.16", "100.100.100.200", "192.0.0.192",
                                       "fd00:ec2::254", "fd20:ce::254")))
# Slack's incoming webhooks, and Mattermost's on any host.
OF_CHATS = re.compile(r"https://hooks\.slack(-gov)?\.com/|https?://[^/]+(/[^?]*)?/hooks/[a-z0-9]{26}$")
NAT64 = ip_network("64:ff9b::/96")
# What RFC 5321 allows without quotes; nothing that could end a header or a command.
MAIL = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9.-]{1,189}")


class Receiver(Struct, frozen=True):
    """A receiver. `kind`: of its channel, see channels/table.py. `to`: a URL, or addresses
    separated by commas. There is at most one secret: the token itself, or the name of its file in
    the folder `secrets` of the hub's data folder."""

    id: str
    name: str
    kind: str
    to: str = ""
    least: Severity = "warn"
    rules: Annotated[tuple[RuleId, ...], Meta(max_length=200)] = ()  # empty: all of them
    token: str = ""
    token_file: str = ""
    is_on: bool = True
    template: str = ""  # of the channel `custom`, as are its headers
    headers: dict[str, str] = {}

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(part for word in self.to.split(",") if (part := word.strip()))

    def wants(self, alert: Alert) -> bool:
        return (self.is_on and RANKS[alert.severity] >= RANKS[self.least]
                and (not self.rules or alert.rule_id in self.rules))


def token_flaw(receiver: Receiver) -> str | None:
    if receiver.token and receiver.token_file:
        return "give the token here or in a file, not both"
    if receiver.token_file and not FILE_NAME.fullmatch(receiver.token_file):
        return ("token_file is the name of a file in the folder `secrets` of the hub's data "
                "folder, without a path")
    if not re.fullmatch(r"[\x21-\x7e]*", receiver.token):
        return "a token has letters, digits and signs only; remove blanks and line ends"
    return None


def mail_flaw(addresses: Iterable[str]) -> str | None:
    listed = tuple(addresses)
    if not listed:
        return "an address is needed, such as ops@example.org"
    if len(listed) > MOST_TO:
        return f"at most {MOST_TO} addresses are allowed"
    invalid = [address for address in listed if not MAIL.fullmatch(address)]
    return None if not invalid else (
        f"{invalid[0][:80]!r} is not an e-mail address, such as ops@example.org")


def url_flaw(url: str) -> str | None:
    if not re.fullmatch(r"[\x21-\x7e]{1,2000}", url):
        return "a URL has no blanks, and letters outside of ASCII are written as %XX"
    if re.match(r"https?://[^/?#]*@", url):
        return "the URL must have no name or password: give a token"
    parts = URL.fullmatch(url)
    if parts is None or not 0 < int(parts["port"] or 1) < 65_536:
        return "a URL that begins with https:// or http:// is needed"
    return None


def is_chat_url(url: str) -> bool:
    return OF_CHATS.match(url) is not None


def address_flaw(address: str, inside: NetworkSet) -> str | None:
    """Return why nothing is sent to an address, whatever name resolves to it: addresses where
    clouds serve machine credentials, and addresses of nobody in particular. `inside`: internal
    networks that a site allows, if not all."""
    ip = _plain(ip_address(address.partition("%")[0]))
    is_odd = ip.is_reserved and not ip.is_loopback  # ::1 is both
    if ip.is_link_local or ip.is_multicast or ip.is_unspecified or is_odd or ip in OF_CLOUDS:
        return f"{ip} is not an address of a receiver"
    if inside != NONE and not ip.is_global and not inside.hold(str(ip)):
        return f"{ip} is an internal address, and not in the setting webhook_networks"
    return None


def _plain(ip: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """Return the IPv4 address embedded in an IPv6 one, to which the packets would go."""
    if isinstance(ip, IPv4Address):
        return ip
    if ip in NAT64:
        return IPv4Address(int(ip) & 0xFFFF_FFFF)
    return ip.ipv4_mapped or ip.sixtofour or (ip.teredo or (ip, ip))[1]


def shown_url(url: str) -> str:
    """Return a URL without its path: that of a webhook is a secret, which is not shown again."""
    parts = URL.fullmatch(url)
    assert parts is not None, "it was checked before it was stored"
    return parts["site"] + ("/…" if parts["path"].strip("/") else "")
