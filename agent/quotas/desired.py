"""The quotas that the hub has signed for this node, on disk; only what it signed counts."""

import base64
import json
import logging
from collections.abc import Callable

import msgspec

from gpudeck.desired_state import DesiredState, SignedDesired, decode_desired, desired_statement
from gpudeck.keys import fingerprint, is_signed

from ..journal.store import ActionJournal, JournalError
from . import evaluate

log = logging.getLogger("gpudeck.agent.quotas")


class DesiredQuotas:
    """`changed` is called when there are other quotas, or a reason why not."""

    def __init__(self, journal: ActionJournal, node_id: str, hub: str,
                 changed: Callable[[], None]) -> None:
        self._journal = journal
        self._node_id = node_id
        self._hub = hub
        self._changed = changed
        self._name = f"desired {hub}"
        self._hub_key: bytes | None = None
        self.held: DesiredState | None = None
        self.trouble = ""

    def greeted(self, hub_key: bytes) -> None:
        """The hub has proved this key, and its fingerprint is the one that is pinned."""
        self._hub_key = hub_key

    def unreadable(self, why: str) -> None:
        self.trouble = why

    def read(self) -> None:
        """Raises JournalError."""
        text = self._journal.fact(self._name)
        self.trouble = ""
        if text is not None:
            self._rebuild(text)

    def take(self, message: SignedDesired) -> None:
        desired = self._checked(message, self._hub_key)
        if desired is None:
            return
        if not evaluate.is_newer(desired, self.held):
            self.refuse("what was sent is older than what is held here")
            return
        try:
            self._journal.keep(self._name, _as_text(message, self._hub_key or b""), {
                "kind": "quotas", "sentence": f"holds {len(desired.quotas)} quotas of the hub, "
                f"generation {desired.generation}", "epoch": desired.epoch,
                "generation": desired.generation,
                "quotas": [quota.id for quota in desired.quotas]})
        except JournalError as why:
            self.refuse(str(why))
            return
        self._hold(desired)

    def refuse(self, why: str) -> None:
        log.warning("quotas_not_taken why=%r", why)
        self.trouble = why[:1_024]
        self._changed()

    def _checked(self, message: SignedDesired, key: bytes | None) -> DesiredState | None:
        if key is None or fingerprint(key) != self._hub or not is_signed(
                key, desired_statement(message.body), message.signature):
            self.refuse("what was sent is not signed by the hub to which this node belongs")
            return None
        try:
            desired = decode_desired(message.body)
        except msgspec.MsgspecError as error:
            self.refuse(f"what was sent cannot be read ({error}); update gpudeck on this node")
            return None
        if desired.node_id != self._node_id:
            self.refuse("what was sent is for another node")
            return None
        return desired

    def _hold(self, desired: DesiredState) -> None:
        self.held, self.trouble = desired, ""
        log.info("quotas_held generation=%d quotas=%d", desired.generation, len(desired.quotas))
        self._changed()

    def _rebuild(self, text: str) -> None:
        """Signed or not at all: whoever writes on this disk makes no Quotas."""
        try:
            parts = json.loads(text)
            key, body, signature = (base64.b64decode(parts[part])
                                    for part in ("key", "body", "signature"))
        except (ValueError, KeyError, TypeError):
            self.trouble = "what was kept of the quotas cannot be read; the hub sends it again"
            return
        desired = self._checked(SignedDesired(body, signature), key)
        if desired is not None:
            self._hold(desired)


def _as_text(message: SignedDesired, key: bytes) -> str:
    return json.dumps({name: base64.b64encode(part).decode() for name, part in (
        ("key", key), ("body", message.body), ("signature", message.signature))})
