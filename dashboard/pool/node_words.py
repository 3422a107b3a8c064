"""Weight of one node's word: which claims it may make, whose groups it tells, and by which ids it
knows what it is sent. Pure."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace as changed

from gpudeck.contract.pool_link import (
    ClaimStanding,
    LeaseOffer,
    PoolPlan,
    PoolReport,
    ReservedGpus,
)
from gpudeck.pool.core.claims import Claim
from gpudeck.pool.core.schedule import PoolPolicy

if TYPE_CHECKING:
    from .plan import PendingOffer, PoolNode

T = TypeVar("T")
C = TypeVar("C", LeaseOffer, ClaimStanding, ReservedGpus)
SEVERAL_OFF = ("GPUs of several nodes are not leased by the word of one of them: ask for them at "
               "the hub, or let an admin set several_nodes by PUT pool/policy")


def asked_by(owner: str, waiting: Iterable[Claim], pending: Iterable["PendingOffer"]
             ) -> list[Claim]:
    """Return the claims that an owner waits for, or has reserved."""
    return [claim for claim in (*waiting, *(offer.claim for offer in pending))
            if claim.owner == owner]


def as_made_on(node_id: str, claim: Claim) -> Claim:
    """Return a claim as a node's word for it counts. Suspended work waits for its GPUs alone: it
    has its CPUs and its memory of the node still."""
    if claim.nodes > 1:
        return replace(claim, home=node_id, hosts=())
    at_node = replace(claim, hosts=(node_id,), home="")
    return replace(at_node, cpu_milli=None, ram_bytes=None) if claim.home_gpus else at_node


def not_allowed(node: "PoolNode", policy: PoolPolicy, claims_of: Callable[[str], Iterable[Claim]]
                ) -> dict[str, str]:
    """Return the claims made on a node that are not allowed, and why: roles are not known there.
    `claims_of`: all claims of an owner."""
    refusals = {}
    for claim in node.claims:
        if claim.home_gpus:  # it was allowed when its lease began
            continue
        owned = () if claim.starts_at is None else [
            other for other in claims_of(claim.owner) if other.id != claim.id]
        if why := SEVERAL_OFF if claim.nodes > 1 and not policy.several_nodes else (
                policy.limits_at_node(claim.owner).refusal(claim, owned)):
            refusals[claim.id] = why
    return refusals


def in_own_ids(plan: PoolPlan, own: Mapping[str, str]) -> PoolPlan:
    def translate_keys(of: Mapping[str, T]) -> dict[str, T]:
        return {own.get(hub_id, hub_id): value for hub_id, value in of.items()}

    def translate_entries(entries: Iterable[C]) -> tuple[C, ...]:
        return tuple(changed(entry, claim_id=own.get(entry.claim_id, entry.claim_id))
                     for entry in entries)

    return changed(
        plan, offers=translate_entries(plan.offers), standings=translate_entries(plan.standings),
        reserved=translate_entries(plan.reserved), give_back=translate_keys(plan.give_back),
        preempt=translate_keys(plan.preempt), keep_until=translate_keys(plan.keep_until),
        extend=translate_keys(plan.extend))


def groups_of(reported: Iterable[tuple[str, Collection[str]]]) -> dict[str, Collection[str]]:
    """Return the groups of users, as most nodes report: one alone decides nobody's. Of as many that
    differ, those reported first count."""
    words: dict[str, Counter[tuple[str, ...]]] = {}
    for owner, groups in reported:
        words.setdefault(owner, Counter())[tuple(groups)] += 1
    return {owner: counter.most_common(1)[0][0] for owner, counter in words.items()}


def with_former_groups(report: PoolReport, before: PoolReport | None) -> PoolReport:
    """Return a report with the groups that its node named before, of owners whom it still has and
    names none of: after its start it looks them up again, and meanwhile their leases count for
    them."""
    owners = {lease.claim.owner for lease in report.leases}
    former = {} if before is None else {
        owner: groups for owner, groups in before.groups.items()
        if owner in owners and owner not in report.groups}
    return changed(report, groups=former | report.groups) if former else report


def told_groups(nodes: Iterable["PoolNode"]) -> dict[str, Collection[str]]:
    return groups_of(entry for node in nodes for entry in node.report.groups.items())
