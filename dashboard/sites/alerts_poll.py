"""Firing alerts of a viewed hub, polled in a separate thread."""

import threading
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from gpudeck.client.hub import HubConnection
from gpudeck.errors import CommandError
from gpudeck.network.tls import tls_context
from gpudeck.settings import read_secret

from .link import CONNECT_S, SiteAddress

EVERY_S = 10.0
ANSWER_BYTES = 2_000_000
MOST = 500
Word = Annotated[str, Meta(max_length=1_024)]


class SiteAlert(Struct, frozen=True):
    """The facts about an alert that a list of several sites shows."""

    id: Word
    rule: Word
    title: Word
    severity: Literal["info", "warn", "crit"]
    state: Word
    since: float
    host: Word = ""
    place: Word = ""
    why: Word = ""


class _Answer(Struct):
    items: list[SiteAlert]


class SiteAlertsPoll:
    """Polls a site's firing alerts. `alerts` None: they are not known now."""

    def __init__(self, address: SiteAddress) -> None:
        self.address = address
        self.alerts: tuple[SiteAlert, ...] | None = None
        self._stopped = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name=f"alerts-{self.address.name}", daemon=True).start()

    def close(self) -> None:
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self.alerts = self._fetch()
            except (CommandError, OSError, msgspec.MsgspecError):
                self.alerts = None  # the site's link reports the reason
            self._stopped.wait(EVERY_S)

    def _fetch(self) -> tuple[SiteAlert, ...]:
        address = self.address
        hub = HubConnection(address.url, read_secret(address.token_file), CONNECT_S,
                            tls_context(address.url, address.ca_file))
        with hub.opened("GET", f"alerts?limit={MOST}") as answer:
            body = answer.read(ANSWER_BYTES + 1)
        if len(body) > ANSWER_BYTES:
            raise CommandError("the answer is too long")
        return tuple(msgspec.json.decode(body, type=_Answer).items[:MOST])
