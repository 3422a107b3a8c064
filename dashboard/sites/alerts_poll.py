"""What fires at a viewed hub, asked for now and then on a thread of its own."""

import threading
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from gpudeck.client import HubConnection
from gpudeck.errors import CommandError
from gpudeck.settings import read_secret
from gpudeck.tls import tls_context

from .link import CONNECT_S, SiteAddress

EVERY_S = 10.0
ANSWER_BYTES = 2_000_000
MOST = 500
Word = Annotated[str, Meta(max_length=1_024)]


class SiteAlert(Struct, frozen=True):
    """As much of an alert as a list of several sites says."""

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
    """`found` None: what fires there is not known now."""

    def __init__(self, address: SiteAddress) -> None:
        self.address = address
        self.found: tuple[SiteAlert, ...] | None = None
        self._over = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name=f"alerts-{self.address.name}", daemon=True).start()

    def close(self) -> None:
        self._over.set()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self.found = self._asked()
            except (CommandError, OSError, msgspec.MsgspecError):
                self.found = None  # why, its link says
            self._over.wait(EVERY_S)

    def _asked(self) -> tuple[SiteAlert, ...]:
        address = self.address
        hub = HubConnection(address.url, read_secret(address.token_file), CONNECT_S,
                            tls_context(address.url, address.ca_file))
        with hub.opened("GET", f"alerts?limit={MOST}") as answer:
            body = answer.read(ANSWER_BYTES + 1)
        if len(body) > ANSWER_BYTES:
            raise CommandError("the answer is too long")
        return tuple(msgspec.json.decode(body, type=_Answer).items[:MOST])
