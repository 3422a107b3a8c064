"""Heads kept on the other side: ours by the nodes, theirs by us. A chain alone does not show that
its tail was cut off, nor that all of it was written anew."""

import logging
import time
from collections.abc import Callable
from dataclasses import replace

from gpudeck.wire import Anchor, Beat, Hello

from ..audit.recorder import AuditRecorder
from ..audit.store import AuditHead
from ..errors import AuditWriteError

log = logging.getLogger("gpudeck.anchors")

EVERY_S = 60.0
HEADS_PER_RECORD = 256


class AuditHeadExchange:
    def __init__(self, auditor: AuditRecorder, tell_all: Callable[[Anchor], None]) -> None:
        self._auditor = auditor
        self._store = auditor.store
        self._tell_all = tell_all
        self.node_heads = self._store.node_heads()
        self.vouched = self._store.vouched()
        self._changed: set[str] = set()
        self._unsaved: set[str] = set()
        self._said: set[tuple[str, int, str]] = set()
        self._told_seq = 0
        self._due_mono = 0.0

    # -- ours, kept by nodes

    def joined(self, hello: Hello) -> None:
        """It says which of our heads it keeps. What it says once stays: an attacker who rewrote
        our records would like the next Anchor to make it forgotten."""
        if not hello.anchor_seq:
            return
        kept = AuditHead(hello.anchor_seq, hello.anchor_head, time.time())
        known = self.vouched.get(hello.node_id)
        if known is None or self._store.hash_at(known.seq) == known.head:
            self.vouched[hello.node_id] = kept
            self._unsaved.add(hello.node_id)
        why = self.flaw(kept)
        if why is not None and (hello.node_id, kept.seq, kept.head) not in self._said:
            self._said.add((hello.node_id, kept.seq, kept.head))
            log.error("audit_is_not_what_a_node_keeps node=%s why=%r", hello.node_id, why)
            self._auditor.record_refusal("anchor", {
                "actor": hello.host, "actor_kind": "agent", "action": "vouch", "sentence": why,
                "node": hello.node_id, "host": hello.host,
                "detail": {"seq": kept.seq, "head": kept.head[:64]}})

    def _save(self) -> None:
        """All that came within a second at once: a fleet that comes back is no thousand fsyncs."""
        with self._store.together():
            self._store.put_vouched({name: self.vouched[name] for name in self._unsaved})
        self._unsaved.clear()

    def flaw(self, kept: AuditHead) -> str | None:
        """Why our records are not those that were vouched for."""
        found = self._store.hash_at(kept.seq)
        if found is None:
            return (f"the node keeps the head of record {kept.seq}, which this hub does not have: "
                    "the audit log was truncated or restored from a backup, or the node's claim is "
                    "false")
        if found != kept.head:
            return (f"the node has another head of record {kept.seq}: the audit log was rewritten, "
                    "or the node's claim is false")
        return None

    # -- theirs, kept by us

    def beaten(self, node_id: str, beat: Beat) -> None:
        if not beat.audit_seq and node_id not in self.node_heads:
            return
        known = self.node_heads.get(node_id)
        if known is not None and (known.seq, known.head) == (beat.audit_seq, beat.audit_head):
            return
        broken = None if known is None else known.broken or _step_back(known, beat)
        if broken is not None and (known is None or known.broken is None):
            log.error("audit_of_node_is_broken node=%s why=%r", node_id, broken)
        if broken is not None and known is not None and beat.audit_seq <= known.seq:
            head = replace(known, broken=broken)  # the higher one is the witness
        else:
            head = AuditHead(beat.audit_seq, beat.audit_head, time.time(), broken)
        self.node_heads[node_id] = head
        self._changed.add(node_id)

    # -- each minute

    def step(self, _now: float, mono: float) -> None:
        is_due = mono >= self._due_mono
        try:
            if self._unsaved:
                self._save()
            if is_due:
                self._keep()
        except AuditWriteError as error:
            log.warning("heads not kept reason=%r", str(error))
        if not is_due:
            return
        self._due_mono = mono + EVERY_S
        seq, head = self._store.head()
        if seq > self._told_seq:
            self._told_seq = seq
            self._tell_all(Anchor(seq, head))

    def _keep(self) -> None:
        """In the chain as well: then every node vouches for what the others have said."""
        names = sorted(self._changed)
        for at in range(0, len(names), HEADS_PER_RECORD):
            some = {name: self.node_heads[name] for name in names[at:at + HEADS_PER_RECORD]}
            told = {name: [head.seq, head.head] for name, head in some.items()}
            with self._auditor.change("heads", {
                    "action": "keep", "detail": {"heads": told},
                    "sentence": f"latest audit hashes of {len(some)} nodes"}):
                self._store.put_node_heads(some)
            self._changed -= some.keys()


def _step_back(known: AuditHead, beat: Beat) -> str | None:
    if beat.audit_seq < known.seq:
        return (f"the node's audit had {known.seq} records and has {beat.audit_seq} now: it was "
                "truncated, or its data folder was lost")
    if beat.audit_seq == known.seq and beat.audit_head != known.head:
        return f"record {known.seq} of the node's audit changed: it was rewritten"
    return None
