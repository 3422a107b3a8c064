"""Views of audit records for people and programs. Pure."""

from typing import Any

from msgspec import Struct

from gpudeck.audit.chain import AuditChainLink
from gpudeck.audit.words import SPOILED, actor_of, content, outcome_of, sentence_of, word


class AuditRecordView(Struct):
    seq: int
    at: float | None
    kind: str
    actor: str | None
    actor_kind: str | None
    address: str | None
    action: str | None
    node: str | None
    host: str | None
    task_id: str | None
    command_id: str | None
    outcome: str | None
    sentence: str
    detail: dict[str, Any]
    hash: str


class AuditRecordList(Struct):
    items: list[AuditRecordView]
    next: str | None = None


class AuditBreakView(Struct):
    """The first place where the chain is broken."""

    seq: int
    sentence: str


class NodeAuditView(Struct):
    """A node's audit log, as reported by its Beats."""

    node: str
    host: str | None
    audit_seq: int
    audit_head: str
    broken: str | None


class AuditVerdictView(Struct):
    records: int
    head: str
    broken: AuditBreakView | None
    nodes: list[NodeAuditView]


SHOWN = frozenset(("at", "kind", "actor", "actor_kind", "address", "action", "node", "host",
                   "task_id", "command_id", "outcome", "sentence", "detail"))


def record_view(link: AuditChainLink) -> AuditRecordView:
    """Return the view of a record, readable or not: a damaged one is shown as such."""
    body = content(link)
    if body is None:
        return AuditRecordView(link.seq, None, "unreadable", None, None, None, None, None, None,
                               None,
                               None, None, SPOILED, {}, link.hash)
    at = body.get("at")
    detail = body.get("detail")
    more = {name: value for name, value in body.items() if name not in SHOWN}
    return AuditRecordView(
        link.seq, float(at) if isinstance(at, int | float) else None, word(body, "kind") or "",
        actor_of(body), word(body, "actor_kind"), word(body, "address"), word(body, "action"),
        word(body, "node"), word(body, "host"), word(body, "task_id"), word(body, "command_id"),
        outcome_of(body), sentence_of(body), more | (detail if isinstance(detail, dict) else {}),
        link.hash)
