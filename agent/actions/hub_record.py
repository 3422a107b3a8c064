"""Record of the hub on this node's disk: the highest epoch, its hold, the head of its audit.

Nothing is done before it could be read: until then the node is on hold.
"""

import logging
import threading
from pathlib import Path

from gpudeck.contract.wire import Anchor

from ..journal.facts import Fact
from ..journal.store import ActionJournal, JournalError
from .hold_files import holds, tell_hub_hold
from .replies import ReplyOutbox

log = logging.getLogger("gpudeck.agent.actions")

UNREAD = "earlier holds are not known: "


class HubRecord:
    """The hub as this node knows it. `hub`: the fingerprint of its key. Any thread."""

    def __init__(self, journal: ActionJournal, hub: str, hold_files: tuple[Path, ...],
                 hub_file: Path | None, replies: ReplyOutbox) -> None:
        """Open the record. `hub_file`: where every user of the machine reads the hub's hold."""
        self._journal = journal
        # The epoch and the anchor are this hub's: another knows nothing of its audit and would be
        # accused.
        self._hub = hub
        self._hold_files = hold_files
        self._hub_file = hub_file
        self._replies = replies
        self._hub_hold: str | None = None
        self._beginning = threading.Lock()
        self.has_begun = False
        self.key: bytes | None = None
        self.epoch = 0
        self.anchor = Anchor(0, "")
        self.trouble = ""
        self.begin()

    def accept_key(self, key: bytes) -> None:
        """Store the key that the hub has proved; its fingerprint is the one that is pinned."""
        self.key = key

    def begin(self) -> None:
        """Read what the journal knows before any action: a hold, the epoch, what is spent. Called
        again until it can be read."""
        with self._beginning:
            if self.has_begun:
                return
            try:
                self._read()
                self.has_begun, self.trouble = True, ""
            except JournalError as why:
                if not self.trouble:
                    log.error("no_acts why=%r", str(why))
                self.trouble = str(why)

    def _read(self) -> None:
        self._journal.audit.open()
        hold = self._journal.fact(Fact.HUB_HOLD)
        self._hub_hold = hold if self._hub_hold is None else self._hub_hold
        self._tell()
        self.epoch = _number(Fact.EPOCH, self._journal.fact(Fact.EPOCH, self._hub) or "0")
        seq, _, head = (self._journal.fact(Fact.ANCHOR, self._hub) or "0 ").partition(" ")
        self.anchor = Anchor(_number(Fact.ANCHOR, seq), head)
        for reply in self._journal.recover():
            log.warning("act_left_open command=%s state=%s", reply.command_id, reply.state)
        self._replies.load_unsettled()

    def holds(self) -> tuple[str, ...]:
        """Return who holds all actions here, in sentences: the hub, and hold files."""
        hub = self._hub_hold
        unread = () if self.has_begun else (f"{UNREAD}{self.trouble}",)
        return (*unread, *(() if hub is None else (hub,)), *holds(self._hold_files))

    def hold_now(self, hold: str) -> None:
        """Hold at once, before the disk is asked."""
        self._hub_hold = hold
        self._tell()

    def release_now(self) -> None:
        self._hub_hold = None
        self._tell()

    def _tell(self) -> None:
        """Tell this machine's users, whose own `gpudeck end` acts without the agent."""
        if self._hub_file is None:
            return
        try:
            tell_hub_hold(self._hub_file, self._hub_hold)
        except OSError as why:
            log.error("hold_not_told file=%s why=%r", self._hub_file, str(why))

    def store_hold(self, hold: str | None) -> None:
        """Store the hub's hold; None: there is none any more. Raises JournalError."""
        self._journal.keep(Fact.HUB_HOLD, hold)

    def store_epoch(self, epoch: int) -> None:
        """Store a newer epoch before anything of it is obeyed: an older hub must stay fenced after
        our restart. Raises JournalError."""
        self.begin()
        if not self.has_begun:  # the one on disk may be higher
            raise JournalError(self.trouble)
        if epoch > self.epoch:
            self._journal.keep(Fact.EPOCH, str(epoch), hub=self._hub)
            self.epoch = epoch

    def observe_epoch(self, epoch: int) -> None:
        try:
            self.store_epoch(epoch)
        except JournalError as why:
            log.error("epoch_not_kept why=%r", str(why))

    def store_anchor(self, anchor: Anchor) -> None:
        """Store what the hub has recorded when this node last heard from it; each Hello reports
        it."""
        if anchor == self.anchor:
            return
        try:
            self._journal.keep(Fact.ANCHOR, f"{anchor.audit_seq} {anchor.audit_head}", {
                "kind": "anchor", "hub": self._hub, "seq": anchor.audit_seq,
                "head": anchor.audit_head}, self._hub)
            self.anchor = anchor
        except JournalError as why:
            log.error("anchor_not_kept why=%r", str(why))


def _number(fact: Fact, text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise JournalError(f"the {fact} in the journal is not understood ({text[:40]!r})"
                           ) from error
