"""Walks the hub's Audit from its first record on and says whether it is what it was."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from gpudeck.audit_chain import START, AuditChainBreak, verify
from gpudeck.audit_file import links_in

from .store import AuditHead, AuditStore
from .views import AuditBreakView, AuditVerdictView, NodeAuditView

Open = Callable[[], AbstractContextManager[AuditStore]]


class AuditVerifier:
    """In a native thread, on a connection of its own; one pass, no list of records."""

    def __init__(self, opened: Open, copy: Path | None = None) -> None:
        self._open = opened
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
                                [NodeAuditView(node_id, None, each.seq, each.head, each.broken)
                                 for node_id, each in sorted(heads.items())])


def anchor_break(store: AuditStore, vouched: Mapping[str, AuditHead]) -> AuditChainBreak | None:
    """The chain holds; do those who keep heads of it know it as it is? One node alone may lie,
    so the answer counts who says what."""
    broken: dict[int, list[str]] = {}
    last, _ = store.head()
    for node_id, kept in vouched.items():
        if store.hash_at(kept.seq) != kept.head:
            broken.setdefault(min(kept.seq, last + 1), []).append(node_id)
    if not broken:
        return None
    first = min(broken)
    who = sum(map(len, broken.values()))
    what = (f"records from {first} on were cut off" if first > last else
            f"record {first} does not match the witnessed one; the records up to it were rewritten")
    return AuditChainBreak(first, f"{what}: so say {who} of the {len(vouched)} nodes that keep "
                                  "heads of this "
                                  f"audit, such as {broken[first][0]}. Unless they lie, the hub's "
                                  "folder was "
                                  "tampered with or restored from a backup")
