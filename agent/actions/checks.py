"""The checks that every order must pass, as one list; docs/commands.md is made from it.

ON_ARRIVAL runs before anything else is done with an order. At the action, when its INTENT is on
disk, HELD_PROCESSES and the guard's checks follow.
"""

import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gpudeck.contract.action_table import ACTIONS, SHOWN_ACTIONS
from gpudeck.contract.actions import COMMAND_LASTS_S, PREVIEW_LASTS_S, Command, Preview, Refusal
from gpudeck.contract.wire import SignedCommand, WireError, command_statement, decode_command
from gpudeck.network.keys import is_signed

from ..journal.store import ActionJournal, JournalError, RecordedCommand
from ..link.hub_clock import HubClock, late
from ..link.identity import is_shown_by
from . import guard, targets
from .guard import Check
from .hub_record import HubRecord

# Stopping is safe at any hour.
ALL_BUT_HOLD = tuple(action for action in ACTIONS if action != "hold")


@dataclass(frozen=True, slots=True)
class OrderContext:
    """The facts that this node judges orders by."""

    node_id: str
    boot_id: str
    public_key: bytes
    hub: HubRecord
    clock: HubClock
    journal: ActionJournal

    def too_late(self, command: Command) -> Refusal | None:
        return self._clock_unsure() or late(command, self.clock.at(time.monotonic()))

    def _clock_unsure(self) -> Refusal | None:
        doubt = self.clock.doubt(time.monotonic(), time.time())
        return Refusal("skew", doubt) if doubt else None


@dataclass(slots=True)
class ArrivingOrder:
    message: SignedCommand
    node: OrderContext
    decoded: Command | None = None
    recorded: RecordedCommand | None = None  # the order that had this id before

    @property
    def command(self) -> Command:
        assert self.decoded is not None
        return self.decoded

    @property
    def preview(self) -> Preview:
        assert self.command.preview is not None
        return self.command.preview

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.message.body).hexdigest()

    def first_failure(self) -> tuple[Check["ArrivingOrder"], Refusal] | None:
        """Return the first check that fails, and its refusal; None: all hold."""
        return next(((check, refusal) for check in ON_ARRIVAL
                     if self.decoded is None or self.decoded.action in check.actions
                     for refusal in check.refusals(self)), None)


def _schema(order: ArrivingOrder) -> Iterator[Refusal]:
    try:
        order.decoded = decode_command(order.message.body)
    except WireError as error:
        yield Refusal("schema", str(error))


def _signature(order: ArrivingOrder) -> Iterator[Refusal]:
    key, message = order.node.hub.key, order.message
    if key is None or not is_signed(key, command_statement(message.body), message.signature):
        yield Refusal("signature", "the command is not signed by the hub to which this node "
                                   "belongs; nothing was touched")


def _node(order: ArrivingOrder) -> Iterator[Refusal]:
    if order.command.node_id != order.node.node_id:
        yield Refusal("node", "the command is for another node; nothing was touched")


def _journal(order: ArrivingOrder) -> Iterator[Refusal]:
    try:
        order.recorded = order.node.journal.find_command(order.command.command_id)
    except JournalError as why:
        yield Refusal("journal", str(why))


def _other_order(order: ArrivingOrder) -> Iterator[Refusal]:
    if order.recorded is not None and order.recorded.digest not in (order.digest, ""):
        yield Refusal("duplicate", "another command had this id before; nothing was touched")


def _repeated(order: ArrivingOrder) -> Iterator[Refusal]:
    if order.recorded is not None:
        yield Refusal("duplicate", order.recorded.reply.step)


def _epoch(order: ArrivingOrder) -> Iterator[Refusal]:
    command, hub = order.command, order.node.hub
    if command.epoch < hub.epoch:
        yield Refusal("epoch", f"this hub's epoch is {command.epoch}, and this node has heard "
                               f"one of {hub.epoch}: another hub with its key has taken over, or "
                               "this one was restored. Restart it to take over.")


def _in_time(order: ArrivingOrder) -> Iterator[Refusal]:
    if (refusal := order.node.too_late(order.command)) is not None:
        yield refusal


def _preview(order: ArrivingOrder) -> Iterator[Refusal]:
    if order.command.preview is None:
        yield Refusal("schema", "the command carries no preview; nothing was touched")


def _preview_signature(order: ArrivingOrder) -> Iterator[Refusal]:
    if not is_shown_by(order.preview, order.node.node_id, order.node.public_key):
        yield Refusal("signature", "the preview in the command was not made by this node; "
                                   "nothing was touched")


def _preview_agrees(order: ArrivingOrder) -> Iterator[Refusal]:
    command, preview = order.command, order.preview
    if preview.action != command.action or preview.nonce != command.nonce:
        yield Refusal("schema", "command and preview do not agree; nothing was touched")


def _same_boot(order: ArrivingOrder) -> Iterator[Refusal]:
    if order.preview.boot_id != order.node.boot_id:
        yield Refusal("identity", "this machine was restarted after the preview")


def _preview_refusals(order: ArrivingOrder) -> Iterator[Refusal]:
    yield from order.preview.refusals


def _preview_age(order: ArrivingOrder) -> Iterator[Refusal]:
    age_s = time.time() - order.preview.taken_at
    if not -1.0 <= age_s <= PREVIEW_LASTS_S + COMMAND_LASTS_S:
        yield Refusal("stale_preview", "the preview has expired; preview again")


def _preview_unused(order: ArrivingOrder) -> Iterator[Refusal]:
    try:
        if order.node.journal.is_spent(order.command.nonce.hex()):
            yield Refusal("stale_preview", "this preview was used before; preview again")
    except JournalError as why:
        yield Refusal("journal", str(why))


ON_ARRIVAL: tuple[Check[ArrivingOrder], ...] = (
    Check("size and schema", ("schema",), "the order can be read", _schema, ACTIONS, "stray"),
    Check("signature", ("signature",), "the hub of this node signed it", _signature, ACTIONS,
          "stray"),
    Check("node", ("node",), "it is for this node", _node, ACTIONS, "stray"),
    Check("journal", ("journal",), "the journal can be read", _journal, ACTIONS, "not_recorded"),
    Check("id", ("duplicate",), "no other order had its id", _other_order, ACTIONS, "stray"),
    Check("not seen before", (), "it is new; a repeated command gets its first answer again and "
          "is not carried out twice", _repeated, ACTIONS, "repeated"),
    Check("epoch", ("epoch",), "no newer hub has been heard of", _epoch, ACTIONS),
    Check("expiry", ("skew", "expired"), "the hub's time is known, the clocks are at most 5 s "
          f"apart, and the order is not late: it lasts {COMMAND_LASTS_S:.0f} s", _in_time,
          ALL_BUT_HOLD),
    Check("preview", ("schema",), "it carries a preview", _preview, SHOWN_ACTIONS),
    Check("preview's signature", ("signature",), "this node made the preview",
          _preview_signature, SHOWN_ACTIONS),
    Check("preview's action", ("schema",), "order and preview agree on action and nonce",
          _preview_agrees, SHOWN_ACTIONS),
    Check("preview's boot", ("identity",), "the machine has not been restarted since",
          _same_boot, SHOWN_ACTIONS),
    Check("preview's refusals", (), "the preview showed none; the first of them is given",
          _preview_refusals, SHOWN_ACTIONS),
    Check("preview's age", ("stale_preview",), "it was made within the last "
          f"{PREVIEW_LASTS_S + COMMAND_LASTS_S:.0f} s", _preview_age, SHOWN_ACTIONS),
    Check("preview unused", ("stale_preview", "journal"), "no order carried it before",
          _preview_unused, SHOWN_ACTIONS),
)
CHECKS: tuple[Check[Any], ...] = (*ON_ARRIVAL, *targets.HELD_PROCESSES, *guard.CHECKS)
