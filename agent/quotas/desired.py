"""The quotas that the hub has signed for this node, on disk; only what it signed counts."""

import logging
from collections.abc import Callable

import msgspec

from gpudeck.desired_state import DesiredState, SignedDesired, decode_desired, desired_statement
from gpudeck.keys import fingerprint, is_signed

from ..journal.store import ActionJournal, JournalError
from . import evaluate

log = logging.getLogger("gpudeck.agent.quotas")


class _StoredQuotas(msgspec.Struct):
    key: bytes  # of the hub
    body: bytes
    signature: bytes


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
            stored = _StoredQuotas(self._hub_key or b"", message.body, message.signature)
            self._journal.keep(self._name, msgspec.json.encode(stored).decode(), {
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
            stored = msgspec.json.decode(text, type=_StoredQuotas)
        except msgspec.MsgspecError:
            self.trouble = "what was kept of the quotas cannot be read; the hub sends it again"
            return
        desired = self._checked(SignedDesired(stored.body, stored.signature), stored.key)
        if desired is not None:
            self._hold(desired)
