"""The hash chain of an Audit, the same on hub and agent. Pure.

A record's hash covers the record before it, so that a record that is changed, dropped, swapped or
inserted breaks the chain at a place that can be named. A tail that is cut off does not break it:
for that, heads are kept on the other side (an agent's by the hub, the hub's by agents).
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

START = "0" * 64
_encode = msgspec.json.Encoder(order="deterministic").encode


@dataclass(frozen=True, slots=True)
class AuditChainLink:
    seq: int  # from 1, without a gap
    body: str  # canonical JSON
    hash: str


@dataclass(frozen=True, slots=True)
class AuditChainBreak:
    """The first place where the chain is broken."""

    seq: int
    sentence: str


def link(seq: int, previous: str, record: dict[str, Any]) -> AuditChainLink:
    body = _encode(record).decode()
    return AuditChainLink(seq, body, _hash(seq, previous, body))


def _hash(seq: int, previous: str, body: str) -> str:
    return hashlib.sha256(f"{seq}\n{previous}\n{body}".encode("utf-8", "surrogatepass")).hexdigest()


def verify(links: Iterable[AuditChainLink], anchors: dict[int, str] | None = None,
           start: AuditChainLink | None = None,
           copy: Iterable[AuditChainLink] = ()) -> AuditChainBreak | None:
    """Return the first break; None: the chain is whole. `anchors`: heads that another party holds,
    seq -> hash. `start`: where to continue. `copy`: the records once more, from another place; it
    may begin late and end early."""
    heads = dict(anchors or {})
    kept_copy = iter(copy)
    beside = next(kept_copy, None)
    at, previous = (0, START) if start is None else (start.seq, start.hash)
    for record in links:
        while beside is not None and beside.seq <= at:
            beside = next(kept_copy, None)
        if record.seq != at + 1:
            return AuditChainBreak(at + 1,
                                   f"record {at + 1} is missing; record {record.seq} follows {at}")
        if beside is not None and beside.seq == record.seq and beside != record:
            return AuditChainBreak(record.seq, f"record {record.seq} differs from the copy; the "
                                             "records from it on were rewritten")
        if record.hash != _hash(record.seq, previous, record.body):
            return AuditChainBreak(record.seq,
                                   f"record {record.seq} or its link to the one before was changed")
        witnessed = heads.pop(record.seq, record.hash)
        if witnessed != record.hash:
            return AuditChainBreak(record.seq,
                                   f"record {record.seq} does not match the one witnessed "
                                   "elsewhere; the records up to it were rewritten")
        at, previous = record.seq, record.hash
    return _cut(at, [seq for seq in heads if seq > at], beside, kept_copy)


def _cut(at: int, vouched: list[int], beside: AuditChainLink | None,
         copy: Iterator[AuditChainLink]) -> AuditChainBreak | None:
    """Find records that are known elsewhere but not here any more."""
    last = 0 if beside is None else beside.seq
    for record in copy:
        last = max(last, record.seq)
    beyond = max(at, last, *vouched)
    if beyond == at:
        return None
    return AuditChainBreak(at + 1, f"records {at + 1} to {beyond} were cut off; their head was "
                                   "witnessed elsewhere")


def chain(records: Iterable[dict[str, Any]]) -> Iterator[AuditChainLink]:
    seq, previous = 0, START
    for record in records:
        added = link(seq + 1, previous, record)
        yield added
        seq, previous = added.seq, added.hash
