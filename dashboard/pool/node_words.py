"""What one node's word counts for: what may be asked on it, whose groups it tells, and by which ids
it knows what it is told. Pure."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace as changed

from gpudeck.pool.core.claims import Claim
from gpudeck.pool.core.schedule import PoolPolicy
from gpudeck.pool.link import ClaimStanding, LeaseOffer, PoolPlan, ReservedGpus

if TYPE_CHECKING:
    from .plan import PendingOffer, PoolNode

T = TypeVar("T")
C = TypeVar("C", LeaseOffer, ClaimStanding, ReservedGpus)
SEVERAL_OFF = ("GPUs of several nodes are not leased by the word of one of them: ask for them at "
               "the hub, or let an admin set several_nodes by PUT pool/policy")


def asked_by(owner: str, waiting: Iterable[Claim], pending: Iterable["PendingOffer"]
             ) -> list[Claim]:
    """What an owner waits for, or has reserved."""
    return [each for each in (*waiting, *(offer.claim for offer in pending))
            if each.owner == owner]


def not_allowed(node: "PoolNode", policy: PoolPolicy, asked: Callable[[str], Iterable[Claim]]
                ) -> dict[str, str]:
    """Claims that were asked on a node, where nobody knows of roles, and why not. `asked`: by an
    owner, all."""
    found = {}
    for claim in node.claims:
        others = () if claim.starts_at is None else [
            each for each in asked(claim.owner) if each.id != claim.id]
        if why := SEVERAL_OFF if claim.nodes > 1 and not policy.several_nodes else (
                policy.limits_at_node(claim.owner).refusal(claim, others)):
            found[claim.id] = why
    return found


def in_own_ids(plan: PoolPlan, own: Mapping[str, str]) -> PoolPlan:
    def called(of: Mapping[str, T]) -> dict[str, T]:
        return {own.get(each, each): said for each, said in of.items()}

    def claimed(entries: Iterable[C]) -> tuple[C, ...]:
        return tuple(changed(each, claim_id=own.get(each.claim_id, each.claim_id))
                     for each in entries)

    return changed(
        plan, offers=claimed(plan.offers), standings=claimed(plan.standings),
        reserved=claimed(plan.reserved), give_back=called(plan.give_back),
        preempt=called(plan.preempt), keep_until=called(plan.keep_until),
        extend=called(plan.extend))


def groups_of(told: Iterable[tuple[str, Collection[str]]]) -> dict[str, Collection[str]]:
    """Of users, as most nodes say: one alone rules nobody's. Of as many that say otherwise those
    count that said so first."""
    words: dict[str, Counter[tuple[str, ...]]] = {}
    for owner, groups in told:
        words.setdefault(owner, Counter())[tuple(groups)] += 1
    return {owner: said.most_common(1)[0][0] for owner, said in words.items()}


def told_groups(nodes: Iterable["PoolNode"]) -> dict[str, Collection[str]]:
    return groups_of(each for node in nodes for each in node.report.groups.items())
