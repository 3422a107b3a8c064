"""Judges the orders of the hub: runs the checks on arrival, records the first answer, queues."""

import logging
from dataclasses import dataclass

from gpudeck.actions import HELD_BY_HUB, Command, Refusal
from gpudeck.wire import SignedCommand

from ..journal.store import JournalError
from .checks import ArrivingOrder, OrderContext
from .guard import Check
from .queue import WAITING_MAX, CommandQueue
from .replies import ReplyOutbox, first_reply, refused_state

log = logging.getLogger("gpudeck.agent.act")


@dataclass(frozen=True, slots=True)
class CommandJudge:
    """On one thread: what is judged sees all that was accepted before it."""

    node: OrderContext
    replies: ReplyOutbox
    queue: CommandQueue

    def judge(self, message: SignedCommand) -> None:
        self.node.hub.begin()
        order = ArrivingOrder(message, self.node)
        failed = order.failed()
        if failed is not None:
            self._reject(order, *failed)
        elif order.command.action in ("hold", "release"):
            self._hold_or_release(order.command, order.digest)
        else:
            self._accept(order.command, order.digest)

    def _reject(self, order: ArrivingOrder, check: Check[ArrivingOrder], refusal: Refusal) -> None:
        match check.consequence:
            case "stray":
                self._reject_stray(order.decoded, refusal)
            case "not_recorded":
                self._send_refused(order.command, refusal)
            case "repeated":
                assert order.known is not None
                self.replies.reply(order.known.reply)
            case "refused":
                self._refuse(order.command, order.digest, refusal)

    def _reject_stray(self, command: Command | None, refusal: Refusal) -> None:
        command_id = "" if command is None else command.command_id
        log.warning("stray_command code=%s command=%s", refusal.code, command_id)
        try:
            self.node.journal.audit.record({
                "kind": "stray", "code": refusal.code, "sentence": refusal.sentence[:500],
                "command_id": command_id})
        except JournalError as why:
            log.error("stray_not_recorded why=%r", str(why))
        if command is not None:
            self._send_refused(command, refusal)

    def _send_refused(self, command: Command, refusal: Refusal) -> None:
        self.replies.send(first_reply(command, "refused", refusal))

    def _refuse(self, command: Command, digest: str, refusal: Refusal) -> None:
        first = first_reply(command, refused_state(refusal), refusal)
        try:
            self.replies.reply(self.node.journal.seen(command, digest, first))
        except JournalError as why:
            log.error("refusal_not_recorded command=%s why=%r", command.command_id, str(why))
            self.replies.send(first)

    def _accept(self, command: Command, digest: str) -> None:
        try:
            self.node.hub.store_epoch(command.epoch)
            reply = self.node.journal.seen(command, digest, first_reply(command, "accepted"))
        except JournalError as why:
            self._send_refused(command, Refusal("journal", str(why)))
            return
        self.replies.reply(reply)
        if not self.queue.put(command, reply):
            self.queue.refuse(command, reply, Refusal(
                "busy", f"{WAITING_MAX} commands wait on this node already; nothing was touched"))

    def _hold_or_release(self, command: Command, digest: str) -> None:
        hub, is_hold = self.node.hub, command.action == "hold"
        hold = f"{HELD_BY_HUB}{command.asker.name}: {command.reason}"[:1_024]
        if is_hold:
            hub.hold_now(hold)
        try:
            hub.store_epoch(command.epoch)
            hub.store_hold(hold if is_hold else None)
            reply = self.node.journal.seen(command, digest, first_reply(command, "done"))
        except JournalError as why:
            self._send_refused(command, Refusal("journal", str(why)))
            return
        if not is_hold:
            hub.release_now()
        self.replies.reply(reply)
        log.info("%s by=%s reason=%r", command.action, command.asker.name, command.reason)
