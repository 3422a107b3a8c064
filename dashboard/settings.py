"""The hub's settings: one table."""

import os
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpudeck.settings import (
    Setting,
    address,
    count,
    folder,
    load,
    port,
    state_folder,
    text,
    whole,
)

from .public_url import public_url
from .trusted_networks import NOBODY, NONE, NetworkSet, TrustedProxies, networks, proxies


def header(raw: str) -> str:
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9-]{0,63}", raw):
        raise ValueError("the name of a header is needed, for example X-Forwarded-User")
    return raw


def sender(raw: str) -> str:
    if not re.fullmatch(r"[^@\s<>]{1,64}@[A-Za-z0-9.-]{1,189}", raw):
        raise ValueError("an address is needed, for example gpudeck@example.org")
    return raw


def cluster(raw: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", raw):
        raise ValueError("a name of letters, digits, dots, hyphens and underscores is needed")
    return raw


def this_host() -> str:
    return socket.gethostname()[:64] or "localhost"


DATA = Setting("data", folder, state_folder("hub", os.environ),
               "folder for all data of the hub; only its own user may read it",
               default_words="$XDG_STATE_HOME/gpudeck/hub")

HUB: tuple[Setting, ...] = (
    Setting("bind", address, ("127.0.0.1", 8050), "HOST:PORT to listen on; port 0 picks one"),
    DATA,
    Setting("tls_cert", folder, None, "PEM file of the certificate and its chain"),
    Setting("tls_key", folder, None, "PEM file of the certificate's key"),
    Setting("public_url", public_url, None,
            "public URL of the hub for people and agents, if it differs from its address"),
    Setting("agent_messages_per_s", count, 20,
            "live messages one agent may send per second; ten times as many at once"),
    Setting("agent_bytes_per_s", count, 2_000_000,
            "bytes one agent may send per second; ten times as many at once"),
    Setting("viewer_stall_s", count, 30,
            "seconds after which a viewer that does not read is disconnected"),
    Setting("signer_ends_per_hour", count, 60,
            "ends and pauses that the hub's signer signs per hour"),
    Setting("signer_ends_per_node_hour", count, 6,
            "the same for one node; the node's own ceiling applies in addition"),
    Setting("quota_end_after_s", count, 60,
            "minimum seconds from notifying an owner to ending their task because of a quota; it "
            "must be exceeded for half of that, 30 s at most, before anybody is notified"),
    Setting("pool", text, "off",
            "on: this hub leases GPUs, on nodes whose agents take part (--pool-socket)",
            choices=("on", "off")),
    Setting("rule_proof_h", count, 168,
            "hours of dry run, or of history in an approved rehearsal, before a rule may act "
            "automatically; lower it only where nobody's work is at stake"),
    Setting("second_person", text, "on",
            "on: an action on more than 3 jobs waits until another person approves it; off: a site "
            "with one admin", choices=("on", "off")),
    Setting("trusted_proxies", proxies, NOBODY,
            "addresses and networks of proxies, with commas between them, that are trusted to name "
            "the client's address"),
    Setting("cluster", cluster, this_host(),
            "name of this cluster in every row of history, so that the histories "
            "of several hubs can be joined",
            default_words="the hub's host name"),
    Setting("history_raw_hours", count, 24, "hours for which every second is kept"),
    Setting("history_minute_days", count, 90,
            "days for which minutes are kept, with usage per task"),
    Setting("history_hour_days", count, 730, "days for which hours, usage and events are kept"),
    Setting("history_max_gb", whole, 0,
            "maximum size of history in GB; the oldest seconds are deleted first; 0: no limit"),
    Setting("audit_copy", folder, None,
            "file to which every audit record is also appended; best on another mount"),
    Setting("smtp_host", text, None, "mail server for messages to task owners"),
    Setting("smtp_port", port, 587, "its port"),
    Setting("smtp_from", sender, None, "sender's address of mail to owners"),
    Setting("smtp_tls", text, "starttls", "encryption of the connection to it: starttls, tls or "
                                          "none",
            choices=("starttls", "tls", "none")),
    Setting("smtp_user", text, None, "user name for the mail server, if it needs one"),
    Setting("smtp_password", text, None, "password for the mail server", secret=True),
    Setting("webhook_networks", networks, NONE,
            "addresses and networks, with commas between them, inside the site that webhooks "
            "may reach; default: all"),
    Setting("notice_wait_s", count, 10,
            "seconds that the first notification of a group waits for others"),
    Setting("notice_interval_s", count, 300, "minimum seconds between two notifications of one "
                                             "group"),
    Setting("notice_repeat_s", count, 14_400, "seconds after which alerts that are still firing "
                                              "are sent again"),
    Setting("proxy_user_header", header, None,
            "header in which a trusted proxy names the signed-in user"),
)
LINK: tuple[Setting, ...] = (DATA,)


@dataclass(frozen=True, slots=True)
class HubSettings:
    bind: tuple[str, int]
    data: Path
    agent_messages_per_s: int = 20
    agent_bytes_per_s: int = 2_000_000
    viewer_stall_s: int = 30
    signer_ends_per_hour: int = 60
    signer_ends_per_node_hour: int = 6
    quota_end_after_s: int = 60
    pool: str = "off"
    rule_proof_h: int = 168
    second_person: str = "on"
    trusted_proxies: TrustedProxies = NOBODY
    proxy_user_header: str | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    public_url: str | None = None
    cluster: str = field(default_factory=this_host)
    history_raw_hours: int = 24
    history_minute_days: int = 90
    history_hour_days: int = 730
    history_max_gb: int = 0
    audit_copy: Path | None = None
    smtp_host: str | None = None
    smtp_port: int = 587
    smtp_from: str | None = None
    smtp_tls: str = "starttls"
    smtp_user: str | None = None
    smtp_password: str | None = None
    webhook_networks: NetworkSet = NONE
    notice_wait_s: int = 10
    notice_interval_s: int = 300
    notice_repeat_s: int = 14_400


def hub_settings(argv: Sequence[str], env: Mapping[str, str]) -> HubSettings:
    return HubSettings(**load("hub", HUB, argv, env, "The server: pages, API, live socket."))


def link_folder(argv: Sequence[str], env: Mapping[str, str]) -> Path:
    values = load("link", LINK, argv, env, "Print a new one-time sign-in link.")
    data: Path = values["data"]
    return data
