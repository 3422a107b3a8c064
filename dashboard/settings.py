"""The hub's settings: one table."""

import os
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from gpudeck.errors import CommandError, ExitCode
from gpudeck.settings import (
    Setting,
    address,
    count,
    flag,
    folder,
    hub_url,
    load,
    port,
    read_secret,
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


def names(raw: str) -> frozenset[str]:
    return frozenset(word.strip() for word in raw.split(",") if word.strip())


def database(raw: str) -> str:
    parts = urlsplit(raw)
    if parts.scheme not in ("postgresql", "postgres"):
        raise ValueError("postgresql://USER@HOST/DATABASE is needed")
    if parts.password is not None or "password=" in parts.query:
        raise ValueError("a URL must not contain a secret; give the password by state_password")
    return raw


def mirror(raw: str) -> str:
    kind, _, url = raw.partition("+")
    parts = urlsplit(url)
    if kind not in ("remote-write", "otlp") or parts.scheme not in ("http", "https") or (
            not parts.hostname):
        raise ValueError("remote-write+https://HOST/PATH or otlp+https://HOST/PATH is needed")
    if parts.username is not None:
        raise ValueError("a URL must not contain a secret; give mirror_user and mirror_secret")
    return raw


def archive(raw: str) -> str:
    parts = urlsplit(raw)
    query = parse_qs(parts.query, keep_blank_values=True)
    endpoint = urlsplit(query.get("endpoint", ["https://aws"])[-1])
    if (parts.scheme != "s3" or not re.fullmatch(r"[a-z0-9][a-z0-9.-]{1,62}", parts.netloc)
            or set(query) - {"endpoint", "region"} or not endpoint.hostname
            or endpoint.scheme not in ("http", "https") or endpoint.username is not None):
        raise ValueError("s3://BUCKET/PREFIX is needed, with ?endpoint=https://HOST and "
                         "&region=NAME where it is not AWS's own; credentials come from "
                         "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or ~/.aws/credentials")
    return raw


SITE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")


def views(raw: str) -> tuple[tuple[str, str], ...]:
    """Parse NAME=URL pairs, separated by commas."""
    urls = dict(_named_values(raw, "NAME=https://HUB"))
    return tuple((name, hub_url(url)) for name, url in urls.items())


def view_files(raw: str) -> tuple[tuple[str, Path], ...]:
    return tuple((name, folder(path)) for name, path in _named_values(raw, "NAME=FILE"))


def _named_values(raw: str, form: str) -> list[tuple[str, str]]:
    pairs = [part.strip().partition("=") for part in raw.split(",") if part.strip()]
    if wrong := next((name for name, mark, value in pairs
                      if not mark or not value or not SITE_NAME.fullmatch(name)), None):
        raise ValueError(f"{wrong[:40]!r}: {form} is needed; a name has at most 32 letters, "
                         "digits, dots, hyphens and underscores")
    if len({name for name, _, _ in pairs}) < len(pairs):
        raise ValueError("a name stands there twice")
    return [(name, value) for name, _, value in pairs]


def this_host() -> str:
    return socket.gethostname()[:64] or "localhost"


DATA = Setting("data", folder, state_folder("hub", os.environ),
               "folder for all data of the hub; only its own user may read it",
               default_words="$XDG_STATE_HOME/gpudeck/hub")

HUB: tuple[Setting, ...] = (
    Setting("bind", address, ("127.0.0.1", 8050), "HOST:PORT to listen on; port 0 picks one"),
    DATA,
    Setting("state", database, None,
            "database for users, nodes, rules, commands and audit: postgresql://USER@HOST/DATABASE",
            default_words="a file in the data folder"),
    Setting("state_password", text, None, "password of that database's user", secret=True),
    Setting("standby", flag, False,
            "while another hub uses the database: wait until it is gone and take its place; give "
            "it to both"),
    Setting("tls_cert", folder, None, "PEM file of the certificate and its chain"),
    Setting("tls_key", folder, None, "PEM file of the certificate's key"),
    Setting("public_url", public_url, None,
            "public URL of the hub for people and agents, if it differs from its address"),
    Setting("agent_messages_per_s", count, 20,
            "live messages one agent may send per second; ten times as many at once"),
    Setting("agent_bytes_per_s", count, 2_000_000,
            "bytes one agent may send per second; ten times as many at once"),
    Setting("ingest_process_from", whole, 100,
            "number of connected agents from which a process of its own serves their sockets, so "
            "that pages and rules do not wait for them; 0: never"),
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
    Setting("slurm_nodes", names, frozenset(),
            "hosts, with commas between them, whose agents (--slurm) speak for Slurm; what others "
            "say of it is ignored", default_words="none"),
    Setting("kubernetes_nodes", names, frozenset(),
            "hosts, with commas between them, whose agents (--kubernetes) speak for Kubernetes; "
            "what others say of it is ignored", default_words="none"),
    Setting("rule_proof_h", count, 168,
            "hours of dry run, or of history in an approved rehearsal, before a rule may act "
            "automatically; lower it only where nobody's work is at stake"),
    Setting("advice_least_h", count, 168,
            "measured hours before anything is advised; a working week should be among them"),
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
    Setting("view", views, (), "another hub to view here, NAME=https://HUB; again for each, or "
                               "with commas between them",
            default_words="none", is_repeated=True),
    Setting("view_token_file", view_files, (),
            "file with a viewer's token of that hub, NAME=FILE; again for each",
            default_words="none", is_repeated=True),
    Setting("view_ca_file", folder, None,
            "PEM file of the CA that issued the certificates of those hubs"),
    Setting("history_raw_hours", count, 24, "hours for which every second is kept"),
    Setting("history_minute_days", count, 90,
            "days for which minutes are kept, with usage per task"),
    Setting("history_hour_days", count, 730, "days for which hours, usage and events are kept"),
    Setting("history_max_gb", whole, 0,
            "maximum size of history in GB; the oldest seconds are deleted first; 0: no limit"),
    Setting("archive", archive, None,
            "S3 bucket to which older files of history move: "
            "s3://BUCKET/PREFIX?endpoint=URL&region=NAME",
            default_words="none; once set, as it was set last"),
    Setting("archive_after_hours", whole, 24,
            "hours after which a file moves there; 0: as soon as it is written, and nodes have "
            "copies of what is not there yet"),
    Setting("archive_cache_gb", whole, 10,
            "size in GB up to which the archive's files also stay in the data folder"),
    Setting("mirror", mirror, None,
            "receiver to which every second is also sent: remote-write+URL (Prometheus, "
            "VictoriaMetrics, Mimir, Thanos) or otlp+URL (an OpenTelemetry collector)"),
    Setting("mirror_user", text, None,
            "user name there, with mirror_secret as the password; without it, mirror_secret is a "
            "bearer token"),
    Setting("mirror_secret", text, None, "token or password for that receiver", secret=True),
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
    Setting("oidc_issuer", text, None,
            "issuer URL of the site's OpenID Connect provider, exactly as it writes it"),
    Setting("oidc_client_id", text, None, "id under which the provider knows this hub"),
    Setting("oidc_client_secret", text, None, "its secret, if the provider gave one", secret=True),
    Setting("oidc_roles", text, "",
            "which groups of the provider sign in as what: gpu-admins=admin, "
            "gpu-ops=operator:rack1+rack2, staff=user; without node groups, all"),
    Setting("oidc_groups_claim", text, "groups",
            "claim with the groups; dots lead into objects, as in realm_access.roles"),
    Setting("oidc_name_claim", text, "preferred_username",
            "claim with the name, which is also the Unix name of one's own tasks"),
    Setting("oidc_scopes", text, "openid profile", "scopes that are asked for"),
)
LINK: tuple[Setting, ...] = (DATA,)


@dataclass(frozen=True, slots=True)
class HubSettings:
    bind: tuple[str, int]
    data: Path
    state: str | None = None
    state_password: str | None = None
    standby: bool = False
    agent_messages_per_s: int = 20
    agent_bytes_per_s: int = 2_000_000
    ingest_process_from: int = 100
    viewer_stall_s: int = 30
    signer_ends_per_hour: int = 60
    signer_ends_per_node_hour: int = 6
    quota_end_after_s: int = 60
    pool: str = "off"
    slurm_nodes: frozenset[str] = frozenset()
    kubernetes_nodes: frozenset[str] = frozenset()
    rule_proof_h: int = 168
    advice_least_h: int = 168
    second_person: str = "on"
    trusted_proxies: TrustedProxies = NOBODY
    proxy_user_header: str | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    public_url: str | None = None
    cluster: str = field(default_factory=this_host)
    view: tuple[tuple[str, str], ...] = ()
    view_token_file: tuple[tuple[str, Path], ...] = ()
    view_ca_file: Path | None = None
    history_raw_hours: int = 24
    history_minute_days: int = 90
    history_hour_days: int = 730
    history_max_gb: int = 0
    archive: str | None = None
    archive_after_hours: int = 24
    archive_cache_gb: int = 10
    mirror: str | None = None
    mirror_user: str | None = None
    mirror_secret: str | None = None
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
    oidc_issuer: str | None = None
    oidc_client_id: str | None = None
    oidc_client_secret: str | None = None
    oidc_roles: str = ""
    oidc_groups_claim: str = "groups"
    oidc_name_claim: str = "preferred_username"
    oidc_scopes: str = "openid profile"


def hub_settings(argv: Sequence[str], env: Mapping[str, str]) -> HubSettings:
    settings = HubSettings(**load("hub", HUB, argv, env, "The server: pages, API, live socket."))
    _check_views(settings)
    return settings


def _check_views(settings: HubSettings) -> None:
    files = dict(settings.view_token_file)
    for name, _ in settings.view:
        if name == settings.cluster:
            raise CommandError(f"--view {name}: this hub's own cluster is called {name}; give the "
                               "other one, or this one (--cluster), another name", ExitCode.USAGE)
        if name not in files:
            raise CommandError(f"--view {name} needs a token: --view-token-file {name}=FILE, with "
                               "a viewer's token of that hub", ExitCode.USAGE)
        read_secret(files[name])
    if unknown := sorted(files.keys() - dict(settings.view).keys()):
        raise CommandError(f"--view-token-file {unknown[0]}: there is no --view {unknown[0]}",
                           ExitCode.USAGE)


def link_folder(argv: Sequence[str], env: Mapping[str, str]) -> Path:
    values = load("link", LINK, argv, env, "Print a new one-time sign-in link.")
    data: Path = values["data"]
    return data
