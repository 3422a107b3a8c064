"""Answers what the hub asks of this node: previews, orders, recalls, inquiries.

Called from the node's own thread, which never waits for it: previews, judgements and actions each
have a thread that exists while there is work. One action is in flight at a time.
"""

import logging
import time

import msgspec

from gpudeck.contract.actions import Recall
from gpudeck.contract.wire import (
    Anchor,
    Clock,
    FromAgent,
    Inquire,
    Look,
    Noted,
    SignedCommand,
    Time,
    WireError,
    decode_from_agent,
    encode,
    preview_statement,
)
from gpudeck.network.keys import SigningKey
from gpudeck.rate import RateLimiter

from ..journal.store import ActionJournal
from ..link.hub_clock import HubClock
from ..runtime.action_lock import ActionLock
from ..runtime.worker import Worker
from . import guard
from .checks import OrderContext
from .context import NodeContext
from .execute import ActionExecutor
from .hub_record import HubRecord
from .judge import CommandJudge
from .kinds.execution import ActionTimeouts
from .preview import preview, refused_preview
from .replies import ReplyOutbox

log = logging.getLogger("gpudeck.agent.actions")

PREVIEWS_MAX = 64
RECALLS_MAX = 1_024
BEGIN_EVERY_S = 5.0
LOG_AT_ONCE, LOG_EVERY_S = 20, 1.0  # of lines that a hub can cause


class CommandService:
    def __init__(self, key: SigningKey, lock: ActionLock, context: NodeContext,
                 journal: ActionJournal, hub: HubRecord, replies: ReplyOutbox, keeps_anchors: bool,
                 timeouts: ActionTimeouts) -> None:
        self._key = key
        self._keeps_anchors = keeps_anchors
        self._context = context
        self._hub = hub
        self._replies = replies
        self._clock = HubClock()
        self._recalled: dict[str, str] = {}  # why, by command
        node = OrderContext(context.node.node_id, context.node.boot_id, key.public, hub,
                            self._clock, journal)
        executor = ActionExecutor(context, journal, replies.reply, timeouts, self._recalled.get)
        self._judge = CommandJudge(node, replies, executor, lock)
        self._previews = Worker("looks", PREVIEWS_MAX)
        self._judging = Worker("judge")
        self._clerk = Worker("clerk")  # nobody who holds or commands waits for its disk
        self._begins_at = 0.0
        self._log_pace = RateLimiter(LOG_AT_ONCE, LOG_EVERY_S)

    def connected(self, epoch: int, now: float) -> None:
        self._clock.connected(now)
        self._replies.connected(now)
        if epoch < self._hub.epoch:
            log.warning("older_hub epoch=%d seen=%d; its commands are refused", epoch,
                        self._hub.epoch)
        self._judging.put(lambda: self._hub.observe_epoch(epoch))

    # messages of the hub

    def set_time(self, message: Time, now: float) -> None:
        self._clock.receive(message.clock_id, message.hub_at, now)

    def look(self, message: Look) -> None:
        if not self._previews.put(lambda: self._preview(message)):
            self._log_dropped(message)

    def judge(self, message: SignedCommand) -> None:
        self._judging.put(lambda: self._judge.judge(message))

    def recall(self, message: Recall) -> None:
        """Record it. It counts from the moment it arrives, before any disk is asked: it can only
        stop."""
        while len(self._recalled) >= RECALLS_MAX:
            del self._recalled[next(iter(self._recalled))]
        self._recalled[message.command_id] = message.why
        if self._log_pace.may("recalled", time.monotonic()):
            log.info("recalled command=%s why=%r", message.command_id, message.why)

    def inquire(self, message: Inquire) -> None:
        self._clerk.put(lambda: self._replies.answer(message.command_ids))

    def acknowledge(self, message: Noted) -> None:
        self._replies.acknowledge(message)
        self._clerk.put(lambda: self._replies.store_noted(message))

    def store_anchor(self, message: Anchor) -> None:
        if self._keeps_anchors:
            self._clerk.put(lambda: self._hub.store_anchor(message))

    # messages to the hub

    def say(self, now: float) -> list[FromAgent]:
        """Return what is to be sent over a live connection."""
        if not self._hub.has_begun and now >= self._begins_at:
            self._begins_at = now + BEGIN_EVERY_S
            self._clerk.put(self._hub.begin)
        if self._replies.is_due(now):
            self._clerk.put(self._replies.resend)
        messages = self._replies.pop_all()
        if (clock_id := self._clock.ask(now)) is not None:
            messages.append(Clock(clock_id))
        return messages

    def next_at(self) -> float:
        return min(self._clock.due_at(), self._replies.resend_at())

    @property
    def is_idle(self) -> bool:
        """True while nothing is judged or done."""
        return self._judging.is_idle and self._judge.acting.is_idle

    def close(self) -> None:
        """Close. An action in flight is not waited for long: its INTENT is on disk."""
        for worker in (self._previews, self._judging, self._clerk, self._judge.acting):
            worker.close()

    def _log_dropped(self, look: Look) -> None:
        if self._log_pace.may("dropped", time.monotonic()):
            log.warning("look_dropped ask=%s; too many at once", look.ask_id)

    def _preview(self, look: Look) -> None:
        try:
            answer = preview(self._context, look)
            decode_from_agent(encode(answer))  # what the hub would refuse must not break the link
        except (OSError, UnicodeError, WireError) as error:
            log.warning("look_failed task=%s why=%r", look.task_id, str(error))
            answer = refused_preview(self._context, look,
                                     guard.unreadable_refusal(str(error)[:200]))
        answer = msgspec.structs.replace(answer, key=self._key.public)
        signature = self._key.sign(preview_statement(answer))
        self._replies.send(msgspec.structs.replace(answer, signature=signature))
