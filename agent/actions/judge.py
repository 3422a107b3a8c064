"""The orders of the hub: runs the checks on arrival, records the first answer, and executes one
order at a time; the others wait until they expire."""

import logging
import time
from dataclasses import dataclass, field

from gpudeck.contract.actions import HELD_BY_HUB, Command, Refusal, Reply
from gpudeck.contract.wire import SignedCommand
from gpudeck.rate import REFUSALS_AT_ONCE, REFUSALS_EVERY_S, RateLimiter

from ..journal.store import JournalError
from ..runtime.action_lock import ActionLock
from ..runtime.worker import Worker
from .checks import ArrivingOrder, OrderContext
from .execute import ActionExecutor
from .guard import Check
from .replies import ReplyOutbox, first_reply, refused_state

log = logging.getLogger("gpudeck.agent.actions")

WAITING_MAX = 32


@dataclass(frozen=True, slots=True)
class CommandJudge:
    """Judges on one thread, so that each order sees all that was accepted before it; acts on
    another one."""

    node: OrderContext
    replies: ReplyOutbox
    executor: ActionExecutor
    lock: ActionLock
    acting: Worker = field(default_factory=lambda: Worker("hand", WAITING_MAX))
    strays: RateLimiter = field(
        default_factory=lambda: RateLimiter(REFUSALS_AT_ONCE, REFUSALS_EVERY_S))

    def judge(self, message: SignedCommand) -> None:
        self.node.hub.begin()
        order = ArrivingOrder(message, self.node)
        failure = order.first_failure()
        if failure is not None:
            self._reject(order, *failure)
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
                assert order.recorded is not None
                self.replies.reply(order.recorded.reply)
            case "refused":
                self._refuse(order.command, order.digest, refusal)

    def _reject_stray(self, command: Command | None, refusal: Refusal) -> None:
        left_out = self.strays.due("stray", time.monotonic())
        if left_out is not None:
            self._record_stray("" if command is None else command.command_id, refusal,
                               left_out + 1)
        if command is not None:
            self._send_refused(command, refusal)

    def _record_stray(self, command_id: str, refusal: Refusal, count: int) -> None:
        log.warning("stray_command code=%s command=%s count=%d", refusal.code, command_id, count)
        try:
            self.node.journal.audit.record({
                "kind": "stray", "code": refusal.code, "sentence": refusal.sentence[:500],
                "command_id": command_id, "count": count})
        except JournalError as why:
            log.error("stray_not_recorded why=%r", str(why))

    def _send_refused(self, command: Command, refusal: Refusal) -> None:
        self.replies.send(first_reply(command, "refused", refusal))

    def _refuse(self, command: Command, digest: str, refusal: Refusal) -> None:
        first = first_reply(command, refused_state(refusal), refusal)
        try:
            self.replies.reply(self.node.journal.record_first(command, digest, first))
        except JournalError as why:
            log.error("refusal_not_recorded command=%s why=%r", command.command_id, str(why))
            self.replies.send(first)

    def _hold_or_release(self, command: Command, digest: str) -> None:
        hub, is_hold = self.node.hub, command.action == "hold"
        hold = f"{HELD_BY_HUB}{command.asker.name}: {command.reason}"[:1_024]
        if is_hold:
            hub.hold_now(hold)
        try:
            hub.store_epoch(command.epoch)
            hub.store_hold(hold if is_hold else None)
            reply = self.node.journal.record_first(command, digest, first_reply(command, "done"))
        except JournalError as why:
            self._send_refused(command, Refusal("journal", str(why)))
            return
        if not is_hold:
            hub.release_now()
        self.replies.reply(reply)
        log.info("%s by=%s reason=%r", command.action, command.asker.name, command.reason)

    def _accept(self, command: Command, digest: str) -> None:
        try:
            self.node.hub.store_epoch(command.epoch)
            reply = self.node.journal.record_first(
                command, digest, first_reply(command, "accepted"))
        except JournalError as why:
            self._send_refused(command, Refusal("journal", str(why)))
            return
        self.replies.reply(reply)
        if not self.acting.put(lambda: self._act(command, reply)):
            self.executor.refuse(command, reply, Refusal(
                "busy", f"{WAITING_MAX} commands wait on this node already; nothing was touched"))

    def _act(self, command: Command, accepted: Reply) -> None:
        if not self._is_alone(command, accepted):
            return
        try:
            if (late := self.node.too_late(command)) is not None:
                self.executor.refuse(command, accepted, late)
                return
            self.executor.act(command, accepted)
        finally:
            self.lock.free()

    def _is_alone(self, command: Command, accepted: Reply) -> bool:
        """Wait for the lock: `gpudeck end` on this very node may be at work."""
        try:
            while not self.lock.take(0.5):
                if (late := self.node.too_late(command)) is not None:
                    self.executor.refuse(command, accepted, Refusal(
                        "busy", "another action was in progress on this node until this command "
                                "expired; nothing was touched"), refused_state(late))
                    return False
        except OSError as error:
            self.executor.refuse(command, accepted, Refusal(
                "journal", f"the agent's data folder cannot be used ({error.strerror}); nothing "
                           "was touched"))
            return False
        return True
