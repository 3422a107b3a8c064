"""REST of the pool."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any
from uuid import uuid4

from flask import request
from msgspec import Meta, Struct

from gpudeck.contract.message_limits import Word
from gpudeck.contract.pool_link import OfferedGpu, ReportedLease
from gpudeck.contract.pool_messages import EXTEND_MOST_S
from gpudeck.language.sizes import parse_size
from gpudeck.language.times import parse_span, span_words
from gpudeck.pool.core.claim_limits import ClaimLimits
from gpudeck.pool.core.claims import (
    CPU_MILLI,
    CPUS_MOST,
    DEFAULT_PRIORITY,
    GPUS_MOST,
    LIST_MOST,
    PRIORITIES,
    TERM_LEAST_S,
    TERM_MOST_S,
    WHOLE_MILLI,
    Claim,
)
from gpudeck.pool.core.feasibility import why_never

from ..access.policy import Actor, PermissionReach, Role, actor_fields
from ..access.requests import caller
from ..access.routes import Route, change, see
from ..audit.recorder import AuditRecorder
from ..errors import InvalidChangeError, NotFoundError
from ..fleet.visibility import VisibleFleetCache
from ..web.answers import bad, check_names, page, read_cursor, read_limit
from . import views
from .node_words import asked_by
from .plan import PoolNode, leases_called
from .queries import PoolQueries, due
from .service import PoolService

Words = Annotated[str, Meta(max_length=40)]
Size = Annotated[int, Meta(ge=1, le=2**53)] | Words
Cpus = Annotated[int, Meta(ge=1, le=CPUS_MOST)]


class NewClaim(Struct, forbid_unknown_fields=True):
    """New claim. `owner`: a user of the node; if it is left out, one's own name there. `mem_bytes`
    is a size in words, too (`40G`), and `term_s` a span (`8h`). `starts_at`: of a reservation, UTC.
    `cpus`, and `ram_bytes` (a size in words, too): of each node."""

    gpus: Annotated[int, Meta(ge=1, le=GPUS_MOST)] = 1
    owner: Word | None = None
    models: Annotated[tuple[Word, ...], Meta(max_length=16)] = ()
    mem_bytes: Size | None = None
    share_milli: Annotated[int, Meta(ge=1, le=WHOLE_MILLI)] = WHOLE_MILLI
    cpus: Cpus | None = None
    ram_bytes: Size | None = None
    hosts: Annotated[tuple[Word, ...], Meta(max_length=64)] = ()
    term_s: Annotated[float, Meta(ge=TERM_LEAST_S, le=TERM_MOST_S)] | Words | None = None
    starts_at: Annotated[float, Meta(ge=0, le=1e12)] | None = None
    priority: Annotated[int, Meta(ge=PRIORITIES.start, lt=PRIORITIES.stop)] = DEFAULT_PRIORITY
    is_preemptible: bool = False
    is_suspendable: bool = False
    nodes: Annotated[int, Meta(ge=1, le=GPUS_MOST)] = 1


class LeaseExtension(Struct, forbid_unknown_fields=True):
    """Extension of a lease. `by_s` is a span in words, too (`2h`)."""

    by_s: Annotated[float, Meta(ge=TERM_LEAST_S, le=EXTEND_MOST_S)] | Words


@dataclass(frozen=True, slots=True)
class PoolApi:
    service: PoolService
    queries: PoolQueries
    visible_fleets: VisibleFleetCache
    audit: AuditRecorder

    def seen_nodes(self) -> list[PoolNode]:
        return self.queries.nodes(self.visible_fleets.seen_by(caller()))

    def seen_claims(self) -> list[Claim]:
        actor = caller()
        return self.queries.waiting(self.visible_fleets.seen_by(actor), actor.scope.unix_names)

    def refused_claims(self) -> list[Claim]:
        """Return the claims that were made at the hub, and refused by nodes for good."""
        actor = caller()
        return self.queries.visible_claims(
            [refusal.claim for refusal in self.service.refusals.for_good.values()],
            self.visible_fleets.seen_by(actor), actor.scope.unix_names)

    def pool(self) -> views.PoolView:
        return views.pool_view(self.seen_nodes(), due(self.seen_claims(), time.time()),
                               self.service.policy, self.service.is_on)

    def nodes(self) -> views.PoolNodeList:
        check_names(("limit", "cursor"))
        fleet = self.service.fleet

        def place_of(node_id: str, gpu: OfferedGpu) -> str:
            slot = fleet.slot_on(node_id, gpu.uuid)
            return str(gpu.index) if slot is None else fleet.facts[slot].place

        return views.PoolNodeList(*page(
            (((view.host, view.node), view)
             for view in views.node_views(self.seen_nodes(), place_of)),
            read_limit(request.args.get("limit")), read_cursor(request.args.get("cursor"))))

    def leases(self) -> views.LeaseList:
        check_names(("limit", "cursor", "gpu"))
        gpu = request.args.get("gpu")
        leases = [lease for lease in views.lease_views(self.seen_nodes(), time.time())
                  if gpu is None or gpu in lease.gpus]
        return views.LeaseList(*page(
            (((lease.host, lease.id), lease) for lease in leases),
            read_limit(request.args.get("limit")), read_cursor(request.args.get("cursor"))))

    def claims(self) -> views.ClaimList:
        check_names(("limit", "cursor"))
        planned = self.service.planned
        actor = caller()
        places = self.queries.places(self.visible_fleets.seen_by(actor), actor.scope.unix_names)
        listed = [] if planned is None else views.claim_views(
            planned, {claim.id for claim in self.seen_claims()}, places, self.service.claims,
            self.service.bookings.kept_gpus, self.service.team_of)
        listed += [views.refused_view(self.service.refusals.for_good[claim.id])
                   for claim in self.refused_claims()]
        return views.ClaimList(*page(
            (((f"{view.place:07}", view.id), view) for view in listed),
            read_limit(request.args.get("limit")), read_cursor(request.args.get("cursor"))))

    def claim(self, body: NewClaim) -> views.NewClaimView:
        actor = caller()
        owner = body.owner or next(iter(actor.scope.unix_names), None)
        if owner is None:
            raise bad("owner is needed: no user of the nodes is yours; `gpudeck token create "
                      "--unix-name NAME` makes a token that has one")
        _check_owner(actor, owner)
        if body.share_milli < WHOLE_MILLI and body.gpus > 1:
            raise bad("share_milli: a part is of one GPU alone")
        if body.is_suspendable and not body.is_preemptible:
            raise bad("is_suspendable: it says how its GPUs are taken back; send is_preemptible, "
                      "too")
        now = time.time()
        if body.starts_at is not None and not now < body.starts_at <= now + TERM_MOST_S:
            raise bad("starts_at: a reservation begins later than now, and within a year")
        term_s = body.term_s or self.service.policy.default_term_s
        claim = Claim(
            id=uuid4().hex[:16], owner=owner, gpus=body.gpus, submitted_at=now,
            models=body.models, mem_bytes=size_of("mem_bytes", body.mem_bytes),
            share_milli=body.share_milli, priority=body.priority,
            is_preemptible=body.is_preemptible, is_suspendable=body.is_suspendable,
            term_s=_span("term_s", term_s, TERM_MOST_S), starts_at=body.starts_at,
            nodes=body.nodes,
            cpu_milli=None if body.cpus is None else body.cpus * CPU_MILLI,
            ram_bytes=size_of("ram_bytes", body.ram_bytes))
        claim = replace(claim, hosts=self._hosts(claim, body.hosts))
        detail = {"claim": claim.id, "owner": owner, "gpus": claim.gpus}
        try:
            if why := self._limits().refusal(claim, self._asked_by(owner)):
                raise InvalidChangeError(why)
            self.service.claim(claim)
        except InvalidChangeError as error:
            self.audit.record_refusal("pool", actor_fields(actor) | {
                "action": "claim", "sentence": str(error), "detail": detail})
            raise
        self._note("claim", detail)
        return views.NewClaimView(claim.id)

    def _hosts(self, claim: Claim, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return ids of nodes that the asker sees, and of no others, whichever join later. None:
        they see all."""
        visible_fleet = self.visible_fleets.seen_by(caller())
        visible = self.queries.nodes(visible_fleet)
        if names:
            return tuple(dict.fromkeys(_id_of(name, visible) for name in names))
        if visible_fleet.is_whole:
            return ()
        if not visible:
            raise InvalidChangeError("no node leases GPUs now")
        if len(visible) > LIST_MOST:
            visible.sort(key=partial(_unfitness, claim))
        return tuple(node.id for node in visible)[:LIST_MOST]

    def withdraw(self, claim_id: str) -> None:
        claim, actor = self.service.claims.get(claim_id), caller()
        if claim is None or not _reaches(actor, claim.owner) or not self.queries.visible_claims(
                [claim], self.visible_fleets.seen_by(actor), actor.scope.unix_names):
            raise NotFoundError(f"no claim {claim_id[:80]!r} of yours that was made here waits")
        self.service.withdraw(claim_id)
        self._note("withdraw_claim", {"claim": claim_id, "owner": claim.owner})

    def give_back(self, lease_id: str) -> None:
        leases = self._leases(lease_id)
        for node, lease in leases:
            self.service.give_back(node.id, lease.claim.id, f"given back by {caller().name}")
        self._note("give_back_lease", {"lease": lease_id, "owner": leases[0][1].claim.owner})

    def extend(self, body: LeaseExtension, lease_id: str) -> None:
        leases = self._leases(lease_id)
        by_s = _span("by_s", body.by_s, EXTEND_MOST_S)
        limits, now = self._limits(), time.time()
        for node, lease in leases:
            until = self.service.extensions.until(node.id, lease)
            if why := limits.too_long(until + by_s, now) or (
                    "" if limits.extends_while_waited else self._waited_for(node, lease)):
                raise InvalidChangeError(why)
        for node, lease in leases:
            self.service.extend(node.id, lease, by_s)
        self._note("extend_lease", {"lease": lease_id, "owner": leases[0][1].claim.owner,
                                    "by_s": by_s})

    def _limits(self) -> ClaimLimits:
        role = caller().role
        return self.service.policy.limits["user" if role is None else role.value]

    def _asked_by(self, owner: str) -> list[Claim]:
        service = self.service
        return asked_by(owner, service.waiting(service.nodes), service.pending.values())

    def _waited_for(self, node: PoolNode, lease: ReportedLease) -> str:
        planned = self.service.planned
        if planned is None or not planned.is_wanted(node, lease):
            return ""
        return ("others wait for these GPUs, so the lease is not extended; it is renewed while it "
                "is used, as far as nobody else begins there")

    def _note(self, action: str, detail: dict[str, Any]) -> None:
        self.audit.note("pool", actor_fields(caller()) | {"action": action, "outcome": "done",
                                               "detail": detail})

    def lease(self, lease_id: str) -> tuple[PoolNode, ReportedLease]:
        return self._leases(lease_id)[0]

    def _leases(self, lease_id: str) -> list[tuple[PoolNode, ReportedLease]]:
        """Return the leases of this id: one's own, or, as an operator, anybody's."""
        actor = caller()
        visible = self.visible_fleets.seen_by(actor)
        matches = [match for match in leases_called(self.service.nodes, lease_id)
                   if visible.sees_node(match[0].id) and _reaches(actor, match[1].claim.owner)]
        if not matches:
            raise NotFoundError(f"there is no lease {lease_id[:80]!r} here that is yours")
        return matches


def _unfitness(claim: Claim, node: PoolNode) -> tuple[bool, int]:
    """Return a sort key: first come nodes that could meet the claim, of them those with most
    free."""
    return bool(why_never(replace(claim, nodes=1), [node.empty])), -len(node.available)


def _id_of(name: str, visible: Iterable[PoolNode]) -> str:
    node_ids = [node.id for node in visible if name == node.id] or [
        node.id for node in visible if name == node.host]
    if not node_ids:
        raise InvalidChangeError(f"no node of the pool is called {name[:128]}")
    if len(node_ids) > 1:
        raise InvalidChangeError(f"{len(node_ids)} nodes are called {name[:128]}; name one by its "
                                 f"id: {', '.join(node_ids)[:400]}")
    return node_ids[0]


def _span(name: str, value: float | str, most_s: float) -> float:
    try:
        seconds = parse_span(value) if isinstance(value, str) else value
    except ValueError as error:
        raise bad(f"{name}: {error}") from None
    if not TERM_LEAST_S <= seconds <= most_s:
        raise bad(f"{name}: from {span_words(TERM_LEAST_S)} to {span_words(most_s)}")
    return seconds


def size_of(name: str, value: int | str | None) -> int | None:
    try:
        return parse_size(value) if isinstance(value, str) else value
    except ValueError as error:
        raise bad(f"{name}: {error}") from None


def _reaches(actor: Actor, owner: str) -> bool:
    """Return whether the actor may act for this owner: themselves, or as an operator anybody."""
    return actor.scope.owns(owner) or (
        actor.role is not None and actor.role.covers(Role.OPERATOR))


def _check_owner(actor: Actor, owner: str) -> None:
    if not _reaches(actor, owner):
        raise NotFoundError(f"nothing of {owner[:80]!r} is yours")


ROUTES = (
    Route("GET pool", PoolApi.pool, "get_pool", see(Role.VIEWER),
          "The pool by GPU model: free, leased, not available; and how many are requested."),
    Route("GET pool/nodes", PoolApi.nodes, "list_pool_nodes", see(Role.VIEWER),
          "The GPUs of the pool by node, and why one is not available.", is_list=True),
    Route("GET leases", PoolApi.leases, "list_leases", see(Role.VIEWER),
          "Leases: holder, GPUs, end, and since when unused.",
          query=(("gpu", {"type": "string"}),), is_list=True),
    Route("GET claims", PoolApi.claims, "list_claims", see(Role.VIEWER),
          "The queue in order: owner, request, reason for waiting, and longest wait.",
          is_list=True),
    Route("POST claims", PoolApi.claim, "make_claim",
          change(Role.USER, PermissionReach.TASKS, is_fresh=False),
          "Request GPUs, now or from a given time. They are leased once granted, and "
          "released if unused. From a given time, of GPUs that have not been read yet: 503, with "
          "`Retry-After`.", status=201, errors=(404, 409)),
    Route("DELETE claims/<claim_id>", PoolApi.withdraw, "withdraw_claim",
          change(Role.USER, PermissionReach.TASKS, is_fresh=False),
          "Leave the queue.", errors=(404,)),
    Route("POST leases/<lease_id>/extend", PoolApi.extend, "extend_lease",
          change(Role.USER, PermissionReach.TASKS, is_fresh=False),
          "Extend a lease. Its node learns of it within seconds.", status=204,
          errors=(404, 409)),
    Route("POST leases/<lease_id>/give-back", PoolApi.give_back, "give_back_lease",
          change(Role.USER, PermissionReach.TASKS, is_fresh=False),
          "Release a lease without a running command.", status=204, errors=(404,)),
)
