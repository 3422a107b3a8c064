"""Membership of nodes: how they come in, wait, are let in, and are turned out.

A node is its key. A token lets it in, once; from then on its key alone speaks for it. Until
a node is approved, and from the moment it is revoked, nothing it says reaches the fleet.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gpudeck.contract.wire import Challenge, Hello, Refused, enrolment_statement, node_statement
from gpudeck.network.keys import EnrolmentToken, SigningKey, fingerprint, is_signed, spaced

from ..access.policy import Actor, actor_fields
from ..access.protocols import record_change
from ..access.rights import require
from ..audit.recorder import AuditRecorder
from ..errors import AuditWriteError, InvalidChangeError, NotFoundError
from ..fleet import members
from ..fleet.fleet import Fleet
from ..fleet.host_lists import host_names
from ..fleet.members import REVOKED, EnrolledNode, Enrolment, NewEnrolment
from ..runtime.dispatcher import Dispatcher
from ..trusted_networks import networks
from .events import GroupChanged, NodeRevoked
from .store import NodeStore
from .views import ApprovalView

MAX_MEMBERS = 10_000


class KeyProofError(Exception):
    """The sender does not hold the key that was shown."""


class EnrolmentService:
    """Members are held in memory, so that a node that comes back costs no read from disk."""

    def __init__(self, registry: NodeStore, hub_fingerprint: str, audit: AuditRecorder,
                 events: Dispatcher) -> None:
        self._registry = registry
        self._audit = audit
        self._events = events
        self._hub = hub_fingerprint
        self._members = {member.node_id: member for member in registry.members()}

    def member(self, node_id: str) -> EnrolledNode | None:
        return self._members.get(node_id)

    def apply_to(self, fleet: Fleet, now: float) -> None:
        """Apply membership to what a starting hub's disk held of nodes, also of revoked ones."""
        for member in self.members():
            fleet.set_group(member.node_id, member.group)
            if member.access == "revoked":
                fleet.dismiss(member.node_id, now)

    def members(self) -> list[EnrolledNode]:
        return list(self._members.values())

    # -- by people and programs

    def enrolments(self, actor: Actor) -> list[Enrolment]:
        require(actor, "GET /api/v1/enrolments")
        return self._registry.enrolments()

    def enrolment(self, actor: Actor, enrolment_id: str) -> Enrolment:
        require(actor, "GET /api/v1/enrolments/<enrolment_id>")
        enrolment = self._registry.enrolment(enrolment_id)
        if enrolment is None:
            raise NotFoundError(f"there is no enrolment {enrolment_id[:64]!r}")
        return enrolment

    def create(self, actor: Actor, request: NewEnrolment) -> tuple[EnrolmentToken, Enrolment]:
        require(actor, "POST /api/v1/enrolments")
        with record_change(self._audit, actor, "enrolment", "add", about(request)):
            [created] = create(self._registry, self._hub, [request], actor.name)
        return created

    def withdraw(self, actor: Actor, enrolment_id: str) -> None:
        require(actor, "DELETE /api/v1/enrolments/<enrolment_id>")
        with record_change(self._audit, actor, "enrolment", "withdraw",
                           {"enrolment": enrolment_id[:64]}, takes_away=True):
            if not self._registry.withdraw(enrolment_id):
                raise NotFoundError(f"there is no unused enrolment {enrolment_id[:64]!r}")

    def approve(self, actor: Actor, node_id: str) -> EnrolledNode:
        require(actor, "POST /api/v1/nodes/<node_id>/approve")
        member = self._require_member(node_id)
        if member.access == "revoked":
            raise InvalidChangeError(REVOKED)
        return self._put(actor, "approve", {}, replace(member, access="approved",
                                                       decided_by=actor.name))

    def approve_all(self, actor: Actor, fingerprints: Sequence[str]) -> list[ApprovalView]:
        """Approve those that wait, by whole fingerprints: a prefix may be another node's too."""
        require(actor, "POST /api/v1/nodes/approvals")
        return [self._approved(actor, "".join(name.split()).replace(":", "").casefold())
                for name in dict.fromkeys(fingerprints)]

    def _approved(self, actor: Actor, name: str) -> ApprovalView:
        member = self._members.get(name)
        if member is None:
            return ApprovalView(spaced(name), None, "unknown")
        if member.access != "waiting":
            return ApprovalView(spaced(name), member.host,
                                "revoked" if member.access == "revoked" else "already")
        self._put(actor, "approve", {}, replace(member, access="approved", decided_by=actor.name))
        return ApprovalView(spaced(name), member.host, "approved")

    def revoke(self, actor: Actor, node_id: str) -> EnrolledNode:
        require(actor, "POST /api/v1/nodes/<node_id>/revoke")
        member = self._put(actor, "revoke", {}, replace(
            self._require_member(node_id), access="revoked", decided_by=actor.name))
        self._events.dispatch(NodeRevoked(node_id))
        return member

    def put_in_group(self, actor: Actor, node_id: str, group: str) -> EnrolledNode:
        require(actor, "PATCH /api/v1/nodes/<node_id>")
        wrong = members.group_flaw(group)
        if wrong is not None:
            raise InvalidChangeError(wrong)
        former = self._require_member(node_id)
        member = self._put(actor, "group", {"from": former.group, "to": group},
                           replace(former, group=group))
        self._events.dispatch(GroupChanged(node_id, group))
        return member

    def _require_member(self, node_id: str) -> EnrolledNode:
        member = self._members.get(node_id)
        if member is None:
            raise NotFoundError(f"there is no node {node_id[:64]!r} here")
        return member

    def _put(self, actor: Actor, action: str, detail: dict[str, Any],
             member: EnrolledNode) -> EnrolledNode:
        fields = actor_fields(actor) | {
            "action": action, "node": member.node_id, "host": member.host, "detail": detail}
        with self._audit.change("node", fields, takes_away=action == "revoke"):
            self._registry.put(member)
        self._members[member.node_id] = member
        return member

    # -- by nodes

    def admit(self, challenge: Challenge, hello: Hello, address: str) -> Refused | None:
        """Return why the node is refused; None: it is who it says and may speak. `address`: it
        comes from there. Raises KeyProofError."""
        prove(challenge, hello)
        member = self._members.get(hello.node_id)
        if member is None:
            try:
                member = self._enrol(challenge, hello, address)
            except (InvalidChangeError, AuditWriteError) as why:
                return Refused(str(why)[:1024], members.UNKNOWN_RETRY_S)
        if member.access == "revoked":
            return Refused(REVOKED, members.REVOKED_RETRY_S)
        if member.access == "waiting":
            return Refused("an admin must approve this node; compare its fingerprint, "
                           f"{spaced(hello.node_id)}", members.WAITING_RETRY_S)
        return None

    def _enrol(self, challenge: Challenge, hello: Hello, address: str) -> EnrolledNode:
        enrolment = self._enrolment(challenge, hello, address)
        member = EnrolledNode(hello.node_id, hello.key, hello.host, enrolment.group,
                              "waiting" if enrolment.approve else "approved", time.time(),
                              enrolment.id)
        with self._audit.change("node", {
                "action": "enrol", "actor": hello.host, "actor_kind": "agent",
                "node": member.node_id, "host": member.host,
                "detail": {"enrolment": enrolment.id, "by": enrolment.created_by,
                           "address": address, "group": enrolment.group, "access": member.access}}):
            if not self._registry.use(enrolment.id, member):
                raise InvalidChangeError(USED)
        self._members[member.node_id] = member
        self._events.dispatch(GroupChanged(member.node_id, member.group))
        return member

    def _enrolment(self, challenge: Challenge, hello: Hello, address: str) -> Enrolment:
        proof = hello.enrolment
        if proof is None:
            raise InvalidChangeError("this hub does not know this node; run `gpudeck token create "
                                     "agent` where the hub is, and start the agent once with that "
                                     "token")
        enrolment = self._registry.enrolment(proof.token_id)
        if enrolment is None or not is_signed(enrolment.key, enrolment_statement(challenge, hello),
                                          proof.signature):
            raise InvalidChangeError("this hub does not know the enrolment token; make a new one")
        if enrolment.used >= enrolment.uses:
            raise InvalidChangeError(USED)
        if time.time() >= enrolment.expires_at:
            raise InvalidChangeError("the enrolment token has expired; make a new one")
        if enrolment.host is not None and hello.host not in host_names(enrolment.host):
            raise InvalidChangeError(
                f"the enrolment token is for the host {enrolment.host!r}, and this one is called "
                f"{hello.host!r}; make one for it, or use --host")
        if enrolment.networks and not networks(enrolment.networks).hold(address):
            raise InvalidChangeError(
                f"the enrolment token is for nodes in {enrolment.networks}, and this one comes "
                f"from {address}")
        if len(self._members) >= MAX_MEMBERS:
            raise InvalidChangeError(f"this hub knows {MAX_MEMBERS} nodes, the maximum")
        return enrolment


USED = "the enrolment token has been used already, as often as it may be; make a new one"


def about(request: NewEnrolment) -> dict[str, Any]:
    """Return the details of an enrolment for the audit log."""
    return {"host": request.host, "group": request.group, "approve": request.approve,
            "uses": request.uses, "networks": request.networks, "lasts_s": request.lasts_s}


def prove(challenge: Challenge, hello: Hello) -> None:
    if hello.node_id != fingerprint(hello.key):
        raise KeyProofError("the node's id is not the fingerprint of its key")
    if not is_signed(hello.key, node_statement(challenge, hello), hello.signature):
        raise KeyProofError("the signature is not that of the node's key")


def create(registry: NodeStore, hub_fingerprint: str, requests: list[NewEnrolment], by: str
           ) -> list[tuple[EnrolmentToken, Enrolment]]:
    """Create enrolments without asking for rights: anybody who can write the hub's folder may."""
    now = time.time()
    created = []
    for new in requests:
        wrong = new.flaw()
        if wrong is not None:
            raise InvalidChangeError(wrong)
        token = EnrolmentToken.new(hub_fingerprint)
        created.append((token, Enrolment(token.id, SigningKey(token.seed).public, new.host,
                                         new.approve, new.group, now, by, now + new.lasts_s,
                                         uses=new.places, networks=new.networks)))
    if not registry.add((enrolment for _, enrolment in created), now):
        raise InvalidChangeError("there are too many enrolments; withdraw some, or wait until "
                                 "they end")
    return created


def command(url: str, token: EnrolmentToken) -> str:
    """Return the line to paste on the node. In the environment, because arguments are public."""
    return f"GPUDECK_TOKEN={token.text} gpudeck agent --hub {url}"
