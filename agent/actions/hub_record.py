"""What this node keeps on disk about its hub: the highest epoch, its hold, the head of its audit.

Nothing is done before it could be read: until then the node is on hold.
"""

import logging
import threading
from pathlib import Path

from gpudeck.wire import Anchor

from ..journal.store import ActionJournal, JournalError
from .hold_files import holds
from .replies import ReplyOutbox

log = logging.getLogger("gpudeck.agent.act")

HELD = "hub hold"
UNREAD = "earlier holds are not known: "


class HubRecord:
    """`hub`: the fingerprint of its key. Any thread."""

    def __init__(self, journal: ActionJournal, hub: str, hold_files: tuple[Path, ...],
                 replies: ReplyOutbox) -> None:
        self._journal = journal
        # Of this hub: another one knows nothing of its audit and would be accused.
        self._epoch_name, self._anchor_name = f"epoch {hub}", f"anchor {hub}"
        self._hub = hub
        self._hold_files = hold_files
        self._replies = replies
        self._hub_hold: str | None = None
        self._beginning = threading.Lock()
        self.has_begun = False
        self.key: bytes | None = None
        self.epoch = 0
        self.anchor = Anchor(0, "")
        self.trouble = ""
        self.begin()

    def greeted(self, key: bytes) -> None:
        """The hub has proved this key, and its fingerprint is the one that is pinned."""
        self.key = key

    def begin(self) -> None:
        """What the journal knows comes before any act: a hold, the epoch, what is spent. Tried
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
        hold = self._journal.fact(HELD)
        self._hub_hold = hold if self._hub_hold is None else self._hub_hold
        self.epoch = int(self._journal.fact(self._epoch_name) or 0)
        seq, _, head = (self._journal.fact(self._anchor_name) or "0 ").partition(" ")
        self.anchor = Anchor(int(seq), head)
        for reply in self._journal.recover():
            log.warning("act_left_open command=%s state=%s", reply.command_id, reply.state)
        self._replies.recall()

    def holds(self) -> tuple[str, ...]:
        """Who holds all acts here, in sentences: the hub, and hold files."""
        hub = self._hub_hold
        unread = () if self.has_begun else (f"{UNREAD}{self.trouble}",)
        return (*unread, *(() if hub is None else (hub,)), *holds(self._hold_files))

    def hold_now(self, hold: str) -> None:
        """Before the disk is asked."""
        self._hub_hold = hold

    def release_now(self) -> None:
        self._hub_hold = None

    def store_hold(self, hold: str | None) -> None:
        """Raises JournalError."""
        self._journal.keep(HELD, hold)

    def store_epoch(self, epoch: int) -> None:
        """Before anything of it is obeyed: an older hub must stay fenced after our restart.
        Raises JournalError."""
        self.begin()
        if not self.has_begun:  # the one on disk may be higher
            raise JournalError(self.trouble)
        if epoch > self.epoch:
            self._journal.keep(self._epoch_name, str(epoch))
            self.epoch = epoch

    def see_epoch(self, epoch: int) -> None:
        try:
            self.store_epoch(epoch)
        except JournalError as why:
            log.error("epoch_not_kept why=%r", str(why))

    def store_anchor(self, anchor: Anchor) -> None:
        """Sent in each Hello: what the hub had recorded when this node last heard from it."""
        if anchor == self.anchor:
            return
        try:
            self._journal.keep(self._anchor_name, f"{anchor.audit_seq} {anchor.audit_head}", {
                "kind": "anchor", "hub": self._hub, "seq": anchor.audit_seq,
                "head": anchor.audit_head})
            self.anchor = anchor
        except JournalError as why:
            log.error("anchor_not_kept why=%r", str(why))
