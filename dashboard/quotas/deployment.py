"""Quotas on their way to the nodes: signed for each one, sent, and sent again until it has them."""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from gpudeck.contract.actions import Refusal
from gpudeck.contract.desired_state import DesiredState, InForce
from gpudeck.contract.wire import FromHub

from ..actions.signer_client import SignerClient
from ..fleet.fleet import Fleet, Node
from .active_quotas import ActiveQuotas
from .evaluate import for_node

log = logging.getLogger("gpudeck.quotas")

RESEND_AFTER_S = 15.0  # what a node has not taken
SIGNED_PER_STEP = 100


@dataclass(frozen=True, slots=True)
class QuotaDeployer:
    """Sender of signed quotas, which knows what nodes report of them. `send`: to a connected
    node."""

    active: ActiveQuotas
    fleet: Fleet
    signer: SignerClient
    connected: Collection[str]
    send: Callable[[str, FromHub], bool]
    in_force: dict[str, InForce] = field(init=False, default_factory=dict)
    _last_sent: dict[str, tuple[object, float]] = field(  # node -> what, when
        init=False, default_factory=dict)

    def joined(self, node_id: str) -> None:
        self._last_sent.pop(node_id, None)

    def reported(self, node_id: str, in_force: InForce) -> None:
        self.in_force[node_id] = in_force

    def step(self, now: float, mono: float) -> None:
        budget = SIGNED_PER_STEP
        for node_id in list(self.connected):
            node = self.fleet.nodes.get(node_id)
            if node is None or not self._is_due(node_id, mono):
                continue
            self._last_sent[node_id] = self._version_for(node_id), mono
            self._deploy(node_id, node, now)
            budget -= 1
            if budget == 0:
                return

    def _version_for(self, node_id: str) -> object:
        return self.active.generation, self.fleet.epoch, self.fleet.group_of(node_id)

    def _is_due(self, node_id: str, mono: float) -> bool:
        generation, reported = self.active.generation, self.in_force.get(node_id)
        if generation == 0 and (reported is None or reported.generation == 0):
            return False
        what, sent_mono = self._last_sent.get(node_id, (None, 0.0))
        if what != self._version_for(node_id):
            return True
        has_it = reported is not None and reported.generation == generation
        return not has_it and mono - sent_mono >= RESEND_AFTER_S

    def _deploy(self, node_id: str, node: Node, now: float) -> None:
        desired = DesiredState(node_id, self.signer.epoch, self.active.generation, now,
                               self.fleet.group_of(node_id),
                               for_node(self.active.index.all, self.fleet, node))
        signed = self.signer.sign_desired(desired)
        if isinstance(signed, Refusal):
            log.warning("quotas_not_signed node=%s why=%r", node_id, signed.sentence)
            return
        self.send(node_id, signed)
