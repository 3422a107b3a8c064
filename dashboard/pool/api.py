"""REST of the pool."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated
from uuid import uuid4

from flask import request
from msgspec import Meta, Struct

from gpudeck.message_limits import Word
from gpudeck.pool.core.claims import (
    DEFAULT_PRIORITY,
    GPUS_MOST,
    PRIORITIES,
    TERM_LEAST_S,
    TERM_MOST_S,
    WHOLE_MILLI,
    Claim,
)
from gpudeck.pool.link import ReportedLease

from ..access.policy import Actor, PermissionReach, Role
from ..access.requests import asker
from ..access.routes import Route, change, see
from ..audit.recorder import AuditRecorder
from ..errors import NotFoundError
from ..fleet.visibility import VisibleFleetCache
from ..web.answers import bad, check_names, page, read_cursor, read_limit
from . import views
from .plan import PoolNode
from .service import PoolService


class NewClaim(Struct, forbid_unknown_fields=True):
    """`owner`: a user of the node; one's own name there where it is left out."""

    gpus: Annotated[int, Meta(ge=1, le=GPUS_MOST)] = 1
    owner: Word | None = None
    models: Annotated[tuple[Word, ...], Meta(max_length=16)] = ()
    mem_bytes: Annotated[int, Meta(ge=1, le=2**53)] | None = None
    share_milli: Annotated[int, Meta(ge=1, le=WHOLE_MILLI)] = WHOLE_MILLI
    hosts: Annotated[tuple[Word, ...], Meta(max_length=64)] = ()
    term_s: Annotated[float, Meta(ge=TERM_LEAST_S, le=TERM_MOST_S)] | None = None
    priority: Annotated[int, Meta(ge=PRIORITIES.start, lt=PRIORITIES.stop)] = DEFAULT_PRIORITY
    is_preemptible: bool = False
    starts_at: Annotated[float, Meta(ge=0, le=2**40)] | None = None  # a reservation
    nodes: Annotated[int, Meta(ge=1, le=GPUS_MOST)] = 1


@dataclass(frozen=True, slots=True)
class PoolApi:
    service: PoolService
    visible_fleets: VisibleFleetCache
    audit: AuditRecorder

    def nodes(self) -> list[PoolNode]:
        visible = self.visible_fleets.seen_by(asker())
        return [node for node in self.service.nodes if visible.sees_node(node.id)]

    def pool(self) -> views.PoolView:
        nodes = self.nodes()
        return views.pool_view(nodes, self.waiting(nodes), self.service.policy.strategy,
                               self.service.is_on)

    def waiting(self, nodes: Sequence[PoolNode]) -> list[Claim]:
        """Of what is seen: a claim that any node could meet is seen by those who see them all."""
        seen = {node.id for node in nodes} | {node.host for node in nodes}
        everything = len(nodes) == len(self.service.nodes)
        return [each for each in self.service.waiting(self.service.nodes)
                if (everything if not each.hosts else set(each.hosts) <= seen)
                or asker().scope.owns(each.owner)]

    def leases(self) -> views.LeaseList:
        check_names(("limit", "cursor"))
        found = views.lease_views(self.nodes(), time.time())
        return views.LeaseList(*page(
            (((each.host, each.id), each) for each in found),
            read_limit(request.args.get("limit")), read_cursor(request.args.get("cursor"))))

    def claims(self) -> views.ClaimList:
        check_names(("limit", "cursor"))
        planned = self.service.planned
        found = [] if planned is None else views.claim_views(
            planned, {each.id for each in self.waiting(self.nodes())})
        return views.ClaimList(*page(
            (((f"{each.place:07}", each.id), each) for each in found),
            read_limit(request.args.get("limit")), read_cursor(request.args.get("cursor"))))

    def claim(self, given: NewClaim) -> views.NewClaimView:
        actor = asker()
        owner = given.owner or next(iter(actor.scope.unix_names), None)
        if owner is None:
            raise bad("owner is needed: no user of the nodes is yours")
        _check_owner(actor, owner)
        if given.share_milli < WHOLE_MILLI and given.gpus > 1:
            raise bad("share_milli: a part is of one GPU alone")
        claim = Claim(
            id=uuid4().hex[:16], owner=owner, gpus=given.gpus, submitted_at=time.time(),
            models=given.models, mem_bytes=given.mem_bytes, share_milli=given.share_milli,
            hosts=given.hosts, priority=given.priority, is_preemptible=given.is_preemptible,
            starts_at=given.starts_at, nodes=given.nodes,
            term_s=given.term_s or self.service.policy.default_term_s)
        self.audit.note(actor.name, {"action": "claim", "outcome": "done", "detail": {
            "claim": claim.id, "owner": owner, "gpus": claim.gpus}})
        self.service.claim(claim)
        return views.NewClaimView(claim.id)

    def withdraw(self, claim_id: str) -> None:
        claim = self.service.claims.get(claim_id)
        if claim is None:
            raise NotFoundError(f"no claim {claim_id[:80]!r} that was made here waits")
        _check_owner(asker(), claim.owner)
        self.service.withdraw(claim_id)

    def give_back(self, lease_id: str) -> None:
        node, _ = self.lease(lease_id)
        self.service.give_back(node.id, lease_id, f"given back by {asker().name}")

    def lease(self, lease_id: str) -> tuple[PoolNode, ReportedLease]:
        """One's own, or, as an operator, anybody's."""
        found = self.service.lease(lease_id)
        if found is None or not self.visible_fleets.seen_by(asker()).sees_node(found[0].id):
            raise NotFoundError(f"there is no lease {lease_id[:80]!r} here")
        _check_owner(asker(), found[1].claim.owner)
        return found


def _check_owner(actor: Actor, owner: str) -> None:
    """One's own; an operator's reaches everyone's."""
    if not actor.scope.owns(owner) and not (
            actor.role is not None and actor.role.covers(Role.OPERATOR)):
        raise NotFoundError(f"nothing of {owner[:80]!r} is yours")


ROUTES = (
    Route("GET pool", PoolApi.pool, "get_pool", see(Role.VIEWER),
          "What the pool has by model: free, leased, not given out; how much is waited for."),
    Route("GET leases", PoolApi.leases, "list_leases", see(Role.VIEWER),
          "Who holds which GPUs until when, and since when a lease is not used.", is_list=True),
    Route("GET claims", PoolApi.claims, "list_claims", see(Role.VIEWER),
          "The queue in its order: who waits for what, why, and for how long at most.",
          is_list=True),
    Route("POST claims", PoolApi.claim, "make_claim",
          change(Role.USER, PermissionReach.TASKS, is_fresh=False),
          "Ask for GPUs. They are held from when they are granted, and go back if nobody uses "
          "them.", status=201, errors=(404, 409)),
    Route("DELETE claims/<claim_id>", PoolApi.withdraw, "withdraw_claim",
          change(Role.USER, PermissionReach.TASKS, is_fresh=False),
          "Leave the queue.", errors=(404,)),
    Route("POST leases/<lease_id>/give-back", PoolApi.give_back, "give_back_lease",
          change(Role.USER, PermissionReach.TASKS, is_fresh=False),
          "Give GPUs back that no running command holds.", status=204, errors=(404,)),
)
