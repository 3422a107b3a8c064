"""Audit heads kept by the other side: ours by the nodes, theirs by us. A chain alone does not
show that its tail was cut off, nor that all of it was rewritten."""

import logging
import time
from collections.abc import Callable
from dataclasses import replace

from gpudeck.contract.wire import Anchor, Beat, Hello

from ..audit.recorder import AuditRecorder
from ..audit.store import AuditHead
from ..errors import AuditWriteError

log = logging.getLogger("gpudeck.nodes")

EVERY_S = 60.0
HEADS_PER_RECORD = 256


class AuditHeadExchange:
    def __init__(self, auditor: AuditRecorder, send_to_all: Callable[[Anchor], None]) -> None:
        self._auditor = auditor
        self._store = auditor.store
        self._send_to_all = send_to_all
        self.node_heads = self._store.node_heads()
        self.vouched = self._store.vouched()
        self._changed: set[str] = set()
        self._unsaved: set[str] = set()
        self._reported: set[tuple[str, int, str]] = set()
        self._sent_seq = 0
        self._due_mono = 0.0

    # -- ours, kept by nodes

    def joined(self, hello: Hello) -> None:
        """Note which of our heads the node keeps. One that contradicts our records stays: an
        attacker who rewrote them would like the next Anchor to make it forgotten."""
        if not hello.anchor_seq:
            return
        anchor = AuditHead(hello.anchor_seq, hello.anchor_head, time.time())
        former = self.vouched.get(hello.node_id)
        if former is None or self._store.hash_at(former.seq) == former.head:
            self.vouched[hello.node_id] = anchor
            self._unsaved.add(hello.node_id)
        why = self.flaw(anchor)
        if why is not None and (hello.node_id, anchor.seq, anchor.head) not in self._reported:
            self._reported.add((hello.node_id, anchor.seq, anchor.head))
            log.error("audit_is_not_what_a_node_keeps node=%s why=%r", hello.node_id, why)
            self._auditor.record_refusal("anchor", {
                "actor": hello.host, "actor_kind": "agent", "action": "vouch", "sentence": why,
                "node": hello.node_id, "host": hello.host,
                "detail": {"seq": anchor.seq, "head": anchor.head[:64]}})

    def _save(self) -> None:
        """Save all that came within a second at once: a returning fleet is no thousand fsyncs."""
        with self._store.together():
            self._store.put_vouched({name: self.vouched[name] for name in self._unsaved})
        self._unsaved.clear()

    def flaw(self, head: AuditHead) -> str | None:
        """Return why our records are not those that were vouched for, or None."""
        own_hash = self._store.hash_at(head.seq)
        if own_hash is None:
            return (f"the node keeps the head of record {head.seq}, which this hub does not have: "
                    "the audit log was truncated or restored from a backup, or the node's claim is "
                    "false")
        if own_hash != head.head:
            return (f"the node has another head of record {head.seq}: the audit log was rewritten, "
                    "or the node's claim is false")
        return None

    # -- theirs, kept by us

    def beaten(self, node_id: str, beat: Beat) -> None:
        if not beat.audit_seq and node_id not in self.node_heads:
            return
        former = self.node_heads.get(node_id)
        if former is not None and (former.seq, former.head) == (beat.audit_seq, beat.audit_head):
            return
        broken = None if former is None else former.broken or _step_back(former, beat)
        if broken is not None and (former is None or former.broken is None):
            log.error("audit_of_node_is_broken node=%s why=%r", node_id, broken)
        if broken is not None and former is not None and beat.audit_seq <= former.seq:
            head = replace(former, broken=broken)  # the higher one is the witness
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
        if seq > self._sent_seq:
            self._sent_seq = seq
            self._send_to_all(Anchor(seq, head))

    def _keep(self) -> None:
        """Record the heads in the chain too: then each node vouches for what the others said."""
        names = sorted(self._changed)
        for at in range(0, len(names), HEADS_PER_RECORD):
            batch = {name: self.node_heads[name] for name in names[at:at + HEADS_PER_RECORD]}
            heads = {name: [head.seq, head.head] for name, head in batch.items()}
            with self._auditor.change("heads", {
                    "action": "keep", "detail": {"heads": heads},
                    "sentence": f"latest audit hashes of {len(batch)} nodes"}):
                self._store.put_node_heads(batch)
            self._changed -= batch.keys()


def _step_back(former: AuditHead, beat: Beat) -> str | None:
    if beat.audit_seq < former.seq:
        return (f"the node's audit had {former.seq} records and has {beat.audit_seq} now: it was "
                "truncated, or its data folder was lost")
    if beat.audit_seq == former.seq and beat.audit_head != former.head:
        return f"record {former.seq} of the node's audit changed: it was rewritten"
    return None
