"""Verification of the hub's audit log from its first record on."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from gpudeck.audit.chain import START, AuditChainBreak, verify
from gpudeck.audit.file import links_in

from .store import AuditHead, AuditStore
from .views import AuditBreakView, AuditVerdictView, NodeAuditView

Open = Callable[[], AbstractContextManager[AuditStore]]


class AuditVerifier:
    """Verifies in a native thread, over a separate connection; one pass, no list of records."""

    def __init__(self, open_store: Open, copy: Path | None = None) -> None:
        self._open = open_store
        self._copy = copy

    def verdict(self) -> AuditVerdictView:
        with self._open() as store, store.snapshot():
            vouched, heads = store.vouched(), store.node_heads()
            seq, head = store.head()
            copy = links_in(self._copy) if self._copy is not None and self._copy.exists() else ()
            broken = verify(store.links(), copy=copy) or anchor_break(store, vouched)
        return AuditVerdictView(seq, head if seq else START,
                                None if broken is None else AuditBreakView(broken.seq,
                                                                           broken.sentence),
                                [NodeAuditView(node_id, None, node_head.seq, node_head.head,
                                               node_head.broken)
                                 for node_id, node_head in sorted(heads.items())])


def anchor_break(store: AuditStore, vouched: Mapping[str, AuditHead]) -> AuditChainBreak | None:
    """Return the first break between the chain, which is valid in itself, and the heads that nodes
    keep of it. A single node may lie, so the answer counts the nodes."""
    broken: dict[int, list[str]] = {}
    last, _ = store.head()
    for node_id, head in vouched.items():
        if store.hash_at(head.seq) != head.head:
            broken.setdefault(min(head.seq, last + 1), []).append(node_id)
    if not broken:
        return None
    first = min(broken)
    count = sum(map(len, broken.values()))
    what = (f"records from {first} on were cut off" if first > last else
            f"record {first} does not match the witnessed one; the records up to it were rewritten")
    return AuditChainBreak(first, f"{what}: so say {count} of the {len(vouched)} nodes that "
                                  "keep heads of this "
                                  f"audit, such as {broken[first][0]}. Unless they lie, the hub's "
                                  "folder was "
                                  "tampered with or restored from a backup")
