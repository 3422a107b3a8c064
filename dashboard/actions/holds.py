"""Stops every action on a node or on the fleet until it is released: desired state, stored here and
in force at the node. Each Beat compares it with what the node reports."""

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from gevent.event import Event

from gpudeck.contract.action_table import Action
from gpudeck.contract.actions import HELD_BY_HUB, CommandActor
from gpudeck.contract.actions import Refusal as ActionRefusal

from ..access.policy import (
    EVERYTHING,
    AccessDenial,
    Actor,
    DenialReason,
    RefusedError,
    actor_fields,
)
from ..access.rights import require
from ..audit.recorder import AuditRecorder
from ..errors import AuditWriteError, InvalidChangeError, NotFoundError
from ..fleet.fleet import Fleet
from ..fleet.visibility import VisibilityScope, VisibleFleet, VisibleFleetCache
from ..runtime.dispatcher import Dispatcher
from .events import HoldChanged
from .standing_store import FLEET, HoldRecord, StandingStore
from .views import HoldStateView, HoldView, NodeHoldView

log = logging.getLogger("gpudeck.actions")

AGAIN_S, AGAIN_MOST_S = 5.0, 300.0
MAX_REASON = 200


class HoldService:
    """Orders and releases holds. `order`: called with the node, its host, hold or release, who
    orders it, and why."""

    def __init__(self, standing: StandingStore, auditor: AuditRecorder, fleet: Fleet,
                 visible_fleets: VisibleFleetCache, is_connected: Callable[[str], bool],
                 order: Callable[[str, str, Action, CommandActor, str], Any], events: Dispatcher
                 ) -> None:
        self._standing = standing
        self._auditor = auditor
        self._fleet = fleet
        self._visible_fleets = visible_fleets
        self._is_connected = is_connected
        self._give_order = order
        self._events = events
        self._holds = standing.holds()
        self._retries: dict[str, tuple[float, float]] = {}  # time of the next order, next wait
        self._reported: dict[str, tuple[str, ...]] = {}
        self._last_orders: dict[str, Action] = {}
        self._due: set[str] = set()  # nodes whose holds may differ from the desired state
        self.wake = Event()

    # -- holds

    @property
    def fleet(self) -> HoldRecord | None:
        return self._holds.get(FLEET)

    def of(self, node_id: str) -> HoldRecord | None:
        """Return the hold ordered for this node alone."""
        return self._holds.get(node_id)

    def desired(self, node_id: str) -> HoldRecord | None:
        return self._holds.get(node_id) or self.fleet

    def reported(self, node_id: str) -> tuple[str, ...]:
        """Return the holds in force on a node, as it reports them."""
        node = self._fleet.nodes.get(node_id)
        return () if node is None or node.beat is None else node.beat.holds

    def nodes_on_hold(self) -> list[str]:
        """Return nodes with a hold, in force or ordered; the fleet's own hold is not repeated per
        node."""
        reporting = [node_id for node_id in self._fleet.nodes if self.reported(node_id)]
        return sorted({*reporting, *self._holds} - {FLEET})

    def refusal(self, node_id: str) -> ActionRefusal | None:
        """Return why nothing may be ordered there now, for people; None if nothing is on hold."""
        hold = self.desired(node_id)
        if hold is not None:
            what = "this node" if hold.node_id else "the whole fleet"
            why = f", because: {hold.reason}" if hold.reason else ""
            return ActionRefusal("hold", f"{hold.by} stopped all actions on {what}{why}. "
                                      "Resume actions first.")
        reported = self.reported(node_id)
        if reported and all(hold.startswith(HELD_BY_HUB) for hold in reported):
            return ActionRefusal("hold", "actions on this node are being resumed: it has not "
                                 "confirmed that yet. Try again in a few seconds.")
        if reported:
            return ActionRefusal("hold", "all actions on this node are stopped: "
                                 f"{'; '.join(reported)}. Resume actions there first."
                                 [:1_024])
        return None

    def state(self, visible: VisibleFleet) -> HoldStateView:
        whole = self.fleet
        return HoldStateView(
            None if whole is None else HoldView(whole.by, whole.reason, whole.since),
            [self._node_view(node_id) for node_id in self.nodes_on_hold()
             if visible.sees_node(node_id)])

    def _node_view(self, node_id: str) -> NodeHoldView:
        own = self.of(node_id)
        return NodeHoldView(node_id, self._fleet.host_of(node_id), [*self.reported(node_id)],
                            self.desired(node_id) is not None, None if own is None else own.by,
                            None if own is None else own.reason, None if own is None else own.since)

    # -- by people and programs

    def hold(self, actor: Actor, node_id: str | None, reason: str) -> None:
        self._check(actor, "POST /api/v1/hold", node_id)
        hold = HoldRecord(node_id or FLEET, actor.name, one_line(reason, "a reason"), time.time())
        # A stop never fails because of the copy of the audit log.
        with self._auditor.change("hold", self._fields(actor, "hold", hold), takes_away=True):
            self._standing.put_hold(hold)
        self._holds[hold.node_id] = hold
        self._settle(hold.node_id)

    def release(self, actor: Actor, node_id: str | None) -> None:
        self._check(actor, "DELETE /api/v1/hold", node_id)
        hold = self._holds.get(node_id or FLEET)
        if hold is None:
            raise NotFoundError("the hub has not stopped actions here" if node_id or not self._holds
                                else
                                "actions are not stopped on the fleet, only on single nodes; name "
                                "the node")
        with self._auditor.change("hold", self._fields(actor, "release", hold)):
            self._standing.drop_hold(hold.node_id)
        del self._holds[hold.node_id]
        self._settle(hold.node_id)

    def _fields(self, actor: Actor, action: str, hold: HoldRecord) -> dict[str, Any]:
        host = self._fleet.host_of(hold.node_id)
        place = f"on {host}" if hold.node_id else "on the whole fleet"
        why = f", because: {hold.reason}" if hold.reason else ""
        verb = "stopped all actions" if action == "hold" else "resumed actions"
        return actor_fields(actor) | {
            "action": action, "node": hold.node_id or None, "host": host,
            "sentence": f"{actor.name} {verb} {place}{why if action == 'hold' else ''}",
            "detail": {"reason": hold.reason} if hold.reason else None}

    def _check(self, actor: Actor, verb: str, node_id: str | None) -> None:
        require(actor, verb)
        if node_id is None and EVERYTHING not in actor.scope.groups:
            raise RefusedError(AccessDenial(DenialReason.FORBIDDEN,
                                            "your scope is not the whole fleet; name a "
                                            "node in your scope"))
        visible = self._visible_fleets.of(VisibilityScope.of(actor))
        if node_id is not None and not visible.sees_node(node_id):
            raise NotFoundError(f"there is no node {node_id[:64]!r} here")

    # -- in force

    def _settle(self, node_id: str) -> None:
        due = {node_id} if node_id else set(self._fleet.nodes)
        self._due |= due
        for due_id in due:
            self._retries.pop(due_id, None)
        self.wake.set()  # the caller waits for no node: the hold counts at the hub already
        self._announce()

    def beat_received(self, node_id: str) -> None:
        """Note what a node reports on hold, and react if that has changed."""
        reported = self.reported(node_id)
        if reported != self._reported.get(node_id):
            self._reported[node_id] = reported
            self._due.add(node_id)
            self._announce()

    def _announce(self) -> None:
        """Tell the listeners. A stop has happened by then, and must not look as if it had failed
        because one of them does: the dispatcher logs and counts its error."""
        with suppress(Exception):
            self._events.dispatch(HoldChanged())

    def is_in_force(self, node_id: str) -> bool:
        return any(hold.startswith(HELD_BY_HUB) for hold in self.reported(node_id))

    def step(self, _now: float, mono: float) -> None:
        """Order again where the holds in force differ from the desired state."""
        for node_id in list(self._due):
            node = self._fleet.nodes.get(node_id)
            hold = self.desired(node_id)
            action: Action = "release" if hold is None else "hold"
            # What was ordered since its last Beat is not reported yet.
            if node is None or node.beat is None or (
                    (hold is not None) == self.is_in_force(node_id)
                    and self._last_orders.get(node_id, action) == action):
                self._due.discard(node_id)
                self._retries.pop(node_id, None)
                self._last_orders.pop(node_id, None)
                continue
            due_mono, wait_s = self._retries.get(node_id, (0.0, AGAIN_S))
            if self._is_connected(node_id) and mono >= due_mono:
                # A node that does not understand gets the order at a falling rate.
                self._retries[node_id] = mono + wait_s, min(2 * wait_s, AGAIN_MOST_S)
                self._order(node_id, node.hello.host, action, hold)

    def _order(self, node_id: str, host: str, action: Action, hold: HoldRecord | None) -> None:
        asker = CommandActor("person", "the hub" if hold is None else hold.by)
        try:
            self._give_order(node_id, host, action, asker, "" if hold is None else hold.reason)
        except AuditWriteError as error:  # the next step tries again
            log.warning("hold not ordered node=%s reason=%r", node_id, str(error))
            return
        self._last_orders[node_id] = action


def one_line(text: str, what: str) -> str:
    """Return text as one line that everybody may read. Raises InvalidChangeError."""
    line = " ".join(text.split())
    if len(line) > MAX_REASON or not line.isprintable():
        raise InvalidChangeError(f"{what} is one line of at most {MAX_REASON} characters")
    return line
